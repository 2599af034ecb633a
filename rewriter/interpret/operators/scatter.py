"""Writing elements at indices, into a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rewriter.interpret.operators.indexing import nonnegative
from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()

_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@KERNELS.operator("ScatterElements")
def scatter_elements(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis = call["axis"] % x.ndim
    at = nonnegative(call, indices, x.shape[axis])
    how = call.get("reduction", "none")
    if how == "none":
        return x.scatter(axis, at, updates)
    return x.scatter_reduce(axis, at, updates, _REDUCE[how], include_self=True)


@KERNELS.operator("ScatterND")
def scatter_nd(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Whole slices at the coordinates in the last axis of ``indices``."""
    depth = indices.shape[-1]
    outer, inner = x.shape[:depth], x.shape[depth:]
    flat = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for i in range(depth):
        flat = flat * outer[i] + nonnegative(call, indices[..., i], outer[i])
    rows = x.reshape(outer.numel(), inner.numel())
    new = updates.reshape(flat.numel(), inner.numel())
    at = flat.reshape(-1, 1).expand(new.shape)
    how = call.get("reduction", "none")
    if how == "none":
        made = rows.scatter(0, at, new)
    else:
        made = rows.scatter_reduce(0, at, new, _REDUCE[how], include_self=True)
    return made.reshape(x.shape)


@KERNELS.operator("TensorScatter")
def tensor_scatter(call: Call, past: Tensor, update: Tensor, start: Tensor | None = None) -> Tensor:
    """A cache with new entries from ``start[b]`` on along an axis, going round where ``mode`` says so."""
    axis = call["axis"] % past.ndim
    count, size = update.shape[axis], past.shape[axis]
    first = torch.zeros(past.shape[0], dtype=torch.int64) if start is None else start.to(torch.int64)
    at = first[:, None] + torch.arange(count)
    if call["mode"] == "circular":
        at = at.remainder(size)
    shape = [1] * past.ndim
    shape[0], shape[axis] = past.shape[0], count
    return past.scatter(axis, at.reshape(shape).expand(update.shape), update)
