"""Pools over windows and over everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rewriter.interpret.operators.windows import Windows, unfolded, windows
from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from rewriter.interpret.call import Call

KERNELS = Kernels()


@KERNELS.operator("MaxPool")
def max_pool(call: Call, x: Tensor) -> Any:
    """Of equal ones the first counts, for the index and the gradient."""
    found = windows(call, x.shape[2:], call["kernel_shape"])
    if not call.wants(1) and _is_plain(x, found):
        function: Callable[..., Tensor] = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[x.ndim - 3]
        return function(x, found.kernel, found.strides, found.begins, found.dilations)
    lowest = -float("inf") if x.is_floating_point() else torch.iinfo(x.dtype).min
    values, at = unfolded(x, found, lowest).max(-1)
    if not call.wants(1):
        return values
    return values, _source(call, x, found, at)


def _is_plain(x: Tensor, found: Windows) -> bool:
    """Whether torch's own pool does it, which takes far less memory."""
    return (
        3 <= x.ndim <= 5
        and x.is_floating_point()
        and x.numel() > 0
        and found.begins == found.ends
        and all(0 <= 2 * pad <= kernel for pad, kernel in zip(found.begins, found.kernel, strict=True))
        and all(
            count == (size + 2 * pad - extent) // stride + 1
            for count, size, pad, extent, stride in zip(
                found.counts, x.shape[2:], found.begins, found.extents, found.strides, strict=True
            )
        )
    )


def _source(call: Call, x: Tensor, found: Windows, at: Tensor) -> Tensor:
    """Where in the flattened (N, C, *sizes), or column-major image, the ``at``-th element of each window lies."""
    sizes = x.shape[2:]
    rank = len(sizes)
    coordinates: list[Tensor] = []
    for i in reversed(range(rank)):
        within = at % found.kernel[i]
        at = at // found.kernel[i]
        shape = [1] * x.ndim
        shape[2 + i] = found.counts[i]
        start = (torch.arange(found.counts[i]) * found.strides[i] - found.begins[i]).reshape(shape)
        coordinates.insert(0, start + within * found.dilations[i])
    flat = torch.zeros_like(coordinates[0])
    order = range(rank) if not call.get("storage_order", 0) else reversed(range(rank))
    for i in order:
        flat = flat * sizes[i] + coordinates[i]
    images = torch.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *[1] * rank)
    return images * sizes.numel() + flat


@KERNELS.operator("AveragePool")
def average_pool(call: Call, x: Tensor) -> Tensor:
    """Padding counts where the node says so, but never what only ``ceil_mode`` adds beyond it."""
    found = windows(call, x.shape[2:], call["kernel_shape"])
    if _is_plain(x, found) and set(found.dilations) == {1}:
        function: Callable[..., Tensor] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[x.ndim - 3]
        return function(
            x, found.kernel, found.strides, found.begins, count_include_pad=bool(call["count_include_pad"])
        )
    total = unfolded(x, found, 0).sum(-1)
    ones = torch.ones(1, 1, *x.shape[2:], dtype=x.dtype)
    if call["count_include_pad"]:
        for i, (low, high) in enumerate(zip(found.begins, found.ends, strict=True)):
            shape = list(ones.shape)
            shape[2 + i] += low + high
            ones = torch.ones(shape, dtype=x.dtype)
        found = Windows(
            found.kernel,
            found.strides,
            found.dilations,
            [0] * len(found.kernel),
            [0] * len(found.kernel),
            found.counts,
        )
    return total / unfolded(ones, found, 0).sum(-1)


@KERNELS.operator("LpPool")
def lp_pool(call: Call, x: Tensor) -> Tensor:
    p = call["p"]
    found = windows(call, x.shape[2:], call["kernel_shape"])
    return unfolded(x, found, 0).abs().pow(p).sum(-1).pow(1 / p)


@KERNELS.operator("GlobalAveragePool")
def global_average_pool(_: Call, x: Tensor) -> Tensor:
    return x.mean(_spatial(x), keepdim=True)


@KERNELS.operator("GlobalMaxPool")
def global_max_pool(_: Call, x: Tensor) -> Tensor:
    return x.amax(_spatial(x), keepdim=True)


@KERNELS.operator("GlobalLpPool")
def global_lp_pool(call: Call, x: Tensor) -> Tensor:
    p = call["p"]
    return x.abs().pow(p).sum(_spatial(x), keepdim=True).pow(1 / p)


@KERNELS.operator("MaxUnpool")
def max_unpool(call: Call, x: Tensor, indices: Tensor, shape: Tensor | None = None) -> Tensor:
    """Puts each value where its index, counted in a tensor of the inferred size, says; zeros elsewhere."""
    rank = x.ndim - 2
    kernel, strides = call["kernel_shape"], call.get("strides") or [1] * rank
    pads = call.get("pads") or [0] * (2 * rank)
    inferred = [(x.shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + rank] for i in range(rank)]
    size = torch.Size([*x.shape[:2], *inferred])
    made = (
        torch.zeros(size.numel(), dtype=x.dtype).scatter(0, indices.reshape(-1), x.reshape(-1)).reshape(size)
    )
    if shape is None:
        return made
    target = shape.tolist()
    for axis in range(2, x.ndim):
        low = made.new_zeros([*made.shape[:axis], target[axis] - made.shape[axis], *made.shape[axis + 1 :]])
        made = torch.cat([made, low], axis)
    return made


def _spatial(x: Tensor) -> list[int]:
    return list(range(2, x.ndim))
