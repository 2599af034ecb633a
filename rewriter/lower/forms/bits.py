"""Bits of integers by arithmetic: BitwiseAnd, Or, Xor, Not; shifts; remainders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto as T

from rewriter.lower.forms.table import form

if TYPE_CHECKING:
    from rewriter.lower.writer import Writer
    from rewriter.placeholder.standard import Call
    from rewriter.placeholder.value import Value

_BITS: dict[int, int] = {
    T.INT8: 8,
    T.UINT8: 8,
    T.INT16: 16,
    T.UINT16: 16,
    T.INT32: 32,
    T.UINT32: 32,
    T.INT64: 64,
    T.UINT64: 64,
}
_SIGNED = (T.INT8, T.INT16, T.INT32, T.INT64)
_FLOATS = (T.FLOAT, T.FLOAT16, T.DOUBLE, T.BFLOAT16)


@form("BitwiseNot")
def bitwise_not(g: Writer, call: Call) -> Value | None:
    """−1 − x; of unsigned numbers the largest − x."""
    x, bits = call.x, _BITS[call.x.dtype]
    if x.dtype == T.UINT64:
        return g.cast(g.const(-1, T.INT64) - g.cast(x, T.INT64), T.UINT64)
    top = -1 if x.dtype in _SIGNED else 2**bits - 1
    return g.cast(g.const(top, T.INT64) - g.cast(x, T.INT64), x)


@form("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(g: Writer, call: Call) -> Value:
    """Bit by bit, in int64; of 64 bits in halves."""
    x, other = call.x, call.inputs[1]
    assert other is not None
    name, bits = call.op_type[len("Bitwise") :], _BITS[x.dtype]
    if bits < 64:
        a, b = g.cast(x, T.INT64), g.cast(other, T.INT64)
        made = _together(g, name, a, b, bits)
        if x.dtype in _SIGNED:  # the highest bit is negative
            made = made - g.cast(g.greater(made, 2 ** (bits - 1) - 1), T.INT64) * 2**bits
        return g.cast(made, x)
    low, high = zip(*(_halves(g, value) for value in (x, other)), strict=True)
    upper = _together(g, name, high[0], high[1], 32)
    upper = upper - g.cast(g.greater(upper, 2**31 - 1), T.INT64) * 2**32
    return g.cast(upper * 2**32 + _together(g, name, low[0], low[1], 32), x)


def _halves(g: Writer, x: Value) -> tuple[Value, Value]:
    """The lower and the upper 32 bits of 64, as int64 from 0 on."""
    signed = g.cast(x, T.INT64)
    low = g.mod(signed, 2**32)
    high = g.op("Div", signed - low, g.const(2**32, T.INT64))
    return low, g.mod(high, 2**32)


def _together(g: Writer, name: str, a: Value, b: Value, bits: int) -> Value:
    """The operator on the lowest ``bits`` bits, as int64 from 0 on."""
    powers = g.const(np.array([1 << i for i in range(bits)], np.int64))
    split = []
    for value in (a, b):
        single = g.unsqueeze(g.mod(value, 2**bits), [-1])
        split.append(g.mod(g.op("Div", single, powers), 2))
    both = split[0] * split[1]
    made = {
        "And": lambda: both,
        "Or": lambda: split[0] + split[1] - both,
        "Xor": lambda: split[0] + split[1] - both * 2,
    }[name]()
    return g.reduce_sum(made * powers, [-1], keepdims=False)


@form("BitShift")
def bit_shift(g: Writer, call: Call) -> Value:
    """Signed numbers by the unsigned shift of the same bits.  Shifting by a width or more gives 0, or the sign."""
    x, count = call.x, call.inputs[1]
    assert count is not None
    direction, bits = call.get("direction"), _BITS[x.dtype]
    known = count.constant
    if x.dtype not in _SIGNED:
        if known is not None and (np.asarray(known, np.int64) < bits).all():
            return g.newer(11, "BitShift", x, count, direction=direction)
        far = g.not_(g.less(g.cast(count, T.FLOAT), g.const(float(bits), T.FLOAT)))
        near = g.where_(far, g.const(0, count), count)
        return g.where_(far, g.const(0, x), g.newer(11, "BitShift", x, near, direction=direction))
    value, n = g.cast(x, T.INT64), g.cast(count, T.INT64)
    zero = g.const(0, T.INT64)
    far = g.or_(g.less(n, 0), g.not_(g.less(n, bits)))
    negative = g.less(value, 0)
    n = g.cast(g.where_(far, zero, n), T.UINT64)
    if direction == "LEFT":
        shifted = g.newer(11, "BitShift", g.cast(value, T.UINT64), n, direction=direction)
        return g.cast(g.where_(far, zero, g.cast(shifted, T.INT64)), x)
    # −1 − x has the bits of x turned over: shifted, and turned back, the sign comes in from the left.
    turned = g.where_(negative, g.const(-1, T.INT64) - value, value)
    shifted = g.cast(g.newer(11, "BitShift", g.cast(turned, T.UINT64), n, direction=direction), T.INT64)
    back = g.where_(negative, g.const(-1, T.INT64) - shifted, shifted)
    return g.cast(g.where_(far, g.where_(negative, g.const(-1, T.INT64), zero), back), x)


@form("Mod")
def mod(g: Writer, call: Call) -> Value | None:
    """fmod=0 on floating-point numbers: the sign of the divisor."""
    x, y = call.x, call.inputs[1]
    assert y is not None
    if x.dtype not in _FLOATS or call.get("fmod", 0):
        return None
    rest = g.op("Mod", x, y, fmod=1)
    zero = g.const(0.0, x)
    opposite = g.op("Xor", g.less(rest, zero), g.less(y, zero))
    wrong = g.and_(g.not_(g.equal(rest, zero)), opposite)
    return g.where_(wrong, rest + y, rest)
