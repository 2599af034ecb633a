"""Maxima and averages over whole pixels in the bins of boxes: torchvision's `roi_pool` and `ps_roi_pool`.

References and arithmetic follow torchvision (torchvision/csrc/ops/cpu/roi_pool_kernel.cpp and
ps_roi_pool_kernel.cpp, 0.29).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.sampling import _places as places
from passes.sampling import _rois as rois_
from passes.sampling.roi_align import bin_planes, channel_mapping
from rewriter.placeholder import Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

#: FLT_MAX: what torchvision's maximum starts from, so that NaN and −inf are passed over.
_LARGEST = float(np.finfo(np.float32).max)


class RoiPool(Placeholder):
    """(K, C, ph, pw) maxima of `x` (N, C, H, W) in boxes `rois` (K, 5), and the pixels they were found at."""

    matches = ("RoiPool", "torchvision::roi_pool", "mmcv::MMCVRoiPool", "mmcv::roi_pool")
    shapes = "x: N C H W; rois: K 5"
    outputs = ("output", "argmax")
    auxiliary = ("argmax",)
    # Values are chosen, never computed.
    tolerances = dict.fromkeys(("float16", "float32", "float64"), (0.0, 0.0))

    def reference(
        self,
        x: Any,
        rois: Any,
        spatial_scale: float = 1.0,
        pooled_height: int = 1,
        pooled_width: int = 1,
    ) -> Any:
        import torch

        width, dtype = x.shape[3], x.dtype
        x = x.float() if dtype in (torch.float16, torch.bfloat16) else x
        values, found = [], []
        for box in rois:
            image = x[int(box[0])]
            for y0, y1, x0, x1 in _bins(box, spatial_scale, (pooled_height, pooled_width), x.shape[2:], 1, 0):
                if y1 <= y0 or x1 <= x0:
                    values.append(image.new_zeros(len(image)))
                    found.append(torch.full((len(image),), -1))
                    continue
                # NaN is never larger.
                part = image[:, y0:y1, x0:x1].reshape(len(image), -1)
                part = torch.where(part > -_LARGEST, part, torch.full_like(part, -_LARGEST))
                most, at = part.max(dim=1)
                at = (y0 + at // (x1 - x0)) * width + x0 + at % (x1 - x0)
                values.append(most)
                found.append(torch.where(most > -_LARGEST, at, -1))
        shape = (len(rois), pooled_height, pooled_width, x.shape[1])
        result = torch.stack(values) if values else x.new_zeros(0)
        argmax = torch.stack(found) if found else torch.zeros(0)
        both = result.to(dtype), argmax.to(torch.int32)
        return tuple(r.reshape(shape).permute(0, 3, 1, 2).contiguous() for r in both)

    @decomposition()
    def gathers(
        self,
        g: Builder,
        x: Value,
        rois: Value,
        spatial_scale: float = 1.0,
        pooled_height: int = 1,
        pooled_width: int = 1,
    ) -> tuple[Value, Value | None]:
        pooled = (pooled_height, pooled_width)
        shape = [g.dim(rois, 0), g.dim(x, 1), *pooled]
        if places.is_empty(*shape):
            return g.constant_of_shape(shape, 0.0, x), _none(g, shape) if g.wants("argmax") else None
        data = g.cast(x, places.wide(x))
        lowest = g.const(-_LARGEST, data)
        source = rois_.table(g, places.at_least(g, data, lowest))
        batch, *corners = rois_.columns(g, g.cast(rois, data), 5)
        x1, y1, x2, y2 = (_rounded(g, c * spatial_scale) for c in corners)
        y = _span(g, y1, y2, pooled_height, source.height, 1, longer=1, short=0)
        across = _span(g, x1, x2, pooled_width, source.width, 2, longer=1, short=0)
        # A bin has the pixels of the largest bin; in a smaller one the last is there several times.
        row, column = y.pixels(g), across.pixels(g)
        pixel = row * source.width + column  # (K, ph, pw, sy, sx)
        position = pixel + rois_.planes(g, batch) * g.product([source.height, source.width])
        boxes = g.dim(position, 0)
        bins = g.product([boxes, *pooled])
        count = g.product([g.dim(position, 3), g.dim(position, 4)])
        gathered = g.gather(source.rows, g.reshape(position, [bins, count]), axis=0)
        most = g.reduce_max(gathered, [1], keepdims=False)
        empty = g.squeeze(g.or_(y.empty(g), across.empty(g)), [4])  # (K, ph, pw, 1)
        channels = g.dim(source.rows, 1)
        result = g.where_(empty, 0.0, g.reshape(most, [boxes, *pooled, channels]))
        result = g.cast(g.transpose(result, [0, 3, 1, 2]), x)
        if not g.wants("argmax"):
            return result, None
        best = g.squeeze(g.arg_max(gathered, axis=1), [1])
        at = g.gather_elements(g.reshape(pixel, [bins, count]), best, axis=1)
        at = g.where_(g.greater(most, -_LARGEST), at, g.ints(-1))
        at = g.where_(empty, g.ints(-1), g.reshape(at, [boxes, *pooled, channels]))
        return result, g.transpose(g.cast(at, TensorProto.INT32), [0, 3, 1, 2])

    def cases(self) -> Iterator[Case]:
        boxes = [
            [0, 0.0, 1.0, 4.0, 3.0],
            [1, -1.5, -2.0, 3.0, 9.0],
            [0, 2.0, 2.0, 2.0, 2.0],
            [1, 20.0, 20.0, 30.0, 30.0],
            [0, 4.0, 3.0, 1.0, 1.0],
        ]
        x, rois = f32(2, 3, 5, 6), f32(5, 5, value=boxes)
        yield Case(x, rois, 1.0, 2, 3)
        once: Any = {"opsets": (13, 13), "dtypes": ["float32", "float64"]}
        none: Any = {"opsets": (13, 13), "dtypes": ["float32"]}
        yield Case(x, rois, 0.5, 2, 2, **once)
        yield Case(x, f32(0, 5), 1.0, 2, 2, **none)
        inf, nan = float("inf"), float("nan")
        image = [inf, -inf, nan, 1.0, 2.0, -1.0, nan, nan, 0.5, -inf, -inf, 3.0]
        wide = [[0, 0.0, 0.0, 3.0, 2.0], [0, 1.0, 0.0, 1.0, 0.0], [0, 1.0, 1.0, 3.0, 2.0]]
        yield Case(
            f32(1, 1, 3, 4, value=image),
            f32(3, 5, value=wide),
            1.0,
            2,
            2,
            opsets=(13, 13),
            dtypes=["float32"],
        )


class PsRoiPool(Placeholder):
    """Averages over whole pixels, bin (i, j) of channel c taken from channel (c·ph + i)·pw + j; and which that is."""

    matches = ("PsRoiPool", "torchvision::ps_roi_pool")
    shapes = "x: N C H W; rois: K 5"
    outputs = ("output", "channel_mapping")
    auxiliary = ("channel_mapping",)

    def reference(
        self,
        x: Any,
        rois: Any,
        spatial_scale: float = 1.0,
        pooled_height: int = 1,
        pooled_width: int = 1,
    ) -> Any:
        import torch

        ph, pw = pooled_height, pooled_width
        channels = x.shape[1] // (ph * pw)
        values = []
        for box in rois:
            image = x[int(box[0])].reshape(channels, ph * pw, *x.shape[2:])
            # The far ends stop one pixel short of the border.
            for i, (y0, y1, x0, x1) in enumerate(_bins(box, spatial_scale, (ph, pw), x.shape[2:], 0, 1)):
                part = image[:, i, y0:y1, x0:x1]
                filled = y1 > y0 and x1 > x0
                values.append(part.mean(dim=(1, 2)) if filled else image.new_zeros(channels))
        result = torch.stack(values) if values else x.new_zeros(0)
        mapping = torch.arange(channels * ph * pw, dtype=torch.int32).reshape(channels, ph, pw)
        result = result.reshape(len(rois), ph, pw, channels).permute(0, 3, 1, 2).contiguous()
        return result, mapping.expand(len(rois), -1, -1, -1)

    def decompose(
        self,
        g: Builder,
        x: Value,
        rois: Value,
        spatial_scale: float = 1.0,
        pooled_height: int = 1,
        pooled_width: int = 1,
    ) -> tuple[Value, Value | None]:
        pooled = (pooled_height, pooled_width)
        data = g.cast(x, places.wide(x))
        source = rois_.table(g, data, pooled_height * pooled_width)
        mapping = channel_mapping(g, rois, source, pooled) if g.wants("channel_mapping") else None
        shape = [g.dim(rois, 0), g.dim(source.rows, 1), *pooled]
        if places.is_empty(*shape):
            return g.constant_of_shape(shape, 0.0, x), mapping
        batch, *corners = rois_.columns(g, g.cast(rois, data), 5)
        x1, y1, x2, y2 = (_rounded(g, c * spatial_scale) for c in corners)
        y = _span(g, y1, y2, pooled_height, source.height, 1, longer=0, short=1)
        across = _span(g, x1, x2, pooled_width, source.width, 2, longer=0, short=1)
        first = bin_planes(g, batch, pooled) * g.product([source.height, source.width])
        position = y.pixels(g) * source.width + across.pixels(g) + first
        exists = g.and_(y.exists(g), across.exists(g))
        nothing = g.ints([source.nothing]) if isinstance(source.nothing, int) else source.nothing
        position = g.where_(exists, position, nothing)
        area = g.maximum(y.extent, 1.0) * g.maximum(across.extent, 1.0)
        weight = g.cast(exists, area) / area
        return g.cast(rois_.averaged(g, source, position, weight, pooled), x), mapping

    def cases(self) -> Iterator[Case]:
        boxes = [
            [0, 0.0, 1.0, 4.0, 3.0],
            [1, -1.5, -2.0, 3.0, 9.0],
            [0, 2.0, 2.0, 2.0, 2.0],
            [1, 20.0, 20.0, 30.0, 30.0],
        ]
        known: Any = {"symbolic": False, "reason": "the channels are parted into bins: their number is known"}
        x, rois = f32(2, 12, 5, 6), f32(4, 5, value=boxes)
        yield Case(x, rois, 1.0, 2, 3, **known)
        once: Any = {"opsets": (13, 13), "dtypes": ["float32", "float64"]}
        none: Any = {"opsets": (13, 13), "dtypes": ["float32"]}
        yield Case(x, rois, 0.5, 2, 2, **known, **once)
        yield Case(x, f32(0, 5), 1.0, 2, 2, **known, **none)
        image = [float("inf"), *[0.5 * i for i in range(1, 12)]]
        yield Case(
            f32(1, 1, 3, 4, value=image),
            f32(2, 5, value=[[0, 1.0, 1.0, 3.0, 2.0], [0, 0.0, 0.0, 1.0, 1.0]]),
            1.0,
            1,
            1,
            **known,
            opsets=(13, 13),
            dtypes=["float32"],
        )


@dataclass(frozen=True)
class _Span:
    """The whole pixels of the bins along one axis."""

    start: Value
    #: How many; 0 or fewer is none.
    extent: Value
    #: 0, 1, … up to the largest bin of all, along the axis of samples.
    index: Value
    last: Value

    def pixels(self, g: Builder) -> Value:
        """Numbers of pixels, the last of them repeated; always in range."""
        offset = g.minimum(self.index, self.extent - 1)
        inside = g.minimum(g.maximum(self.start + offset, 0.0), self.last)
        return g.cast(inside, TensorProto.INT64)

    def exists(self, g: Builder) -> Value:
        return g.less(self.index, self.extent)

    def empty(self, g: Builder) -> Value:
        return g.less(self.extent, 0.5)


def _span(
    g: Builder, first: Value, end: Value, pooled: int, size: int | Value, axis: int, longer: int, short: int
) -> _Span:
    """Bins of the pixels from ``first`` to ``end`` (+ ``longer``), clipped to the tensor (to ``short`` pixels less)."""
    length = end - first
    length = g.maximum(length + float(longer) if longer else length, 1.0) / float(pooled)
    number = rois_.bins(g, pooled, axis, first)
    limit = g.const(float(size), first) if isinstance(size, int) else g.cast(size, first)
    bound = limit - float(short) if short else limit
    start, stop = (
        g.minimum(g.maximum(value + first, 0.0), bound)
        for value in (g.floor(number * length), g.ceil((number + 1) * length))
    )
    extent = stop - start
    most = g.reduce_max(g.concat([g.flatten(extent), g.const([1.0], first)], axis=0), [0], keepdims=False)
    index = g.cast(g.range(g.ints(0), g.cast(most, TensorProto.INT64), g.ints(1)), first)
    return _Span(start, extent, g.unsqueeze(index, [i for i in range(5) if i != axis + 2]), limit - 1)


def _rounded(g: Builder, x: Value) -> Value:
    """To the nearest integer, halves away from zero, as C rounds."""
    return g.sign(x) * g.floor(g.abs(x) + 0.5)


def _none(g: Builder, shape: list[int | Value]) -> Value:
    return g.constant_of_shape(shape, 0, TensorProto.INT32)


# --- for the references -----------------------------------------------------------------------------------------


def _bins(
    box: Any, scale: float, pooled: tuple[int, int], size: Any, longer: int, short: int
) -> Iterator[tuple[int, int, int, int]]:
    """First and end of the rows and columns of each bin."""
    import math

    import torch

    def rounded(value: Any) -> int:
        return int(torch.sign(value) * (value.abs() + 0.5).floor())

    x1, y1, x2, y2 = (rounded(v) for v in box[1:].double() * scale)

    def along(first: int, last: int, count: int, limit: int) -> list[tuple[int, int]]:
        length = torch.tensor(max(last - first + longer, 1), dtype=torch.float32) / count
        ends = []
        for i in range(count):
            start, stop = math.floor(float(i * length)), math.ceil(float((i + 1) * length))
            ends.append(tuple(min(max(e + first, 0), limit - short) for e in (start, stop)))
        return ends  # type: ignore[return-value]

    for y in along(y1, y2, pooled[0], size[0]):
        for x in along(x1, x2, pooled[1], size[1]):
            yield (*y, *x)
