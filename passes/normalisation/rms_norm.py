"""Root-mean-square normalisation (Zhang and Sennrich, 2019, arXiv:1910.07467)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.normalisation._precision import wide, wide_dtype
from passes.normalisation._shapes import check_normalized, of_onnx, statistics_shape
from rewriter.placeholder import Case, Placeholder, TensorSpec, decomposition, f32
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rewriter.placeholder import Builder, Ints, Value


class RmsNorm(Placeholder):
    """x / sqrt(mean(x²) + eps) · weight over the last axes; the meaning of `torch.nn.functional.rms_norm`.

    Without `eps` it is the machine epsilon of the type that is accumulated in: float32's also for float16.  The second
    output is that of `aten::_fused_rms_norm`: 1 / sqrt(mean(x²) + eps), in that type.
    """

    matches = ("RmsNorm", "aten::rms_norm", "aten::_fused_rms_norm")
    standard = {"RMSNormalization": of_onnx}  # noqa: RUF012
    shapes = "x: ...; weight: =normalized_shape"
    aliases = {"epsilon": "eps"}  # noqa: RUF012
    outputs = ("output", "rstd")
    auxiliary = ("rstd",)
    dtypes = ("float16", "float32", "float64", "bfloat16")

    def reference(self, x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
        import torch

        return torch.ops.aten._fused_rms_norm(x, list(normalized_shape), weight, eps)

    def infer(self, x: Value, normalized_shape: Ints, **_: Any) -> Any:
        if x.type is None:
            return None
        shape = statistics_shape(x.type.shape, len(normalized_shape))
        return [x.type, TensorType(wide_dtype(x), shape)]

    # RMSNormalization (opset 23) is not used: onnxruntime's kernel for it takes 1.1 to 1.4 times as long as the one
    # that it makes of this form (benchmarks/operators.py).
    @decomposition(
        portable=False,
        reason="one kernel in onnxruntime; its 1.15 makes a whole row NaN of one infinity there",
    )
    def fused(
        self,
        g: Builder,
        x: Value,
        normalized_shape: Ints,
        weight: Value | None = None,
        eps: float | None = None,
    ) -> Any:
        def normalize(given: Value, epsilon: float, axes: list[int]) -> tuple[Value, Value | None]:
            root = g.sqrt(g.reduce_mean(g.pow(given, 2.0), axes) + epsilon)
            return given / root, g.reciprocal(root) if g.wants("rstd") else None

        return _rms_norm(g, x, normalized_shape, weight, eps, normalize)

    @decomposition()
    def products(
        self,
        g: Builder,
        x: Value,
        normalized_shape: Ints,
        weight: Value | None = None,
        eps: float | None = None,
    ) -> Any:
        def normalize(given: Value, epsilon: float, axes: list[int]) -> tuple[Value, Value]:
            # Not Sqrt, which makes NaN of inf in onnxruntime 1.15.
            rstd = g.pow(g.reduce_mean(given * given, axes) + epsilon, -0.5)
            return given * rstd, rstd

        return _rms_norm(g, x, normalized_shape, weight, eps, normalize)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 8), [8], f32(8), eps=1e-6)
        yield Case(f32(2, 3, 4), [3, 4], f32(3, 4))
        yield Case(f32(2, 4), [4], eps=0.5)
        yield Case(f32(4), [4], f32(4))
        yield Case(f32(0, 3), [3], f32(3))
        yield Case(f32(3, 0), [0], f32(0))
        inf, nan = float("inf"), float("nan")
        # So little that eps decides; squares that float16 does not hold; infinities.
        rows = ((1e-3, -1e-3, 2e-3, 0.0), (0.0, 0.0, 0.0, -0.0), (300.0, -400.0, 5e4, 3.0))
        endless = ((1.0, inf, 2.0, 3.0), (-inf, 1.0, inf, 2.0), (nan, 1.0, 2.0, 3.0))
        weight = f32(4, value=(1.0, -2.0, 0.5, 0.25))
        yield Case(f32(6, 4, value=(*rows, *endless)), [4], weight)
        # A parameter in float32 beside a float16 input.
        wider = TensorSpec((4,), "float32")
        yield Case(f32(2, 4), [4], wider, dtypes=("float16", "bfloat16"))


def _rms_norm(
    g: Builder,
    x: Value,
    normalized_shape: Ints,
    weight: Value | None,
    eps: float | None,
    normalize: Callable[[Value, float, list[int]], tuple[Value, Value | None]],
) -> tuple[Value, Value | None]:
    check_normalized(g, x, normalized_shape)
    count = len(normalized_shape)
    if 0 in normalized_shape:
        dims = [*(g.dim(x, i) for i in range(x.rank - count)), *[1] * count]
        return x, g.constant_of_shape(dims, float("nan"), wide_dtype(x)) if g.wants("rstd") else None
    if eps is None:
        eps = float(np.finfo(np.float64 if x.dtype == TensorProto.DOUBLE else np.float32).eps)
    given = wide(g, x)
    result, rstd = normalize(given, eps, list(range(-count, 0)))
    if weight is not None:
        result = result * g.cast(weight, given)
    return g.cast(result, x), rstd
