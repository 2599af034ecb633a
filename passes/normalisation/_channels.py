"""What the normalisations by channel share: instances of a channel, and a scale and a shift for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.placeholder import Builder, Value


def are_instances(x: Value) -> bool:
    """Whether ``x`` (N, C, …) may be given to InstanceNormalization: of sizes that are known not to be 0.

    Of empty instances onnxruntime's kernel reads what is not there, and takes the process down.  It has the operator
    in float32 only.
    """
    return x.dtype != TensorProto.DOUBLE and all(isinstance(d, int) and d > 0 for d in x.shape[1:])


def by_instances(
    g: Builder, x: Value, eps: float, weight: Value | None = None, bias: Value | None = None
) -> Value:
    """(x − mean) / sqrt(variance + eps) · weight + bias of float32 ``x`` (N, C, …) over all axes but two.

    Two passes that read and one that writes.
    """
    scale = filled(g, x, 1.0) if weight is None else weight
    shift = filled(g, x, 0.0) if bias is None else bias
    result: Value = g.op("InstanceNormalization", x, scale, shift, epsilon=eps)
    return result


def by_reductions(g: Builder, x: Value, eps: float, axes: Sequence[int]) -> Value:
    """(x − mean) / sqrt(variance + eps) in elementary operators, for any float type and any sizes."""
    _, variance, centred = moments(g, x, axes)
    return centred / g.sqrt(variance + eps)


def moments(g: Builder, x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """Mean and variance of ``x`` over ``axes``, which are kept as ones, and x − mean."""
    mean = g.reduce_mean(x, axes)
    centred = x - mean
    return mean, g.reduce_mean(centred * centred, axes), centred


def scale_channels(g: Builder, x: Value, weight: Value | None, bias: Value | None) -> Value:
    """x · weight + bias along axis 1.

    Both as a BatchNormalization of mean 0 and variance 1 where they are constants, as some runtimes want them there: it
    takes one pass where Mul and Add take two, and is exact, since its epsilon is 0.
    """
    if weight is not None and bias is not None and are_constant(weight, bias):
        return batch_norm(g, x, weight, bias, filled(g, x, 0.0, weight), filled(g, x, 1.0, weight), 0.0)
    if weight is not None:
        x = x * per_channel(g, weight, x)
    return x if bias is None else x + per_channel(g, bias, x)


def batch_norm(
    g: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    eps: float,
) -> Value:
    """(x − mean) / sqrt(variance + eps) · weight + bias along axis 1."""
    scale = filled(g, x, 1.0, mean, variance) if weight is None else weight
    shift = filled(g, x, 0.0, mean, variance) if bias is None else bias
    if are_constant(scale, shift, mean, variance):
        result: Value = g.op("BatchNormalization", x, scale, shift, mean, variance, epsilon=eps)
        return result
    # As PyTorch does: one factor and one summand for each channel.
    factor = scale / g.sqrt(variance + eps)
    return x * per_channel(g, factor, x) + per_channel(g, shift - mean * factor, x)


def are_constant(*parameters: Value) -> bool:
    return all(p.constant is not None for p in parameters)


def per_channel(g: Builder, parameter: Value, x: Value) -> Value:
    """A parameter (C) in the shape that broadcasts along axis 1 of ``x``."""
    return g.unsqueeze(parameter, list(range(1, x.rank - 1)))


def filled(g: Builder, x: Value, value: float, *parameters: Value) -> Value:
    """``value`` for each channel of ``x``, as many as ``x`` or one of the ``parameters`` (C) says."""
    sizes = [x.size(1), *(p.size(0) for p in parameters)]
    channels = next((size for size in sizes if size is not None), None)
    if channels is None:
        return g.constant_of_shape([g.dim(parameters[0], 0) if parameters else g.dim(x, 1)], value, x)
    return g.const(np.full(channels, value), x)
