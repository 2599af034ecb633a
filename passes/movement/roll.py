"""Circular shift, all of `torch.roll`.

Exporters and converters get it wrong in the same places: a shift larger than the axis (returned unshifted), an axis
that is shorter than the shift or empty only at run time, repeated axes, and no axes at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Ints, Value

#: From this many bytes to a row on, a Gather of rows beats two Slices and a Concat.  Measured (benchmarks/roll.py), the
#: ratio of Gather to slices is on one axis 6-7 at 4 bytes, 1.1-1.3 at 32, 0.8-1.0 at 64, 0.7-0.8 at 128, 0.6 from
#: 256 on; on two axes merged into one: 0.7-1.2 at 32, 0.5-0.7 at 64, 0.3-0.5 at 384.  Blocks of the last axis behave as
#: rows do.
_GATHER_ROW_BYTES = 64
#: Larger tables of indices would weigh more in the file than the operator that they save.
_GATHER_MAX_ROWS = 1 << 16
#: The largest number that an operator can be given, and so can its negative.
_LARGEST = (1 << 63) - 1
_TORCH_MIN = -(1 << 62)

_MOVED = (
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
)


class Roll(Placeholder):
    """Circular shift of `x` by `shifts` along `dims`; without `dims`, of `x` laid out flat."""

    matches = ("Roll", "MyRoll", "RollFunction", "aten::roll")
    shapes = "x: ...; shifts: _ | ()"
    aliases = {"shift": "shifts", "dim": "dims", "axis": "dims", "axes": "dims"}  # noqa: RUF012
    dtypes = _MOVED
    # Data is moved, never computed.
    tolerances = dict.fromkeys(_MOVED, (0.0, 0.0))

    def reference(self, x: Any, shifts: Any, dims: Any = ()) -> Any:
        import torch

        if isinstance(shifts, torch.Tensor):
            shifts = shifts.reshape(-1).tolist()
        # torch reads no int below −2^62, and its backward negates; what is left after whole turns means the same.
        sizes = [x.shape[d] for d in dims] if x.ndim and len(dims) else [x.numel()] * len(shifts)
        if any(abs(s) > -_TORCH_MIN for s in shifts) and len(sizes) == len(shifts):
            shifts = [s % max(size, 1) for s, size in zip(shifts, sizes, strict=True)]
        return torch.roll(x, tuple(shifts), tuple(dims))

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    @decomposition(
        when=lambda x, shifts, dims: _gather_pays(x, shifts, dims),
        requires=lambda x, shifts, dims: _merged(x, shifts, dims) is not None,
        reason="rows are long enough for one Gather over the merged axes",
    )
    def one_gather(self, g: Builder, x: Value, shifts: Ints | Value, dims: Ints = ()) -> Value:
        plan = _merged(x, shifts, dims)
        assert plan is not None
        rows = _rolled_rows(plan.run, plan.moves)
        if len(plan.run) == 1:
            return g.gather(x, rows, axis=plan.first)
        # 0 keeps the size of a leading axis, whatever it is at run time.
        leading = [d if isinstance(d, int) else 0 for d in x.shape[: plan.first]]
        table = g.reshape_keeping(x, [*leading, len(rows), *plan.row])
        moved = g.gather(table, rows, axis=plan.first)
        return g.reshape_keeping(moved, [*leading, *[int(d or 0) for d in x.shape[plan.first :]]])

    @decomposition(requires=lambda shifts, **_: isinstance(shifts, tuple))
    def slices(self, g: Builder, x: Value, shifts: Ints | Value, dims: Ints = ()) -> Value:
        if 0 in x.shape:
            return x
        if not dims:
            return _roll_flat(g, x, _single(g, shifts))
        for axis, shift in _moves(g, x, shifts, dims):
            x = _roll_axis(g, x, shift, axis)
        return x

    @decomposition(
        # tract plans a Slice whose ends are computed with sizes of its own invention, and then refuses it.
        portable=False,
        requires=lambda shifts, **_: not isinstance(shifts, tuple),
    )
    def computed_slices(self, g: Builder, x: Value, shifts: Ints | Value, dims: Ints = ()) -> Value:
        if not dims:
            return _roll_flat(g, x, _single(g, shifts))
        for axis, shift in _moves(g, x, shifts, dims):
            x = _roll_axis(g, x, shift, axis)
        return x

    @decomposition(requires=lambda shifts, **_: not isinstance(shifts, tuple))
    def computed_gather(self, g: Builder, x: Value, shifts: Ints | Value, dims: Ints = ()) -> Value:
        if 0 in x.shape:
            return x
        if not dims:
            return _gather_flat(g, x, _single(g, shifts))
        for axis, shift in _moves(g, x, shifts, dims):
            x = _gather_axis(g, x, shift, axis)
        return x

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 8), shifts=[1], dims=[1])
        yield Case(f32(2, 3, 8), shifts=[1, -2], dims=[-1, 1])
        # Swin's: two axes of a channels-last tensor.
        yield Case(f32(2, 4, 6, 32), shifts=[-2, -3], dims=[1, 2])
        yield Case(f32(2, 4, 6, 32), shifts=[1, 1], dims=[1, 3])
        yield Case(f32(2, 3, 2, 32), shifts=[1, 1], dims=[1, -2])
        yield Case(f32(5, 40), shifts=[2], dims=[0])
        # The last axis in blocks of 16; H and W of NCHW, one of which has long rows.
        yield Case(f32(3, 96), shifts=[32], dims=[1])
        yield Case(f32(2, 3, 48), shifts=[1, -16], dims=[1, 2])
        yield Case(f32(1, 2, 5, 33), shifts=[2, -4], dims=[2, 3])
        # Larger than the axis, on either side; a multiple of it; none.
        for shift in (3, 7, -7, 10_000, -10_000, 0, 6, -(1 << 63)):
            yield Case(f32(2, 3), shifts=[shift], dims=[1])
        # The same axis twice: the shifts add up.
        yield Case(f32(4, 5), shifts=[1, 2], dims=[1, 1])
        yield Case(f32(4, 5), shifts=[1, -3, 2], dims=[0, -1, -2])
        yield Case(f32(4, 5), shifts=[_LARGEST, _LARGEST], dims=[1, 1])
        # No axes: flat.
        yield Case(f32(2, 3, 4), shifts=[5])
        yield Case(f32(7), shifts=[-2])
        yield Case(f32(3, 4), shifts=[1000], dims=[])
        yield Case(f32(), shifts=[3])
        # Empty, and of size 1.
        yield Case(f32(0, 3), shifts=[1], dims=[1])
        yield Case(f32(3, 0), shifts=[1], dims=[1])
        yield Case(f32(2, 0, 3), shifts=[4])
        yield Case(f32(1, 1), shifts=[1, 1], dims=[0, 1])
        # Shifts that are computed.
        yield Case(f32(4, 5), i64(1, value=(2,)), dims=[1])
        yield Case(f32(4, 5), i64(2, value=(-7, 12)), dims=[0, 1])
        yield Case(f32(4, 5), i64(value=3), dims=[0])
        yield Case(f32(4, 0, 5), i64(2, value=(1, 1)), dims=[1, 2])
        yield Case(f32(2, 3), i64(1, value=(4,)))


def _static_moves(x: Value, shifts: Ints | Value, dims: Ints) -> dict[int, int] | None:
    """Total shift by axis, from 0 to size − 1, where everything is known; None where it is not, or flat."""
    if not isinstance(shifts, tuple) or not dims or len(shifts) != len(dims):
        return None
    moves: dict[int, int] = {}
    for shift, dim in zip(shifts, dims, strict=True):
        if not -x.rank <= dim < x.rank:
            return None
        axis = dim % x.rank
        size = x.size(axis)
        if size is None:
            return None
        moves[axis] = (moves.get(axis, 0) + shift) % size if size else 0
    return {axis: shift for axis, shift in moves.items() if shift}


@dataclass(frozen=True)
class _Plan:
    """One Gather: axes from ``first`` on, cut into ``run``, over which it goes, and ``row``, which it moves whole."""

    first: int
    run: tuple[int, ...]
    row: tuple[int, ...]
    #: Shift by position in ``run``.
    moves: dict[int, int]


def _merged(x: Value, shifts: Ints | Value, dims: Ints) -> _Plan | None:
    """One run of axes that holds every rolled one, where it can be merged into a single axis."""
    moves = _static_moves(x, shifts, dims)
    if not moves or 0 in x.shape:
        return None
    first, last = min(moves), max(moves)
    if not all(isinstance(d, int) and d > 0 for d in x.shape[first : last + 1]):
        return None
    run = [int(d or 0) for d in x.shape[first : last + 1]]
    trailing = x.shape[last + 1 :]
    known = all(isinstance(d, int) and d > 0 for d in trailing)
    row = [int(d or 0) for d in trailing] if known else []
    within = {axis - first: shift for axis, shift in moves.items()}
    block = math.gcd(run[-1], within[last - first])
    if known and block > 1 and math.prod(row) * _itemsize(x) < _GATHER_ROW_BYTES:
        # Rows are short: what the size and the shift of the last rolled axis have in common makes longer ones.
        run[-1] //= block
        within[last - first] //= block
        row.insert(0, block)
    cut = first != last or len(row) > len(trailing)
    if cut and not known:
        return None
    if math.prod(run) > _GATHER_MAX_ROWS:
        return None
    if not cut:
        return _Plan(first, (run[0],), tuple(row), within)
    # Two axes at least, so that the caller sees that it must merge them.
    return _Plan(first, tuple(run) if len(run) > 1 else (run[0], 1), tuple(row), within)


def _itemsize(x: Value) -> int:
    return int(np.dtype(helper.tensor_dtype_to_np_dtype(x.dtype)).itemsize)


def _row_bytes(x: Value, axis: int) -> int:
    """Bytes of a row along ``axis``; 0 where they are not known."""
    row = x.shape[axis + 1 :]
    return math.prod(int(d or 0) for d in row) * _itemsize(x) if all(isinstance(d, int) for d in row) else 0


def _gather_pays(x: Value, shifts: Ints | Value, dims: Ints) -> bool:
    plan = _merged(x, shifts, dims)
    if plan is None:
        return False
    last = plan.first + max(plan.moves)
    known = all(isinstance(d, int) for d in x.shape[last + 1 :])
    return known and math.prod(plan.row) * _itemsize(x) >= _GATHER_ROW_BYTES


def _rolled_rows(sizes: tuple[int, ...], moves: dict[int, int]) -> list[int]:
    """Where each row of the merged axes comes from."""
    rows = np.arange(math.prod(sizes), dtype=np.int64).reshape(sizes)
    for axis, shift in moves.items():
        rows = np.roll(rows, shift, axis=axis)
    return [int(row) for row in rows.reshape(-1)]


def _moves(g: Builder, x: Value, shifts: Ints | Value, dims: Ints) -> list[tuple[int, int | Value]]:
    """Axis and shift of each roll to make; those along one axis are added up where they are known."""
    for dim in dims:
        if not -x.rank <= dim < max(x.rank, 1):
            raise UnsupportedParameter(f"dim {dim} is outside a tensor of rank {x.rank}", where=g.where)
    axes = [dim % max(x.rank, 1) for dim in dims]
    if isinstance(shifts, tuple):
        if len(shifts) != len(dims):
            raise UnsupportedParameter(f"{len(shifts)} shifts are given for {len(dims)} dims", where=g.where)
        total: dict[int, int] = {}
        for axis, shift in zip(axes, shifts, strict=True):
            total[axis] = total.get(axis, 0) + shift
        return list(total.items())
    count = shifts.size(0) if shifts.has_rank and shifts.rank == 1 else 1 if shifts.has_rank else None
    if count is not None and count != len(dims):
        raise UnsupportedParameter(f"{count} shifts are given for {len(dims)} dims", where=g.where)
    flat = g.cast(g.flatten(shifts), TensorProto.INT64)
    if len(dims) == 1:
        return [(axes[0], flat)]
    return [(axis, g.gather(flat, [i], axis=0)) for i, axis in enumerate(axes)]


def _single(g: Builder, shifts: Ints | Value) -> int | Value:
    if not isinstance(shifts, tuple):
        return g.cast(g.flatten(shifts), TensorProto.INT64)
    if len(shifts) != 1:
        raise UnsupportedParameter(
            f"{len(shifts)} shifts are given and no dims; flat, there is one", where=g.where
        )
    return shifts[0]


def _roll_axis(g: Builder, x: Value, shift: int | Value, axis: int) -> Value:
    """``x`` rolled along one axis: what wraps around, then the rest."""
    size = g.dim(x, axis) if x.rank else 1
    if isinstance(size, int) and size <= 1:
        return x
    if isinstance(shift, int):
        if isinstance(size, int):
            shift %= size
        if shift == 0:
            return x
        if not isinstance(size, int) and shift == 1:
            # Right for every length, 0 and 1 included, without arithmetic on it; so is −1 below.
            return _swap(g, x, axis, tail=([-1], [np.iinfo(np.int64).max]), head=([0], [-1]))
        if not isinstance(size, int) and shift == -1:
            return _swap(g, x, axis, tail=([1], [np.iinfo(np.int64).max]), head=([0], [1]))
        if not isinstance(size, int) and abs(shift) > _LARGEST:
            # No int64 holds it, or its negative: as much as one does, then the rest.
            most = _LARGEST if shift > 0 else -_LARGEST
            return _roll_axis(g, _roll_axis(g, x, most, axis), shift - most, axis)
    if isinstance(size, int) and isinstance(shift, int):
        cut = size - shift
        if size <= _GATHER_MAX_ROWS and _row_bytes(x, axis) >= _GATHER_ROW_BYTES:
            return g.gather(x, _rolled_rows((size,), {0: shift}), axis=axis)
        return _swap(g, x, axis, tail=([cut], [size]), head=([0], [cut]))
    # The axis may be empty or shorter than the shift at run time.
    end = _as_value(g, size)
    divisor = _not_zero(g, size)
    if isinstance(shift, int) and shift < 0:
        # Runtimes disagree on Mod of negative numbers: to the left, what remains of |shift| is where to cut.
        cut_at = g.mod(g.ints([-shift]), divisor)
    else:
        cut_at = end - g.mod(shift if not isinstance(shift, int) else g.ints([shift]), divisor)
    return _swap(g, x, axis, tail=(cut_at, end), head=(g.ints([0]), cut_at))


def _swap(g: Builder, x: Value, axis: int, tail: tuple[Any, Any], head: tuple[Any, Any]) -> Value:
    parts = [g.slice(x, start, end, [axis]) for start, end in (tail, head)]
    return g.retyped(g.concat(parts, axis=axis), x.shape)


def _roll_flat(g: Builder, x: Value, shift: int | Value) -> Value:
    if x.rank == 1:
        return _roll_axis(g, x, shift, 0)
    if x.rank == 0 or (isinstance(shift, int) and shift == 0):
        return x
    if x.is_static:
        total = math.prod(int(d or 0) for d in x.shape)
        if total <= 1 or (isinstance(shift, int) and shift % total == 0):
            return x
    symbolic = sum(1 for d in x.shape if not isinstance(d, int))
    if g.opset < 14 and (symbolic > 1 or (symbolic and 0 in x.shape)):
        # Reshape cannot write a size of 0 there, and any of these may be 0.
        return _gather_flat(g, x, shift)
    rolled = _roll_axis(g, g.flatten(x), shift, 0)
    if symbolic > 1:
        return g.retyped(g.op("Reshape", rolled, g.shape(x), allowzero=1), x.shape)
    return g.reshape(rolled, [g.dim(x, i) for i in range(x.rank)])


def _gather_axis(g: Builder, x: Value, shift: int | Value, axis: int) -> Value:
    """``x`` rolled along one axis by indices that are computed."""
    if x.rank == 0:
        return x
    size = g.dim(x, axis)
    length = _as_value(g, size)
    position = g.ints(range(size)) if isinstance(size, int) else g.range(0, g.squeeze(length, [0]))
    return g.retyped(g.gather(x, _moved(g, position, shift, length), axis=axis), x.shape)


def _gather_flat(g: Builder, x: Value, shift: int | Value) -> Value:
    """Flat roll by indices in the shape of ``x``: no Reshape back, so any size may turn out to be 0."""
    if x.rank == 0:
        return x
    dims = [g.dim(x, i) for i in range(x.rank)]
    count = _as_value(g, g.product(dims))
    position: Value | None = None
    for axis in reversed(range(x.rank)):
        size = _as_value(g, dims[axis])
        along = g.range(0, g.squeeze(size, [0]))
        term = g.unsqueeze(along, list(range(1, x.rank - axis)))
        if axis < x.rank - 1:
            term = term * _as_value(g, g.product(dims[axis + 1 :]))
        position = term if position is None else position + term
    assert position is not None
    return g.retyped(g.gather(g.flatten(x), _moved(g, position, shift, count), axis=0), x.shape)


def _moved(g: Builder, position: Value, shift: int | Value, length: Value) -> Value:
    """Where the element at ``position`` comes from.

    Right whether a runtime's Mod takes the sign of the divisor or of the dividend: the outer one is of a number ≥ 0.
    """
    divisor = _not_zero(g, length)
    offset = length - g.mod(_as_value(g, shift), divisor)
    return g.mod(position + offset, divisor)


def _not_zero(g: Builder, size: int | Value) -> Value:
    """A size to divide by: an axis may be empty at run time, and Mod by zero raises."""
    if isinstance(size, int):
        return g.ints([size])
    return size + g.cast(g.equal(size, 0), TensorProto.INT64)


def _as_value(g: Builder, size: int | Value) -> Value:
    return g.ints([size]) if isinstance(size, int) else size
