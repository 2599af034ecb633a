"""Rows for the passes of passes/detection/; see the package's docstring.

PyTorch has none of these operators, and exporters cannot write their references, which loop: only `box_decode` has
an exporter's form to be held against.  torchvision's own export of `nms` (Unsqueeze, NonMaxSuppression, Gather,
Squeeze) was timed beside ours by hand, on boxes drawn as here, one thread, median of 201: 7.6 and 10.6 µs for 20
boxes, 61.1 and 66.8 for 300, 548 and 557 for 1000, 3679 and 3801 for 4000.  The few microseconds are what NaN scores
and swapped corners cost.
"""

from typing import Any

import numpy as np

from operator_cases import Row
from passes.detection import _draw as draw
from rewriter.placeholder import Case, f32, i64


def _sparse(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Scores of which few are above 0.25, as detectors give them."""
    return rng.uniform(0, 1, shape) ** 24


def _near(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.normal(0, 0.3, shape)


def _boxes(*shape: int) -> Any:
    return f32(*shape, draw=draw.boxes)


def _scores(*shape: int) -> Any:
    return f32(*shape, draw=_sparse)


ROWS: tuple[Row, ...] = (
    Row("nms", "100", Case(_boxes(100, 4), f32(100, draw=draw.distinct), iou_threshold=0.5)),
    Row("nms", "1000", Case(_boxes(1000, 4), f32(1000, draw=draw.distinct), iou_threshold=0.5)),
    Row(
        "batched_nms",
        "1000, 80 classes: moved apart",
        Case(_boxes(1000, 4), f32(1000, draw=draw.distinct), i64(1000, high=80), iou_threshold=0.5),
    ),
    Row(
        "batched_nms",
        "4000, 80 classes: by class",
        Case(_boxes(4000, 4), f32(4000, draw=draw.distinct), i64(4000, high=80), iou_threshold=0.5),
    ),
    Row(
        "multiclass_nms",
        "YOLO 1x8400x80, padded to 300",
        Case(
            f32(1, 8400, 4, draw=draw.centred),
            _scores(1, 80, 8400),
            score_threshold=0.25,
            max_total=300,
            box_format="cxcywh",
            layout="cn",
            padded=True,
        ),
    ),
    Row(
        "multiclass_nms",
        "4x1000x20, padded to 100",
        Case(_boxes(4, 1000, 4), _scores(4, 1000, 20), score_threshold=0.25, max_total=100, padded=True),
    ),
    Row(
        "detection",
        "SSD 1x1940x21, ragged",
        Case(
            f32(1, 1940, 4, draw=_near),
            _scores(1, 1940, 21),
            f32(1940, 4, draw=draw.centred),
            f32(value=0.25),
            f32(value=0.5),
            weights=[10.0, 10.0, 5.0, 5.0],
            anchor_format="cxcywh",
        ),
        constants=("anchors",),
    ),
    Row(
        "box_decode",
        "RetinaNet 1x76725x4",
        Case(f32(1, 76725, 4, draw=_near), _boxes(76725, 4)),
        constants=("anchors",),
        export=True,
    ),
    Row(
        "box_decode",
        "SSD 8732x4",
        Case(
            f32(8732, 4, draw=_near),
            f32(8732, 4, draw=draw.centred),
            weights=[10.0, 10.0, 5.0, 5.0],
            anchor_format="cxcywh",
        ),
        constants=("anchors",),
        export=True,
    ),
    Row(
        "box_decode",
        "Faster R-CNN 1000x364",
        Case(f32(1000, 364, draw=_near), _boxes(1000, 4), weights=[10.0, 10.0, 5.0, 5.0]),
        export=True,
    ),
)
