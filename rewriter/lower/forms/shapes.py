"""Operators on shapes: axes and sizes as attributes or inputs, computed or known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from rewriter.lower.forms.reduce import choose
from rewriter.lower.forms.table import form

if TYPE_CHECKING:
    from rewriter.lower.writer import Writer
    from rewriter.placeholder.standard import Call
    from rewriter.placeholder.value import Value

#: Beyond every size.
FAR = 2**62


@form("Shape")
def shape(g: Writer, call: Call) -> Value:
    """start and end by a Slice."""
    whole: Value = g.op("Shape", call.x)
    return g.slice(whole, [call.get("start", 0)], [call.get("end", FAR)], [0])


@form("Reshape")
def reshape(g: Writer, call: Call) -> Value | None:
    """allowzero=1: a 0 among the sizes means a size of 0.

    A computed size that has a name in the model is not 0 as a rule.  Where it is, an older Reshape takes the input's
    size at that place, which is the empty axis, or fails.
    """
    if not call.get("allowzero", 0):
        if call.has("shape"):
            return g.one("Reshape", call.x, g.ints(call.get("shape")))
        return g.one("Reshape", *call.inputs)
    x, sizes = call.x, call.input(1)
    assert sizes is not None
    known = call.types[0]
    if (sizes.constant is not None and (sizes.constant != 0).all()) or (
        sizes.constant is None and known is not None and known.shape is not None and all(known.shape)
    ):
        return g.one("Reshape", x, sizes)
    zero = numpy_helper.from_array(np.zeros(1, helper.tensor_dtype_to_np_dtype(x.dtype)))

    def empty(b: Writer) -> Value:
        return b.newer(9, "ConstantOfShape", sizes, value=zero)

    if sizes.constant is not None:
        return empty(g)
    none = g.cast(g.equal(sizes, g.const(0, sizes)), T.INT32)
    return choose(g, g.cast(_most(g, none), T.BOOL), empty, lambda b: b.op("Reshape", x, sizes))


def _most(g: Writer, x: Value) -> Value:
    """The largest element, a scalar; of nothing the smallest number."""
    result: Value = g.op("ReduceMax", x, keepdims=0)
    return result


@form("Squeeze", "Unsqueeze")
def axes_of(g: Writer, call: Call) -> Value | None:
    """Axes in the form of the target; computed ones by a Reshape."""
    x, axes = call.x, call.input(1)
    if call.has("axes") or axes is None or axes.constant is not None:
        listed = call.get("axes") if axes is None else axes.constant.reshape(-1).tolist()  # type: ignore[union-attr]
        if listed is None:
            return g.one(call.op_type, x)
        return g.squeeze(x, listed) if call.op_type == "Squeeze" else g.unsqueeze(x, listed)
    count = axes.size(0) if axes.rank else 1
    rank = x.rank + (count or 0) if call.op_type == "Unsqueeze" else x.rank
    axes = g.op("Reshape", axes, g.ints([-1]))
    assert axes is not None
    at = g.mod(axes + rank, rank)
    one = g.op("Expand", g.ints([1]), g.op("Shape", at))
    hit = g.op("ScatterElements", g.ints([0] * rank), at, one, axis=0)
    left = g.not_(g.cast(hit, T.BOOL))
    if call.op_type == "Squeeze":
        return g.one("Reshape", x, g.op("Compress", g.op("Shape", x), left, axis=0))
    if count is None:
        return None
    free = g.op("Compress", g.ints(list(range(rank))), left, axis=0)
    sizes = g.op("ScatterElements", g.ints([1] * rank), free, g.op("Shape", x), axis=0)
    return g.one("Reshape", x, sizes)


@form("Split")
def split(g: Writer, call: Call) -> Any:
    """Sizes in the form of the target; equal parts; sizes that are known only when the model runs."""
    x, axis, count = call.x, call.get("axis", 0), call.outputs
    sizes = call.input(1)
    listed = call.get("split") if sizes is None else None
    if sizes is not None and sizes.constant is not None:
        listed = [int(n) for n in sizes.constant]
    if listed is not None:
        return g.split(x, listed, axis)
    length = x.size(axis) if x.has_rank else None
    if sizes is None:
        count = call.get("num_outputs", count)
        if length is not None:
            chunk = -(-length // count)
            return g.split(x, [max(0, min(chunk, length - chunk * i)) for i in range(count)], axis)
        sizes = _chunks(g, x, axis, count)
    if g.opset >= 13:
        return g.op("Split", x, sizes, axis=axis, outputs=call.outputs)
    parts: list[Value] = []
    low: Value = g.ints([0])
    for i in range(call.outputs):
        high = low + g.gather(sizes, [i], 0)
        parts.append(g.slice(x, low, high, [axis]))
        low = high
    return parts


def _chunks(g: Writer, x: Value, axis: int, count: int) -> Value:
    """The lengths of ``count`` parts of which the last may be shorter."""
    whole = g.slice(g.op("Shape", x), [axis], [axis + 1] if axis != -1 else [FAR], [0])
    chunk = (whole + (count - 1)) / count
    parts = []
    for i in range(count):
        left = whole - chunk * i
        part = g.where_(g.less(chunk, left), chunk, left)
        parts.append(g.where_(g.less(part, 0), g.ints([0]), part))
    return g.concat(parts, 0)


@form("Pad")
def pad(g: Writer, call: Call) -> Value | None:
    """Axes as an input; mode wrap; pads and value as attributes below opset 11."""
    x, mode = call.x, call.get("mode", "constant")
    pads, value, axes = call.input(1), call.input(2), call.input(3)
    if pads is None:
        pads, value = g.ints(call.get("pads")), g.const(call.get("value", 0.0), x)
    if axes is not None:
        rank = x.rank
        at = g.mod(g.cast(axes, T.INT64) + rank, rank)
        pads = g.op("ScatterElements", g.ints([0] * (2 * rank)), g.concat([at, at + rank], 0), pads, axis=0)
    assert pads is not None
    if mode != "wrap" or g.opset >= 19:
        return g.one("Pad", x, pads, value, mode=mode)
    y = x
    for axis in range(x.rank):
        size = g.gather(g.op("Shape", y), g.ints(axis), 0)
        low, high = g.gather(pads, g.ints(axis), 0), g.gather(pads, g.ints(axis + x.rank), 0)
        if low.constant is not None and high.constant is not None and not low.constant and not high.constant:
            continue
        places = g.op("Range", g.op("Neg", low), size + high, g.ints(1))
        y = g.gather(y, g.mod(places, size), axis)
    return y


@form("Slice")
def slice_(g: Writer, call: Call) -> Value | None:
    """Attributes below opset 10, inputs since."""
    if not call.has("starts"):
        return None
    starts = call.get("starts")
    return g.slice(call.x, starts, call.get("ends"), call.get("axes", list(range(len(starts)))))


@form("Identity")
def identity(g: Writer, call: Call) -> Value | None:  # noqa: ARG001
    """Of a type that the target's Identity lacks, the value itself."""
    return call.x if not call.x.name.startswith("%") or call.x.type is None else None


@form("Flatten")
def flatten(g: Writer, call: Call) -> Value | None:
    """A negative axis, counted from the front where the target knows only those."""
    axis = call.get("axis", 1)
    if axis >= 0:
        return None
    return g.one("Flatten", call.x, axis=axis + call.x.rank)


@form("SpaceToDepth", "DepthToSpace")
def space_to_depth(g: Writer, call: Call) -> Value | None:
    """Columns before depth (CRD): sizes apart, moved, together."""
    size, mode = call.get("blocksize"), call.get("mode", "DCR")
    x = call.x
    if call.op_type == "DepthToSpace" or mode != "CRD":
        return None
    n, c, height, width = (g.dim(x, i) for i in range(4))
    high, wide = _over(height, size), _over(width, size)
    apart = g.reshape(x, [n, c, high, size, wide, size])
    return g.reshape(g.transpose(apart, [0, 1, 3, 5, 2, 4]), [n, g.product([c, size * size]), high, wide])


def _over(dim: Any, size: int) -> Any:
    return dim // size if isinstance(dim, int) else dim / size
