"""Selection of boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()


@KERNELS.operator("NonMaxSuppression")
def non_max_suppression(
    call: Call,
    boxes: Tensor,
    scores: Tensor,
    limit: Tensor | None = None,
    iou_threshold: Tensor | None = None,
    score_threshold: Tensor | None = None,
) -> Tensor:
    """(n, 3) of batch, class and box; by batch and class the best first, of equal ones the lower index."""
    most = max(int(limit.reshape(-1)[0].item()), 0) if limit is not None and limit.numel() else 0
    overlap = 0.0 if iou_threshold is None else float(iou_threshold.reshape(-1)[0].item())
    corners = _corners(boxes.detach(), bool(call["center_point_box"]))
    found: list[list[int]] = []
    for batch in range(scores.shape[0]):
        for label in range(scores.shape[1]):
            values = scores[batch, label].detach()
            order = torch.sort(values, descending=True, stable=True).indices
            if score_threshold is not None:
                order = order[values[order] > score_threshold.detach().reshape(-1)[0]]
            found += [[batch, label, i] for i in _kept(corners[batch], order, overlap, most)]
    return torch.tensor(found, dtype=torch.int64).reshape(-1, 3)


def _kept(corners: Tensor, order: Tensor, overlap: float, most: int) -> list[int]:
    kept: list[int] = []
    while len(order) and len(kept) < most:
        best = int(order[0])
        kept.append(best)
        rest = order[1:]
        order = rest[~(_iou(corners[best], corners[rest]) > overlap)]
    return kept


def _corners(boxes: Tensor, centred: bool) -> Tensor:
    """As (low, low, high, high), whichever corner comes first."""
    if centred:
        half = boxes[..., 2:] / 2
        return torch.cat([boxes[..., :2] - half, boxes[..., :2] + half], -1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return torch.cat([torch.minimum(first, second), torch.maximum(first, second)], -1)


def _iou(box: Tensor, others: Tensor) -> Tensor:
    """Zero where they do not touch or have no area."""
    low = torch.maximum(box[:2], others[:, :2])
    high = torch.minimum(box[2:], others[:, 2:])
    common = (high - low).clamp(min=0).prod(-1)
    area, areas = (box[2:] - box[:2]).prod(-1), (others[:, 2:] - others[:, :2]).prod(-1)
    union = area + areas - common
    usable = (common > 0) & (area > 0) & (areas > 0) & (union > 0)
    return torch.where(
        usable, common / torch.where(usable, union, torch.ones_like(union)), torch.zeros_like(common)
    )
