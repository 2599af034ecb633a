"""The elements of a tensor that a mask names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from passes.order._sorting import EXACT, SORTED
from rewriter.placeholder import Case, Placeholder, b8, f32
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class MaskedSelect(Placeholder):
    """The elements of `x` where `mask` is true, in one row; the two are broadcast: `torch.masked_select`."""

    matches = ("MaskedSelect", "aten::masked_select")
    shapes = "x: ...; mask: ..."
    dtypes = SORTED
    tolerances = EXACT

    def reference(self, x: Any, mask: Any) -> Any:
        import torch

        return torch.masked_select(x, mask)

    def infer(self, x: Value, mask: Value) -> Any:
        return None if x.type is None else TensorType(x.type.dtype, (None,))

    def decompose(self, g: Builder, x: Value, mask: Value) -> Value:
        if list(x.shape) != list(mask.shape) or None in x.shape:
            # Each is expanded to its own size or the other's, whichever is larger.
            x, mask = g.op("Expand", x, g.shape(mask)), g.op("Expand", mask, g.shape(x))
        selected: Value = g.op("Compress", g.flatten(x), g.flatten(mask), axis=0)
        return selected

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 5), b8(2, 5))
        yield Case(f32(3, 1, 2), b8(4, 1))
        yield Case(f32(3), b8(2, 3))
        yield Case(f32(3), b8(3, value=(False, False, False)))
        yield Case(f32(), b8(value=True))
        yield Case(f32(0, 3), b8(3), symbolic=False)
