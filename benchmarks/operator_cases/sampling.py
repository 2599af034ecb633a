"""Rows for the passes of passes/sampling/; see the package's docstring.

torchvision's operators and mmcv's have references of our own, at sizes of a detector's head.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from operator_cases import Row
from rewriter.placeholder import Case, f32


def _grid(rng: Any, shape: Any) -> Any:
    return rng.uniform(-1.1, 1.1, shape)


def _grid_sample(
    x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False
) -> Any:
    return torch.nn.functional.grid_sample(x, grid, mode, padding_mode, align_corners)


def _affine_grid(theta: Any, size: Any, align_corners: bool = False) -> Any:
    return torch.nn.functional.affine_grid(theta, list(size), align_corners)


def _interpolate(mode: str, antialias: bool) -> Any:
    def call(x: Any, output_size: Any, align_corners: bool = False) -> Any:
        return torch.nn.functional.interpolate(
            x, list(output_size), mode=mode, align_corners=align_corners, antialias=antialias
        )

    return call


def _boxes(rng: Any, shape: Any) -> Any:
    near, sizes = rng.uniform(0, 30, (shape[0], 2)), rng.uniform(2, 20, (shape[0], 2))
    return np.concatenate([np.zeros((shape[0], 1)), near, near + sizes], axis=1)


def _rotated(rng: Any, shape: Any) -> Any:
    centre, sizes = rng.uniform(5, 45, (shape[0], 2)), rng.uniform(2, 20, (shape[0], 2))
    return np.concatenate([np.zeros((shape[0], 1)), centre, sizes, rng.uniform(-1, 1, (shape[0], 1))], axis=1)


def _sampled(
    label: str, x: tuple[int, ...], grid: tuple[int, ...], mode: str, padding_mode: str, aligned: bool
) -> Row:
    case = Case(f32(*x), f32(*grid, draw=_grid), mode=mode, padding_mode=padding_mode, align_corners=aligned)
    return Row("grid_sample", f"{label}, {mode}, {padding_mode}{', aligned' * aligned}", case, _grid_sample)


_IMAGE, _IMAGE_GRID = (1, 3, 128, 128), (1, 128, 128, 2)
_MAP, _MAP_GRID = (1, 64, 56, 56), (1, 56, 56, 2)
_VOLUME, _VOLUME_GRID = (1, 16, 12, 16, 16), (1, 12, 16, 16, 3)

ROWS: tuple[Row, ...] = (
    _sampled("1x64x56x56", _MAP, _MAP_GRID, "bilinear", "zeros", False),
    _sampled("1x64x56x56", _MAP, _MAP_GRID, "bilinear", "border", True),
    _sampled("1x64x56x56", _MAP, _MAP_GRID, "bilinear", "reflection", False),
    _sampled("1x64x56x56", _MAP, _MAP_GRID, "bicubic", "zeros", False),
    _sampled("1x64x56x56", _MAP, _MAP_GRID, "nearest", "border", True),
    _sampled("1x3x128x128", _IMAGE, _IMAGE_GRID, "bilinear", "zeros", False),
    _sampled("1x3x128x128", _IMAGE, _IMAGE_GRID, "bilinear", "zeros", True),
    _sampled("1x3x128x128", _IMAGE, _IMAGE_GRID, "bicubic", "border", False),
    _sampled("1x3x128x128", _IMAGE, _IMAGE_GRID, "nearest", "zeros", False),
    _sampled("1x16x12x16x16", _VOLUME, _VOLUME_GRID, "bilinear", "zeros", True),
    Row("affine_grid", "4x64x64", Case(f32(4, 2, 3), size=[4, 1, 64, 64]), _affine_grid),
    Row("affine_grid", "1x16x32x32", Case(f32(1, 3, 4), size=[1, 1, 16, 32, 32]), _affine_grid),
    Row(
        "upsample_bilinear2d_aa",
        "1x3x224x224 to 112",
        Case(f32(1, 3, 224, 224), output_size=[112, 112]),
        _interpolate("bilinear", True),
    ),
    Row(
        "upsample_bilinear2d_aa",
        "1x64x56x56 to 112",
        Case(f32(1, 64, 56, 56), output_size=[112, 112]),
        _interpolate("bilinear", True),
    ),
    Row(
        "upsample_bicubic2d_aa",
        "1x3x256x256 to 100",
        Case(f32(1, 3, 256, 256), output_size=[100, 100]),
        _interpolate("bicubic", True),
    ),
    Row(
        "upsample_trilinear3d",
        "1x8x16x16x16 to 32",
        Case(f32(1, 8, 16, 16, 16), output_size=[32, 32, 32]),
        _interpolate("trilinear", False),
    ),
    Row(
        "upsample_trilinear3d",
        "1x32x8x16x16 to 16x32x32, aligned",
        Case(f32(1, 32, 8, 16, 16), output_size=[16, 32, 32], align_corners=True),
        _interpolate("trilinear", False),
    ),
    Row(
        "roi_align",
        "64 boxes, 1x64x50x50, 7x7, 2 samples",
        Case(f32(1, 64, 50, 50), f32(64, 5, draw=_boxes), 1.0, 7, 7, 2, True),
    ),
    Row(
        "roi_align",
        "64 boxes, 1x64x50x50, 7x7, adaptive",
        Case(f32(1, 64, 50, 50), f32(64, 5, draw=_boxes), 1.0, 7, 7, -1, False),
    ),
    Row(
        "roi_pool", "32 boxes, 1x64x50x50, 7x7", Case(f32(1, 64, 50, 50), f32(32, 5, draw=_boxes), 1.0, 7, 7)
    ),
    Row(
        "ps_roi_align",
        "32 boxes, 1x98x50x50, 7x7",
        Case(f32(1, 98, 50, 50), f32(32, 5, draw=_boxes), 1.0, 7, 7, 2),
    ),
    Row(
        "roi_align_rotated",
        "32 boxes, 1x64x50x50, 7x7",
        Case(f32(1, 64, 50, 50), f32(32, 6, draw=_rotated), 7, 7, 1.0, 2),
    ),
    Row(
        "deform_conv2d",
        "1x64x28x28, 3x3, modulated",
        Case(
            f32(1, 64, 28, 28), f32(64, 64, 3, 3), f32(1, 18, 28, 28), f32(1, 9, 28, 28), f32(64), padding=[1]
        ),
        constants=("weight", "b"),
    ),
)
