"""Regions of interest: the bins of boxes, the places sampled in them, and the averages taken there.

Shapes: K boxes, bins (ph, pw), samples (sy, sx) in each.  What concerns one axis of a bin grid is (K, ph, 1, sy, 1) or
(K, 1, pw, 1, sx), and is broadcast.  Places that count for nothing read a row of zeros behind the tensor, rather than
have a weight of zero: zero times an infinity inside the tensor would be NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from passes.sampling import _places as places
from rewriter.errors import UnsupportedParameter

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value


@dataclass(frozen=True)
class Along:
    """Samples along one axis."""

    #: Numbers of pixels.
    place: Value
    #: Which samples exist (None: all), where their number differs between boxes.
    exists: Value | None
    #: How many there are to a bin, (K, 1, 1, 1, 1) or a number.
    count: Value | float


@dataclass(frozen=True)
class Table:
    """A tensor as rows of channels, and a row of zeros behind them."""

    rows: Value
    #: The number of the row of zeros.
    nothing: int | Value
    height: int | Value
    width: int | Value


def columns(g: Builder, rois: Value, count: int) -> tuple[Value, ...]:
    """(K, count) → ``count`` values (K, 1, 1, 1, 1), in a dtype fit for places."""
    if rois.rank != 2 or rois.size(1) not in (None, count):
        raise UnsupportedParameter(
            f"boxes of shape {list(rois.shape)} are given, where (K, {count}) is meant", where=g.where
        )
    fine = g.cast(rois, places.wide(rois))
    return tuple(g.unsqueeze(c, [2, 3, 4]) for c in g.split(fine, [1] * count, 1))


def bins(g: Builder, pooled: int, axis: int, like: Value) -> Value:
    """0, 1, …, pooled − 1 along axis 1 or 2 of five."""
    g.afford(pooled)
    shape = [pooled if i == axis else 1 for i in range(5)]
    return g.const(np.arange(pooled).reshape(shape), like)


def sampled(g: Builder, start: Value, length: Value, pooled: int, ratio: int, axis: int) -> Along:
    """``ratio`` samples to a bin, or where it is not positive as many as its length in pixels, rounded up.

    The order of operations is that of the original: a place on the edge of the tensor counts or not.
    """
    size = length / float(pooled)
    base = start + bins(g, pooled, axis, start) * size
    if ratio > 0:
        g.afford(ratio)
        shape = [ratio if i == axis + 2 else 1 for i in range(5)]
        step = g.const((np.arange(ratio) + 0.5).reshape(shape), start)
        return Along(base + step * size / float(ratio), None, float(ratio))
    count = g.ceil(size)
    most = g.reduce_max(g.concat([g.flatten(count), g.const([1.0], start)], axis=0), [0], keepdims=False)
    index = g.cast(g.range(g.ints(0), g.cast(most, TensorProto.INT64), g.ints(1)), start)
    index = g.unsqueeze(index, [i for i in range(5) if i != axis + 2])
    return Along(base + (index + 0.5) * size / count, g.less(index, count), count)


def table(g: Builder, x: Value, groups: int = 1) -> Table:
    """``x`` (N, C, H, W) as rows (N·H·W + 1, C); of channels (C', groups), as rows (N·groups·H·W + 1, C')."""
    if x.rank != 4:
        raise UnsupportedParameter(f"an input of rank {x.rank} is given, not 4", where=g.where)
    batch, channels, height, width = (g.dim(x, i) for i in range(4))
    if groups == 1:
        moved = g.transpose(x, [0, 2, 3, 1])
    else:
        if not isinstance(channels, int):
            raise UnsupportedParameter(
                "the number of channels must be known", where=g.where, remedy="export with static channels"
            )
        if channels % groups:
            raise UnsupportedParameter(
                f"{channels} channels cannot be parted into {groups} bins", where=g.where
            )
        channels //= groups
        area = g.product([height, width])
        moved = g.transpose(g.reshape(x, [batch, channels, groups, area]), [0, 2, 3, 1])
    rows = g.product([batch, groups, height, width])
    zeros = g.constant_of_shape([1, channels], 0.0, x)
    return Table(g.concat([g.reshape(moved, [rows, channels]), zeros], axis=0), rows, height, width)


@dataclass(frozen=True)
class _Pixels:
    low: Value
    high: Value
    near: Value
    far: Value
    valid: Value


def _pixels(g: Builder, along: Along, size: int | Value) -> _Pixels:
    """The two pixels of each place and their shares; a place less than a pixel outside takes the edge."""
    place = along.place
    count = g.const(float(size), place) if isinstance(size, int) else g.cast(size, place)
    valid = g.and_(g.greater_equal(place, -1.0), g.less_equal(place, count))
    if along.exists is not None:
        valid = g.and_(valid, along.exists)
    last = count - 1 if not isinstance(size, int) else g.const(float(size - 1), place)
    inside = g.minimum(places.at_least(g, place, 0.0), last)
    low = g.floor(inside)
    high = g.minimum(low + 1, last)
    far = inside - low
    return _Pixels(g.cast(low, TensorProto.INT64), g.cast(high, TensorProto.INT64), 1 - far, far, valid)


def neighbours(
    g: Builder, source: Table, y: Along, x: Along, plane: Value, divisor: Value | float
) -> tuple[Value, Value]:
    """Rows and weights of the four pixels of every sample, (K, ph, pw, 4·sy, sx) each; ``plane`` is its H·W plane."""
    rows, across = _pixels(g, y, source.height), _pixels(g, x, source.width)
    valid = g.and_(rows.valid, across.valid)
    first = plane * g.product([source.height, source.width])
    nothing = g.ints([source.nothing]) if isinstance(source.nothing, int) else source.nothing
    found, shares = [], []
    for row, down in ((rows.low, rows.near), (rows.high, rows.far)):
        start = row * source.width + first
        for column, right in ((across.low, across.near), (across.high, across.far)):
            found.append(g.where_(valid, start + column, nothing))
            shares.append(down * right)
    position, weight = g.concat(found, axis=3), g.concat(shares, axis=3)
    return position, weight / divisor


def averaged(g: Builder, source: Table, position: Value, weight: Value, pooled: tuple[int, int]) -> Value:
    """Weighted sums of rows over the last two axes, (K, C, ph, pw)."""
    boxes = g.dim(position, 0)
    places_ = g.product([boxes, *pooled])
    count = g.product([g.dim(position, 3), g.dim(position, 4)])
    gathered = g.gather(source.rows, g.reshape(position, [places_, count]), axis=0)
    summed = g.matmul(g.reshape(weight, [places_, 1, count]), gathered)
    return to_channels(g, summed, boxes, source, pooled)


def to_channels(g: Builder, x: Value, boxes: int | Value, source: Table, pooled: tuple[int, int]) -> Value:
    """(K·ph·pw, …, C) → (K, C, ph, pw)."""
    return g.transpose(g.reshape(x, [boxes, *pooled, g.dim(source.rows, 1)]), [0, 3, 1, 2])


def planes(g: Builder, batch: Value) -> Value:
    return g.cast(batch, TensorProto.INT64)


def count_of(g: Builder, y: Along, x: Along, least: float | None = None) -> Value | float:
    """Samples to a bin; at least ``least``."""
    if isinstance(y.count, float) and isinstance(x.count, float):
        return y.count * x.count
    assert not isinstance(y.count, float)
    assert not isinstance(x.count, float)
    product = y.count * x.count
    return product if least is None else g.maximum(product, least)
