"""What the normalisations by channel share: instances of a channel, and a scale and a shift for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value


def are_instances(x: Value) -> bool:
    """Whether ``x`` (N, C, …) may be given to InstanceNormalization: of sizes that are known not to be 0.

    Of empty instances onnxruntime's kernel reads what is not there, and takes the process down.  It has the operator
    in float32 only.
    """
    return x.dtype != TensorProto.DOUBLE and all(isinstance(d, int) and d > 0 for d in x.shape[1:])


def by_instances(g: Builder, x: Value, eps: float) -> Value:
    """(x − mean) / sqrt(variance + eps) of float32 ``x`` (N, C, L) over L: two passes that read, one that writes."""
    channels = x.size(1)
    assert channels is not None
    ones, zeros = g.const(np.ones(channels), x), g.const(np.zeros(channels), x)
    result: Value = g.op("InstanceNormalization", x, ones, zeros, epsilon=eps)
    return result


def by_reductions(g: Builder, x: Value, eps: float) -> Value:
    """The same in elementary operators, for any float type and any sizes."""
    _, variance, centred = moments(g, x)
    return centred / g.sqrt(variance + eps)


def moments(g: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Mean and variance of ``x`` (N, C, L) over L, kept as an axis of 1, and x − mean."""
    mean = g.reduce_mean(x, [2])
    centred = x - mean
    return mean, g.reduce_mean(centred * centred, [2]), centred


def scale_channels(g: Builder, x: Value, weight: Value | None, bias: Value | None) -> Value:
    """x · weight + bias along axis 1.

    As a BatchNormalization of mean 0 and variance 1, which takes one pass where Mul and Add take two; exact, since its
    epsilon is 0.
    """
    if weight is None and bias is None:
        return x
    channels = next((p.size(0) for p in (weight, bias) if p is not None), None)
    if channels is None:
        channels = x.size(1)
    if channels is not None and weight is not None and bias is not None:
        ones, zeros = g.const(np.ones(channels), x), g.const(np.zeros(channels), x)
        result: Value = g.op("BatchNormalization", x, weight, bias, zeros, ones, epsilon=0.0)
        return result
    axes = list(range(1, x.rank - 1))
    if weight is not None:
        x = x * g.unsqueeze(weight, axes)
    return x if bias is None else x + g.unsqueeze(bias, axes)
