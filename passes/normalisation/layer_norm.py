"""Layer normalisation (Ba et al., 2016, arXiv:1607.06450)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.normalisation._precision import statistics_dtype, wide
from passes.normalisation._shapes import check_normalized, of_onnx, statistics_shape
from rewriter.placeholder import Case, Placeholder, TensorSpec, decomposition, f32
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Ints, Value


class LayerNorm(Placeholder):
    """(x − mean) · rstd · weight + bias over the last axes; the meaning of `torch.nn.functional.layer_norm`.

    The further outputs are those of `aten::native_layer_norm`: mean and 1 / sqrt(variance + eps), with the normalised
    axes kept as ones.
    """

    finite = True
    matches = ("LayerNorm", "aten::layer_norm", "aten::native_layer_norm")
    standard = {"LayerNormalization": of_onnx}  # noqa: RUF012
    shapes = "x: ...; weight: =normalized_shape; bias: =normalized_shape"
    aliases = {"epsilon": "eps"}  # noqa: RUF012
    outputs = ("output", "mean", "rstd")
    auxiliary = ("mean", "rstd")
    dtypes = ("float16", "float32", "float64", "bfloat16")

    def reference(
        self,
        x: Any,
        normalized_shape: Any,
        weight: Any = None,
        bias: Any = None,
        eps: float = 1e-5,
        cudnn_enable: bool = True,
    ) -> Any:
        import torch

        return torch.ops.aten.native_layer_norm(x, list(normalized_shape), weight, bias, eps)

    def infer(
        self, x: Value, normalized_shape: Ints, weight: Value | None, bias: Value | None, **_: Any
    ) -> Any:
        if x.type is None:
            return None
        statistics = TensorType(
            statistics_dtype(x, weight, bias), statistics_shape(x.type.shape, len(normalized_shape))
        )
        return [x.type, statistics, statistics]

    @decomposition()
    def reductions(
        self,
        g: Builder,
        x: Value,
        normalized_shape: Ints,
        weight: Value | None = None,
        bias: Value | None = None,
        eps: float = 1e-5,
        cudnn_enable: bool = True,
    ) -> Any:
        check_normalized(g, x, normalized_shape)
        dtype = statistics_dtype(x, weight, bias)
        if 0 in normalized_shape:
            return x, *_statistics_of_nothing(g, x, normalized_shape, dtype)
        given = wide(g, x)
        mean, variance, centred = _moments(g, given, normalized_shape)
        # Pow and Div rather than Mul and Reciprocal: onnxruntime knows this form and makes one kernel of it.
        result = centred / g.sqrt(variance + eps)
        if weight is not None:
            result = result * g.cast(weight, given)
        if bias is not None:
            result = result + g.cast(bias, given)
        return g.cast(result, x), *_statistics(g, mean, variance, eps, dtype)

    @decomposition(
        opset=17,
        portable=False,
        requires=lambda x, normalized_shape, eps, **_: 0 not in normalized_shape and _is_exact(x, eps),
        reason="one kernel; onnxruntime before 1.20 takes the variance as E[x²] − E[x]², which cancels",
    )
    def native(
        self,
        g: Builder,
        x: Value,
        normalized_shape: Ints,
        weight: Value | None,
        bias: Value | None,
        eps: float,
        **_: Any,
    ) -> Any:
        check_normalized(g, x, normalized_shape)
        given = wide(g, x)
        ones = g.const(np.ones(normalized_shape), given) if weight is None else g.cast(weight, given)
        shift = None if bias is None else g.cast(bias, given)
        axis = -len(normalized_shape)
        result = g.op("LayerNormalization", given, ones, shift, axis=axis, epsilon=eps)
        if not g.wants("mean") and not g.wants("rstd"):
            return g.cast(result, x), None, None
        # The operator's own statistics are of the infinite rows other than PyTorch's.
        mean, variance, _centred = _moments(g, given, normalized_shape)
        dtype = statistics_dtype(x, weight, bias)
        return g.cast(result, x), *_statistics(g, mean, variance, eps, dtype)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 8), [8], f32(8), f32(8))
        yield Case(f32(2, 3, 4), [3, 4], None, f32(3, 4), eps=0.5)
        yield Case(f32(2, 4), [4], eps=0.0)
        yield Case(f32(4), [4], f32(4))
        yield Case(f32(3, 1), [1], f32(1), f32(1))
        yield Case(f32(0, 3, 4), [4], f32(4), f32(4))
        yield Case(f32(3, 0), [0], f32(0), f32(0))
        inf, nan = float("inf"), float("nan")
        # No variance; squares that float16 does not hold; a mean that is large to the deviation; infinities.
        rows = ((3.0, 3.0, 3.0, 3.0), (300.0, -400.0, 5e4, 3.0), (1025.0, 1023.0, 1025.0, 1023.0))
        endless = ((1.0, inf, 2.0, 3.0), (-inf, 1.0, inf, 2.0), (nan, 1.0, 2.0, 3.0), (1.0, 2.0, -0.0, 3.0))
        weight, bias = f32(4, value=(1.0, -2.0, 0.5, 0.0)), f32(4, value=(0.5, 0.0, -1.0, 2.0))
        yield Case(f32(7, 4, value=(*rows, *endless)), [4], weight, bias)
        yield Case(f32(1, 4, value=(30001.0, 29999.0) * 2), [4], dtypes=("float32", "float64"))
        # Parameters in float32 beside a float16 input: mean and rstd are then float32.
        wider = TensorSpec((4,), "float32")
        yield Case(f32(2, 4), [4], wider, wider, dtypes=("float16", "bfloat16"))


def _is_exact(x: Value, eps: float) -> bool:
    """Whether ``eps`` is itself as the operator's attribute, which is float32."""
    return x.dtype != TensorProto.DOUBLE or float(np.float32(eps)) == eps


def _moments(g: Builder, x: Value, normalized_shape: Ints) -> tuple[Value, Value, Value]:
    """Mean, variance (of the centred values: E[x²] − E[x]² would cancel) and x − mean."""
    axes = list(range(-len(normalized_shape), 0))
    mean = g.reduce_mean(x, axes)
    centred = x - mean
    return mean, g.reduce_mean(g.pow(centred, 2.0), axes), centred


def _statistics(
    g: Builder, mean: Value, variance: Value, eps: float, dtype: int
) -> tuple[Value | None, Value | None]:
    """Mean and rstd as PyTorch gives them, where they are used."""
    rstd = g.cast(g.reciprocal(g.sqrt(variance + eps)), dtype) if g.wants("rstd") else None
    # PyTorch's mean of a row that holds an infinity is NaN, as its variance is.
    return g.cast(mean + (variance - variance), dtype) if g.wants("mean") else None, rstd


def _statistics_of_nothing(
    g: Builder, x: Value, normalized_shape: Ints, dtype: int
) -> tuple[Value | None, Value | None]:
    """Rows without elements: mean 0 and rstd NaN."""
    if not g.wants("mean") and not g.wants("rstd"):
        return None, None
    count = len(normalized_shape)
    zero = g.constant_of_shape([*(g.dim(x, i) for i in range(x.rank - count)), *[1] * count], 0.0, dtype)
    return zero, zero + float("nan")
