"""Reading a tensor at computed places: what grid_sample, the RoI operators and deformable convolution share.

Places are numbers of pixels, (N, D, P): P places of a D-dimensional plane, x first.  A tensor read beyond its border is
padded, rather than the weights being set to zero there: zero times an infinity inside the tensor would be NaN.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from rewriter.placeholder import Builder, Value

#: From so many products for each place on, gathering rows of channels and one small MatMul for each place beats
#: GatherElements for each neighbour (onnxruntime, one thread: with 4 neighbours from 32 channels on, with 16 from 8).
_ROWS_PAY = 128


@dataclass(frozen=True)
class Neighbours:
    """What a place is made of: positions and weights of T neighbours, in a plane padded on all sides."""

    #: (N, T, P) int64, into the plane laid out flat.
    positions: Value
    #: (N, T, P), or None for the one neighbour itself.
    weights: Value | None
    count: int


def wide(x: Value) -> int:
    """The dtype to compute places in: half precision has too few bits to tell pixels apart."""
    half = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    return int(TensorProto.FLOAT) if x.dtype in half else x.dtype


def has_kernel(x: Value) -> bool:
    """Whether onnxruntime has GridSample and Resize for the dtype; for double it lacks most of them."""
    return x.dtype != TensorProto.DOUBLE


def per_axis(g: Builder, sizes: Sequence[int | Value], formula: Callable[[Any], Any], like: Value) -> Value:
    """``formula`` of each size, (D, 1); a constant where the sizes are known."""
    if all(isinstance(size, int) for size in sizes):
        return g.const(np.asarray(formula(np.asarray(sizes, np.float64))).reshape(-1, 1), like)
    result: Value = formula(g.unsqueeze(g.cast(g.sizes(sizes), like), [1]))
    return result


def plus(size: int | Value, more: int) -> int | Value:
    return size + more if more else size


def at_least(g: Builder, x: Value, low: float | Value) -> Value:
    """max(x, low), and ``low`` for NaN (of which openvino says that it is greater, but not that anything is less)."""
    bound = g.const(low, x) if isinstance(low, float) else low
    return g.where_(g.less(bound, x), x, bound)


def at_most(g: Builder, x: Value, high: float | Value) -> Value:
    """min(x, high), and ``high`` for NaN."""
    bound = g.const(high, x) if isinstance(high, float) else high
    return g.where_(g.less(x, bound), x, bound)


def split_axes(g: Builder, places: Value, count: int) -> tuple[Value, ...]:
    """(N, D, …) → D values (N, 1, …)."""
    return g.split(places, [1] * count, 1)


def flat(g: Builder, axes: Sequence[Value], sizes: Sequence[int | Value]) -> Value:
    """Whole numbers of pixels by axis, x first, as positions in the plane of ``sizes``, x first."""
    position = g.cast(axes[-1], TensorProto.INT64)
    for axis, size in zip(reversed(axes[:-1]), reversed(sizes[:-1]), strict=True):
        position = position * size + g.cast(axis, TensorProto.INT64)
    return position


def linear(g: Builder, low: Value, fraction: Value, sizes: Sequence[int | Value]) -> Neighbours:
    """The 2^D pixels from ``low`` (N, D, P) on, ``fraction`` of the way to the next; ``sizes`` are the padded ones."""
    dims = len(sizes)
    first = flat(g, split_axes(g, low, dims), sizes)
    corners = list(
        itertools.product((0, 1), repeat=dims)
    )  # the last axis slowest: the order of strides reversed
    strides: list[int | Value] = [1]
    for size in sizes[:-1]:
        strides.append(g.product([strides[-1], size]))
    if all(isinstance(stride, int) for stride in strides):
        offsets = np.asarray(corners, np.int64) @ np.asarray(strides, np.int64)
        positions = first + g.const(offsets.reshape(-1, 1))
    else:
        parts = []
        for corner in corners:
            position = first
            for stride, bit in zip(strides, corner, strict=True):
                position = position + stride if bit else position
            parts.append(position)
        positions = g.concat(parts, axis=1)
    near, far = split_axes(g, 1 - fraction, dims), split_axes(g, fraction, dims)
    products: dict[tuple[int, ...], Value] = {(): near[0]}
    weights = []
    for corner in corners:
        for end in range(1, dims + 1):
            if corner[:end] not in products:
                factor = (far if corner[end - 1] else near)[end - 1]
                products[corner[:end]] = factor if end == 1 else products[corner[: end - 1]] * factor
        weights.append(products[corner])
    return Neighbours(positions, g.concat(weights, axis=1), len(corners))


def linear_zeros(
    g: Builder, place: Value, sizes: Sequence[int | Value], scale: Value | None = None
) -> Neighbours:
    """Neighbours in a plane with two pixels of zeros on each side; ``scale`` (N, 1, P) multiplies the weights.

    So a place outside has no neighbour that is not zero.  NaN is outside.
    """
    place = at_least(g, place, -2.0)
    place = g.minimum(place, per_axis(g, sizes, lambda s: s + 0, place))
    low = g.floor(place)
    found = linear(g, low + 2, place - low, [plus(size, 4) for size in sizes])
    if scale is None:
        return found
    assert found.weights is not None
    return Neighbours(found.positions, found.weights * scale, found.count)


def read(
    g: Builder, x: Value, found: Neighbours, before: int, after: int, planes: Value | None = None
) -> Value:
    """Weighted sums of neighbours, (N, C, P), from ``x`` (N, C, …) padded by zeros on each side.

    ``planes`` (1, 1, P) int64 tells for each place which of the planes of ``x`` it is in; without it places (N, D, P)
    belong to the plane of their own N.
    """
    dims = x.rank - 2
    sizes = [plus(g.dim(x, i), before + after) for i in range(2, x.rank)]
    batch, channels = g.dim(x, 0), g.dim(x, 1)
    area = g.product(sizes)
    if rows_pay(x, found.count) or planes is not None:
        last = [0, *range(2, x.rank), 1]
        moved = g.pad(g.transpose(x, last), [0, *[before] * dims, 0], [0, *[after] * dims, 0])
        table = g.reshape(moved, [g.product([batch, area]), channels])
        return _rows(g, table, _in_planes(g, found.positions, batch, area, planes), found)
    table = g.reshape(g.pad(x, [0, 0, *[before] * dims], [0, 0, *[after] * dims]), [batch, channels, area])
    positions = g.split(found.positions, [1] * found.count, 1)
    weights = [None] if found.weights is None else g.split(found.weights, [1] * found.count, 1)
    total: Value | None = None
    places = g.dim(found.positions, 2)
    for position, weight in zip(positions, weights, strict=True):
        value = g.gather_elements(table, g.expand(position, [batch, channels, places]), axis=2)
        value = value if weight is None else value * weight
        total = value if total is None else total + value
    assert total is not None
    return total


def rows_pay(x: Value, neighbours: int) -> bool:
    channels = x.size(1)
    return neighbours > 1 and (channels is None or channels * neighbours >= _ROWS_PAY)


def _rows(g: Builder, table: Value, positions: Value, found: Neighbours) -> Value:
    """Rows of ``table`` (rows, C) → (N, C, P)."""
    if found.weights is None:
        return g.transpose(g.gather(table, g.squeeze(positions, [1]), axis=0), [0, 2, 1])
    gathered = g.gather(table, g.transpose(positions, [0, 2, 1]), axis=0)
    weights = g.unsqueeze(g.transpose(found.weights, [0, 2, 1]), [2])
    return g.transpose(g.squeeze(g.matmul(weights, gathered), [2]), [0, 2, 1])


def _in_planes(
    g: Builder, positions: Value, batch: int | Value, area: int | Value, planes: Value | None
) -> Value:
    """Positions in a plane as rows of all planes under each other."""
    if planes is not None:
        return positions + planes * area
    if isinstance(batch, int) and batch == 1:
        return positions
    if isinstance(batch, int) and isinstance(area, int):
        return positions + g.ints((np.arange(batch) * area).reshape(-1, 1, 1))  # type: ignore[arg-type]
    index = g.range(0, batch if isinstance(batch, int) else g.squeeze(batch, [0]))
    return positions + g.unsqueeze(index, [1, 2]) * area


def is_empty(*dims: int | Value) -> bool:
    return any(isinstance(dim, int) and dim == 0 for dim in dims)
