"""Averages of bilinear samples in the bins of boxes: torchvision's `roi_align` and its position-sensitive form.

References and arithmetic follow torchvision (torchvision/csrc/ops/cpu/roi_align_common.h, roi_align_kernel.cpp and
ps_roi_align_kernel.cpp, 0.29), and mmcv for `pool_mode="max"` (mmcv/ops/csrc/pytorch/cpu/roi_align.cpp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.sampling import _places as places
from passes.sampling import _rois as rois_
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Call, Value

#: mmcv's maximum starts here.
_LOWEST = -10_000.0


class RoiAlign(Placeholder):
    """(K, C, ph, pw) averages of `x` (N, C, H, W) in boxes `rois` (K, 5): the image's number, x1, y1, x2, y2."""

    finite = True
    matches = (
        "RoiAlign",
        "torchvision::roi_align",
        "mmcv::MMCVRoiAlign",
        "mmdeploy::MMCVRoiAlign",
        "mmcv::roi_align",
        "mmcv::roi_align_forward",
    )
    standard = {"RoiAlign": lambda op: _of_onnx(op)}  # noqa: RUF012
    shapes = "x: N C H W; rois: K 5"
    domains = tuple(d for d in Placeholder.domains if d)
    aliases = {  # noqa: RUF012
        "output_height": "pooled_height",
        "output_width": "pooled_width",
        "aligned_height": "pooled_height",
        "aligned_width": "pooled_width",
        "mode": "pool_mode",
    }

    def reference(
        self,
        x: Any,
        rois: Any,
        spatial_scale: float = 1.0,
        pooled_height: int = 1,
        pooled_width: int = 1,
        sampling_ratio: int = -1,
        aligned: bool = False,
        pool_mode: str = "avg",
    ) -> Any:
        import torch

        fine = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
        x_, boxes = x.to(fine), rois.to(fine)
        offset = 0.5 if aligned else 0.0
        results = []
        for box in boxes:
            x1, y1, x2, y2 = (box[1:] * spatial_scale - offset).unbind()
            width, height = x2 - x1, y2 - y1
            if not aligned:
                width, height = width.clamp(min=1.0), height.clamp(min=1.0)
            y = _samples(y1, height, pooled_height, sampling_ratio)
            across = _samples(x1, width, pooled_width, sampling_ratio)
            if y.numel() == 0 or across.numel() == 0:
                fill = 0.0 if pool_mode == "avg" else _LOWEST
                results.append(x_.new_full((x_.shape[1], pooled_height, pooled_width), fill))
                continue
            # (C, ph, sy, pw, sx)
            value = _bilinear(x_[int(box[0])], y[:, :, None, None], across[None, None])
            if pool_mode == "avg":
                results.append(value.mean(dim=(2, 4)))
            else:
                results.append(value.amax(dim=(2, 4)).clamp(min=_LOWEST))
        if not results:
            return x.new_zeros((0, x.shape[1], pooled_height, pooled_width))
        return torch.stack(results).to(x.dtype)

    def infer(self, x: Value, rois: Value, pooled_height: int, pooled_width: int, **_: Any) -> Any:
        if x.type is None or not x.has_rank or not rois.has_rank:
            return None
        return x.type.with_shape((rois.shape[0], x.shape[1], pooled_height, pooled_width))

    @decomposition(
        until=21,
        portable=False,
        requires=lambda aligned, pool_mode, **_: not aligned and pool_mode == "avg",
        reason="onnxruntime's RoiAlign, which ends at opset 21",
    )
    def kernel(self, g: Builder, x: Value, rois: Value, **parameters: Any) -> Value:
        return _kernel(g, x, rois, **parameters)

    # Below opset 16 the operator makes boxes at least a pixel wide, which is not what `aligned` does to small ones.
    @decomposition(
        opset=16,
        until=21,
        portable=False,
        requires=lambda aligned, pool_mode, **_: aligned and pool_mode == "avg",
        reason="onnxruntime's RoiAlign, which ends at opset 21",
    )
    def kernel_aligned(self, g: Builder, x: Value, rois: Value, **parameters: Any) -> Value:
        return _kernel(g, x, rois, **parameters)

    @decomposition()
    def gathers(
        self,
        g: Builder,
        x: Value,
        rois: Value,
        spatial_scale: float = 1.0,
        pooled_height: int = 1,
        pooled_width: int = 1,
        sampling_ratio: int = -1,
        aligned: bool = False,
        pool_mode: str = "avg",
    ) -> Value:
        pooled = (pooled_height, pooled_width)
        if pool_mode not in ("avg", "max"):
            raise UnsupportedParameter(f"pool_mode '{pool_mode}' is neither avg nor max", where=g.where)
        shape = [g.dim(rois, 0), g.dim(x, 1), *pooled]
        if places.is_empty(*shape):
            return g.constant_of_shape(shape, 0.0, x)
        data = g.cast(x, places.wide(x))
        batch, x1, y1, x2, y2 = rois_.columns(g, g.cast(rois, data), 5)
        offset = 0.5 if aligned else 0.0
        x1, y1, x2, y2 = (c - offset if offset else c for c in (e * spatial_scale for e in (x1, y1, x2, y2)))
        width, height = x2 - x1, y2 - y1
        if not aligned:
            width, height = g.maximum(width, 1.0), g.maximum(height, 1.0)
        y = rois_.sampled(g, y1, height, pooled_height, sampling_ratio, 1)
        across = rois_.sampled(g, x1, width, pooled_width, sampling_ratio, 2)
        source = rois_.table(g, data)
        divisor = rois_.count_of(g, y, across, 1.0) if pool_mode == "avg" else 1.0
        position, weight = rois_.neighbours(g, source, y, across, rois_.planes(g, batch), divisor)
        if pool_mode == "avg":
            result = rois_.averaged(g, source, position, weight, pooled)
        else:
            result = _largest(g, source, position, weight, pooled, y, across)
        return g.cast(result, x)

    def cases(self) -> Iterator[Case]:
        boxes = [
            [0, 0.5, 1.0, 4.5, 3.5],
            [1, -1.5, -2.0, 3.0, 9.0],
            [0, 2.0, 2.0, 2.25, 2.5],  # less than a pixel
            [1, 3.0, 1.0, 3.0, 4.0],  # no area
            [1, 20.0, 20.0, 30.0, 30.0],  # nowhere
        ]
        x, rois = f32(2, 3, 5, 6), f32(5, 5, value=boxes)
        for aligned in (False, True):
            for sampling_ratio in (2, -1):
                yield Case(
                    x,
                    rois,
                    spatial_scale=0.75,
                    pooled_height=2,
                    pooled_width=3,
                    sampling_ratio=sampling_ratio,
                    aligned=aligned,
                    dtypes=None if sampling_ratio > 0 else ["float32", "float64"],
                )
        once: Any = {"opsets": (13, 13), "dtypes": ["float32", "float64"]}
        none: Any = {"opsets": (13, 13), "dtypes": ["float32"]}
        # A box with its ends exchanged, and one that is wide where another is high.
        turned = [[0, 4.0, 3.0, 1.0, 0.5], [1, 0.0, 1.0, 6.0, 2.0], [1, 1.0, 0.0, 2.0, 5.0]]
        for aligned in (False, True):
            yield Case(x, f32(3, 5, value=turned), 1.0, 1, 2, 0, aligned, **once)
        for sampling_ratio in (1, 0):
            yield Case(x, rois, 1.0, 2, 2, sampling_ratio, True, "max", **once)
        # Boxes that are drawn, for their gradient: the places are the box's own.
        yield Case(x, f32(2, 5, draw=_drawn), 0.5, 2, 2, 2, True, **once)
        yield Case(x, f32(0, 5), 1.0, 2, 2, 2, False, **none)
        yield Case(x, f32(0, 5), 1.0, 2, 2, -1, True, **none)
        # An infinity in one pixel, and boxes that do not touch it, one of them outside.
        image = [float("inf"), *[0.5 * i for i in range(1, 12)]]
        far = [[0, 2.0, 1.0, 3.0, 2.0], [0, -9.0, -9.0, -5.0, -5.0], [0, 1.25, 0.25, 3.0, 1.5]]
        yield Case(
            f32(1, 1, 3, 4, value=image),
            f32(3, 5, value=far),
            1.0,
            2,
            2,
            2,
            True,
            opsets=(13, 13),
            dtypes=["float32"],
        )


class PsRoiAlign(Placeholder):
    """As roi_align with `aligned`, bin (i, j) of channel c taken from channel (c·ph + i)·pw + j; and which that is."""

    finite = True
    matches = ("PsRoiAlign", "torchvision::ps_roi_align", "mmcv::psroi_align")
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
        sampling_ratio: int = -1,
    ) -> Any:
        import torch

        fine = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
        ph, pw = pooled_height, pooled_width
        channels = x.shape[1] // (ph * pw)
        result = x.new_zeros((len(rois), channels, ph, pw), dtype=fine)
        rows = []
        for box in rois.to(fine):
            x1, y1, x2, y2 = (box[1:] * spatial_scale - 0.5).unbind()
            y = _samples(y1, y2 - y1, ph, sampling_ratio)
            across = _samples(x1, x2 - x1, pw, sampling_ratio)
            if y.numel() == 0 or across.numel() == 0:
                count = _count(y2 - y1, ph, sampling_ratio) * _count(x2 - x1, pw, sampling_ratio)
                rows.append(result.new_full((channels, ph, pw), 0.0 if count else float("nan")))
                continue
            value = _bilinear(x[int(box[0])].to(fine), y[:, :, None, None], across[None, None])
            value = value.mean(dim=(2, 4)).reshape(channels, ph, pw, ph, pw)
            rows.append(torch.stack([value[:, i, j, i, j] for i in range(ph) for j in range(pw)], -1))
        if rows:
            result = torch.stack([row.reshape(channels, ph, pw) for row in rows])
        mapping = torch.arange(channels * ph * pw, dtype=torch.int32).reshape(channels, ph, pw)
        return result.to(x.dtype), mapping.expand(len(rois), -1, -1, -1)

    def decompose(
        self,
        g: Builder,
        x: Value,
        rois: Value,
        spatial_scale: float = 1.0,
        pooled_height: int = 1,
        pooled_width: int = 1,
        sampling_ratio: int = -1,
    ) -> tuple[Value, Value | None]:
        pooled = (pooled_height, pooled_width)
        data = g.cast(x, places.wide(x))
        source = rois_.table(g, data, pooled_height * pooled_width)
        mapping = channel_mapping(g, rois, source, pooled) if g.wants("channel_mapping") else None
        shape = [g.dim(rois, 0), g.dim(source.rows, 1), *pooled]
        if places.is_empty(*shape):
            return g.constant_of_shape(shape, 0.0, x), mapping
        batch, *corners = rois_.columns(g, g.cast(rois, data), 5)
        x1, y1, x2, y2 = (c * spatial_scale - 0.5 for c in corners)
        y = rois_.sampled(g, y1, y2 - y1, pooled_height, sampling_ratio, 1)
        across = rois_.sampled(g, x1, x2 - x1, pooled_width, sampling_ratio, 2)
        plane = bin_planes(g, batch, pooled)
        position, weight = rois_.neighbours(g, source, y, across, plane, rois_.count_of(g, y, across))
        return g.cast(rois_.averaged(g, source, position, weight, pooled), x), mapping

    def cases(self) -> Iterator[Case]:
        boxes = [
            [0, 0.5, 1.0, 4.5, 3.5],
            [1, -1.5, -2.0, 3.0, 9.0],
            [0, 2.0, 2.0, 2.25, 2.5],
            [1, 20.0, 20.0, 30.0, 30.0],
        ]
        known: Any = {"symbolic": False, "reason": "the channels are parted into bins: their number is known"}
        x, rois = f32(2, 12, 5, 6), f32(4, 5, value=boxes)
        yield Case(x, rois, 0.75, 2, 3, 2, **known)
        yield Case(x, rois, 1.0, 2, 2, -1, **known)
        once: Any = {"opsets": (13, 13), "dtypes": ["float32", "float64"]}
        none: Any = {"opsets": (13, 13), "dtypes": ["float32"]}
        yield Case(
            x,
            f32(2, 5, value=[[0, 1.0, 1.0, 1.0, 3.0], [1, 4.0, 3.0, 1.0, 0.5]]),
            1.0,
            2,
            3,
            -1,
            **known,
            **none,
        )
        yield Case(x, f32(2, 5, draw=_drawn), 0.5, 3, 2, 1, **known, **once)
        yield Case(x, f32(0, 5), 1.0, 2, 2, 2, **known, **none)


def _of_onnx(op: Call) -> dict[str, Any] | None:
    """Arguments for ONNX's RoiAlign, whose batches are an input of their own.

    Its maximum is over products with weights, which no other library has.
    """
    boxes, batches = op.input(1), op.input(2)
    if boxes is None or batches is None or op.get("mode") != "avg":
        return None
    g = op.x.builder
    table = g.concat([g.unsqueeze(g.cast(batches, boxes), [1]), boxes], 1)
    return {
        "x": op.x,
        "rois": table,
        "spatial_scale": op.get("spatial_scale"),
        "pooled_height": op.get("output_height"),
        "pooled_width": op.get("output_width"),
        "sampling_ratio": op.get("sampling_ratio"),
        "aligned": op.get("coordinate_transformation_mode", "output_half_pixel") == "half_pixel",
    }


def channel_mapping(g: Builder, rois: Value, source: rois_.Table, pooled: tuple[int, int]) -> Value:
    """Which channel each result comes from, (K, C, ph, pw) int32."""
    channels = source.rows.size(1)
    assert channels is not None
    numbers = np.arange(channels * pooled[0] * pooled[1], dtype=np.int32).reshape(1, channels, *pooled)
    return g.expand(g.const(numbers), [g.dim(rois, 0), channels, *pooled])


def bin_planes(g: Builder, batch: Value, pooled: tuple[int, int]) -> Value:
    """The plane of each bin among those of all images, (K, ph, pw, 1, 1)."""
    numbers = np.arange(pooled[0] * pooled[1], dtype=np.int64).reshape(1, *pooled, 1, 1)
    return rois_.planes(g, batch) * (pooled[0] * pooled[1]) + g.const(numbers)


def _drawn(rng: Any, shape: Any) -> Any:
    corners = rng.uniform(0.3, 3.0, (shape[0], 2)), rng.uniform(4.1, 8.7, (shape[0], 2))
    return np.concatenate([np.zeros((shape[0], 1)), *corners], axis=1)


def _kernel(
    g: Builder,
    x: Value,
    rois: Value,
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
    pool_mode: str,
) -> Value:
    data = g.cast(x, places.wide(x))
    batch, boxes = g.split(g.cast(rois, data), [1, 4], 1)
    number = g.cast(g.squeeze(batch, [1]), TensorProto.INT64)
    half = "half_pixel" if aligned else "output_half_pixel"
    made: Value = g.op(
        "RoiAlign",
        data,
        boxes,
        number,
        coordinate_transformation_mode=half if g.opset >= 16 else None,
        mode=pool_mode,
        output_height=pooled_height,
        output_width=pooled_width,
        sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=float(spatial_scale),
    )
    return g.cast(made, x)


def _largest(
    g: Builder,
    source: rois_.Table,
    position: Value,
    weight: Value,
    pooled: tuple[int, int],
    y: rois_.Along,
    x: rois_.Along,
) -> Value:
    """The largest sample of each bin."""
    boxes, across = g.dim(position, 0), g.dim(position, 4)
    down = g.dim(y.place, 3)
    bins = g.product([boxes, *pooled])
    samples = g.product([down, across])
    # (K·ph·pw, 4, samples) → one row of four weights for each sample.
    order = [0, 2, 1]
    rows = g.gather(source.rows, g.transpose(g.reshape(position, [bins, 4, samples]), order), axis=0)
    weights = g.unsqueeze(g.transpose(g.reshape(weight, [bins, 4, samples]), order), [2])
    value = g.squeeze(g.matmul(weights, rows), [2])  # (bins, samples, C)
    if y.exists is not None and x.exists is not None:
        exists = g.expand(g.and_(y.exists, x.exists), [boxes, *pooled, down, across])
        value = g.where_(g.reshape(exists, [bins, samples, 1]), value, _LOWEST)
    most = g.maximum(g.reduce_max(value, [1], keepdims=False), _LOWEST)
    return rois_.to_channels(g, most, boxes, source, pooled)


# --- for the references, in torch -------------------------------------------------------------------------------


def _count(length: Any, pooled: int, ratio: int) -> int:
    return ratio if ratio > 0 else int((length / pooled).ceil())


def _samples(start: Any, length: Any, pooled: int, ratio: int) -> Any:
    """Places along one axis, (pooled, samples)."""
    import torch

    size = length / pooled
    count = max(_count(length, pooled, ratio), 0)
    bins = torch.arange(pooled, dtype=start.dtype)[:, None]
    steps = torch.arange(count, dtype=start.dtype)[None]
    return start + bins * size + (steps + 0.5) * size / count


def _bilinear(image: Any, y: Any, x: Any) -> Any:
    """`image` (C, H, W) at places that broadcast; zero where they are more than a pixel outside."""
    import torch

    height, width = image.shape[-2:]
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    y0, x0 = y.floor().detach().nan_to_num(), x.floor().detach().nan_to_num()
    dy, dx = y - y0, x - x0
    y0, x0 = y0.long(), x0.long()
    y1, x1 = (y0 + 1).clamp(max=height - 1), (x0 + 1).clamp(max=width - 1)
    value = (
        (1 - dy) * (1 - dx) * image[:, y0, x0]
        + (1 - dy) * dx * image[:, y0, x1]
        + dy * (1 - dx) * image[:, y1, x0]
        + dy * dx * image[:, y1, x1]
    )
    return torch.where(inside, value, torch.zeros_like(value))
