"""Reversal of axes, and rotation by quarter turns, which is one reversal or two and a Transpose."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from passes.movement._data import EXACT, LONG_ROW_BYTES, MOVED, axis_of, by_signed, known, row_bytes
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rewriter.placeholder import Builder, Ints, Value

#: A reversed Slice ends before the first element, which only this number says to every runtime.
_BEFORE_FIRST = np.iinfo(np.int64).min
#: Larger tables of indices would weigh more in the file than the operator that they save.
_MOST_ROWS = 1 << 16
#: From this many rows in front of the reversed axes on, Gather between two Transposes beats a reversed Slice.
_MANY_OUTER = 16


class Flip(Placeholder):
    """`x` with the order of the elements of `dims` reversed; the meaning of `torch.flip`."""

    matches = ("Flip", "aten::flip")
    shapes = "x: ..."
    aliases = {"dim": "dims", "axis": "dims", "axes": "dims"}  # noqa: RUF012
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, dims: Any) -> Any:
        import torch

        return by_signed(x, lambda data: torch.flip(data, tuple(dims)))

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    @decomposition(
        when=lambda x, dims: _long_rows(x, dims),
        requires=lambda x, dims: _run_of(x, dims) is not None,
        reason="rows are long enough for one Gather over the merged axes",
    )
    def one_gather(self, g: Builder, x: Value, dims: Ints) -> Value:
        return _by_gather(g, x, _axes(g, x, dims))

    @decomposition(
        when=lambda x, dims: _outer(x, dims) >= _MANY_OUTER,
        requires=lambda x, dims: _outer(x, dims) > 0,
        reason="rows between two Transposes: a half to a third of a reversed Slice",
    )
    def transposed(self, g: Builder, x: Value, dims: Ints) -> Value:
        return _between_transposes(g, x, _axes(g, x, dims))

    @decomposition()
    def reversed_slice(self, g: Builder, x: Value, dims: Ints) -> Value:
        return _by_slice(g, x, _axes(g, x, dims))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 4), dims=[2])
        yield Case(f32(2, 3, 4), dims=[0, -1])
        yield Case(f32(2, 3, 4, 32), dims=[1, 2])
        yield Case(f32(2, 3, 4, 32), dims=[-3, 0])
        yield Case(f32(5, 40), dims=[0])
        yield Case(f32(4, 4, 3), dims=[-1])
        yield Case(f32(2, 8, 2, 3), dims=[3, 2])
        yield Case(f32(2, 3), dims=[])
        yield Case(f32(), dims=[])
        yield Case(f32(1, 1), dims=[0, 1])
        yield Case(f32(0, 3), dims=[0, 1])
        yield Case(f32(3, 0), dims=[0])
        yield Case(f32(4, value=(float("inf"), float("nan"), -0.0, 1.0)), dims=[0], dtypes=("float32",))


class Rot90(Placeholder):
    """`x` turned by `k` quarter turns from the first of `dims` to the second; the meaning of `torch.rot90`."""

    matches = ("Rot90", "aten::rot90")
    shapes = "x: ... _ _"
    aliases = {"axes": "dims"}  # noqa: RUF012
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, k: int = 1, dims: Any = (0, 1)) -> Any:
        import torch

        return by_signed(x, lambda data: torch.rot90(data, k, tuple(dims)))

    def infer(self, x: Value, k: int = 1, dims: Ints = (0, 1)) -> Any:
        if x.type is None or x.type.shape is None:
            return None
        shape = list(x.type.shape)
        if k % 2 and len(dims) == 2 and all(-x.rank <= d < x.rank for d in dims):
            a, b = dims
            shape[a], shape[b] = shape[b], shape[a]
        return x.type.with_shape(tuple(shape))

    def decompose(self, g: Builder, x: Value, k: int = 1, dims: Ints = (0, 1)) -> Value:
        if len(dims) != 2 or len({axis_of(g, d, x.rank, "dims") for d in dims}) != 2:
            raise UnsupportedParameter(
                f"dims are {list(dims)}", where=g.where, remedy="a turn takes two axes that differ"
            )
        first, second = (d % x.rank for d in dims)
        order = list(range(x.rank))
        order[first], order[second] = second, first
        turns = k % 4
        if turns == 0:
            return x
        if turns == 2:
            return _flip(g, x, sorted((first, second)))
        # Of the two axes the outer one is reversed, before the Transpose or behind it: whole rows move.
        flipped_before = second if turns == 1 else first
        if flipped_before < max(first, second):
            return g.transpose(_flip(g, x, [flipped_before]), order)
        return _flip(g, g.transpose(x, order), [order[flipped_before]])

    def cases(self) -> Iterator[Case]:
        for k in (1, 2, 3, 0, -1, 5):
            yield Case(f32(2, 3), k=k)
        yield Case(f32(2, 3, 4), k=1, dims=[1, 2])
        yield Case(f32(2, 3, 4), k=1, dims=[-1, 0])
        yield Case(f32(2, 3, 4, 32), k=3, dims=[1, 2])
        yield Case(f32(2, 3, 4, 32), k=2, dims=[2, 1])
        yield Case(f32(2, 0), k=1)
        yield Case(f32(1, 1), k=3)
        yield Case(f32(2, 2, value=(float("inf"), float("nan"), -0.0, 1.0)), k=1, dtypes=("float32",))


def _flip(g: Builder, x: Value, axes: list[int]) -> Value:
    if _long_rows(x, axes):
        return _by_gather(g, x, axes)
    if _outer(x, axes) >= _MANY_OUTER:
        return _between_transposes(g, x, axes)
    return _by_slice(g, x, axes)


def _axes(g: Builder, x: Value, dims: Ints) -> list[int]:
    axes = [axis_of(g, dim, max(x.rank, 1), "dims") for dim in dims]
    if len(set(axes)) != len(axes):
        raise UnsupportedParameter(f"dims {list(dims)} name an axis twice", where=g.where)
    return sorted(axes)


def _run_of(x: Value, dims: Sequence[int]) -> tuple[int, int] | None:
    """First and last of one run of axes of known sizes that holds every reversed one, to be merged into one axis."""
    if not dims or not x.rank or not all(-x.rank <= d < x.rank for d in dims):
        return None
    axes = [d % x.rank for d in dims]
    first, last = min(axes), max(axes)
    run = known(x.shape[first : last + 1])
    if run is None or 0 in x.shape or math.prod(run) > _MOST_ROWS:
        return None
    if first != last and known(x.shape[last + 1 :]) is None:
        return None
    return first, last


def _long_rows(x: Value, dims: Sequence[int]) -> bool:
    run = _run_of(x, dims)
    return run is not None and row_bytes(x, run[1]) >= LONG_ROW_BYTES


def _by_gather(g: Builder, x: Value, axes: list[int]) -> Value:
    first, last = axes[0], axes[-1]
    sizes = [int(d or 0) for d in x.shape[first : last + 1]]
    rows = np.arange(math.prod(sizes)).reshape(sizes)
    indices = [int(i) for i in np.flip(rows, tuple(axis - first for axis in axes)).reshape(-1)]
    if first == last:
        return g.gather(x, indices, axis=first)
    # 0 keeps the size of a leading axis, whatever it is at run time.
    leading = [d if isinstance(d, int) else 0 for d in x.shape[:first]]
    trailing = [int(d or 0) for d in x.shape[last + 1 :]]
    table = g.reshape_keeping(x, [*leading, len(indices), *trailing])
    return g.reshape_keeping(g.gather(table, indices, axis=first), [*leading, *sizes, *trailing])


def _by_slice(g: Builder, x: Value, axes: list[int]) -> Value:
    # Runtimes disagree about the reversed Slice of an empty axis.
    axes = [axis for axis in axes if x.rank and x.size(axis) not in (0, 1)]
    if not axes:
        return x
    starts = [-1] * len(axes)
    return g.retyped(g.slice(x, starts, [_BEFORE_FIRST] * len(axes), axes, [-1] * len(axes)), x.shape)


def _outer(x: Value, dims: Sequence[int]) -> int:
    """How many rows there are in front of the reversed axes, where these are the last ones, all of them; else 0."""
    sizes = known(x.shape)
    run = _run_of(x, dims)
    if sizes is None or run is None:
        return 0
    axes = {d % x.rank for d in dims}
    return math.prod(sizes[: run[0]]) if axes == set(range(run[0], x.rank)) else 0


def _between_transposes(g: Builder, x: Value, axes: list[int]) -> Value:
    """The reversed axes as one, in front: there whole rows move."""
    sizes = known(x.shape) or []
    first = axes[0]
    length = math.prod(sizes[first:])
    x = g.transpose(g.reshape(x, [math.prod(sizes[:first]), length]), [1, 0])
    x = g.gather(x, list(range(length - 1, -1, -1)), axis=0)
    return g.reshape(g.transpose(x, [1, 0]), sizes)
