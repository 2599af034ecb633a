"""Products of all elements, of a row or of the whole tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from passes.order._dtypes import DTYPES, torch_dtype
from passes.order._sorting import FLOATING, SORTED, with_axis
from rewriter.placeholder import Bound, Case, Placeholder, Site, bind, f32
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class Prod(Placeholder):
    """The product along `dim`, of all elements without it; the meaning of `torch.prod`.  Integers become int64.

    `dtype` is PyTorch's number of the element type to compute in.
    """

    matches = ("aten::prod",)
    shapes = "x: ..."
    dtypes = SORTED

    def reference(
        self, x: Any, dim: int | None = None, keepdim: bool = False, dtype: int | None = None
    ) -> Any:
        import torch

        kind = None if dtype is None else torch_dtype(dtype)
        return torch.prod(x, dtype=kind) if dim is None else torch.prod(x, dim, keepdim, dtype=kind)

    def bound_at(self, site: Site) -> Bound | None:
        # aten::prod without an axis has the element type in its place.
        return bind(self.signature, site, schema=("x", "dtype")) if len(site.node.input) == 2 else None

    def infer(self, x: Value, dim: int | None = None, keepdim: bool = False, dtype: int | None = None) -> Any:
        if x.type is None or x.type.shape is None:
            return None
        shape = list(x.type.shape) if dim is not None else []
        if dim is not None and shape and -len(shape) <= dim < len(shape):
            shape[dim : dim + 1 or None] = [1] if keepdim else []
        return TensorType(_result_dtype(x, dtype), tuple(shape))

    def decompose(
        self, g: Builder, x: Value, dim: int | None = None, keepdim: bool = False, dtype: int | None = None
    ) -> Value:
        target = _result_dtype(x, dtype)
        data, axis = with_axis(g, g.cast(x, target), dim)
        # Not every runtime multiplies narrower types.
        narrow = TensorProto.FLOAT if target in FLOATING else TensorProto.INT64
        data = g.cast(data, target if target == TensorProto.DOUBLE else narrow)
        found = g.cast(g.reduce_prod(data, [axis], keepdims=True), target)
        return found if keepdim and dim is not None and x.rank else g.squeeze(found, [axis])

    def cases(self) -> Iterator[Case]:
        # All arguments of the overload, as PyTorch writes them: two alone are the tensor and an element type.
        yield Case(f32(3, 4))
        yield Case(f32(3, 4), dim=1, keepdim=False)
        yield Case(f32(2, 3, 4), dim=-2, keepdim=True)
        yield Case(f32(2, 3), dim=0, dtype=7)
        yield Case(f32(), dim=0, keepdim=False)
        yield Case(f32(0, 3), dim=0, keepdim=False, symbolic=False)


def _result_dtype(x: Value, dtype: int | None) -> int:
    if dtype is not None:
        return DTYPES[dtype]
    return x.dtype if x.dtype in FLOATING else TensorProto.INT64
