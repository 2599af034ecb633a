"""A linear layer and its ReLU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class LinearRelu(Placeholder):
    """max(x · weightᵀ + bias, 0); the meaning of `torch.nn.functional.linear` and `relu`."""

    matches = ("LinearRelu",)
    shapes = "x: ... I; weight: O I | I; bias: O | ()"

    def reference(self, x: Any, weight: Any, bias: Any = None) -> Any:
        import torch

        return torch.nn.functional.linear(x, weight, bias).relu()

    def infer(self, x: Value, weight: Value, **_: Any) -> Any:
        if not x.has_rank or not weight.has_rank:
            return None
        return TensorType(x.dtype, (*x.shape[:-1], *weight.shape[:-1]))

    @decomposition(
        requires=lambda x, weight, **_: x.rank == 2 and weight.rank == 2,
        reason="a matrix: one Gemm, which takes the weight as it is",
    )
    def gemm(self, g: Builder, x: Value, weight: Value, bias: Value | None = None) -> Value:
        made: Value = g.op("Gemm", x, weight, bias, transB=1)
        return g.relu(made)

    @decomposition()
    def matmul(self, g: Builder, x: Value, weight: Value, bias: Value | None = None) -> Value:
        if weight.rank not in (1, 2):
            raise UnsupportedParameter(f"the weight has rank {weight.rank}", where=g.where, remedy="2, or 1")
        # onnxruntime turns a constant weight once, when the model is loaded.
        made = x @ (g.transpose(weight, [1, 0]) if weight.rank == 2 else weight)
        return g.relu(made if bias is None else made + bias)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 4), f32(5, 4), f32(5))
        yield Case(f32(2, 3, 4), f32(5, 4), f32(5))
        yield Case(f32(2, 3, 4), f32(5, 4))
        yield Case(f32(3, 4), f32(1, 4))
        yield Case(f32(4), f32(5, 4), f32(5))
        yield Case(f32(3, 4), f32(4))
        yield Case(f32(0, 4), f32(5, 4), f32(5))
        inf, nan = float("inf"), float("nan")
        rows = (1.0, inf, 1.0, -inf, nan, 1.0, -2.0, -1.0)
        yield Case(f32(4, 2, value=rows), f32(2, 2, value=(1.0, 2.0, -1.0, 3.0)))
