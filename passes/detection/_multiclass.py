"""Detections from boxes and the scores of their classes: what `multiclass_nms` and `detection` have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.detection._nms import column, iou_value, limit_of, reference_nms, score_value, select, single
from rewriter.errors import UnsupportedParameter

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value

_NONE = float("-inf")


@dataclass(frozen=True)
class Options:
    """Parameters of the selection; limits below 1 are none."""

    iou_threshold: Any
    score_threshold: Any
    max_per_class: int
    max_total: int
    class_agnostic: bool
    centred: bool
    background: int
    padded: bool

    @property
    def limits(self) -> list[int]:
        return [limit for limit in (self.max_per_class, self.max_total) if limit > 0]


@dataclass(frozen=True)
class Rows:
    """What NonMaxSuppression selected, image by image and class by class."""

    image: Value
    #: (S, 4), (S,) and (S,)
    boxes: Value
    scores: Value
    classes: Value

    @property
    def tables(self) -> tuple[Value, Value, Value]:
        return self.boxes, self.scores, self.classes


def format_of(g: Builder, box_format: str) -> bool:
    """Whether boxes are given by centre and size."""
    if box_format not in ("xyxy", "cxcywh"):
        raise UnsupportedParameter(
            f"box_format is '{box_format}'", where=g.where, remedy="it is 'xyxy' or 'cxcywh'"
        )
    return box_format == "cxcywh"


def by_class(g: Builder, scores: Value, layout: str) -> Value:
    """Scores (…, C, N)."""
    if layout == "cn":
        return scores
    if layout != "nc":
        raise UnsupportedParameter(
            f"layout is '{layout}'",
            where=g.where,
            remedy="it is 'nc' for scores (…, N, C), 'cn' for (…, C, N)",
        )
    axes = list(range(scores.rank))
    return g.transpose(scores, [*axes[:-2], axes[-1], axes[-2]])


def detections(g: Builder, boxes: Value, scores: Value, options: Options) -> tuple[Value, ...]:
    """Boxes, scores, classes and counts of boxes ([B,] N, 4) and scores ([B,] C, N)."""
    if options.padded and options.max_total < 1:
        raise UnsupportedParameter(
            "padded results have as many rows as max_total says, which is not given", where=g.where
        )
    alone = boxes.rank == 2
    if alone:
        boxes, scores = g.unsqueeze(boxes, [0]), g.unsqueeze(scores, [0])
    one_list = options.class_agnostic or scores.size(1) == 1
    rows = _selected(g, boxes, scores, options)
    if boxes.size(0) != 1:
        found = _of_several_images(g, rows, g.dim(boxes, 0), options)
    else:
        # One list of one image comes sorted already (float64 only as float32 tells it).
        ordered = one_list and scores.dtype != TensorProto.DOUBLE
        found = _of_one_image(g, rows, ordered, options)
        if options.padded and not alone:
            found = (*(g.unsqueeze(item, [0]) for item in found[:3]), found[3])
    if alone:
        found = (*found[:3], g.squeeze(found[3], [0]))
    return g.cast(found[0], boxes), g.cast(found[1], scores), found[2], found[3]


def _selected(g: Builder, boxes: Value, scores: Value, options: Options) -> Rows:
    iou, threshold = iou_value(g, options.iou_threshold), score_value(g, options.score_threshold)
    boxes, scores = _comparable(g, boxes), _comparable(g, scores)
    if options.background >= 0:
        scores = _without(g, scores, options.background)
    label: Value | None = None
    if options.class_agnostic:
        scores = g.where_(g.greater(scores, g.cast(threshold, scores)), scores, _NONE)
        label = g.arg_max(scores, axis=1, keepdims=False)
        scores = g.reduce_max(scores, [1])
    centred = options.centred
    if centred and boxes.size(2) is None:
        # openvino wants to see the four coordinates.
        boxes, centred = _corners(g, boxes), False
    given = g.cast(boxes, TensorProto.FLOAT) if centred else single(g, boxes)
    # No class can have more among the best of all than the limit of all.
    limit = min([*options.limits, limit_of(boxes)])
    chosen = select(g, given, g.cast(scores, TensorProto.FLOAT), limit, iou, threshold, centred=centred)
    place = g.gather(chosen, [0, 2], axis=1)
    found = g.gather_nd(boxes, place)
    if centred:
        found = _corners(g, found)
    classes = column(g, chosen, 1) if label is None else g.gather_nd(label, place)
    if options.background == 0:
        classes = classes + 1
    elif options.background > 0:
        classes = classes + _ones(g, g.greater(classes, options.background - 1))
    return Rows(column(g, chosen, 0), found, g.gather_nd(scores, chosen), classes)


def _corners(g: Builder, boxes: Value) -> Value:
    middle, size = g.split(boxes, [2, 2], axis=boxes.rank - 1)
    half = size * 0.5
    return g.concat([middle - half, middle + half], axis=boxes.rank - 1)


def _comparable(g: Builder, x: Value) -> Value:
    """float64 as it is, everything else in float32."""
    return x if x.dtype == TensorProto.DOUBLE else g.cast(x, TensorProto.FLOAT)


def _without(g: Builder, scores: Value, background: int) -> Value:
    after = g.slice(scores, [background + 1], [2**31 - 1], [1])
    if background == 0:
        return after
    return g.concat([g.slice(scores, [0], [background], [1]), after], axis=1)


def _of_one_image(g: Builder, rows: Rows, ordered: bool, options: Options) -> tuple[Value, ...]:
    total = options.max_total
    if ordered and not options.padded:
        return (*rows.tables, _length(g, rows.scores))
    if total < 1:
        order = g.top_k(rows.scores, g.dim(rows.scores, 0), axis=0)[1]
        return (*(g.gather(table, order, axis=0) for table in rows.tables), _length(g, order))
    padded = [_padded(g, table, total) for table in rows.tables]
    if ordered:
        # NonMaxSuppression has stopped at max_total.
        return (*(g.slice(table, [0], [total], [0]) for table in padded), _length(g, rows.scores))
    keys = g.concat([rows.scores, g.const([_NONE] * total, rows.scores)], axis=0)
    best, order = g.top_k(keys, total, axis=0)
    valid = g.greater(best, _NONE)
    if not options.padded:
        order = g.gather(order, _places(g, valid), axis=0)
    tables = padded if options.padded else rows.tables
    return (*(g.gather(table, order, axis=0) for table in tables), _number(g, valid, [0], keepdims=True))


def _length(g: Builder, x: Value) -> Value:
    """Elements of a vector; no Shape, for the same reason."""
    return _number(g, g.equal(x, x), [0], keepdims=True)


def _number(g: Builder, condition: Value, axes: list[int], *, keepdims: bool) -> Value:
    return g.reduce_sum(_ones(g, condition), axes, keepdims)


def _ones(g: Builder, condition: Value) -> Value:
    """1 where it is true, else 0; a Cast would be a size to tract, which gives no sizes as results."""
    return g.where_(condition, g.ints(1), 0)


def _places(g: Builder, condition: Value) -> Value:
    """Where a vector is true."""
    return g.squeeze(g.op("NonZero", condition), [0])


def _padded(g: Builder, table: Value, count: int) -> Value:
    """``count`` rows of zeros behind."""
    return g.concat([table, _zeros(g, table, count)], axis=0)


def _zeros(g: Builder, table: Value, count: int) -> Value:
    g.afford(4 * count)
    return g.const(np.zeros((count, 4) if table.rank == 2 else (count,)), table)


def _of_several_images(g: Builder, rows: Rows, images: int | Value, options: Options) -> tuple[Value, ...]:
    """Each image sorts all rows, those of the others last."""
    total = options.max_total
    numbers = g.range(0, images if isinstance(images, int) else g.squeeze(images, [0]))
    mine = g.equal(g.unsqueeze(rows.image, [0]), g.unsqueeze(numbers, [1]))
    keys = g.where_(mine, g.unsqueeze(rows.scores, [0]), _NONE)
    if total < 1:
        best, order = g.top_k(keys, g.dim(rows.scores, 0), axis=1)
        tables = list(rows.tables)
    else:
        # The first row is zeros: there may be too few, and then those of other images tie with it.
        keys = g.concat([g.constant_of_shape([images, total], _NONE, keys), keys], axis=1)
        best, order = g.top_k(keys, total, axis=1)
        tables = [g.concat([_zeros(g, table, total), table], axis=0) for table in rows.tables]
    valid = g.greater(best, _NONE)
    count = _number(g, valid, [1], keepdims=False)
    if options.padded:
        order = g.where_(valid, order, 0)
        return (*(g.gather(table, order, axis=0) for table in tables), count)
    order = g.gather(g.flatten(order), _places(g, g.flatten(valid)), axis=0)
    return (*(g.gather(table, order, axis=0) for table in tables), count)


def reference_detections(boxes: Any, scores: Any, options: Options) -> tuple[Any, ...]:
    """The same in plain torch: boxes ([B,] N, 4) and scores ([B,] C, N)."""
    import torch

    images = []
    for one_boxes, one_scores in [(boxes, scores)] if boxes.ndim == 2 else zip(boxes, scores, strict=True):
        images.append(_reference_image(one_boxes, one_scores, options))
    counts = torch.tensor([len(image[1]) for image in images], dtype=torch.int64)
    if options.padded:
        room = options.max_total
        results = [
            torch.stack([torch.cat([x, x.new_zeros(room - len(x), *x.shape[1:])]) for x in part])
            if part
            else like.new_zeros(0, room, *shape)
            for part, like, shape in zip(
                zip(*images, strict=True) if images else ((), (), ()),
                (boxes, scores, counts),
                ((4,), (), ()),
                strict=True,
            )
        ]
        if boxes.ndim == 2:
            return (*(x[0] for x in results), counts[0])
        return (*results, counts)
    empty = (boxes.new_zeros(0, 4), scores.new_zeros(0), counts.new_zeros(0))
    parts = [torch.cat(part) for part in zip(empty, *images, strict=True)]
    return (*parts, counts[0] if boxes.ndim == 2 else counts)


def _reference_image(boxes: Any, scores: Any, options: Options) -> tuple[Any, Any, Any]:
    import torch

    wide = boxes if boxes.dtype == torch.float64 else boxes.float()
    if options.centred:
        middle, half = wide[:, :2], wide[:, 2:] * 0.5
        wide = torch.cat([middle - half, middle + half], dim=1)
    high = scores if scores.dtype == torch.float64 else scores.float()
    labels = [c for c in range(len(high)) if c != options.background]
    eligible = high.double() > float(options.score_threshold)
    picked: list[tuple[Any, Any, Any]] = []
    if options.class_agnostic:
        masked = high.where(eligible, high.new_tensor(_NONE))[labels]
        best = masked.amax(dim=0)
        label = torch.tensor(labels)[masked.argmax(dim=0)]
        lists = [(best, best > _NONE, label)]
    else:
        lists = [(high[c], eligible[c], torch.full((high.shape[1],), c)) for c in labels]
    for key, allowed, label in lists:
        mine = allowed.nonzero()[:, 0]
        kept = mine[reference_nms(wide[mine], key[mine], float(options.iou_threshold))]
        kept = kept[: options.max_per_class] if options.max_per_class > 0 else kept
        picked.append((wide[kept], key[kept], label[kept]))
    found = [torch.cat(part) for part in zip(*picked, strict=True)]
    order = found[1].sort(stable=True, descending=True).indices
    order = order[: options.max_total] if options.max_total > 0 else order
    return found[0][order].to(boxes.dtype), found[1][order].to(scores.dtype), found[2][order]
