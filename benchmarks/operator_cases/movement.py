"""Rows for the passes of passes/movement/; see the package's docstring."""

from typing import Any

import torch

from operator_cases import Row
from rewriter.placeholder import Case, f32


def _roll(x: torch.Tensor, shifts: Any, dims: Any = ()) -> torch.Tensor:
    return torch.roll(x, tuple(shifts), tuple(dims))


ROWS: tuple[Row, ...] = (
    Row("roll", "Swin 1x56x56x96", Case(f32(1, 56, 56, 96), shifts=[-3, -3], dims=[1, 2]), _roll),
    Row("roll", "Swin 1x14x14x384", Case(f32(1, 14, 14, 384), shifts=[-3, -3], dims=[1, 2]), _roll),
    Row("roll", "Swin 8x28x28x192", Case(f32(8, 28, 28, 192), shifts=[3, 3], dims=[1, 2]), _roll),
    Row("roll", "NCHW 1x96x56x56", Case(f32(1, 96, 56, 56), shifts=[3, 3], dims=[2, 3]), _roll),
    Row("roll", "NCHW 4x32x128x128", Case(f32(4, 32, 128, 128), shifts=[-3, -3], dims=[2, 3]), _roll),
    Row("roll", "first of 64x4096", Case(f32(64, 4096), shifts=[5], dims=[0]), _roll),
    Row("roll", "last of 1024x512, by 1", Case(f32(1024, 512), shifts=[1], dims=[1]), _roll),
    Row("roll", "last of 1024x512, by 64", Case(f32(1024, 512), shifts=[64], dims=[1]), _roll),
    Row("roll", "last of 16x64, by 2", Case(f32(16, 64), shifts=[2], dims=[1]), _roll),
    Row("roll", "middle of 32x100x8", Case(f32(32, 100, 8), shifts=[7], dims=[1]), _roll),
    Row("roll", "flat 256x1000", Case(f32(256, 1000), shifts=[17]), _roll),
)
