"""Operators that move elements and compute nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.interpret.call import Call

KERNELS = Kernels()


@KERNELS.operator("Reshape")
def reshape(call: Call, x: Tensor, shape: Tensor) -> Tensor:
    """Zero keeps a size, unless ``allowzero``; -1 is what is left."""
    sizes = [int(item) for item in shape.tolist()]
    if not call.get("allowzero", 0):
        sizes = [x.shape[i] if item == 0 else item for i, item in enumerate(sizes)]
    return x.reshape(sizes)


@KERNELS.operator("Flatten")
def flatten(call: Call, x: Tensor) -> Tensor:
    axis = call["axis"]
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@KERNELS.operator("Transpose")
def transpose(call: Call, x: Tensor) -> Tensor:
    order = call.get("perm")
    return x.permute(list(range(x.ndim))[::-1] if order is None else order)


@KERNELS.operator("Squeeze")
def squeeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = call.ints("axes", axes)
    if chosen is None:
        return x.squeeze()
    chosen = [axis % x.ndim for axis in chosen]
    if any(x.shape[axis] != 1 for axis in chosen):
        raise call.refused(f"axes {chosen} of shape {list(x.shape)} are not all 1")
    return x.squeeze(chosen)


@KERNELS.operator("Unsqueeze")
def unsqueeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = call.ints("axes", axes) or []
    rank = x.ndim + len(chosen)
    for axis in sorted(axis % rank for axis in chosen):
        x = x.unsqueeze(axis)
    return x


@KERNELS.operator("Concat")
def concat(call: Call, *inputs: Tensor) -> Tensor:
    if any(x.ndim != inputs[0].ndim for x in inputs):
        raise call.refused("the ranks differ")  # torch would skip an empty vector
    return torch.cat(inputs, call["axis"])


@KERNELS.operator("Split")
def split(call: Call, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    """Sizes as given, else equal ones, the last of which is smaller from version 18 on."""
    axis = call["axis"]
    given = call.ints("split", sizes)
    if given is None:
        count = call.get("num_outputs") or len(call.wanted)
        each = -(-x.shape[axis] // count)
        given = [max(min(each, x.shape[axis] - i * each), 0) for i in range(count)]
    return tuple(torch.split(x, given, axis))


@KERNELS.operator("Slice")
def slice_(
    call: Call,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    first, last = starts.tolist(), ends.tolist()
    which = list(range(len(first))) if axes is None else axes.tolist()
    by = [1] * len(first) if steps is None else steps.tolist()
    for start, end, axis, step in zip(first, last, which, by, strict=True):
        if step == 0:
            raise call.refused("a step is 0")
        begin, stop, stride = slice(start, end, step).indices(x.shape[axis])
        if stride > 0:
            key: list[Any] = [slice(None)] * x.ndim
            key[axis] = slice(begin, max(stop, begin), stride)
            x = x[tuple(key)]
        else:
            x = x.index_select(axis, torch.arange(begin, stop, stride) if stop < begin else torch.arange(0))
    return x


@KERNELS.operator("Expand")
def expand(_: Call, x: Tensor, shape: Tensor) -> Tensor:
    """Both broadcast: a size of 1 in ``shape`` keeps the tensor's."""
    sizes: list[int] = shape.tolist()
    rank = max(x.ndim, len(sizes))
    own = [1] * (rank - x.ndim) + list(x.shape)
    wanted = [1] * (rank - len(sizes)) + sizes
    return x.expand([a if b == 1 else b for a, b in zip(own, wanted, strict=True)])


@KERNELS.operator("Tile")
def tile(_: Call, x: Tensor, repeats: Tensor) -> Tensor:
    return x.repeat(repeats.tolist()) if x.ndim else x


@KERNELS.operator("Pad")
def pad(
    call: Call, x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None
) -> Tensor:
    """Negative pads crop.  Each axis by itself: all modes are products of what they do along one."""
    chosen = list(range(x.ndim)) if axes is None else [int(axis) % x.ndim for axis in axes.tolist()]
    given = [int(item) for item in pads.tolist()]
    before, after = given[: len(chosen)], given[len(chosen) :]
    mode = call["mode"]
    for axis, low, high in zip(chosen, before, after, strict=True):
        x = x.narrow(axis, max(-low, 0), x.shape[axis] - max(-low, 0) - max(-high, 0))
        low, high = max(low, 0), max(high, 0)
        if not low and not high:
            continue
        if mode == "constant":
            x = pad_constant(x, axis, low, high, value)
        else:
            x = x.index_select(axis, _source(mode, x.shape[axis], low, high))
    return x


def pad_constant(x: Tensor, axis: int, low: int, high: int, value: Tensor | float | None = None) -> Tensor:
    """``low`` and ``high`` more of ``value`` (zero) along ``axis``."""

    def block(size: int) -> Tensor:
        sizes = list(x.shape)
        sizes[axis] = size
        if isinstance(value, Tensor):
            return value.reshape(()).to(x.dtype).expand(sizes)
        return torch.full(sizes, 0 if value is None else value, dtype=x.dtype)

    return torch.cat([*([block(low)] if low else []), x, *([block(high)] if high else [])], axis)


def _source(mode: str, length: int, low: int, high: int) -> Tensor:
    """For each place along a padded axis, where its element comes from."""
    at = torch.arange(-low, length + high)
    if mode == "edge":
        return at.clamp(0, length - 1)
    if mode == "wrap":
        return at.remainder(length)
    if mode == "reflect":
        period = max(2 * (length - 1), 1)
        at = at.remainder(period)
        return torch.where(at >= length, period - at, at)
    raise NotImplementedError(f"mode '{mode}'")


@KERNELS.operator("DepthToSpace")
def depth_to_space(call: Call, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    b = call["blocksize"]
    if call["mode"] == "DCR":
        blocks = x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, c // b**2, b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, c // b**2, h * b, w * b)


@KERNELS.operator("SpaceToDepth")
def space_to_depth(call: Call, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    b = call["blocksize"]
    blocks = x.reshape(n, c, h // b, b, w // b, b)
    if call.get("mode", "DCR") == "CRD":
        return blocks.permute(0, 1, 3, 5, 2, 4).reshape(n, c * b**2, h // b, w // b)
    return blocks.permute(0, 3, 5, 1, 2, 4).reshape(n, c * b**2, h // b, w // b)


@KERNELS.operator("ReverseSequence")
def reverse_sequence(call: Call, x: Tensor, lengths: Tensor) -> Tensor:
    """The first ``lengths[b]`` along the time axis backwards, the rest as it is."""
    batch, time = call["batch_axis"], call["time_axis"]
    steps = torch.arange(x.shape[time])[:, None]
    count = lengths[None, :]
    source = torch.where(steps < count, count - 1 - steps, steps)  # (time, batch)
    if batch < time:
        source = source.T
    shape = [1] * x.ndim
    shape[batch], shape[time] = x.shape[batch], x.shape[time]
    return x.gather(time, source.reshape(shape).expand(x.shape))


@KERNELS.operator("Col2Im")
def col2im(call: Call, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
    """Sums the columns (N, C · prod(block), L) where they came from, in any number of dims."""
    size, kernel = image.tolist(), block.tolist()
    rank = len(size)
    strides = call.get("strides") or [1] * rank
    dilations = call.get("dilations") or [1] * rank
    pads = call.get("pads") or [0] * (2 * rank)
    padded = [size[i] + pads[i] + pads[i + rank] for i in range(rank)]
    counts = [(padded[i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(rank)]
    index = torch.zeros([*kernel, *counts], dtype=torch.int64)
    for i in range(rank):
        along = (torch.arange(kernel[i]) * dilations[i])[:, None] + torch.arange(counts[i]) * strides[i]
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = kernel[i], counts[i]
        index = index * padded[i] + along.reshape(shape)
    n = x.shape[0]
    c = x.shape[1] // math.prod(kernel)
    flat = torch.zeros(n, c, math.prod(padded), dtype=x.dtype)
    made = flat.index_add(2, index.reshape(-1), x.reshape(n, c, index.numel())).reshape(n, c, *padded)
    return _cropped(made, [(pads[i], size[i]) for i in range(rank)])


def _cropped(x: Tensor, ranges: Sequence[tuple[int, int]]) -> Tensor:
    """The trailing axes from a start on, so many."""
    for i, (start, count) in enumerate(ranges):
        x = x.narrow(x.ndim - len(ranges) + i, start, count)
    return x
