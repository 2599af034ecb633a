"""Order: TopK and Unique."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()


@KERNELS.operator("TopK")
def topk(call: Call, x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Of equal ones those with the lower index; always sorted, which ``sorted`` = 0 allows."""
    axis, count = call["axis"], int(k.reshape(-1)[0].item())
    if count > x.shape[axis]:
        raise call.refused(f"{count} of {x.shape[axis]}")
    values, indices = torch.sort(x, dim=axis, descending=bool(call.get("largest", 1)), stable=True)
    return values.narrow(axis, 0, count), indices.narrow(axis, 0, count)


@KERNELS.operator("Unique")
def unique(call: Call, x: Tensor) -> tuple[Tensor, ...]:
    """Sorted, or in the order of first occurrence: values, first indices, inverse, counts."""
    axis = call.get("axis")
    flat = x.reshape(-1) if axis is None else x
    dim = 0 if axis is None else axis
    _, inverse, counts = torch.unique(flat.detach(), return_inverse=True, return_counts=True, dim=dim)
    inverse = inverse.reshape(-1)
    first = torch.full((len(counts),), inverse.numel(), dtype=torch.int64)
    first = first.scatter_reduce(0, inverse, torch.arange(inverse.numel()), "amin")
    if not call["sorted"]:
        order = torch.argsort(first)
        place = torch.empty_like(order).scatter(0, order, torch.arange(len(order)))
        first, counts, inverse = first[order], counts[order], place[inverse]
    return flat.index_select(dim, first), first, inverse, counts
