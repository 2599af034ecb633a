"""Constants, shapes, and tensors made of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()


@KERNELS.operator("Constant")
def constant(call: Call) -> Tensor:
    for name in ("value", "sparse_value"):
        if name in call.attributes:
            made: Tensor = call[name]
            return made
    for name in ("value_float", "value_floats"):
        if name in call.attributes:
            return torch.tensor(call[name], dtype=call.floating or torch.float32)
    for name in ("value_int", "value_ints"):
        if name in call.attributes:
            return torch.tensor(call[name], dtype=torch.int64)
    raise call.unsupported("PyTorch has no tensors of strings")


@KERNELS.operator("ConstantOfShape")
def constant_of_shape(call: Call, shape: Tensor) -> Tensor:
    value: Tensor = call.get("value", torch.zeros((), dtype=call.floating or torch.float32))
    return value.reshape(()).expand(shape.tolist())


@KERNELS.operator("Shape")
def shape(call: Call, x: Tensor) -> Tensor:
    sizes = list(x.shape)
    start, end = call.get("start", 0), call.get("end")
    return torch.tensor(sizes[_clamped(start, len(sizes)) : _clamped(len(sizes) if end is None else end, len(sizes))],
                        dtype=torch.int64)  # fmt: skip


def _clamped(index: int, rank: int) -> int:
    return min(max(index + rank if index < 0 else index, 0), rank)


@KERNELS.operator("Size")
def size(_: Call, x: Tensor) -> Tensor:
    return torch.tensor(x.numel(), dtype=torch.int64)


@KERNELS.operator("Range")
def range_(_: Call, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    """As many as max(ceil((limit − start) / delta), 0); start + i · delta, so that gradients reach both."""
    first, last, step = (
        v.detach().double().item() if v.is_floating_point() else v.item() for v in (start, limit, delta)
    )
    whole = isinstance(first, int)
    count = max(-((first - last) // step) if whole else math.ceil((last - first) / step), 0)
    index = torch.arange(count, dtype=torch.int64)
    return (start.reshape(()) + index.to(start.dtype) * delta.reshape(())).to(start.dtype)


@KERNELS.operator("EyeLike")
def eye_like(call: Call, x: Tensor) -> Tensor:
    dtype = x.dtype if call.get("dtype") is None else call.dtype(call["dtype"])
    rows, columns = x.shape
    at: Tensor = torch.arange(rows)[:, None] + call["k"] == torch.arange(columns)[None, :]
    return at.to(dtype)


@KERNELS.operator("OneHot")
def one_hot(call: Call, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    """Indices outside [−depth, depth) give off values only."""
    count = int(depth.reshape(-1)[0].item())
    axis = call["axis"] % (indices.ndim + 1)
    chosen = indices.to(torch.int64)
    chosen = torch.where(chosen < 0, chosen + count, chosen).unsqueeze(axis)
    line = [1] * (indices.ndim + 1)
    line[axis] = count
    return torch.where(chosen == torch.arange(count).reshape(line), values[1], values[0])


@KERNELS.operator("Trilu")
def trilu(call: Call, x: Tensor, k: Tensor | None = None) -> Tensor:
    diagonal = 0 if k is None else int(k.item())
    return torch.triu(x, diagonal) if call["upper"] else torch.tril(x, diagonal)


@KERNELS.operator("Dropout")
def dropout(
    call: Call, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None
) -> tuple[Any, ...]:
    """The identity, unless in training mode with a ratio, whose random draws no two runtimes share."""
    share = call.get("ratio", 0.5) if ratio is None else float(ratio.item())
    if training is not None and bool(training.item()) and share:
        keep = torch.rand(x.shape, dtype=torch.float64) >= share
        return torch.where(keep, x / (1 - share), torch.zeros_like(x)), keep
    return x, torch.ones_like(x, dtype=torch.bool)
