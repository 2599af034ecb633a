"""Boxes from anchors and what a network predicts relative to them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from passes.detection import _draw as draw
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rewriter.placeholder import Builder, Floats, Value

#: torchvision's limit of predicted log-sizes: 62.5 times the anchor.
CLIP = math.log(1000 / 16)
UNWEIGHTED = (1.0, 1.0, 1.0, 1.0)


class BoxDecode(Placeholder):
    """Boxes (…, N, 4·K) from predictions `deltas` (…, N, 4·K) relative to `anchors` (N, 4), by centre and log-size.

    `decode_single` of torchvision's `BoxCoder`; SSD's priors are `anchor_format="cxcywh"`, its variances (0.1, 0.2)
    `weights=(10, 10, 5, 5)`, and without a limit `bbox_xform_clip` is inf.  Formats: xyxy or cxcywh.
    """

    matches = ("BoxDecode", "decode_boxes", "bbox_decode")
    shapes = "deltas: ... N _; anchors: ... N 4"
    aliases = {"rel_codes": "deltas", "boxes": "anchors", "clip": "bbox_xform_clip"}  # noqa: RUF012

    def reference(
        self,
        deltas: Any,
        anchors: Any,
        weights: Any = UNWEIGHTED,
        bbox_xform_clip: float = CLIP,
        anchor_format: str = "xyxy",
        box_format: str = "xyxy",
    ) -> Any:
        """As `BoxCoder.decode_single` of `torchvision/models/detection/_utils.py` (v0.29.1)."""
        return reference_decode(deltas, anchors, weights, bbox_xform_clip, anchor_format, box_format)

    def infer(self, deltas: Value, **_: Any) -> Any:
        return deltas.type

    @decomposition(requires=lambda **a: a["deltas"].size(-1) == 4, reason="one box to an anchor: in halves")
    def halves(
        self,
        g: Builder,
        deltas: Value,
        anchors: Value,
        weights: Floats = UNWEIGHTED,
        bbox_xform_clip: float = CLIP,
        anchor_format: str = "xyxy",
        box_format: str = "xyxy",
    ) -> Value:
        return decode(g, deltas, anchors, weights, bbox_xform_clip, anchor_format, box_format)

    # 1000 anchors and 91 classes: 0.48 of torch's time; in halves 1.58, by strided slices 0.59.
    @decomposition(
        requires=lambda **a: a["deltas"].rank == 2 and (a["deltas"].size(1) or 0) > 4,
        reason="several boxes to an anchor: coordinates moved to the front",
    )
    def coordinates_first(
        self,
        g: Builder,
        deltas: Value,
        anchors: Value,
        weights: Floats = UNWEIGHTED,
        bbox_xform_clip: float = CLIP,
        anchor_format: str = "xyxy",
        box_format: str = "xyxy",
    ) -> Value:
        _check(g, anchors, weights, anchor_format, box_format)
        width = int(deltas.size(1) or 0)
        many = width // 4
        middle, size = _middle_and_size(g, g.transpose(g.cast(anchors, deltas), [1, 0]), 0, anchor_format)
        flat = g.transpose(g.op("Reshape", deltas, g.ints([-1, 4])), [1, 0])
        shift, stretch = (
            g.op("Reshape", part, g.ints([2, -1, many])) for part in g.split(flat, [2, 2], axis=0)
        )
        found = _placed(
            g,
            _weighted(g, shift, weights[:2], (2, 1, 1)),
            _weighted(g, stretch, weights[2:], (2, 1, 1)),
            g.unsqueeze(middle, [2]),
            g.unsqueeze(size, [2]),
            bbox_xform_clip,
            box_format,
        )
        back = g.transpose(g.op("Reshape", g.concat(found, axis=0), g.ints([4, -1])), [1, 0])
        result: Value = g.op("Reshape", back, g.ints([-1, width]))
        return result

    @decomposition()
    def strided(
        self,
        g: Builder,
        deltas: Value,
        anchors: Value,
        weights: Floats = UNWEIGHTED,
        bbox_xform_clip: float = CLIP,
        anchor_format: str = "xyxy",
        box_format: str = "xyxy",
    ) -> Value:
        """One coordinate at a time: any rank, and any number of boxes to an anchor."""
        _check(g, anchors, weights, anchor_format, box_format)
        last = deltas.rank - 1
        every = [g.slice(deltas, [i], [np.iinfo(np.int64).max], [last], [4]) for i in range(4)]
        middle, size = _middle_and_size(g, g.cast(anchors, deltas), anchors.rank - 1, anchor_format)
        corners: list[Value] = []
        for i in range(2):
            corners += _placed(
                g,
                _weighted(g, every[i], weights[i : i + 1], ()),
                _weighted(g, every[i + 2], weights[i + 2 : i + 3], ()),
                g.slice(middle, [i], [i + 1], [anchors.rank - 1]),
                g.slice(size, [i], [i + 1], [anchors.rank - 1]),
                bbox_xform_clip,
                box_format,
            )
        ordered = [g.unsqueeze(corners[i], [last + 1]) for i in (0, 2, 1, 3)]
        result: Value = g.op("Reshape", g.concat(ordered, axis=last + 1), g.shape(deltas))
        return result

    def cases(self) -> Iterator[Case]:
        few = f32(6, 4, draw=draw.boxes)
        yield Case(f32(6, 4), few)
        yield Case(f32(2, 6, 4), few, weights=[10.0, 5.0, 4.0, 2.0])
        yield Case(f32(6, 12), few, weights=[10.0, 5.0, 4.0, 2.0])
        yield Case(f32(2, 6, 12), few, weights=[10.0, 10.0, 5.0, 5.0])
        # The forms do not differ from those above in more than this shows.
        once: Any = {"opsets": (13, 13), "dtypes": ("float32", "float64"), "reason": "as written above"}
        yield Case(f32(2, 6, 4), f32(2, 6, 4, draw=draw.boxes), **once)
        yield Case(f32(6, 12), few, **once)
        # SSD: priors by centre, no limit; and results by centre.
        centred = f32(6, 4, draw=draw.centred)
        inf, nan = float("inf"), float("nan")
        for width in (4, 8):
            yield Case(
                f32(6, width),
                centred,
                weights=[10.0, 10.0, 5.0, 5.0],
                bbox_xform_clip=inf,
                anchor_format="cxcywh",
                **once,
            )
            yield Case(f32(6, width), few, box_format="cxcywh", **once)
        # Sizes beyond the limit, and another limit.
        beyond = ((0, 0, 9, -9), (1, 2, 99, 4), (0, 0, inf, -inf), (nan, 0, nan, 0))
        yield Case(f32(4, 4, value=beyond), f32(4, 4, draw=draw.boxes))
        yield Case(f32(4, 4, value=beyond), f32(4, 4, draw=draw.boxes), bbox_xform_clip=0.5, **once)
        # No anchors, and anchors of no size.
        yield Case(f32(0, 4), f32(0, 4), **once)
        yield Case(f32(0, 8), f32(0, 4), opsets=(11, 13), dtypes=("float32",))
        yield Case(f32(2, 4), f32(2, 4, value=((1, 2, 1, 2), (3, 3, 0, 9))), **once)


def decode(
    g: Builder,
    deltas: Value,
    anchors: Value,
    weights: Floats = UNWEIGHTED,
    clip: float = CLIP,
    anchor_format: str = "xyxy",
    box_format: str = "xyxy",
) -> Value:
    """One box to an anchor: deltas (…, N, 4) and anchors that broadcast to it."""
    _check(g, anchors, weights, anchor_format, box_format)
    last = deltas.rank - 1
    middle, size = _middle_and_size(g, g.cast(anchors, deltas), anchors.rank - 1, anchor_format)
    shift, stretch = g.split(deltas, [2, 2], axis=last)
    found = _placed(
        g,
        _weighted(g, shift, weights[:2], (2,)),
        _weighted(g, stretch, weights[2:], (2,)),
        middle,
        size,
        clip,
        box_format,
    )
    return g.concat(found, axis=last)


def reference_decode(
    deltas: Any,
    anchors: Any,
    weights: Sequence[float],
    clip: float,
    anchor_format: str,
    box_format: str,
) -> Any:
    import torch

    anchors = anchors.to(deltas.dtype)
    near, far = anchors[..., :2], anchors[..., 2:]
    size = far if anchor_format == "cxcywh" else far - near
    middle = near if anchor_format == "cxcywh" else near + 0.5 * size
    every = deltas.unflatten(-1, (deltas.shape[-1] // 4, 4)) / torch.tensor(weights, dtype=deltas.dtype)
    centre = every[..., :2] * size[..., None, :] + middle[..., None, :]
    extent = every[..., 2:].clamp(max=clip).exp() * size[..., None, :]
    parts = (centre, extent) if box_format == "cxcywh" else (centre - 0.5 * extent, centre + 0.5 * extent)
    return torch.cat(parts, dim=-1).flatten(-2)


def _check(g: Builder, anchors: Value, weights: Floats, *formats: str) -> None:
    for name in formats:
        if name not in ("xyxy", "cxcywh"):
            raise UnsupportedParameter(f"a box format is '{name}'", where=g.where, remedy="xyxy or cxcywh")
    if len(weights) != 4:
        raise UnsupportedParameter(f"{len(weights)} weights are given", where=g.where, remedy="four")
    if anchors.size(-1) not in (4, None):
        raise UnsupportedParameter(f"anchors have {anchors.size(-1)} coordinates", where=g.where)


def _middle_and_size(g: Builder, anchors: Value, axis: int, box_format: str) -> tuple[Value, Value]:
    near, far = g.split(anchors, [2, 2], axis=axis)
    if box_format == "cxcywh":
        return near, far
    size = far - near
    return near + size * 0.5, size


def _weighted(g: Builder, x: Value, weights: Floats, shape: tuple[int, ...]) -> Value:
    if all(weight == 1 for weight in weights):
        return x
    if len(set(weights)) == 1:
        return x / weights[0]
    return x / g.const(np.asarray(weights).reshape(shape), x)


def _placed(
    g: Builder, shift: Value, stretch: Value, middle: Value, size: Value, clip: float, box_format: str
) -> list[Value]:
    """Near and far corner, or centre and extent."""
    centre = shift * size + middle
    if not math.isinf(clip):
        stretch = g.minimum(stretch, clip)
    factor = g.exp(stretch)
    if box_format == "cxcywh":
        return [centre, factor * size]
    half = factor * (size * 0.5)
    return [centre - half, centre + half]
