"""Fourier transforms as products with tables of cosines and sines, and the filter bank of mel frequencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto as T

from rewriter.lower.forms.reduce import by_case
from rewriter.lower.forms.table import form

if TYPE_CHECKING:
    from rewriter.lower.writer import Writer
    from rewriter.placeholder.standard import Call
    from rewriter.placeholder.value import Value


@form("DFT")
def dft(g: Writer, call: Call) -> Value | None:
    """Axis as input since opset 20, attribute before; else by tables."""
    x, length, axis = call.x, call.input(1), call.input(2)
    if call.version >= 20:
        along = -2 if axis is None else None if axis.constant is None else int(axis.constant.reshape(-1)[0])
    else:
        along = call.get("axis", 1)
    if along is None:
        assert axis is not None
        rest = {name: call.get(name) for name in ("inverse", "onesided")}
        return by_case(
            g,
            axis,
            x.rank,
            lambda b, at: b.newer(20, "DFT", x, length, b.ints(at), **rest),
            cases=x.rank - 1,
        )
    inverse, onesided = call.get("inverse", 0), call.get("onesided", 0)
    along %= x.rank
    if g.opset >= 17 and not (inverse and onesided) and "DFT" not in g.absent:
        if g.opset < 20:
            return g.newer(17, "DFT", x, length, axis=along, inverse=inverse, onesided=onesided)
        return g.newer(20, "DFT", x, length, g.ints(along), inverse=inverse, onesided=onesided)
    count = _number(length) if length is not None else g.dim(x, along)
    if length is None and inverse and onesided:
        count = (count - 1) * 2
    moved = _to_last_but_one(g, x, along)
    if inverse and onesided:
        if not isinstance(count, int):
            return None
        moved = _mirrored(g, moved, count)
        made = g.slice(_transform(g, moved, count, count, inverse=True), [0], [1], [-1])
    else:
        kept = half_of(g, count) if onesided else count
        made = _transform(g, moved, count, kept, inverse=bool(inverse))
    return _from_last_but_one(g, made, along)


def _number(value: Value) -> int | Value:
    """A number that is known, or a value of one element."""
    if value.constant is not None:
        return int(value.constant.reshape(-1)[0])
    builder: Any = value.builder
    made: Value = builder.op("Reshape", builder.cast(value, T.INT64), builder.ints([1]))
    return made


def half_of(g: Writer, count: int | Value) -> int | Value:
    """How many frequencies of a real signal differ."""
    if isinstance(count, int):
        return count // 2 + 1
    made: Value = g.op("Div", count, g.ints([2])) + 1
    return made


def _to_last_but_one(g: Writer, x: Value, axis: int) -> Value:
    order = [i for i in range(x.rank) if i != axis]
    order.insert(x.rank - 2, axis)
    return g.transpose(x, order)


def _from_last_but_one(g: Writer, x: Value, axis: int) -> Value:
    order = list(range(x.rank))
    order.insert(axis, order.pop(x.rank - 2))
    return g.transpose(x, order)


def _mirrored(g: Writer, x: Value, count: int) -> Value:
    """All frequencies of a real signal from those up to the middle."""
    half = count // 2 + 1
    kept = g.slice(x, [0], [half], [x.rank - 2])
    # Of an even length the middle frequency stands once.
    rest = g.slice(x, [half - 2 if count % 2 == 0 else half - 1], [0], [x.rank - 2], [-1])
    return g.concat([kept, rest * g.const([1.0, -1.0], x)], x.rank - 2)


def _transform(g: Writer, x: Value, count: int | Value, kept: int | Value, *, inverse: bool) -> Value:
    """The transform of length ``count`` along the last axis but one; (…, N, 1 or 2) to (…, kept, 2)."""
    parts, along = x.size(x.rank - 1), x.rank - 2
    given = x.size(along)
    if not isinstance(count, int) or given is None or given > count:
        x = g.slice(x, [0], g.sizes([count]), [along])
    cos, sin = _tables(g, x, count, kept, g.dim(x, along), inverse=inverse)
    real = g.slice(x, [0], [1], [x.rank - 1])
    made_real, made_imaginary = g.matmul(cos, real), g.matmul(sin, real)
    if parts != 1:
        imaginary = g.slice(x, [1], [2], [x.rank - 1])
        made_real = made_real - g.matmul(sin, imaginary)
        made_imaginary = made_imaginary + g.matmul(cos, imaginary)
    return g.concat([made_real, made_imaginary], x.rank - 1)


def _tables(
    g: Writer, x: Value, count: int | Value, kept: int | Value, used: int | Value, *, inverse: bool
) -> tuple[Value, Value]:
    """cos and ∓sin of 2π k n / N; over N for the inverse."""
    if isinstance(count, int) and isinstance(kept, int) and isinstance(used, int):
        g.afford(2 * kept * min(used, count))
        angle = 2 * np.pi * (np.outer(np.arange(kept), np.arange(min(used, count))) % count) / count
        scale = count if inverse else 1
        return g.const(np.cos(angle) / scale, x), g.const(np.sin(angle) / (scale if inverse else -1), x)
    wide = T.DOUBLE

    def numbers(end: int | Value) -> Value:
        limit = g.op("Reshape", g.sizes([end]), g.ints([]))
        return g.one("Range", g.ints(0), limit, g.ints(1))

    total = g.sizes([count])
    turns = g.mod(g.unsqueeze(numbers(kept), [1]) * g.unsqueeze(numbers(used), [0]), total)
    # Below half a turn float32 is exact enough, and every runtime has its Sin and Cos.
    share = g.cast(turns, wide) / g.cast(total, wide) * (2 * np.pi)
    angle_ = g.cast(share, T.FLOAT)
    cos, sin = g.cast(g.cos(angle_), x), g.cast(g.sin(angle_), x)
    if inverse:
        over = g.cast(total, x)
        return cos / over, sin / over
    return cos, -sin


@form("STFT")
def stft(g: Writer, call: Call) -> Value | None:
    """Frames of the signal, weighted, and each transformed."""
    x, window, length = call.x, call.input(2), call.input(3)
    assert call.inputs[1] is not None
    hop = _number(call.inputs[1])
    count = _number(length) if length is not None else g.dim(window, 0) if window is not None else g.dim(x, 1)
    size = g.dim(x, 1)
    if isinstance(size, int) and isinstance(count, int) and isinstance(hop, int):
        number = (size - count) // hop + 1
        places = g.const(np.arange(number)[:, None] * hop + np.arange(count)[None, :])
    else:
        frames = g.op("Div", g.sizes([size]) - g.sizes([count]), g.sizes([hop])) + 1
        row, column = (
            g.op("Range", g.ints(0), g.op("Reshape", end, g.ints([])), g.ints(1))
            for end in (g.sizes([count]), frames)
        )
        places = g.unsqueeze(column * g.sizes([hop]), [1]) + g.unsqueeze(row, [0])
    cut = g.gather(x if x.rank == 3 else g.unsqueeze(x, [2]), places, 1)  # (B, frames, N, 1 or 2)
    if window is not None:
        cut = cut * g.op("Reshape", window, g.ints([-1, 1]))
    kept = half_of(g, count) if call.get("onesided", 1) else count
    return _transform(g, cut, count, kept, inverse=False)


@form("MelWeightMatrix")
def mel_weight_matrix(g: Writer, call: Call) -> Any:
    """Triangles over the bins of a spectrum, even on the mel scale."""
    bands, length, rate, low, high = (g.op("Reshape", item, g.ints([])) for item in call.inputs)
    bins, length, rate = (g.cast(item, T.INT64) for item in (bands, length, rate))
    wide = T.DOUBLE

    def mel(frequency: Value) -> Value:
        ratio = g.log(g.cast(frequency, wide) / 700.0 + 1.0)
        return ratio * (2595.0 / float(np.log(10.0)))

    first, last = mel(low), mel(high)
    edges = g.cast(g.op("Range", g.ints(0), bins + 2, g.ints(1)), wide)
    step = (last - first) / g.cast(bins + 2, wide)
    frequencies = (g.exp((edges * step + first) * (float(np.log(10.0)) / 2595.0)) - 1.0) * 700.0
    at = g.floor(frequencies * g.cast(length + 1, wide) / g.cast(rate, wide))
    count = g.unsqueeze(bins, [0])
    lower, centre, upper = (g.slice(at, [i], count + i, [0]) for i in range(3))
    spectrum = g.op("Div", length, g.ints(2)) + 1
    row = g.unsqueeze(g.cast(g.op("Range", g.ints(0), spectrum, g.ints(1)), wide), [1])
    rise, fall = centre - lower, upper - centre

    def share(part: Value, whole: Value) -> Value:
        return part / g.where_(g.equal(whole, 0.0), g.const(1.0, wide), whole)

    zero = g.const(0.0, wide)
    rising = g.and_(g.not_(g.less(row, lower)), g.not_(g.greater(row, centre)))
    flat = g.equal(rise, 0.0)
    up = g.where_(rising, g.where_(flat, g.const(1.0, wide), share(row - lower, rise)), zero)
    falling = g.and_(g.not_(g.less(row, centre)), g.less(row, upper))
    made = g.where_(falling, share(upper - row, fall), up)
    return g.cast(made, call.get("output_datatype", T.FLOAT))
