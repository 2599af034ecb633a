"""Quantisation, random numbers, ranges, sums and products along an axis, types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto as T
from onnx import numpy_helper

from rewriter.lower.forms.layers import seed_of
from rewriter.lower.forms.reduce import by_case
from rewriter.lower.forms.table import form
from rewriter.lower.writer import constant_of

if TYPE_CHECKING:
    from rewriter.lower.writer import Writer
    from rewriter.placeholder.standard import Call
    from rewriter.placeholder.value import Value

_LIMITS: dict[int, tuple[int, int]] = {
    T.UINT8: (0, 255),
    T.INT8: (-128, 127),
    T.UINT16: (0, 65535),
    T.INT16: (-32768, 32767),
}


@form("QuantizeLinear")
def quantize(g: Writer, call: Call) -> Value | None:
    """round(x / scale) + zero point, limited; along an axis, or in blocks of one."""
    scale, zero = call.inputs[1], call.input(2)
    assert scale is not None
    known = call.types[0]
    if known is None or known.dtype not in _LIMITS or not call.x.has_rank:
        return None
    # The oldest version has no axis at all; later ones count by 1.
    scale = _along(g, call, g.cast(scale, T.FLOAT))
    rounded = g.round(g.cast(call.x, T.FLOAT) / scale)
    if zero is not None:
        rounded = rounded + _along(g, call, g.cast(zero, T.FLOAT))
    low, high = _LIMITS[known.dtype]
    limited = g.clip(rounded, float(low), float(high))
    return g.cast(g.cast(limited, T.INT32), known.dtype)


@form("DequantizeLinear")
def dequantize(g: Writer, call: Call) -> Value | None:
    """(x − zero point) · scale; along an axis, or in blocks of one."""
    x, scale, zero = call.x, call.inputs[1], call.input(2)
    assert scale is not None
    known = call.types[0]
    if x.type is None or x.dtype not in (*_LIMITS, T.INT32) or not x.has_rank:
        return None
    # int32 beyond 2²⁴ is more than float32 holds: zero points are taken off before.
    value = g.cast(x, T.INT32)
    if zero is not None:
        value = value - _along(g, call, g.cast(zero, T.INT32))
    made = g.cast(value, T.FLOAT) * _along(g, call, g.cast(scale, T.FLOAT))
    return g.cast(made, known.dtype if known is not None else scale)


def _along(g: Writer, call: Call, value: Value) -> Value:
    """A scale or zero point in a shape that broadcasts to the tensor."""
    x = call.x
    block = call.get("block_size", 0)
    if value.rank == 0 or (value.size(0) == 1 and value.rank == 1 and not block):
        return g.one("Reshape", value, g.ints([])) if value.rank else value
    axis = call.get("axis", 1) % x.rank
    if not block:
        return g.one("Reshape", value, g.ints([-1 if i == axis else 1 for i in range(x.rank)]))
    apart = g.unsqueeze(value, [axis + 1])
    wide = g.op("Expand", apart, g.ints([block if i == axis + 1 else 1 for i in range(x.rank + 1)]))
    whole = g.reshape_keeping(
        wide,
        [-1 if i == axis else 0 for i in range(axis + 1)]
        + [int(d) for d in value.shape[axis + 1 :] if isinstance(d, int)],
    )
    return g.slice(whole, [0], g.sizes([g.dim(x, axis)]), [axis])


@form("CastLike")
def cast_like(g: Writer, call: Call) -> Value | None:
    """A Cast to the type of the second input."""
    like = call.inputs[1]
    assert like is not None
    if like.type is None:
        return None
    extra = {k: v for k, v in call.attributes.items() if k in ("saturate", "round_mode")}
    made: Value = g.newer(call.version, "Cast", call.x, to=like.dtype, **extra)
    return made


@form("Cast")
def cast(g: Writer, call: Call) -> Value | None:
    """To its own type nothing is to be done; saturate speaks of types that both are not."""
    to = call.get("to")
    if call.x.type is not None and call.x.dtype == to:
        return g.identity(call.x)
    return None


@form("Constant")
def constant(g: Writer, call: Call) -> Value | None:
    """Numbers in attributes as a tensor; the value of a sparse one, written out."""
    attributes = call.attributes
    if "sparse_value" in attributes:
        sparse = attributes["sparse_value"].sparse_tensor
        values = numpy_helper.to_array(sparse.values)
        indices = numpy_helper.to_array(sparse.indices)
        dense = np.zeros(list(sparse.dims), values.dtype)
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
        return g.const(dense)
    value = constant_of(attributes)
    return None if value is None else g.const(value)


@form("ConstantOfShape")
def constant_of_shape(g: Writer, call: Call) -> Value | None:
    """Of a type that the target's operator lacks: one of float, cast; bfloat16 holds it."""
    if "value" not in call.attributes:
        return None
    value = call.attributes["value"].t
    if value.data_type != T.BFLOAT16:
        return None
    fill = np.asarray(numpy_helper.to_array(value), np.float32)
    made = g.op("ConstantOfShape", call.x, value=numpy_helper.from_array(fill))
    return g.cast(made, value.data_type)


@form("Range")
def range_(g: Writer, call: Call) -> Value | None:
    """In float where the type is narrower; the steps are exact there."""
    known = call.x.type
    if known is None or known.dtype not in (T.FLOAT16, T.BFLOAT16):
        return None
    stash = call.get("stash_type", 1) or 1
    inputs = [g.cast(item, stash) for item in call.inputs if item is not None]
    return g.cast(g.op("Range", *inputs), known.dtype)


@form("CumProd")
def cum_prod(g: Writer, call: Call) -> Value | None:
    """Products of pairs, of fours, of eights …, each with what lies before it."""
    x, axis = call.x, call.inputs[1]
    if axis is None or axis.constant is None:
        return _cum_prod_by_mask(g, call)
    along = int(axis.constant.reshape(-1)[0]) % x.rank
    length = x.size(along)
    if length is None:
        return _cum_prod_by_mask(g, call)
    y = _turned(g, x, along) if call.get("reverse", 0) else x
    if call.get("exclusive", 0):
        y = _later(g, y, along, 1, length)
    step = 1
    while step < length:
        y = y * _later(g, y, along, step, length)
        step *= 2
    return _turned(g, y, along) if call.get("reverse", 0) else y


def _later(g: Writer, x: Value, axis: int, step: int, length: int) -> Value:
    """``x`` moved ``step`` places along ``axis``, ones before it."""
    if step >= length:
        return g.one("Expand", g.const(1, x), g.op("Shape", x))
    first = g.slice(x, [0], [step], [axis])
    ones = g.op("Expand", g.const(1, x), g.op("Shape", first))
    return g.concat([ones, g.slice(x, [0], [length - step], [axis])], axis)


def _turned(g: Writer, x: Value, axis: int) -> Value:
    return g.slice(x, [-1], [-(2**62)], [axis], [-1])


def _cum_prod_by_mask(g: Writer, call: Call) -> Value | None:
    """Rows of a triangle of ones and elements, multiplied up; for lengths or an axis that are not known before."""
    x, axis = call.x, call.inputs[1]
    assert axis is not None
    rank = x.rank
    if rank != 1 and axis.constant is None:
        rest = call.attributes
        return by_case(g, axis, rank, lambda b, at: b.newer(call.version, "CumProd", x, b.ints(at), **rest))
    along = 0 if rank == 1 else int(axis.constant.reshape(-1)[0]) % rank  # type: ignore[union-attr]
    size = g.op("Gather", g.op("Shape", x), g.ints(along), axis=0)
    places = g.op("Range", g.ints(0), size, g.ints(1))
    to, of = g.unsqueeze(places, [1]), g.unsqueeze(places, [0])
    if call.get("reverse", 0):
        to, of = of, to
    before = g.less(of, to) if call.get("exclusive", 0) else g.not_(g.greater(of, to))
    shape = [1] * along + [-1, -1] + [1] * (rank - along - 1)
    square = (
        g.op(
            "Reshape",
            g.cast(before, T.INT64),
            g.concat(
                [
                    g.ints([1] * along),
                    g.unsqueeze(size, [0]),
                    g.unsqueeze(size, [0]),
                    g.ints([1] * (rank - along - 1)),
                ],
                0,
            ),
        )
        if len(shape) > 2
        else g.cast(before, T.INT64)
    )
    spread = g.unsqueeze(x, [along])
    return g.reduce_prod(g.where_(g.cast(square, T.BOOL), spread, g.const(1, x)), [along + 1], keepdims=False)


@form("Bernoulli")
def bernoulli(g: Writer, call: Call) -> Value | None:
    """A uniform number below the probability."""
    known = call.types[0]
    if known is None:
        return None
    drawn = g.op("RandomUniformLike", g.cast(call.x, T.FLOAT), low=0.0, high=1.0, seed=seed_of(call))
    return g.cast(g.less(drawn, g.cast(call.x, T.FLOAT)), known.dtype)


@form("IsInf", "IsNaN")
def is_special(g: Writer, call: Call) -> Value | None:
    """Of narrow numbers by their value in float."""
    if call.x.type is None or call.x.dtype not in (T.FLOAT16, T.BFLOAT16):
        return None
    made: Value = g.op(call.op_type, g.cast(call.x, T.FLOAT), **call.given())
    return made
