"""Resize: its inputs in the form of the target, and what only later versions can, as a product for each axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto as T

from rewriter.lower.forms.table import form

if TYPE_CHECKING:
    from rewriter.lower.writer import Writer
    from rewriter.placeholder.standard import Call
    from rewriter.placeholder.value import Value

_LATER = ("antialias", "axes", "keep_aspect_ratio_policy")


@form("Upsample")
def upsample(g: Writer, call: Call) -> Value:
    """Below opset 10: a Resize whose places are those of the old operator."""
    scales = call.input(1)
    if scales is None:
        scales = g.const(list(call.get("scales")), T.FLOAT)
    return _old(g, call.x, scales, call.get("mode", "nearest"))


def _old(g: Writer, x: Value, scales: Value, mode: str) -> Value:
    made: Value = g.newer(
        11,
        "Resize",
        x,
        g.const(np.zeros(0, np.float32)),
        scales,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return made


@form("Resize")
def resize(g: Writer, call: Call) -> Value | None:
    """Axes spelled out, empty inputs where the target requires them; the rest by weights."""
    if call.version < 11:
        assert call.inputs[1] is not None
        return _old(g, call.x, call.inputs[1], call.get("mode", "nearest"))
    x, roi, scales, sizes = call.x, call.input(1), call.input(2), call.input(3)
    rank = x.rank
    axes = [a % rank for a in call.get("axes", list(range(rank)))]
    keep = call.get("keep_aspect_ratio_policy", "stretch") != "stretch" and sizes is not None
    symmetric = call.get("coordinate_transformation_mode", "half_pixel") == "half_pixel_symmetric"
    if "Resize" not in g.absent and not (call.get("antialias", 0) or keep or symmetric):
        if call.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn" and g.opset >= 13:
            return None
        if len(axes) < rank or call.has("axes"):
            kind = scales if scales is not None else x
            ones = g.const(np.ones(rank), kind if scales is not None else T.FLOAT)
            scales = None if scales is None or _is_empty(scales) else _spread(g, ones, axes, scales)
            sizes = None if sizes is None else _spread(g, g.op("Shape", x), axes, sizes)
            if roi is not None and not _is_empty(roi):
                base = g.const([0.0] * rank + [1.0] * rank, roi)
                roi = _spread(g, base, [*axes, *(a + rank for a in axes)], roi)
        if g.opset < 13:
            empty = g.const(np.zeros(0, np.float32))
            roi, scales = roi if roi is not None else empty, scales if scales is not None else empty
        if sizes is not None and scales is not None and _is_empty(scales) and g.opset >= 13:
            scales = None
        made: Value = g.newer(min(g.opset, 13), "Resize", x, roi, scales, sizes, **call.given(*_LATER))
        return made
    if call.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    return _by_weights(g, call, axes, scales, sizes)


def _is_empty(value: Value) -> bool:
    return value.has_rank and value.rank == 1 and value.size(0) == 0


def _spread(g: Writer, base: Value, axes: list[int], values: Value) -> Value:
    """``base`` with ``values`` at ``axes``."""
    made: Value = g.op("ScatterElements", base, g.ints(axes), values, axis=0)
    return made


def _by_weights(
    g: Writer, call: Call, axes: list[int], scales: Value | None, sizes: Value | None
) -> Value | None:
    """Axis by axis: nearest by a Gather, linear and cubic by a product with the weights of every element."""
    x = call.x
    wide = T.DOUBLE if x.dtype == T.DOUBLE else T.FLOAT
    lengths = [g.cast(g.sizes([g.dim(x, axis)]), wide) for axis in axes]
    if sizes is not None:
        wanted = [g.cast(g.gather(sizes, [i], 0), wide) for i in range(len(axes))]
        factors = [w / n for w, n in zip(wanted, lengths, strict=True)]
        policy = call.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            both = g.concat(factors, 0)
            one = (g.reduce_min if policy == "not_larger" else g.reduce_max)(both, [0])
            factors = [one] * len(axes)
            wanted = [g.floor(n * one + 0.5) for n in lengths]
    else:
        assert scales is not None
        factors = [g.cast(g.gather(scales, [i], 0), wide) for i in range(len(axes))]
        if scales.constant is not None:
            known = [float(v) for v in scales.constant]
            axes_left = [i for i, v in enumerate(known) if v != 1.0]
            axes = [axes[i] for i in axes_left]
            lengths, factors = [lengths[i] for i in axes_left], [factors[i] for i in axes_left]
        wanted = [g.floor(n * f) for n, f in zip(lengths, factors, strict=True)]
    y = x if call.get("mode", "nearest") == "nearest" else g.cast(x, wide)
    for axis, length, factor, count in zip(axes, lengths, factors, wanted, strict=True):
        places = _places(g, call, length, factor, count)
        if call.get("mode", "nearest") == "nearest":
            index = g.op("Min", _nearest(g, call, places), length - 1.0)
            index = g.cast(g.op("Max", index, g.const(0.0, wide)), T.INT64)
            y = g.gather(y, index, axis)
            continue
        weights = _weights(g, call, places, length, factor)
        order = [i for i in range(x.rank) if i != axis] + [axis]
        moved = g.matmul(g.transpose(y, order), g.transpose(weights, [1, 0]))
        y = g.transpose(moved, [order.index(i) for i in range(x.rank)])
    return g.cast(y, x)


def _numbers(g: Writer, start: Value | float, end: Value, like: Value) -> Value:
    """start, start + 1, … below ``end``, as floating-point numbers."""
    low = g.const(start, like) if isinstance(start, (int, float)) else g.op("Reshape", start, g.ints([]))
    return g.one("Range", low, g.op("Reshape", end, g.ints([])), g.const(1.0, like))


def _places(g: Writer, call: Call, length: Value, factor: Value, count: Value) -> Value:
    """Where each element of the result lies in the input."""
    at = _numbers(g, 0.0, count, length)
    mode = call.get("coordinate_transformation_mode", "half_pixel")
    half = (at + 0.5) / factor - 0.5
    if mode == "half_pixel":
        return half
    if mode == "half_pixel_symmetric":
        share = count / (factor * length)
        return half + length * 0.5 * (g.const(1.0, length) - share)
    if mode == "asymmetric":
        return at / factor
    zero = g.const(0.0, length)
    if mode == "pytorch_half_pixel":
        return g.where_(g.greater(count, 1.0), half, zero)
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / factor
    span = g.op("Max", factor * length - 1.0, g.const(1e-6, length))  # align_corners
    return g.where_(g.greater(count, 1.0), at * (length - 1.0) / span, zero)


def _nearest(g: Writer, call: Call, places: Value) -> Value:
    mode = call.get("nearest_mode", "round_prefer_floor")
    if mode == "floor":
        return g.floor(places)
    if mode == "ceil":
        return g.ceil(places)
    return g.ceil(places - 0.5) if mode == "round_prefer_floor" else g.floor(places + 0.5)


def _weights(g: Writer, call: Call, places: Value, length: Value, factor: Value) -> Value:
    """How much of each element (columns) is in each result (rows).  Beyond the edge stands the edge."""
    cubic = call.get("mode") == "cubic"
    one = g.const(1.0, length)
    shrink = g.op("Min", factor, one) if call.get("antialias", 0) else one
    reach = g.ceil(g.const(2.0 if cubic else 1.0, length) / shrink) + 1.0
    points = _numbers(g, -reach, length + reach, length)
    distance = g.abs((g.unsqueeze(points, [0]) - g.unsqueeze(places, [1])) * shrink)
    weights = _cubic(g, distance, call.get("cubic_coeff_a", -0.75)) if cubic else g.relu(one - distance)
    if call.get("exclude_outside", 0):
        inside = g.and_(g.not_(g.less(points, 0.0)), g.less(points, length))
        weights = weights * g.cast(g.unsqueeze(inside, [0]), length)
    weights = weights / g.reduce_sum(weights, [1])
    edge = g.op("Max", g.op("Min", points, length - 1.0), g.const(0.0, length))
    elements = _numbers(g, 0.0, length, length)
    there = g.cast(
        g.equal(g.cast(g.unsqueeze(edge, [1]), T.INT64), g.cast(g.unsqueeze(elements, [0]), T.INT64)), length
    )
    return g.matmul(weights, there)


def _cubic(g: Writer, d: Value, a: Any) -> Value:
    """The cubic kernel of distances."""
    near = ((d * (a + 2.0)) - (a + 3.0)) * d * d + 1.0
    far = ((d - 5.0) * d + 8.0) * d * a - 4.0 * a
    zero = g.const(0.0, d)
    return g.where_(g.less(d, 1.0), near, g.where_(g.less(d, 2.0), far, zero))
