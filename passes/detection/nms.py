"""Non-maximum suppression of one set of boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.detection import _draw as draw
from passes.detection._nms import (
    column,
    iou_value,
    limit_of,
    reference_nms,
    select,
    single,
    sortable,
    suppression_says_little,
)
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rewriter.placeholder import Builder, Value


class Nms(Placeholder):
    """Indices of the boxes (N, 4) that remain when those that overlap a better one go, by decreasing score.

    `torchvision.ops.nms`, and mmcv's with its `offset`.  Overlaps are computed in float32, whatever the dtype.
    """

    matches = ("Nms", "torchvision::nms", "mmcv::nms", "mmcv::NonMaxSuppression")
    shapes = "boxes: N 4; scores: N; iou_threshold: () | 1"
    aliases = {"dets": "boxes", "bboxes": "boxes"}  # noqa: RUF012

    def reference(self, boxes: Any, scores: Any, iou_threshold: Any, offset: int = 0) -> Any:
        return reference_nms(boxes, scores, float(iou_threshold), offset)

    def says_little(self, arguments: Mapping[str, Any], results: tuple[Any, ...]) -> str | None:
        return suppression_says_little(
            arguments["boxes"], results[0], arguments["iou_threshold"], arguments["offset"]
        )

    def decompose(
        self, g: Builder, boxes: Value, scores: Value, iou_threshold: float | Value, offset: int = 0
    ) -> Value:
        if offset not in (0, 1):
            raise UnsupportedParameter(f"offset is {offset}", where=g.where, remedy="mmcv's is 0 or 1")
        if boxes.size(0) == 0:
            return g.ints([])
        return kept(g, single(g, boxes, offset), scores, iou_value(g, iou_threshold))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(24, 4, draw=draw.boxes), f32(24, draw=draw.distinct), iou_threshold=0.5)
        yield Case(f32(24, 4, draw=draw.boxes), f32(24, draw=draw.distinct), f32(1, value=(0.25,)), seed=1)
        # Everything that touches; nothing at all; beyond what ONNX takes.
        for threshold in (0.0, 1.0, 1.5):
            yield Case(f32(16, 4, draw=draw.boxes), f32(16, draw=draw.distinct), iou_threshold=threshold)
        yield Case(f32(16, 4, draw=draw.boxes), f32(16, draw=draw.distinct), iou_threshold=0.5, offset=1)
        # Equal scores stay in the order of the boxes.
        yield Case(f32(24, 4, draw=draw.boxes), f32(24, draw=draw.tied(3)), iou_threshold=0.5)
        # An IoU that is the threshold itself does not suppress: 2/4.
        yield Case(
            f32(3, 4, value=((0, 0, 2, 1), (1, 0, 3, 1), (1, 0, 3, 2))),
            f32(3, value=(0.5, 0.4, 0.3)),
            iou_threshold=0.5,
        )
        # No boxes, one, the same one again and again.
        yield Case(f32(0, 4), f32(0), iou_threshold=0.5)
        yield Case(f32(1, 4, draw=draw.boxes), f32(1), iou_threshold=0.5)
        yield Case(f32(4, 4, value=((1, 2, 3, 4),) * 4), f32(4, draw=draw.tied(2)), iou_threshold=0.5)
        # No area, no height, swapped corners, far outside, negative.
        yield Case(
            f32(
                9,
                4,
                value=(
                    (5, 5, 5, 5),
                    (5, 5, 5, 5),
                    (0, 0, 10, 0),
                    (10, 10, 0, 0),
                    (0, 0, 10, 10),
                    (0, 10, 10, 0),
                    (-9, -9, 1, 1),
                    (-9, -8, 1, 2),
                    (-6e4, -6e4, 6e4, 6e4),
                ),
            ),
            f32(9, value=(0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)),
            iou_threshold=0.25,
        )
        nan, inf = float("nan"), float("inf")
        # NaN sorts above infinity in PyTorch, and keeps its place among its like.
        yield Case(
            f32(8, 4, draw=draw.boxes),
            f32(8, value=(0.5, nan, inf, -inf, nan, 0.0, -0.0, inf)),
            iou_threshold=0.5,
        )
        # Coordinates that are none overlap nothing.
        yield Case(
            f32(5, 4, value=((0, 0, 9, 9), (nan, 0, 9, 9), (0, 0, 9, nan), (0, 0, inf, 9), (0, 0, inf, 9))),
            f32(5, value=(0.1, 0.2, 0.3, 0.4, 0.5)),
            iou_threshold=0.5,
        )
        # Scores that float32 cannot tell apart.
        yield Case(
            f32(3, 4, value=((0, 0, 4, 4), (0, 0, 4, 3), (0, 0, 3, 4))),
            f32(3, value=(0.5, 0.5 + 1e-12, 0.5 + 2e-12)),
            iou_threshold=0.375,
            dtypes=("float64",),
        )


def kept(g: Builder, boxes: Value, scores: Value, iou: Value) -> Value:
    """NMS of float32 corner boxes (N, 4) with scores (N,) of any dtype."""
    rows = g.unsqueeze(boxes, [0])
    if scores.dtype != TensorProto.DOUBLE:
        found = select(g, rows, sortable(g, scores, rank=3), limit_of(boxes), iou)
        return column(g, found, 2)
    # Sorted as they are; NonMaxSuppression is then given ranks, which float32 tells apart (to 2^24 boxes).
    order = descending(g, scores)
    sorted_rows = g.gather(rows, order, axis=1)
    found = select(g, sorted_rows, g.unsqueeze(ranks(g, boxes), [0, 1]), limit_of(boxes), iou)
    return g.gather(order, column(g, found, 2), axis=0)


def descending(g: Builder, scores: Value) -> Value:
    """The order of scores (N,) by decreasing value, NaN first, equal ones as they stand."""
    if scores.dtype == TensorProto.DOUBLE:
        largest = float(np.finfo(np.float64).max)
        scores = g.where_(g.op("IsNaN", scores), float("inf"), g.minimum(scores, largest))
    else:
        scores = sortable(g, scores)
    return g.top_k(scores, g.dim(scores, 0), axis=0)[1]


def ranks(g: Builder, boxes: Value) -> Value:
    """Scores N, N − 1, …, 1 for boxes that are sorted."""
    count = g.dim(boxes, 0)
    if isinstance(count, int):
        return g.const(np.arange(count, 0, -1, dtype=np.float32))
    return g.cast(g.range(g.squeeze(count, [0]), 0, -1), TensorProto.FLOAT)
