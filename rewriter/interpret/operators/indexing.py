"""Reading elements at indices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()


def nonnegative(call: Call, indices: Tensor, size: int) -> Tensor:
    """Indices that may count from the end, as int64 within [0, size)."""
    found = indices.to(torch.int64)
    found = torch.where(found < 0, found + size, found)
    if found.numel() and (int(found.min()) < 0 or int(found.max()) >= size):
        raise call.refused(f"an index is outside of the axis of size {size}")
    return found


@KERNELS.operator("Gather")
def gather(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    axis = call["axis"] % x.ndim
    at = nonnegative(call, indices, x.shape[axis])
    shape = (*x.shape[:axis], *at.shape, *x.shape[axis + 1 :])
    return x.index_select(axis, at.reshape(-1)).reshape(shape)


@KERNELS.operator("GatherElements")
def gather_elements(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    axis = call["axis"] % x.ndim
    return x.gather(axis, nonnegative(call, indices, x.shape[axis]))


@KERNELS.operator("GatherND")
def gather_nd(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    """The last axis of ``indices`` holds coordinates in the axes of ``x`` after the batch ones."""
    batch = call.get("batch_dims", 0)
    depth = indices.shape[-1]
    leading = tuple(x.shape[:batch])
    at = [nonnegative(call, indices[..., i], x.shape[batch + i]) for i in range(depth)]
    outer = indices.shape[batch:-1]
    rest = x.shape[batch + depth :]
    count = math.prod(leading)
    data = x.reshape(count, *x.shape[batch:])
    rows = torch.arange(count)[:, None]
    flat = [item.reshape(count, math.prod(outer)) for item in at]
    return data[(rows, *flat)].reshape(*leading, *outer, *rest)


@KERNELS.operator("NonZero")
def nonzero(_: Call, x: Tensor) -> Tensor:
    return torch.nonzero(x).T if x.ndim else torch.nonzero(x.reshape(1)).T[:0]


@KERNELS.operator("Compress")
def compress(call: Call, x: Tensor, condition: Tensor) -> Tensor:
    axis = call.get("axis")
    if axis is None:
        x, axis = x.reshape(-1), 0
    return x.index_select(axis, torch.nonzero(condition).reshape(-1))
