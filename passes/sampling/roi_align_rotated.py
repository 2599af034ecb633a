"""Averages of bilinear samples in the bins of rotated boxes: mmcv's `roi_align_rotated`.

Reference and arithmetic follow mmcv (mmcv/ops/csrc/pytorch/cpu/roi_align_rotated.cpp, 2.x), after detectron2.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from passes.sampling import _places as places
from passes.sampling import _rois as rois_
from passes.sampling.roi_align import _bilinear, _count
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class RoiAlignRotated(Placeholder):
    """(K, C, h, w) averages of `x` in boxes `rois` (K, 6): the image's number, centre x and y, width, height, angle."""

    matches = (
        "RoiAlignRotated",
        "mmcv::MMCVRoIAlignRotated",
        "mmdeploy::MMCVRoIAlignRotated",
        "mmcv::roi_align_rotated",
        "mmcv::roi_align_rotated_forward",
    )
    shapes = "x: N C H W; rois: K 6"
    aliases = {  # noqa: RUF012
        "aligned_height": "output_height",
        "aligned_width": "output_width",
        "pooled_height": "output_height",
        "pooled_width": "output_width",
    }

    def reference(
        self,
        x: Any,
        rois: Any,
        output_height: int,
        output_width: int,
        spatial_scale: float = 1.0,
        sampling_ratio: int = 0,
        aligned: bool = True,
        clockwise: bool = False,
    ) -> Any:
        import torch

        fine = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
        results = []
        for box in rois.to(fine):
            cx, cy = (box[1:3] * spatial_scale - (0.5 if aligned else 0.0)).unbind()
            width, height = (box[3:5] * spatial_scale).unbind()
            if not aligned:
                width, height = width.clamp(min=1.0), height.clamp(min=1.0)
            angle = -box[5] if clockwise else box[5]

            def along(length: Any, bins: int) -> Any:
                count = max(_count(length, bins, sampling_ratio), 0)
                size = length / bins
                number = torch.arange(bins, dtype=fine)[:, None]
                step = torch.arange(count, dtype=fine)[None]
                return -length / 2 + number * size + (step + 0.5) * size / count

            yy = along(height, output_height)[:, :, None, None]
            xx = along(width, output_width)[None, None]
            if yy.numel() == 0 or xx.numel() == 0:
                results.append(x.new_zeros((x.shape[1], output_height, output_width), dtype=fine))
                continue
            y = yy * angle.cos() - xx * angle.sin() + cy
            across = yy * angle.sin() + xx * angle.cos() + cx
            results.append(_bilinear(x[int(box[0])].to(fine), y, across).mean(dim=(2, 4)))
        if not results:
            return x.new_zeros((0, x.shape[1], output_height, output_width))
        return torch.stack(results).to(x.dtype)

    def decompose(
        self,
        g: Builder,
        x: Value,
        rois: Value,
        output_height: int,
        output_width: int,
        spatial_scale: float = 1.0,
        sampling_ratio: int = 0,
        aligned: bool = True,
        clockwise: bool = False,
    ) -> Value:
        pooled = (output_height, output_width)
        shape = [g.dim(rois, 0), g.dim(x, 1), *pooled]
        if places.is_empty(*shape):
            return g.constant_of_shape(shape, 0.0, x)
        data = g.cast(x, places.wide(x))
        batch, cx, cy, width, height, angle = rois_.columns(g, g.cast(rois, data), 6)
        cx, cy, width, height = (c * spatial_scale for c in (cx, cy, width, height))
        if aligned:
            cx, cy = cx - 0.5, cy - 0.5
        else:
            width, height = g.maximum(width, 1.0), g.maximum(height, 1.0)
        yy = rois_.sampled(g, height * -0.5, height, output_height, sampling_ratio, 1)
        xx = rois_.sampled(g, width * -0.5, width, output_width, sampling_ratio, 2)
        cosine, sine = g.cos(angle), g.sin(-angle if clockwise else angle)
        y = dataclasses.replace(yy, place=yy.place * cosine - xx.place * sine + cy)
        across = dataclasses.replace(xx, place=yy.place * sine + xx.place * cosine + cx)
        source = rois_.table(g, data)
        divisor = rois_.count_of(g, y, across, 1.0)
        position, weight = rois_.neighbours(g, source, y, across, rois_.planes(g, batch), divisor)
        return g.cast(rois_.averaged(g, source, position, weight, pooled), x)

    def cases(self) -> Iterator[Case]:
        boxes = [
            [0, 2.5, 2.0, 4.0, 2.0, 0.0],
            [1, 2.0, 3.0, 5.0, 3.0, 0.7],
            [0, 3.0, 2.0, 0.5, 0.25, -1.2],
            [1, 3.0, 2.0, 0.0, 2.0, 2.0],
            [1, 40.0, 40.0, 3.0, 3.0, 0.3],
        ]
        x, rois = f32(2, 3, 5, 6), f32(5, 6, value=boxes)
        yield Case(x, rois, 2, 3, 0.75, 2)
        once: Any = {"opsets": (13, 13), "dtypes": ["float32", "float64"]}
        none: Any = {"opsets": (13, 13), "dtypes": ["float32"]}
        for aligned, clockwise in ((True, True), (False, False)):
            yield Case(x, rois, 2, 2, 1.0, 0, aligned, clockwise, **once)
        yield Case(x, rois, 2, 2, 0.5, 1, False, True, **once)

        def drawn(rng: Any, shape: Any) -> Any:
            number = np.zeros((shape[0], 1))
            inner, sizes = rng.uniform(2.0, 3.0, (shape[0], 2)), rng.uniform(1.1, 2.9, (shape[0], 2))
            return np.concatenate([number, inner, sizes, rng.uniform(-1, 1, (shape[0], 1))], axis=1)

        yield Case(x, f32(2, 6, draw=drawn), 2, 2, 1.0, 2, **once)
        yield Case(x, f32(0, 6), 2, 2, 1.0, 2, **none)
