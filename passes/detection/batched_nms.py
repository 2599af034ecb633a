"""Non-maximum suppression within each class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from passes.detection import _draw as draw
from passes.detection._nms import (
    column,
    iou_value,
    reference_nms,
    select,
    single,
    suppression_says_little,
)
from passes.detection.nms import descending, kept, ranks
from rewriter.placeholder import Case, Placeholder, decomposition, f32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rewriter.placeholder import Builder, Value

#: torchvision moves the classes apart up to so many boxes, and takes them one by one beyond.
_FEW = 1000


class BatchedNms(Placeholder):
    """Indices of the boxes (N, 4) that no better box of their class `idxs` (N,) overlaps, by decreasing score.

    `torchvision.ops.batched_nms`, which up to 1000 boxes moves those of class c by c times the largest coordinate + 1
    (so that negative coordinates may reach into another class), and compares class by class beyond that.  A
    number of boxes that is not known counts as few, as it does in torchvision's own exports.  Equal scores stay in
    the order of the boxes, which torchvision leaves open beyond 1000.
    """

    matches = ("BatchedNms", "torchvision::batched_nms")
    shapes = "boxes: N 4; scores: N; idxs: N; iou_threshold: () | 1"
    aliases = {"classes": "idxs", "labels": "idxs"}  # noqa: RUF012

    def reference(self, boxes: Any, scores: Any, idxs: Any, iou_threshold: Any) -> Any:
        """As `torchvision/ops/boxes.py` (v0.29.1); float16 is computed in float32."""
        import torch

        iou = float(iou_threshold)
        if boxes.dtype == torch.float16:
            boxes = boxes.float()
        if boxes.numel() == 0:
            return torch.empty(0, dtype=torch.int64)
        if len(boxes) <= _FEW:
            return reference_nms(boxes + (idxs.to(boxes) * (boxes.max() + 1))[:, None], scores, iou)
        remains = torch.zeros(len(boxes), dtype=torch.bool)
        for label in idxs.unique():
            mine = (idxs == label).nonzero()[:, 0]
            remains[mine[reference_nms(boxes[mine], scores[mine], iou)]] = True
        order = scores.sort(stable=True, descending=True).indices
        return order[remains[order]]

    def says_little(self, arguments: Mapping[str, Any], results: tuple[Any, ...]) -> str | None:
        return suppression_says_little(arguments["boxes"], results[0], arguments["iou_threshold"])

    @decomposition()
    def moved_apart(
        self, g: Builder, boxes: Value, scores: Value, idxs: Value, iou_threshold: float | Value
    ) -> Value:
        if boxes.size(0) == 0:
            return g.ints([])
        wide = g.cast(boxes, TensorProto.DOUBLE if boxes.dtype == TensorProto.DOUBLE else TensorProto.FLOAT)
        numbers = g.flatten(wide)
        if not boxes.size(0):
            # There may be no box; then any number will do.
            numbers = g.concat([numbers, g.const([float("-inf")], wide)], axis=0)
        largest = g.reduce_max(numbers, [0])
        offsets = g.cast(idxs, wide) * (largest + 1)
        apart = wide + g.unsqueeze(offsets, [1])
        return kept(g, single(g, apart), scores, iou_value(g, iou_threshold))

    @decomposition(
        portable=False,  # Unique
        when=lambda **arguments: _many(arguments["boxes"]),
        requires=lambda **arguments: _many(arguments["boxes"]),
        reason="torchvision compares class by class from 1001 boxes on, and so many fewer pairs",
    )
    def by_class(
        self, g: Builder, boxes: Value, scores: Value, idxs: Value, iou_threshold: float | Value
    ) -> Value:
        """One row of scores to each class that occurs.  A box's score is its rank, and 0 in the rows of others."""
        order = descending(g, scores)
        labels = g.gather(g.cast(idxs, TensorProto.INT64), order, axis=0)
        occurring = g.op("Unique", labels, sorted=1)
        mine = g.equal(g.unsqueeze(occurring, [1]), g.unsqueeze(labels, [0]))
        rows = g.unsqueeze(g.where_(mine, ranks(g, boxes), 0.0), [0])
        corners = g.unsqueeze(g.gather(single(g, boxes), order, axis=0), [0])
        count = int(boxes.size(0) or 1)
        floor = g.const([0.0], TensorProto.FLOAT)
        places = column(g, select(g, corners, rows, count, iou_value(g, iou_threshold), floor), 2)
        # By class so far; back into the order of the scores.
        sorted_places = g.top_k(places, g.dim(places, 0), axis=0, largest=False)[0]
        return g.gather(order, sorted_places, axis=0)

    def cases(self) -> Iterator[Case]:
        few = i64(24, low=0, high=4)
        yield Case(f32(24, 4, draw=draw.boxes), f32(24, draw=draw.distinct), few, iou_threshold=0.5)
        yield Case(f32(24, 4, draw=draw.boxes), f32(24, draw=draw.tied(3)), few, f32(value=0.375))
        # The form is the same: on other values.
        once: Any = {"opsets": (13, 13), "dtypes": ("float32",), "reason": "as written above"}
        # One class; each box its own; classes that are far apart, and below zero.
        yield Case(
            f32(12, 4, draw=draw.boxes),
            f32(12, draw=draw.tied(4)),
            i64(12, high=1),
            iou_threshold=0.25,
            **once,
        )
        yield Case(
            f32(4, 4, value=((1, 2, 3, 4),) * 4),
            f32(4, draw=draw.tied(2)),
            i64(4, value=(3, 1, 2, 0)),
            iou_threshold=0.0,
            **once,
        )
        yield Case(
            f32(12, 4, draw=draw.boxes),
            f32(12, draw=draw.distinct),
            i64(12, low=-2, high=90),
            iou_threshold=0.5,
            **once,
        )
        # Only negative coordinates, swapped corners, no area: as the arithmetic of torchvision has it.
        yield Case(
            f32(
                6,
                4,
                value=(
                    (-9, -9, -5, -5),
                    (-9, -9, -5, -6),
                    (-3, -3, -5, -5),
                    (-8, -8, -8, -8),
                    (-20, -20, -4, -4),
                    (-20, -20, -4, -5),
                ),
            ),
            f32(6, value=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6)),
            i64(6, value=(0, 1, 0, 1, 2, 2)),
            iou_threshold=0.25,
            **once,
        )
        nan, inf = float("nan"), float("inf")
        yield Case(
            f32(6, 4, draw=draw.boxes),
            f32(6, value=(0.5, nan, inf, -inf, nan, 0.0)),
            i64(6, high=2),
            iou_threshold=0.25,
            **once,
        )
        yield Case(f32(0, 4), f32(0), i64(0), iou_threshold=0.5)
        yield Case(f32(1, 4, draw=draw.boxes), f32(1), i64(1), iou_threshold=0.5, **once)
        # Many: class by class.  The one box of a class of its own lies upon others.
        yield Case(
            f32(1001, 4, draw=draw.boxes),
            f32(1001, draw=draw.tied(200)),
            i64(1001, low=-1, high=3),
            iou_threshold=0.5,
            dtypes=("float32",),
        )


def _many(boxes: Value) -> bool:
    return (boxes.size(0) or 0) > _FEW
