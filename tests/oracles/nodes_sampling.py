"""ONNX's node tests for the passes of passes/sampling/; see the package's docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.oracles.run import Result
from tests.oracles.table import NodeRow, Unrun

if TYPE_CHECKING:
    from collections.abc import Mapping


def _grid_sample(attributes: Mapping[str, Any], inputs: list[Any]) -> Mapping[str, Any]:
    x, grid = inputs
    return {
        "x": x,
        "grid": grid,
        "mode": attributes.get("mode", "linear"),
        "padding_mode": attributes.get("padding_mode", "zeros"),
        "align_corners": bool(attributes.get("align_corners", 0)),
    }


def _affine_grid(attributes: Mapping[str, Any], inputs: list[Any]) -> Mapping[str, Any]:
    theta, size = inputs
    return {"theta": theta, "size": size, "align_corners": bool(attributes.get("align_corners", 0))}


def _roi_align(attributes: Mapping[str, Any], inputs: list[Any]) -> Mapping[str, Any]:
    x, boxes, images = inputs
    return {
        "x": x,
        "rois": np.concatenate([images[:, None].astype(boxes.dtype), boxes], axis=1),
        "spatial_scale": attributes.get("spatial_scale", 1.0),
        "pooled_height": attributes.get("output_height", 1),
        "pooled_width": attributes.get("output_width", 1),
        "sampling_ratio": attributes.get("sampling_ratio", 0),
        "aligned": attributes.get("coordinate_transformation_mode", "half_pixel") == "half_pixel",
        "pool_mode": attributes.get("mode", "avg"),
    }


def _deform_conv(attributes: Mapping[str, Any], inputs: list[Any]) -> Mapping[str, Any]:
    x, weight, offset, bias, mask = (*inputs, None, None)[:5]
    return {
        "x": x,
        "weight": weight,
        "offset": offset,
        "mask": mask,
        "b": bias,
        "stride": attributes.get("strides", [1, 1]),
        "padding": attributes.get("pads", [0, 0, 0, 0]),
        "dilation": attributes.get("dilations", [1, 1]),
        "n_weight_grps": attributes.get("group", 1),
        "n_offset_grps": attributes.get("offset_group", 1),
    }


# The expected values in ONNX's tests of GridSample and RoiAlign are written with four decimals.
ROWS: tuple[NodeRow, ...] = (
    NodeRow("grid_sample", "GridSample", _grid_sample, tolerance=(1e-4, 1e-4)),
    NodeRow("affine_grid", "AffineGrid", _affine_grid),
    NodeRow("roi_align", "RoiAlign", _roi_align, tolerance=(1e-3, 1e-4)),
    NodeRow("deform_conv2d", "DeformConv", _deform_conv),
)

_KERNEL = "the kernel's size must be known"
_RANK = "whether the grid is of two or three dimensions must be known"
_DEFORM = (
    "test_basic_deform_conv_with_padding",
    "test_basic_deform_conv_without_padding",
    "test_deform_conv_with_mask_bias",
    "test_deform_conv_with_multiple_offset_groups",
)
_AFFINE = (
    "test_affine_grid_2d",
    "test_affine_grid_2d_align_corners",
    "test_affine_grid_3d",
    "test_affine_grid_3d_align_corners",
)

UNRUN: tuple[Unrun, ...] = (
    *(Unrun("deform_conv2d", name, Result.REFUSED, _KERNEL, symbolic=True) for name in _DEFORM),
    *(Unrun("affine_grid", name, Result.REFUSED, _RANK, symbolic=True) for name in _AFFINE),
    Unrun(
        "roi_align",
        "test_roialign_mode_max",
        Result.DIFFERS,
        "ONNX's maximum is over the weighted pixels, mmcv's over the samples that they add up to",
    ),
)
