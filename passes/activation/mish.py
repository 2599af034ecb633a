"""Mish (Misra, 2019, arXiv:1908.08681)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from rewriter.placeholder import ELEMENTWISE, Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class Mish(Placeholder):
    """x · tanh(softplus(x)), elementwise; the meaning of `torch.nn.functional.mish`."""

    matches = ("Mish", "aten::mish", "aten::mish_", "mmcv::Mish", "mmdeploy::Mish")
    standard = {"Mish": lambda op: {"x": op.x}}  # noqa: RUF012
    shapes = "x: ..."
    tolerances = ELEMENTWISE

    def reference(self, x: Any) -> Any:
        import torch

        return torch.nn.functional.mish(x)

    def infer(self, x: Value) -> Any:
        return x.type

    def decompose(self, g: Builder, x: Value) -> Value:
        # tanh(ln(1 + e)) = n / (n + 2) with e = exp(x), n = e·(e + 2): one transcendental function instead of three.
        # Beyond the limit the quotient rounds to 1, and n must not overflow: e² < 65504 in float16.
        limit = 5.0 if x.dtype == TensorProto.FLOAT16 else 20.0
        e = g.exp(g.minimum(x, limit))
        n = e * (e + 2)
        return x * (n / (n + 2))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 8))
        yield Case(f32())
        yield Case(f32(0, 3))
        yield Case(f32(8, value=(-100.0, -20.0, -1e-3, -0.0, 0.0, 4.9, 30.0, 500.0)))
        yield Case(f32(3, value=(float("inf"), float("-inf"), float("nan"))))
