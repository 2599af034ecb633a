"""What convolutions and pools have in common: how windows lie on padded axes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rewriter.interpret.operators.movement import pad_constant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rewriter.interpret.call import Call


@dataclass(frozen=True)
class Windows:
    """Per spatial axis: size, stride and dilation of the windows, padding, and how many there are."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    begins: list[int]
    ends: list[int]
    counts: list[int]

    @property
    def extents(self) -> list[int]:
        """From the first to the last element of a window."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]


def windows(call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> Windows:
    """By the attributes ``auto_pad``, ``pads``, ``strides``, ``dilations`` and ``ceil_mode`` that the node has."""
    rank = len(sizes)
    strides = call.get("strides") or [1] * rank
    dilations = call.get("dilations") or [1] * rank
    pads = call.get("pads") or [0] * (2 * rank)
    mode = call.get("auto_pad", "NOTSET")
    begins, ends, counts = list(pads[:rank]), list(pads[rank:]), []
    for i, size in enumerate(sizes):
        extent = (kernel[i] - 1) * dilations[i] + 1
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            total = max((-(-size // strides[i]) - 1) * strides[i] + extent - size, 0)
            small, large = total // 2, total - total // 2
            begins[i], ends[i] = (small, large) if mode == "SAME_UPPER" else (large, small)
        elif mode == "VALID":
            begins[i] = ends[i] = 0
        room = size + begins[i] + ends[i] - extent
        count = room // strides[i] + 1
        if call.get("ceil_mode", 0):
            count = -(-room // strides[i]) + 1
            if (count - 1) * strides[i] >= size + begins[i]:
                count -= 1  # a window that would lie in the padding alone
        counts.append(max(count, 0))
    return Windows(list(kernel), list(strides), list(dilations), begins, ends, counts)


def padded(x: Tensor, begins: Sequence[int], ends: Sequence[int], value: float = 0) -> Tensor:
    """The trailing axes with ``value`` around; negative amounts crop."""
    for i, (low, high) in enumerate(zip(begins, ends, strict=True)):
        axis = x.ndim - len(begins) + i
        x = x.narrow(axis, max(-low, 0), x.shape[axis] - max(-low, 0) - max(-high, 0))
        if low > 0 or high > 0:
            x = pad_constant(x, axis, max(low, 0), max(high, 0), value)
    return x


def unfolded(x: Tensor, found: Windows, value: float) -> Tensor:
    """(N, C, *sizes) → (N, C, *counts, elements of a window); ``value`` stands where there is nothing."""
    rank = len(found.kernel)
    reach = [
        (count - 1) * stride + extent
        for count, stride, extent in zip(found.counts, found.strides, found.extents, strict=True)
    ]
    ends = [r - x.shape[2 + i] - found.begins[i] for i, r in enumerate(reach)]
    x = padded(x, found.begins, ends, value)
    for i in range(rank):
        x = x.unfold(2 + i, found.extents[i], found.strides[i])
    key: tuple[Any, ...] = (..., *(slice(None, None, dilation) for dilation in found.dilations))
    x = x[key]
    return x.reshape(*x.shape[: 2 + rank], math.prod(found.kernel))
