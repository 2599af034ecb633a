"""The whole end of a detector: from what the network predicts to detections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from passes.detection import _draw as draw
from passes.detection._multiclass import Options, by_class, detections, reference_detections
from passes.detection.box_decode import CLIP, UNWEIGHTED, decode, reference_decode
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Floats, Value


class Detection(Placeholder):
    """Boxes, scores and classes of what a network detects, and how many to each image.

    `deltas` ([B,] N, 4) are relative to `anchors` (N, 4) as in `box_decode`; without anchors they are the boxes.
    `logits` ([B,] N, C), or ([B,] C, N) with `layout="cn"`, become scores by `activation`: "none", "sigmoid", or
    "softmax" over the classes.  Then `multiclass_nms`, at thresholds that may be computed.
    """

    matches = ("Detection", "DetectionPostprocess")
    shapes = (
        "deltas: ... _ _; logits: ... _ _; anchors: ... N 4; score_threshold: () | 1; iou_threshold: () | 1"
    )
    aliases = {  # noqa: RUF012
        "boxes": "deltas",
        "scores": "logits",
        "nms_threshold": "iou_threshold",
        "clip": "bbox_xform_clip",
        "keep_top_k": "max_total",
        "max_detections": "max_total",
        "max_output_boxes_per_class": "max_per_class",
        "background_label_id": "background",
    }
    outputs = ("detected_boxes", "detected_scores", "classes", "count")

    def reference(
        self,
        deltas: Any,
        logits: Any,
        anchors: Any,
        score_threshold: Any,
        iou_threshold: Any,
        weights: Any = UNWEIGHTED,
        bbox_xform_clip: float = CLIP,
        anchor_format: str = "xyxy",
        activation: str = "none",
        max_per_class: int = -1,
        max_total: int = 100,
        class_agnostic: bool = False,
        layout: str = "nc",
        padded: bool = False,
        background: int = -1,
    ) -> Any:
        """Composed of the references of `box_decode` and `multiclass_nms`."""
        scores = logits.transpose(-1, -2) if layout == "nc" else logits
        if activation != "none":
            scores = scores.sigmoid() if activation == "sigmoid" else scores.softmax(-2)
        boxes = deltas
        if anchors is not None:
            boxes = reference_decode(deltas, anchors, weights, bbox_xform_clip, anchor_format, "xyxy")
        options = Options(
            iou_threshold,
            score_threshold,
            max_per_class,
            max_total,
            class_agnostic,
            anchors is None and anchor_format == "cxcywh",
            background,
            padded,
        )
        return reference_detections(boxes, scores, options)

    def terms(self, activation: str = "none", **_: Any) -> Any:
        return {"Sigmoid": 1.0} if activation == "sigmoid" else {}

    def decompose(
        self,
        g: Builder,
        deltas: Value,
        logits: Value,
        anchors: Value | None,
        score_threshold: float | Value,
        iou_threshold: float | Value,
        weights: Floats = UNWEIGHTED,
        bbox_xform_clip: float = CLIP,
        anchor_format: str = "xyxy",
        activation: str = "none",
        max_per_class: int = -1,
        max_total: int = 100,
        class_agnostic: bool = False,
        layout: str = "nc",
        padded: bool = False,
        background: int = -1,
    ) -> tuple[Value, ...]:
        if activation not in ("none", "sigmoid", "softmax"):
            raise UnsupportedParameter(
                f"activation is '{activation}'", where=g.where, remedy="it is 'none', 'sigmoid' or 'softmax'"
            )
        if activation == "sigmoid":
            logits = g.sigmoid(logits)
        elif activation == "softmax":
            logits = g.softmax(logits, -1 if layout == "nc" else -2)
        boxes = deltas
        if anchors is not None:
            boxes = decode(g, deltas, anchors, weights, bbox_xform_clip, anchor_format)
        options = Options(
            iou_threshold,
            score_threshold,
            max_per_class,
            max_total,
            class_agnostic,
            anchors is None and anchor_format == "cxcywh",
            background,
            padded,
        )
        return detections(g, boxes, by_class(g, logits, layout), options)

    def cases(self) -> Iterator[Case]:
        def near(rng: Any, shape: tuple[int, ...]) -> Any:
            """Predictions that move the anchors a little; in steps that float16 has."""
            return (rng.normal(0, 0.2, shape) * 64).round() / 64

        anchors = f32(10, 4, draw=draw.boxes)
        thresholds = (f32(value=0.25), f32(value=0.5))
        one = (f32(10, 4, draw=near), f32(10, 3, draw=draw.distinct), anchors, *thresholds)
        # float16 decides otherwise about boxes that it rounds.
        wide = ("float32", "float64")
        yield Case(*one, dtypes=wide)
        yield Case(
            f32(2, 10, 4, draw=near),
            f32(2, 10, 3, draw=lambda rng, s: draw.distinct(rng, s) * 6 - 3),
            anchors,
            *thresholds,
            weights=[10.0, 10.0, 5.0, 5.0],
            activation="sigmoid",
            max_total=6,
            padded=True,
        )
        once: Any = {
            "opsets": (13, 13),
            "dtypes": ("float32",),
            "reason": "as written above, on other values",
        }
        yield Case(
            f32(2, 10, 4, draw=near),
            f32(2, 3, 10, draw=lambda rng, s: draw.distinct(rng, s) * 6),
            f32(10, 4, draw=draw.centred),
            *thresholds,
            weights=[10.0, 10.0, 5.0, 5.0],
            bbox_xform_clip=float("inf"),
            anchor_format="cxcywh",
            activation="softmax",
            layout="cn",
            background=0,
            max_per_class=3,
            max_total=5,
            **once,
        )
        yield Case(
            *one[:3], f32(1, value=(0.5,)), f32(1, value=(0.25,)), class_agnostic=True, max_total=3, **once
        )
        # Boxes that are decoded already, and thresholds that are known.
        yield Case(
            f32(10, 4, draw=draw.boxes),
            f32(10, 3, draw=draw.distinct),
            None,
            score_threshold=0.5,
            iou_threshold=0.5,
            **once,
        )
        yield Case(
            f32(10, 4, draw=draw.centred),
            f32(10, 3, draw=draw.distinct),
            None,
            *thresholds,
            anchor_format="cxcywh",
            **once,
        )
        # Thresholds beyond what ONNX takes; nothing that is found; no anchors.
        yield Case(*one[:3], f32(value=-1.0), f32(value=2.0), **once)
        yield Case(*one[:3], f32(value=1.0), f32(value=0.0), max_total=4, padded=True, **once)
        yield Case(f32(0, 4), f32(0, 3), f32(0, 4), *thresholds, max_total=4, padded=True, **once)
