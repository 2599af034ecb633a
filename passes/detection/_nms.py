"""What the passes of this folder share: NonMaxSuppression with PyTorch's meaning, and its reference.

The ONNX operator differs from torchvision's in what it makes of unusual inputs: it mends boxes whose corners are
swapped (torchvision gives them no overlap), it has no order for scores that are NaN, it compares in float32, and it
refuses an IoU threshold outside [0, 1].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from rewriter.errors import UnsupportedParameter

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value

#: "No limit" for NonMaxSuppression where the number of boxes is not known; not INT64_MAX, which runtimes with 32-bit
#: sizes truncate.
_NO_LIMIT = 2**31 - 1

_LARGEST = float(np.finfo(np.float32).max)
_LOWEST = float(np.nextafter(np.float32(-_LARGEST), np.float32(0)))
_SMALLEST = float(np.finfo(np.float32).tiny)


def limit_of(boxes: Value) -> int:
    """So many boxes that nothing is cut off."""
    count = boxes.size(-2)
    return _NO_LIMIT if count is None else max(count, 1)


def single(g: Builder, boxes: Value, offset: int = 0) -> Value:
    """Corner boxes (…, 4) in float32, those with swapped corners reduced to nothing, ``offset`` added to the far one.

    A width below zero overlaps nothing in torchvision; ONNX would swap the corners and find a box there.
    """
    near, far = g.split(g.cast(boxes, TensorProto.FLOAT), [2, 2], axis=boxes.rank - 1)
    if offset:
        far = far + float(offset)
    # Max(boxes, Gather(boxes, 0 1 0 1)) is one operator less, and slower from 100 boxes on.
    return g.concat([near, g.maximum(near, far)], axis=boxes.rank - 1)


def sortable(g: Builder, scores: Value, rank: int = 1) -> Value:
    """float32 scores as PyTorch sorts them: NaN above everything, which ONNX leaves open.

    Infinity makes room for it at the largest finite number; minus infinity is raised above the lowest, at and below
    which openvino takes nothing.  Axes of 1 are put in front up to ``rank``, which costs no operator here.
    """
    scores = g.cast(scores, TensorProto.FLOAT)
    above = g.const(np.full((1,) * (rank if rank > scores.rank else 0), np.inf), scores)
    return g.where_(g.op("IsNaN", scores), above, g.clip(scores, _LOWEST, _LARGEST))


def iou_value(g: Builder, threshold: float | Value) -> Value:
    """The threshold as float32 in [0, 1].

    Above 1 nothing is suppressed, nor is it at 1.  Instead of 0 stands the smallest normal number, because openvino
    suppresses at equality too, there everything.  A known one is rounded downwards, so that comparing in float32
    is comparing with the threshold itself.
    """
    if not isinstance(threshold, (int, float)):
        flat = g.cast(g.reshape(threshold, [1]), TensorProto.FLOAT)
        return g.clip(flat, _SMALLEST, 1.0)
    if not threshold >= 0:
        raise UnsupportedParameter(
            f"iou_threshold is {threshold}: boxes that do not touch at all would suppress each other",
            where=g.where,
            remedy="ONNX takes 0 to 1",
        )
    return g.const(np.asarray([max(floor32(min(threshold, 1.0)), _SMALLEST)], dtype=np.float32))


def score_value(g: Builder, threshold: float | Value) -> Value:
    if not isinstance(threshold, (int, float)):
        return g.cast(g.reshape(threshold, [1]), TensorProto.FLOAT)
    return g.const(np.asarray([floor32(threshold)], dtype=np.float32))


def floor32(number: float) -> np.float32:
    """The largest float32 that is not above ``number``: a float32 exceeds the one where it exceeds the other."""
    rounded = np.float32(number)
    return rounded if float(rounded) <= number else np.nextafter(rounded, np.float32(-np.inf))


def select(
    g: Builder,
    boxes: Value,
    scores: Value,
    limit: int,
    iou: Value,
    score: Value | None = None,
    *,
    centred: bool = False,
) -> Value:
    """NonMaxSuppression of float32 boxes (B, N, 4) and scores (B, C, N): rows (image, class, box)."""
    made: Value = g.op(
        "NonMaxSuppression",
        boxes,
        scores,
        g.ints([limit]),
        iou,
        score,
        center_point_box=1 if centred else None,
    )
    return made


def column(g: Builder, rows: Value, index: int) -> Value:
    return g.gather(rows, index, axis=1)


def suppression_says_little(boxes: Any, kept: Any, iou_threshold: Any, offset: int = 0) -> str | None:
    """Why agreement on corner boxes (N, 4) would say little of suppression; ``kept`` are the indices that remain."""
    if len(boxes) < 2:
        return "there are no two boxes"
    if no_area(boxes, offset):
        return "no box has an area"
    if len(kept) == len(boxes) and float(np.max(iou_threshold)) < 1:
        return "no box overlaps a better one by more than the threshold, so that nothing is suppressed"
    return None


def no_area(boxes: Any, offset: int = 0) -> bool:
    """Whether all corner boxes (…, 4), of which there are some, are empty."""
    sides = boxes[..., 2:].astype(np.float64) - boxes[..., :2].astype(np.float64) + offset
    return bool(boxes.size) and not bool((sides > 0).all(axis=-1).any())


def reference_nms(boxes: Any, scores: Any, iou_threshold: float, offset: int = 0) -> Any:
    """Indices that are kept, by decreasing score, in plain torch.

    As `torchvision/csrc/ops/cpu/nms_kernel.cpp` (v0.29.1): by decreasing score, equal ones by index, each box that is
    still there removes the later ones whose IoU with it exceeds the threshold; 0/0 exceeds nothing.  ``offset`` is
    mmcv's (`mmcv/ops/csrc/pytorch/cpu/nms.cpp`), added to widths and heights.  float16 is computed in float32.
    """
    import torch

    if boxes.dtype in (torch.float16, torch.bfloat16):
        boxes = boxes.float()
    x1, y1, x2, y2 = boxes.unbind(-1)
    areas = (x2 - x1 + offset) * (y2 - y1 + offset)
    alive = torch.ones(len(boxes), dtype=torch.bool)
    kept = []
    for i in scores.sort(stable=True, descending=True).indices.tolist():
        if not alive[i]:
            continue
        kept.append(i)
        width = (torch.minimum(x2[i], x2) - torch.maximum(x1[i], x1) + offset).clamp(min=0)
        height = (torch.minimum(y2[i], y2) - torch.maximum(y1[i], y1) + offset).clamp(min=0)
        inter = width * height
        alive &= ~((inter / (areas[i] + areas - inter)).double() > iou_threshold)
    return torch.tensor(kept, dtype=torch.int64)
