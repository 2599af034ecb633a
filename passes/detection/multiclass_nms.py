"""Detections of several classes: score threshold, suppression within each class, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes.detection import _draw as draw
from passes.detection._multiclass import Options, by_class, detections, format_of, reference_detections
from passes.detection._nms import no_area
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rewriter.placeholder import Builder, Value


class MulticlassNms(Placeholder):
    """Boxes, scores and classes of what is detected, by decreasing score, and how many to each image.

    `boxes` are ([B,] N, 4), `scores` ([B,] N, C), or ([B,] C, N) with `layout="cn"`.  A box counts for a class where
    its score is above `score_threshold`; within a class (`class_agnostic`: among all, each box for its best class)
    those whose IoU with a better one exceeds `iou_threshold` go; then `max_per_class` and `max_total` remain.  Equal
    scores: the lower class first, then the earlier box.  NaN is no score.

    Results are ragged, (D, 4), (D,) and (D,), image after image; or with `padded` ([B,] max_total, 4) and so on, with
    zeros behind.  Boxes come as corners, whatever `box_format` they are given in ("xyxy" or "cxcywh").  Comparisons
    are made in float32.  The default thresholds are those of mmdeploy's `multiclass_nms`.
    """

    name = "multiclass_nms"
    matches = ("MultiClassNms",)
    shapes = "boxes: ... _ _; scores: ... _ _; iou_threshold: () | 1; score_threshold: () | 1"
    aliases = {  # noqa: RUF012
        "max_output_boxes_per_class": "max_per_class",
        "keep_top_k": "max_total",
        "max_output_boxes": "max_total",
        "max_detections": "max_total",
        "background_label_id": "background",
        "background_class": "background",
    }
    outputs = ("detected_boxes", "detected_scores", "classes", "count")

    def reference(
        self,
        boxes: Any,
        scores: Any,
        iou_threshold: Any = 0.5,
        score_threshold: Any = 0.05,
        max_per_class: int = -1,
        max_total: int = -1,
        class_agnostic: bool = False,
        box_format: str = "xyxy",
        layout: str = "nc",
        padded: bool = False,
        background: int = -1,
    ) -> Any:
        """Written from the above; torchvision's `RoIHeads.postprocess_detections` and mmdeploy's `multiclass_nms` in
        their common part."""
        scores = scores.transpose(-1, -2) if layout == "nc" else scores
        options = Options(
            iou_threshold,
            score_threshold,
            max_per_class,
            max_total,
            class_agnostic,
            box_format == "cxcywh",
            background,
            padded,
        )
        return reference_detections(boxes, scores, options)

    def says_little(self, arguments: Mapping[str, Any], results: tuple[Any, ...]) -> str | None:
        corners = arguments["box_format"] == "xyxy"
        if corners and no_area(arguments["boxes"]):
            return "no box has an area"
        if not bool((arguments["scores"] > np.asarray(arguments["score_threshold"])).any()):
            return "no score is above the threshold"
        return None

    def decompose(
        self,
        g: Builder,
        boxes: Value,
        scores: Value,
        iou_threshold: float | Value = 0.5,
        score_threshold: float | Value = 0.05,
        max_per_class: int = -1,
        max_total: int = -1,
        class_agnostic: bool = False,
        box_format: str = "xyxy",
        layout: str = "nc",
        padded: bool = False,
        background: int = -1,
    ) -> tuple[Value, ...]:
        options = Options(
            iou_threshold,
            score_threshold,
            max_per_class,
            max_total,
            class_agnostic,
            format_of(g, box_format),
            background,
            padded,
        )
        return detections(g, boxes, by_class(g, scores, layout), options)

    def cases(self) -> Iterator[Case]:
        one = (f32(12, 4, draw=draw.boxes), f32(12, 3, draw=draw.distinct))
        two = (f32(2, 12, 4, draw=draw.boxes), f32(2, 12, 3, draw=draw.distinct))
        yield Case(*one, score_threshold=0.25)
        yield Case(*two, score_threshold=0.25, max_per_class=2, max_total=5)
        yield Case(*two, score_threshold=0.25, max_total=20, padded=True)  # more than there are
        yield Case(*two, f32(value=0.25), f32(value=0.5), max_total=6, padded=True)
        yield Case(*one, class_agnostic=True, score_threshold=0.5, max_total=3)
        yield Case(
            f32(2, 12, 4, draw=draw.centred),
            f32(2, 3, 12, draw=draw.distinct),
            box_format="cxcywh",
            layout="cn",
            max_total=6,
        )
        # The forms do not differ from those above in more than this shows.
        once: Any = {
            "opsets": (13, 13),
            "dtypes": ("float32",),
            "reason": "as written above, on other values",
        }
        yield Case(*two, score_threshold=0.25, **once)
        yield Case(*one, score_threshold=0.25, max_per_class=2, max_total=5, **once)
        yield Case(*one, score_threshold=0.25, max_total=20, padded=True, **once)
        yield Case(*two, class_agnostic=True, score_threshold=0.75, max_total=4, padded=True, **once)
        for background in (0, 1, 2):
            yield Case(*one, score_threshold=0.25, background=background, max_total=8, **once)
        for padded in (False, True):
            yield Case(
                f32(1, 12, 4, draw=draw.boxes),
                f32(1, 1, 12, draw=draw.distinct),
                max_total=3,
                layout="cn",
                padded=padded,
                **once,
            )
            # Nothing is found; there are no boxes.
            yield Case(*two, score_threshold=1.0, max_total=3, padded=padded, **once)
            yield Case(f32(2, 0, 4), f32(2, 0, 3), max_total=3, padded=padded, **once)
            yield Case(f32(1, 0, 4), f32(1, 0, 3), max_total=3, padded=padded, **once)
        # Equal scores in every class.
        ties = f32(2, 12, 3, draw=draw.tied(3))
        yield Case(f32(2, 12, 4, draw=draw.boxes), ties, max_total=8, padded=True, **once)
        yield Case(f32(12, 4, draw=draw.boxes), f32(12, 3, draw=draw.tied(3)), max_total=8, **once)
        # A box without area overlaps nothing, nor one with its corners swapped; NaN is no score, infinity is one.
        nan, inf = float("nan"), float("inf")
        corners = ((5, 5, 5, 5), (5, 5, 5, 5), (10, 10, 0, 0), (0, 0, 10, 10), (0, 0, 10, 9), (-9, -9, 1, 1))
        values = ((0.5, nan), (0.5, 0.1), (0.75, 0.25), (0.25, inf), (nan, 0.5), (-inf, 0.25))
        odd = (f32(6, 4, value=corners), f32(6, 2, value=values))
        for agnostic in (False, True):
            yield Case(*odd, class_agnostic=agnostic, **once)
        yield Case(*odd, score_threshold=-inf, max_per_class=3, **once)
