"""The biased leaky ReLU of StyleGAN2 (Karras et al., 2020, arXiv:1912.04958)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class FusedLeakyRelu(Placeholder):
    """leaky_relu(input + bias, negative_slope) · scale, the bias along axis 1; mmcv's `fused_leaky_relu`.

    The reference is the definition in `mmcv/ops/fused_bias_leakyrelu.py` (`bias_leakyrelu_ref`).
    """

    matches = ("FusedLeakyRelu", "mmcv::FusedBiasLeakyRelu", "mmcv::fused_bias_leakyrelu")
    shapes = "input: N C ...; bias: C"
    aliases = {"alpha": "negative_slope"}  # noqa: RUF012
    # The kernel's own arguments: act=3 is the leaky ReLU, grad=0 the forward.
    schemas = {  # noqa: RUF012
        "mmcv::fused_bias_leakyrelu": ("input", "bias", "-", "-", "-", "negative_slope", "scale")
    }

    def reference(
        self,
        input: Any,
        bias: Any = None,
        negative_slope: float = 0.2,
        scale: float = 2**0.5,
    ) -> Any:
        import torch

        if bias is not None:
            input = input + bias.reshape(1, -1, *[1] * (input.ndim - 2))
        return torch.nn.functional.leaky_relu(input, negative_slope) * scale

    def infer(self, input: Value, **_: Any) -> Any:
        return input.type

    def decompose(
        self,
        g: Builder,
        input: Value,
        bias: Value | None = None,
        negative_slope: float = 0.2,
        scale: float = 2**0.5,
    ) -> Value:
        x = input
        if bias is not None:
            x = x + (g.unsqueeze(bias, list(range(1, x.rank - 1))) if x.rank > 2 else bias)
        if x.dtype == TensorProto.DOUBLE:
            # onnxruntime has no LeakyRelu of float64.
            made = g.where_(g.greater(x, 0.0), x, x * negative_slope)
        else:
            made = g.op("LeakyRelu", x, alpha=negative_slope)
        return made if scale == 1 else made * scale

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 4, 4), f32(3))
        yield Case(f32(2, 3), f32(3), negative_slope=0.125, scale=1.0)
        yield Case(f32(2, 3, 4), f32(3), negative_slope=1.5, scale=-0.5)
        yield Case(f32(2, 3, 4))
        yield Case(f32(0, 3, 4), f32(3))
        inf, nan = float("inf"), float("nan")
        yield Case(f32(1, 6, value=(inf, -inf, nan, -0.0, 0.0, -1.0)), f32(6, value=(0.0,) * 6))
