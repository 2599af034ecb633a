"""Weights of separable resampling as PyTorch computes them: linear, and antialiased linear and cubic.

After aten/src/ATen/native/UpSample.h and cpu/UpSampleKernel.cpp.  Each output of an axis is a weighted sum of K inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value

#: Half the width of the antialiasing filters, in pixels of the coarser side.
#: What an output of an antialiased axis counts for: its weights are computed one by one.
_ROW = 512
_HALF = {"linear": 1.0, "cubic": 2.0}


@dataclass(frozen=True)
class Axis:
    """One axis to be resampled."""

    number: int
    size: int | Value
    target: int | Value
    #: The scale that was asked for, where one was; else it follows from the sizes.
    scale: float | None
    align_corners: bool

    @property
    def stays(self) -> bool:
        same = isinstance(self.size, int) and self.size == self.target
        return same and self.scale in (None, 1.0)


def resampled(g: Builder, x: Value, axis: Axis, mode: str, antialias: bool) -> Value:
    """``x`` with one axis resampled."""
    if axis.stays:
        return x
    if isinstance(axis.size, int) and isinstance(axis.target, int):
        dtype: Any = helper.tensor_dtype_to_np_dtype(x.dtype)
        size, target = axis.size, axis.target
        step = dtype.type(_step(size, target, axis.scale, axis.align_corners))
        if antialias:
            taps = int(2 * _HALF[mode] * max(step, 1)) + 2
            g.afford(target * max(_ROW, taps))
            indices, weights = _antialiased(size, target, step, mode, dtype)
        else:
            g.afford(2 * target)
            indices, weights = _linear(size, target, step, axis.align_corners, dtype)
        return _summed(g, x, axis, g.const(indices.reshape(-1)), g.const(weights, x), indices.shape[1])
    number = axis.number
    if not antialias:
        index, weight = _linear_later(g, x, axis)
        return _summed(g, x, axis, g.flatten(index), weight, 2)
    # Weights beyond a filter's end read a zero behind the axis: zero times an infinity would be NaN.
    index, weight = _antialiased_later(g, x, axis, mode)
    after = [int(i == number) for i in range(x.rank)]
    padded = g.pad(x, [0] * x.rank, after)
    return _summed(g, padded, axis, g.flatten(index), weight, g.dim(weight, 1))


def _summed(g: Builder, x: Value, axis: Axis, indices: Value, weights: Value, taps: int | Value) -> Value:
    """Rows ``indices`` (target·K,) of an axis, weighted by (target, K), each K of them added up."""
    number, rest = axis.number, x.rank - axis.number - 1
    dims = [g.dim(x, i) for i in range(x.rank)]
    gathered = g.reshape(
        g.gather(x, indices, axis=number), [*dims[:number], axis.target, taps, *dims[number + 1 :]]
    )
    scaled = gathered * g.unsqueeze(weights, list(range(2, 2 + rest)))
    return g.reduce_sum(scaled, [number + 1], keepdims=False)


def _step(size: Any, target: Any, scale: float | None, align_corners: bool) -> Any:
    """Inputs to an output."""
    if align_corners:
        return (size - 1) / (target - 1) if target > 1 else 0.0
    return 1.0 / scale if scale else size / target


def _linear(size: int, target: int, step: Any, align_corners: bool, dtype: Any) -> tuple[Any, Any]:
    place = np.arange(target, dtype=dtype)
    place = (
        place * step if align_corners else np.maximum((place + dtype.type(0.5)) * step - dtype.type(0.5), 0)
    )
    low = np.minimum(place.astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    far = np.clip(place - low, 0, 1).astype(dtype)
    return np.stack([low, high], 1), np.stack([1 - far, far], 1)


def _antialiased(size: int, target: int, step: Any, mode: str, dtype: Any) -> tuple[Any, Any]:
    """Where a filter is shorter than the longest, its last input is taken several times, at a part of its weight."""
    half = dtype.type(0.5)
    support = dtype.type(_HALF[mode]) * max(step, dtype.type(1))
    inverse = 1 / step if step >= 1 else dtype.type(1)
    rows = []
    for i in range(target):
        centre = step * (dtype.type(i) + half)
        first = max(int(centre - support + half), 0)
        count = min(int(centre + support + half), size) - first
        weights = _filter((np.arange(first, first + count, dtype=dtype) - centre + half) * inverse, mode)
        rows.append((first, weights / weights.sum()))
    taps = max(len(weights) for _, weights in rows)
    indices, table = np.zeros((target, taps), np.int64), np.zeros((target, taps), dtype)
    for i, (first, weights) in enumerate(rows):
        last = len(weights) - 1
        indices[i] = first + np.minimum(np.arange(taps), last)
        table[i, :last] = weights[:last]
        table[i, last:] = weights[last] / (taps - last)
    return indices, table


def _filter(x: Any, mode: str) -> Any:
    x = np.abs(x)
    if mode == "linear":
        return np.maximum(1 - x, 0)
    a = -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0)).astype(x.dtype)


# --- the same at run time ---------------------------------------------------------------------------------------


def _floats(g: Builder, axis: Axis, like: Value) -> tuple[Value, Value, Value]:
    """The size and the inputs to an output, (1,), and the outputs' numbers, (target, 1)."""
    size, target = (
        g.const([float(v)], like) if isinstance(v, int) else g.cast(v, like) for v in (axis.size, axis.target)
    )
    if axis.align_corners:
        step = (size - 1) / g.maximum(target - 1, 1.0)
        step = g.where_(g.greater(target, 1.0), step, 0.0)
    elif axis.scale:
        step = g.const([1.0 / axis.scale], like)
    else:
        step = size / target
    end = g.ints(axis.target) if isinstance(axis.target, int) else g.squeeze(axis.target, [0])
    numbers = g.cast(g.range(g.ints(0), end, g.ints(1)), like)
    return size, step, g.unsqueeze(numbers, [1])


def _linear_later(g: Builder, x: Value, axis: Axis) -> tuple[Value, Value]:
    size, step, number = _floats(g, axis, x)
    place = number * step if axis.align_corners else g.maximum((number + 0.5) * step - 0.5, 0.0)
    low = g.minimum(g.floor(place), size - 1)
    high = g.minimum(low + 1, size - 1)
    far = g.minimum(place - low, 1.0)
    index = g.cast(g.concat([low, high], axis=1), TensorProto.INT64)
    return index, g.concat([1 - far, far], axis=1)


def _antialiased_later(g: Builder, x: Value, axis: Axis, mode: str) -> tuple[Value, Value]:
    size, step, number = _floats(g, axis, x)
    coarse = g.maximum(step, 1.0)
    support = coarse * _HALF[mode]
    centre = (number + 0.5) * step
    first = g.maximum(g.floor(centre - support + 0.5), 0.0)
    count = g.minimum(g.floor(centre + support + 0.5), size) - first
    most = g.cast(g.reduce_max(g.flatten(count), [0], keepdims=False), TensorProto.INT64)
    tap = g.unsqueeze(g.cast(g.range(g.ints(0), most, g.ints(1)), x), [0])
    exists = g.less(tap, count)
    away = g.abs((tap + first - centre + 0.5) / coarse)
    if mode == "linear":
        weight = g.maximum(1 - away, 0.0)
    else:
        near = (away * 1.5 - 2.5) * away * away + 1
        far = (((away - 5) * away + 8) * away - 4) * -0.5
        weight = g.where_(g.less(away, 1.0), near, g.where_(g.less(away, 2.0), far, 0.0))
    weight = g.where_(exists, weight, 0.0)
    weight = weight / g.reduce_sum(weight, [1])
    return g.cast(g.where_(exists, tap + first, size), TensorProto.INT64), weight


def size_after(size: int, scale: float) -> int:
    return math.floor(size * scale)
