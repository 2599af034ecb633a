"""Normalisations.  Statistics are taken in float32 where the operator says so (``stash_type``)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()


@KERNELS.operator("BatchNormalization")
def batch_normalization(
    call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> Any:
    """With the statistics given; in training mode (version 14 on) with the batch's, and with running ones."""
    used = (mean, variance)
    running: tuple[Tensor, ...] = ()
    if call.get("training_mode", 0):
        axes = [0, *range(2, x.ndim)]
        used = (x.mean(axes), x.var(axes, correction=0))
        share = call["momentum"]
        running = tuple(
            old * share + new * (1 - share) for old, new in zip((mean, variance), used, strict=True)
        )
    shape = [1, -1, *[1] * (x.ndim - 2)] if x.ndim > 1 else [-1]
    factor = scale / torch.sqrt(used[1] + call["epsilon"])
    made = ((x - used[0].reshape(shape)) * factor.reshape(shape) + bias.reshape(shape)).to(x.dtype)
    if not running:
        return made
    return (made, *(new.to(old.dtype) for new, old in zip(running, (mean, variance), strict=True)))


@KERNELS.operator("InstanceNormalization")
def instance_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    axes = list(range(2, x.ndim))
    made = _standardised(x, axes, call["epsilon"])[0]
    shape = [1, -1, *[1] * (x.ndim - 2)]
    return made * scale.reshape(shape) + bias.reshape(shape)


@KERNELS.operator("LayerNormalization")
def layer_normalization(
    call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    axes = list(range(call["axis"] % x.ndim, x.ndim))
    made, mean, inverse = _standardised(_stashed(call, x), axes, call["epsilon"])
    made = made.to(x.dtype) * scale
    return (made if bias is None else made + bias), mean, inverse


@KERNELS.operator("GroupNormalization", since=21)
def group_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """A scale and bias for each channel."""
    shape = [1, -1, *[1] * (x.ndim - 2)]
    return _grouped(call, x).to(x.dtype) * scale.reshape(shape) + bias.reshape(shape)


@KERNELS.operator("GroupNormalization", since=18)
def group_normalization_by_group(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """In 18, a scale and bias for each group."""
    each = x.shape[1] // call["num_groups"]
    shape = [1, -1, *[1] * (x.ndim - 2)]
    wide = (item.repeat_interleave(each).reshape(shape) for item in (scale, bias))
    return _grouped(call, x) * next(wide) + next(wide)


def _grouped(call: Call, x: Tensor) -> Tensor:
    groups = call["num_groups"]
    data = _stashed(call, x).reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    return _standardised(data, [2], call["epsilon"])[0].reshape(x.shape)


@KERNELS.operator("RMSNormalization")
def rms_normalization(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    axes = list(range(call["axis"] % x.ndim, x.ndim))
    data = _stashed(call, x)
    made = data / torch.sqrt((data * data).mean(axes, keepdim=True) + call["epsilon"])
    return (made.to(x.dtype) * scale).to(scale.dtype)


@KERNELS.operator("LpNormalization")
def lp_normalization(call: Call, x: Tensor) -> Tensor:
    """Zero where the norm is zero."""
    norm = torch.linalg.vector_norm(x, call["p"], call["axis"], keepdim=True)
    return torch.where(
        norm == 0, torch.zeros_like(x), x / torch.where(norm == 0, torch.ones_like(norm), norm)
    )


@KERNELS.operator("LRN")
def lrn(call: Call, x: Tensor) -> Tensor:
    """Over channels c − ⌊(size−1)/2⌋ … c + ⌈(size−1)/2⌉."""
    size = call["size"]
    squares = (x * x).reshape(*x.shape[:2], math.prod(x.shape[2:]))
    low, high = (size - 1) // 2, size // 2
    total = F.pad(squares, (0, 0, low, high)).unfold(1, size, 1).sum(-1).reshape(x.shape)
    made: Tensor = x / (call["bias"] + call["alpha"] / size * total) ** call["beta"]
    return made


@KERNELS.operator("MeanVarianceNormalization")
def mean_variance_normalization(call: Call, x: Tensor) -> Tensor:
    """As the body that ONNX defines it by: the deviation, plus 1e-9."""
    axes = call["axes"]
    mean = x.mean(axes, keepdim=True)
    deviation = ((x * x).mean(axes, keepdim=True) - mean * mean).sqrt()
    return (x - mean) / (deviation + 1e-9)


def _stashed(call: Call, x: Tensor) -> Tensor:
    """In the type that the statistics are taken in, which is never a narrower one."""
    kind = call.get("stash_type")
    return x if kind is None else x.to(torch.promote_types(x.dtype, call.dtype(kind)))


def _standardised(x: Tensor, axes: list[int], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """The standardised values, the mean and the inverse deviation."""
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    inverse = torch.rsqrt((centred * centred).mean(axes, keepdim=True) + epsilon)
    return centred * inverse, mean, inverse
