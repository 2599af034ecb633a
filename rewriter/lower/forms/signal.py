"""Fourier transforms as products with tables of cosines and sines, and the filter bank of mel frequencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto as T

from rewriter.lower.forms.table import form

if TYPE_CHECKING:
    from rewriter.lower.writer import Call, Writer
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
        return None
    inverse, onesided = call.get("inverse", 0), call.get("onesided", 0)
    if g.opset >= 17 and not (inverse and onesided) and "DFT" not in g.absent:
        if g.opset < 20:
            return g.newer(  # type: ignore[no-any-return]
                17, "DFT", x, length, axis=along % x.rank, inverse=inverse, onesided=onesided
            )
        return g.newer(20, "DFT", x, length, g.ints(along), inverse=inverse, onesided=onesided)  # type: ignore[no-any-return]
    count = None if length is None or length.constant is None else int(length.constant.reshape(-1)[0])
    if length is not None and count is None:
        return None
    along %= x.rank
    given = x.size(along)
    if count is None:
        if given is None:
            return None
        count = 2 * (given - 1) if inverse and onesided else given
    moved = _to_last_but_one(g, x, along)
    if inverse and onesided:
        moved = _mirrored(g, moved, count)
        made = g.slice(_transform(g, moved, count, count, inverse=True), [0], [1], [-1])
    else:
        kept = count // 2 + 1 if onesided else count
        made = _transform(g, moved, count, kept, inverse=bool(inverse))
    return _from_last_but_one(g, made, along)


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


def _transform(g: Writer, x: Value, count: int, kept: int, *, inverse: bool) -> Value:
    """The transform of length ``count`` along the last axis but one; (…, N, 1 or 2) to (…, kept, 2)."""
    parts = x.size(x.rank - 1)
    given = x.size(x.rank - 2)
    if given is None or given > count:
        x = g.slice(x, [0], [count], [x.rank - 2])
    used = count if given is None else min(given, count)
    angle = 2 * np.pi * (np.outer(np.arange(kept), np.arange(used)) % count) / count
    cos, sin = np.cos(angle), (np.sin(angle) if inverse else -np.sin(angle))
    if inverse:
        cos, sin = cos / count, sin / count
    real = g.slice(x, [0], [1], [x.rank - 1])
    made_real = g.matmul(g.const(cos, x), real)
    made_imaginary = g.matmul(g.const(sin, x), real)
    if parts != 1:
        imaginary = g.slice(x, [1], [2], [x.rank - 1])
        made_real = made_real - g.matmul(g.const(sin, x), imaginary)
        made_imaginary = made_imaginary + g.matmul(g.const(cos, x), imaginary)
    return g.concat([made_real, made_imaginary], x.rank - 1)


@form("STFT")
def stft(g: Writer, call: Call) -> Value | None:
    """Frames of the signal, weighted, and each transformed."""
    x, step, window, length = call.x, call.inputs[1], call.input(2), call.input(3)
    if step is None or step.constant is None:
        return None
    hop = int(step.constant.reshape(-1)[0])
    if length is not None:
        if length.constant is None:
            return None
        count = int(length.constant.reshape(-1)[0])
    else:
        found = window.size(0) if window is not None else x.size(1)
        if found is None:
            return None
        count = found
    size = x.size(1)
    if size is None:
        frames = (g.dim(x, 1) - count) / hop + 1  # type: ignore[operator]
        starts = g.op("Range", g.ints(0), g.op("Reshape", frames, g.ints([])), g.ints(1)) * hop
        places = g.unsqueeze(starts, [1]) + g.ints(list(range(count)))
    else:
        number = (size - count) // hop + 1
        places = g.const(np.arange(number)[:, None] * hop + np.arange(count)[None, :])
    cut = g.gather(x if x.rank == 3 else g.unsqueeze(x, [2]), places, 1)  # (B, frames, N, 1 or 2)
    if window is not None:
        cut = cut * g.op("Reshape", window, g.ints([-1, 1]))
    kept = count // 2 + 1 if call.get("onesided", 1) else count
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
