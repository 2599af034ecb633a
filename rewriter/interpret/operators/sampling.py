"""Reading an image between its elements: GridSample and RoiAlign."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()

#: Names of 16, and those of 20.
_MODES = {
    "bilinear": "bilinear",
    "bicubic": "bicubic",
    "linear": "bilinear",
    "cubic": "bicubic",
    "nearest": "nearest",
}


@KERNELS.operator("GridSample")
def grid_sample(call: Call, x: Tensor, grid: Tensor) -> Tensor:
    """torch's own, whose conventions ONNX took over; two or three spatial dims."""
    mode = _MODES[call["mode"]]
    if x.ndim not in (4, 5) or (x.ndim == 5 and mode == "bicubic"):
        raise call.unsupported(f"PyTorch samples no {x.ndim - 2} dims in mode '{call['mode']}'")
    return F.grid_sample(
        x,
        grid.to(x.dtype),
        mode=mode,
        padding_mode=call["padding_mode"],
        align_corners=bool(call["align_corners"]),
    )


@KERNELS.operator("RoiAlign", since=16)
def roi_align(call: Call, x: Tensor, rois: Tensor, batch: Tensor) -> Tensor:
    return _roi_align(call, x, rois, batch, call["coordinate_transformation_mode"] == "half_pixel")


@KERNELS.operator("RoiAlign")
def roi_align_of_whole_pixels(call: Call, x: Tensor, rois: Tensor, batch: Tensor) -> Tensor:
    """Below 16 there is no half-pixel shift."""
    return _roi_align(call, x, rois, batch, False)


def _roi_align(call: Call, x: Tensor, rois: Tensor, batch: Tensor, half_pixel: bool) -> Tensor:
    height, width = call["output_height"], call["output_width"]
    boxes = rois * call["spatial_scale"] - (0.5 if half_pixel else 0.0)
    extent = boxes[:, 2:] - boxes[:, :2]  # (width, height)
    if not half_pixel:
        extent = extent.clamp(min=1)
    ratio = call["sampling_ratio"]
    made: list[Tensor] = []
    for i in range(rois.shape[0]):
        rows, columns = ratio, ratio
        if ratio <= 0:
            rows = int((extent[i, 1].detach() / height).ceil().item())
            columns = int((extent[i, 0].detach() / width).ceil().item())
        if rows <= 0 or columns <= 0:
            made.append(torch.zeros(x.shape[1], height, width, dtype=x.dtype))
            continue
        y = _samples(boxes[i, 1], extent[i, 1], height, rows)
        z = _samples(boxes[i, 0], extent[i, 0], width, columns)
        image = x[int(batch[i].item())]
        made.append(_pooled(call, image, y, z, height, width))
    return torch.stack(made) if made else x.new_zeros(0, x.shape[1], height, width)


def _samples(start: Tensor, extent: Tensor, bins: int, each: int) -> Tensor:
    """The coordinates of ``each`` points in each of the bins along one axis."""
    at = (torch.arange(bins * each, dtype=start.dtype) + 0.5) / each
    return start + at * (extent / bins)


def _pooled(call: Call, image: Tensor, y: Tensor, x: Tensor, height: int, width: int) -> Tensor:
    """(C, H, W) at the grid of y and x, bilinearly, then the mean or the largest of each bin."""
    corners = []
    inside_y = (y >= -1) & (y <= image.shape[1])
    inside_x = (x >= -1) & (x <= image.shape[2])
    inside = inside_y[:, None] & inside_x[None, :]
    for row, weight_y in _ends(y, image.shape[1]):
        for column, weight_x in _ends(x, image.shape[2]):
            value = image.index_select(1, row).index_select(2, column)
            weight = weight_y[:, None] * weight_x[None, :]
            corners.append(value * torch.where(inside, weight, torch.zeros_like(weight)))
    bins = (image.shape[0], height, len(y) // height, width, len(x) // width)
    if call["mode"] == "max":
        # of the weighted corners, not of their sums
        best = torch.stack(corners).amax(0)
        return best.reshape(bins).amax((2, 4))
    return (corners[0] + corners[1] + corners[2] + corners[3]).reshape(bins).mean((2, 4))


def _ends(at: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    """The neighbours on both sides of a coordinate, with their weights."""
    kept = at.clamp(min=0)
    low = kept.detach().floor().clamp(max=size - 1)
    last = low >= size - 1
    part = torch.where(last, torch.zeros_like(kept), kept - low)
    first = low.to(torch.int64)
    return [(first, 1 - part), (torch.where(last, first, first + 1), part)]
