"""What passes share that choose one element of each row and tell its index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from onnx import TensorProto

from passes.order._sorting import (
    EXACT,
    SORTED,
    comparable,
    is_nan,
    order,
    picked_alike,
    with_axis,
)
from rewriter.placeholder import Case, Placeholder, f32
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rewriter.placeholder import Builder, Value

_INF, _NAN = float("inf"), float("nan")


class RankedElement(Placeholder):
    """One element of each row of the sorted tensor; a subclass says which place it has there."""

    outputs = ("values", "indices")
    auxiliary = ("indices",)
    aliases: ClassVar[Mapping[str, str]] = {"axis": "dim"}
    dtypes = SORTED[:-1]
    tolerances = EXACT

    def compare(  # type: ignore[override]  # the third parameter is documented
        self, actual: tuple[Any, ...], expected: tuple[Any, ...], arguments: Mapping[str, Any]
    ) -> str | None:
        """The index may be that of any equal element."""
        dim = arguments.get("dim", self.signature["dim"].absent())
        return picked_alike(actual, expected, arguments["x"], dim, arguments.get("keepdim") or False)

    def infer(self, x: Value, dim: int | None = None, keepdim: bool = False, **_: Any) -> Any:
        if x.type is None or x.type.shape is None:
            return None
        dim = self.signature["dim"].absent() if dim is None else dim
        shape = list(x.type.shape) if dim is not None else []
        if dim is not None and shape and -len(shape) <= dim < len(shape):
            shape[dim : dim + 1 or None] = [1] if keepdim else []
        return [TensorType(x.dtype, tuple(shape)), TensorType(TensorProto.INT64, tuple(shape))]

    def chosen(
        self, g: Builder, x: Value, dim: int | None, keepdim: bool, rank: int | None = None
    ) -> tuple[Value, Value]:
        data, axis = with_axis(g, x, dim)
        indices = order(g, data, axis)
        place = self.place(g, data, axis, indices, rank)
        dims = [1 if i == axis else g.dim(data, i) for i in range(data.rank)]
        index = g.gather_elements(indices, g.expand(place, dims), axis)
        value = g.gather_elements(data, index, axis)
        if keepdim and dim is not None and x.rank:
            return value, index
        return g.squeeze(value, [axis]), g.squeeze(index, [axis])

    def place(self, g: Builder, x: Value, axis: int, indices: Value, rank: int | None) -> Value:
        """The place in order, of size 1 along ``axis``; what is the same for all rows may be of size 1 there."""
        if rank is not None:
            return g.reshape(g.ints([rank]), [1] * x.rank)
        return self.rank_of(g, x, axis, is_nan(g, comparable(g, x)))

    def rank_of(self, g: Builder, x: Value, axis: int, nan: Value | None) -> Value:
        """The place, where the numbers alone decide it; ``nan`` is where ``x`` is NaN."""
        raise NotImplementedError

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 5), dim=1)
        yield Case(f32(2, 4, 3), dim=-2, keepdim=True)
        yield Case(f32(2, 3))
        special = f32(4, 3, value=(2, _NAN, 1, 3, 1, _NAN, _NAN, _NAN, _NAN, _INF, -_INF, _INF))
        yield Case(special, dim=1, dtypes=("float16", "float32"))
        yield Case(f32(), dim=0)
