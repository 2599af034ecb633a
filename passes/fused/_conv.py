"""The convolution of the fused operators, and the batch normalisation folded into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes.normalisation._channels import are_constant, batch_norm
from passes.normalisation._precision import wide
from rewriter.errors import UnsupportedParameter

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Ints, Value


def conv(
    g: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Ints,
    padding: Ints | str,
    dilation: Ints,
    groups: int,
) -> Value:
    """`torch.nn.functional.conv1d`, `conv2d` or `conv3d` of ``x`` (N, C, …) or (C, …), by the rank of ``weight``."""
    spatial = weight.rank - 2
    if not 1 <= spatial <= 3:
        raise UnsupportedParameter(f"the weight has rank {weight.rank}", where=g.where, remedy="it is 3 to 5")
    unbatched = x.has_rank and x.rank == spatial + 1
    kernel = [weight.size(2 + i) for i in range(spatial)]
    strides, dilations = _each(g, "stride", stride, spatial), _each(g, "dilation", dilation, spatial)
    pads = _pads(g, padding, kernel, strides, dilations)
    given = g.unsqueeze(x, [0]) if unbatched else x
    result: Value = g.op(
        "Conv",
        given,
        weight,
        bias,
        strides=strides,
        pads=pads,
        dilations=dilations,
        group=groups,
        kernel_shape=[k for k in kernel if k is not None] if None not in kernel else None,
    )
    if given.has_rank and not result.has_rank:
        # Of an unknown kernel inference tells nothing, not even the rank.
        result = g.retyped(result, [given.shape[0], weight.shape[0], *[None] * spatial])
    return g.squeeze(result, [0]) if unbatched else result


def conv_bn(
    g: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    bn: tuple[Value | None, Value | None, Value, Value],
    eps: float,
    *geometry: Any,
) -> Value:
    """The convolution and its batch normalisation (weight, bias, running mean and variance) one after the other."""
    if x.has_rank and x.rank != weight.rank:
        raise UnsupportedParameter(
            f"the input has rank {x.rank} and the weight rank {weight.rank}",
            where=g.where,
            remedy="batch normalisation takes a batch",
        )
    made = wide(g, conv(g, x, weight, bias, *geometry))
    gamma, beta, mean, variance = (None if p is None else g.cast(p, made) for p in bn)
    assert mean is not None
    assert variance is not None
    return g.cast(batch_norm(g, made, gamma, beta, mean, variance, eps), x)


def can_fold(weight: Value, *parameters: Value | None) -> bool:
    """Whether everything that is folded is known."""
    return are_constant(weight, *(p for p in parameters if p is not None))


def folded(
    g: Builder,
    weight: Value,
    bias: Value | None,
    bn: tuple[Value | None, Value | None, Value, Value],
    eps: float,
) -> tuple[Value, Value]:
    """Weight and bias of the convolution that does both, computed in float64 and rounded once."""
    kernel = _known(weight)
    gamma, beta, mean, variance = (None if p is None else _known(p) for p in bn)
    assert mean is not None
    assert variance is not None
    scale = (1.0 if gamma is None else gamma) / np.sqrt(variance + eps)
    shift = -mean * scale if bias is None else (_known(bias) - mean) * scale
    if beta is not None:
        shift = shift + beta
    scaled = kernel * scale.reshape(-1, *[1] * (kernel.ndim - 1))
    return g.const(scaled, weight), g.const(shift, weight)


def _known(parameter: Value) -> Any:
    assert parameter.constant is not None
    return parameter.constant.astype(np.float64)


def _each(g: Builder, name: str, given: Ints, spatial: int) -> list[int]:
    values = list(given) * spatial if len(given) == 1 else list(given)
    if len(values) != spatial:
        raise UnsupportedParameter(f"{name} is {list(given)} for {spatial} axes", where=g.where)
    return values


def _pads(
    g: Builder, padding: Ints | str, kernel: list[int | None], strides: list[int], dilations: list[int]
) -> list[int]:
    """All begins, then all ends."""
    spatial = len(kernel)
    if isinstance(padding, tuple):
        return _each(g, "padding", padding, spatial) * 2
    if padding == "valid":
        return [0] * 2 * spatial
    if padding != "same":
        raise UnsupportedParameter(f"padding is '{padding}'", where=g.where, remedy="'same' or 'valid'")
    if any(s != 1 for s in strides):
        raise UnsupportedParameter("padding 'same' with a stride", where=g.where)
    totals = []
    for size, dilation in zip(kernel, dilations, strict=True):
        if size is None:
            raise UnsupportedParameter("padding 'same' needs the size of the kernel", where=g.where)
        totals.append(dilation * (size - 1))
    # PyTorch puts the odd one behind.
    return [t // 2 for t in totals] + [t - t // 2 for t in totals]


def reference_conv(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    import torch

    function = getattr(torch.nn.functional, f"conv{weight.ndim - 2}d")
    return function(x, weight, bias, _of(stride), _of(padding), _of(dilation), groups)


def _of(value: Any) -> Any:
    """Lists of one element stand for all axes."""
    if isinstance(value, (tuple, list)):
        return value[0] if len(value) == 1 else tuple(value)
    return value
