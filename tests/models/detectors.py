"""Detectors with their post-processing, in plain PyTorch: anchors, box decoding and non-maximum suppression as
placeholders.

`RETINA` works on batches and keeps classes apart; `SSD` takes one image through softmax, the best few, and one
suppression.  In eager mode both compute the post-processing as written here, box by box.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewriter.torch import placeholder
from tests.models.architectures import Architecture, jittered, noise

CLASSES = 3


@placeholder("com.example::BoxDecode")
def box_decode(deltas: Tensor, anchors: Tensor, weights: list[float]) -> Tensor:
    """As torchvision's `BoxCoder`: deltas (…, N, 4) of anchors (N, 4), corners of both."""
    size = anchors[:, 2:] - anchors[:, :2]
    middle = anchors[:, :2] + size / 2
    moved = deltas / torch.tensor(weights)
    middle = moved[..., :2] * size + middle
    half = moved[..., 2:].clamp(max=math.log(1000 / 16)).exp() * size / 2
    return torch.cat([middle - half, middle + half], -1)


def _kept(boxes: Tensor, scores: Tensor, threshold: float) -> list[int]:
    """Greedy suppression: from the best on, whatever overlaps by more than the threshold goes."""
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    left = scores.argsort(descending=True, stable=True).tolist()
    chosen = []
    while left:
        best, *left = left
        chosen.append(best)
        if left:
            rest = torch.tensor(left)
            shared = torch.minimum(boxes[best, 2:], boxes[rest, 2:]) - torch.maximum(
                boxes[best, :2], boxes[rest, :2]
            )
            shared = shared.clamp(min=0).prod(1)
            overlap = shared / (area[best] + area[rest] - shared)
            left = rest[overlap <= threshold].tolist()
    return chosen


@placeholder("torchvision::nms")
def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    return torch.tensor(_kept(boxes, scores, iou_threshold), dtype=torch.int64)


@placeholder("com.example::MultiClassNms")
def multiclass_nms(
    boxes: Tensor,
    scores: Tensor,
    iou_threshold: float,
    score_threshold: float,
    max_per_class: int,
    max_total: int,
    padded: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of boxes (B, N, 4) and scores (B, N, C) the best max_total of each image, zeros behind, and their number."""
    assert padded
    images = []
    for image_boxes, image_scores in zip(boxes, scores, strict=True):
        found = []
        for label, column in enumerate(image_scores.T):
            eligible = (column > score_threshold).nonzero()[:, 0]
            rows = eligible[_kept(image_boxes[eligible], column[eligible], iou_threshold)][:max_per_class]
            found += [(float(column[row]), label, int(row)) for row in rows]
        found = sorted(found, key=lambda item: -item[0])[:max_total]
        rows, labels = ([item[i] for item in found] for i in (2, 1))
        room = (0, max_total - len(found))
        images.append(
            (
                F.pad(image_boxes[rows], (0, 0, *room)),
                F.pad(image_scores[rows, labels], room),
                F.pad(torch.tensor(labels, dtype=torch.int64), room),
                torch.tensor(len(found)),
            )
        )
    return tuple(torch.stack(part) for part in zip(*images, strict=True))  # type: ignore[return-value]


@multiclass_nms.register_fake
def _(boxes: Tensor, scores: Tensor, max_total: int, **_others: Any) -> tuple[Tensor, ...]:
    batch = boxes.shape[0]
    return (
        boxes.new_empty(batch, max_total, 4),
        scores.new_empty(batch, max_total),
        boxes.new_empty(batch, max_total, dtype=torch.int64),
        boxes.new_empty(batch, dtype=torch.int64),
    )


def anchors(side: int, strides: tuple[int, ...]) -> Tensor:
    """(N, 4): two sizes at each position of each level of square images."""
    levels = []
    for stride in strides:
        at = (torch.arange(side // stride) + 0.5) * stride
        middle = torch.stack(torch.meshgrid(at, at, indexing="xy"), -1).reshape(-1, 1, 2)
        half = stride * torch.tensor([[1.0, 1.4], [1.8, 1.2]])
        levels.append(torch.cat([middle - half, middle + half], -1).reshape(-1, 4))
    return torch.cat(levels)


class Heads(nn.Module):
    """A backbone of two levels with box and class heads on each."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Conv2d(8, 12, 3, 2, 1), nn.ReLU())
        self.deeper = nn.Sequential(nn.Conv2d(12, 12, 3, 2, 1), nn.ReLU())
        self.boxes = nn.ModuleList(nn.Conv2d(12, 2 * 4, 3, 1, 1) for _ in range(2))
        self.scores = nn.ModuleList(nn.Conv2d(12, 2 * classes, 3, 1, 1) for _ in range(2))
        self.classes = classes

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        near = self.stem(pixels)
        levels = (near, self.deeper(near))

        def joined(heads: nn.ModuleList, size: int) -> Tensor:
            parts = [head(x).permute(0, 2, 3, 1) for head, x in zip(heads, levels, strict=True)]
            return torch.cat([part.reshape(part.shape[0], -1, size) for part in parts], 1)

        return joined(self.boxes, 4), joined(self.scores, self.classes)


class Retina(nn.Module):
    """Sigmoid scores; boxes (B, 40, 4), scores, classes and counts of batches of images (B, 3, 64, 64)."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(CLASSES)
        self.register_buffer("anchors", anchors(64, (8, 16)))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        deltas, logits = self.heads(pixels)
        boxes = box_decode(0.1 * deltas, self.anchors, [1.0, 1.0, 1.0, 1.0])
        # Scores that do not saturate: equal ones would be sorted by rounding.
        return multiclass_nms(boxes, (0.1 * logits).sigmoid(), 0.4, 0.68, 20, 40, True)


class Ssd(nn.Module):
    """Softmax scores; boxes (K, 4), scores (K,) and classes (K,) of one image (1, 3, 64, 64)."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = Heads(CLASSES + 1)
        self.register_buffer("anchors", anchors(64, (8, 16)))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        deltas, logits = self.heads(pixels)
        boxes = box_decode(0.2 * deltas[0], self.anchors, [10.0, 10.0, 5.0, 5.0])
        scores, labels = (0.1 * logits[0]).softmax(-1)[:, 1:].max(-1)
        scores, best = scores.topk(60)
        boxes, labels = boxes[best], labels[best]
        keep = nms(boxes, scores, 0.4)
        return boxes[keep], scores[keep], labels[keep]


def retina() -> nn.Module:
    torch.manual_seed(0)
    return jittered(Retina())


def ssd() -> nn.Module:
    torch.manual_seed(0)
    return jittered(Ssd())


def _pixels(size: int) -> tuple[Tensor]:
    return (noise(size, 3, 64, 64),)


def _image(seed: int) -> tuple[Tensor]:
    return (noise(seed, 3, 64, 64)[:1],)


RETINA = Architecture(
    retina, _pixels, nullcontext, {"com.example::BoxDecode": 1, "com.example::MultiClassNms": 1}, sizes=(1, 5)
)
#: One image: what differs from sample to sample is how many boxes come out.
SSD = Architecture(
    ssd,
    _image,
    nullcontext,
    {"com.example::BoxDecode": 1, "torchvision::nms": 1},
    sizes=(1, 5),
    dynamic=({},),
)
