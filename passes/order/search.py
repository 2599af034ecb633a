"""Where a value belongs in a sorted sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from passes.order._sorting import FLOATING, INTEGERS, comparable
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, TensorSpec, f32
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from rewriter.placeholder import Builder, Value

_INF, _NAN = float("inf"), float("nan")
_SEARCHED = ("float16", "float32", "float64", *INTEGERS)
#: Steps of a bisection of a sequence of unknown length: enough for any that fits into memory.
_MOST_STEPS = 32


class Searchsorted(Placeholder):
    """The place of each of `values` in `sorted_sequence`, along the last axis; the meaning of `torch.searchsorted`.

    A sequence of one axis serves values of any shape; otherwise all axes but the last are those of the values.  It is a
    bisection with PyTorch's own steps, so that NaN and unsorted sequences give what they give there.
    """

    matches = ("Searchsorted", "aten::searchsorted")
    shapes = "sorted_sequence: ...; values: ...; sorter: ..."
    dtypes = _SEARCHED

    def reference(
        self,
        sorted_sequence: Any,
        values: Any,
        out_int32: bool = False,
        right: bool = False,
        side: str | None = None,
        sorter: Any = None,
    ) -> Any:
        import torch

        if values.ndim == 0:  # a number of Python, whose element type does not count
            values = values.to(_common(torch, sorted_sequence, values))
            sorted_sequence = sorted_sequence.to(values.dtype)
        side = side or ("right" if right else "left")
        return torch.searchsorted(sorted_sequence, values, out_int32=out_int32, side=side, sorter=sorter)

    def infer(self, values: Value, out_int32: bool = False, **_: Any) -> Any:
        dtype = TensorProto.INT32 if out_int32 else TensorProto.INT64
        return None if values.type is None else TensorType(dtype, values.type.shape)

    def decompose(
        self,
        g: Builder,
        sorted_sequence: Value,
        values: Value,
        out_int32: bool = False,
        right: bool = False,
        side: str | None = None,
        sorter: Value | None = None,
    ) -> Value:
        if side not in (None, "left", "right"):
            raise UnsupportedParameter(f"side is '{side}'", where=g.where, remedy="it is 'left' or 'right'")
        sequence = sorted_sequence
        if sorter is not None:
            sequence = g.gather_elements(sequence, sorter, sequence.rank - 1)
        found = _bisected(g, sequence, values, side == "right" if side is not None else right)
        return g.cast(found, TensorProto.INT32) if out_int32 else found

    def cases(self) -> Iterator[Case]:
        rising = f32(7, draw=_rising)
        yield Case(rising, f32(2, 3))
        yield Case(f32(2, 5, draw=_rising), f32(2, 4), right=True)
        ties = f32(6, value=(0, 1, 1, 1, 2, 3))
        yield Case(ties, f32(5, value=(1, 0, 3, 4, -1)), out_int32=True)
        yield Case(ties, f32(5, value=(1, 0, 3, 4, -1)), side="right")
        yield Case(ties, f32(value=1), side="left")
        special = f32(4, value=(-_INF, 0, _INF, _NAN))
        yield Case(special, f32(5, value=(_NAN, _INF, -_INF, 0, 1)), dtypes=("float32",))
        sorter = TensorSpec((4,), "int64", value=(2, 0, 3, 1))
        yield Case(f32(4, value=(2, 4, 1, 3)), f32(3), sorter=sorter)
        yield Case(f32(0), f32(3), symbolic=False)


class Bucketize(Placeholder):
    """The place of each element of `x` among `boundaries`; the meaning of `torch.bucketize`."""

    matches = ("Bucketize", "aten::bucketize")
    shapes = "x: ...; boundaries: B"
    dtypes = _SEARCHED

    def reference(self, x: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Any:
        import torch

        return torch.bucketize(x, boundaries, out_int32=out_int32, right=right)

    def infer(self, x: Value, out_int32: bool = False, **_: Any) -> Any:
        dtype = TensorProto.INT32 if out_int32 else TensorProto.INT64
        return None if x.type is None else TensorType(dtype, x.type.shape)

    def decompose(
        self, g: Builder, x: Value, boundaries: Value, out_int32: bool = False, right: bool = False
    ) -> Value:
        found = _bisected(g, boundaries, x, right)
        return g.cast(found, TensorProto.INT32) if out_int32 else found

    def cases(self) -> Iterator[Case]:
        ties = f32(6, value=(0, 1, 1, 1, 2, 3))
        yield Case(f32(2, 5), ties)
        yield Case(f32(6, value=(1, 0, 3, 4, -1, 2)), ties, right=True, out_int32=True)
        yield Case(f32(), f32(3, draw=_rising))


def _rising(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    drawn = rng.standard_normal(shape)
    drawn.sort(axis=-1)
    return drawn


def _common(torch: Any, sequence: Any, number: Any) -> Any:
    floats = number.is_floating_point() and not sequence.is_floating_point()
    return torch.get_default_dtype() if floats else sequence.dtype


def _bisected(g: Builder, sequence: Value, values: Value, right: bool) -> Value:
    """How many elements come before each value: those not ≥ it, or not > it with ``right``."""
    if sequence.dtype != values.dtype:
        to_float = values.dtype in FLOATING and sequence.dtype not in FLOATING
        sequence = g.cast(sequence, TensorProto.FLOAT) if to_float else sequence
        values = g.cast(values, sequence)
    sequence, values = comparable(g, sequence), comparable(g, values)
    length = g.dim(sequence, sequence.rank - 1)
    dims = [g.dim(values, i) for i in range(values.rank)]
    start = g.constant_of_shape(dims, 0, TensorProto.INT64) if dims else g.ints(0)
    if length == 0:
        return start
    # One element more at the end, so that there is always one to look at.
    last = g.slice(sequence, [-1], [(1 << 63) - 1], [sequence.rank - 1])
    if not isinstance(length, int):
        none = g.const(0, sequence)
        filler = g.expand(none, [*(g.dim(sequence, i) for i in range(sequence.rank - 1)), 1])
        sequence = g.concat([sequence, filler], sequence.rank - 1)
    else:
        sequence = g.concat([sequence, last], sequence.rank - 1)
    end = g.op("Add", start, g.ints([length]) if isinstance(length, int) else length)
    if values.rank == 0:
        end = g.reshape(end, [])
    flat = sequence.rank == 1
    for _ in range(length.bit_length() if isinstance(length, int) else _MOST_STEPS):
        middle = g.op("Div", start + end, g.ints(2))
        seen = g.gather(sequence, middle, 0) if flat else g.gather_elements(sequence, middle, values.rank - 1)
        reached = g.greater(seen, values) if right else g.greater_equal(seen, values)
        behind = g.and_(g.not_(reached), g.less(start, end))
        start, end = g.where_(behind, middle + 1, start), g.where_(behind, end, middle)
    return g.retyped(start, values.shape)
