"""Rows for the passes of passes/movement/; see the package's docstring."""

from typing import Any

import torch
import torch.nn.functional as F

from operator_cases import Row
from rewriter.placeholder import Case, f32, i64


def _roll(x: torch.Tensor, shifts: Any, dims: Any = ()) -> torch.Tensor:
    return torch.roll(x, tuple(shifts), tuple(dims))


def _pad(x: torch.Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> torch.Tensor:
    return F.pad(x, tuple(pad), mode, value)


def _circular(x: torch.Tensor, pad: Any) -> torch.Tensor:
    return F.pad(x, tuple(pad), "circular")


def _reflection(x: torch.Tensor, pad: Any) -> torch.Tensor:
    return F.pad(x, tuple(pad), "reflect")


def _replication(x: torch.Tensor, pad: Any) -> torch.Tensor:
    return F.pad(x, tuple(pad), "replicate")


def _shuffle(x: torch.Tensor, upscale_factor: int) -> torch.Tensor:
    return F.pixel_shuffle(x, upscale_factor)


def _unshuffle(x: torch.Tensor, downscale_factor: int) -> torch.Tensor:
    return F.pixel_unshuffle(x, downscale_factor)


def _unfold(x: torch.Tensor, kernel_size: Any, **how: Any) -> torch.Tensor:
    return F.unfold(x, _both(kernel_size), **{name: _both(value) for name, value in how.items()})


def _fold(x: torch.Tensor, output_size: Any, kernel_size: Any, **how: Any) -> torch.Tensor:
    rest = {name: _both(value) for name, value in how.items()}
    return F.fold(x, _both(output_size), _both(kernel_size), **rest)


def _both(value: Any) -> tuple[int, int]:
    return value[0], value[-1]


def _flip(x: torch.Tensor, dims: Any) -> torch.Tensor:
    return torch.flip(x, tuple(dims))


def _rot90(x: torch.Tensor, k: int = 1, dims: Any = (0, 1)) -> torch.Tensor:
    return torch.rot90(x, k, tuple(dims))


def _tril(x: torch.Tensor, diagonal: int = 0) -> torch.Tensor:
    return torch.tril(x, diagonal)


def _triu(x: torch.Tensor, diagonal: int = 0) -> torch.Tensor:
    return torch.triu(x, diagonal)


def _repeat(x: torch.Tensor, repeats: Any, dim: int | None = None) -> torch.Tensor:
    return torch.repeat_interleave(x, repeats, dim)


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
    Row("circular_pad", "1x64x56x56 by 1", Case(f32(1, 64, 56, 56), pad=[1, 1, 1, 1]), _circular),
    Row("circular_pad", "1x16x128x256 by 3", Case(f32(1, 16, 128, 256), pad=[3, 3, 3, 3]), _circular),
    Row("circular_pad", "8x32x14x14 by 1", Case(f32(8, 32, 14, 14), pad=[1, 1, 1, 1]), _circular),
    Row("circular_pad", "2x32x1000, last", Case(f32(2, 32, 1000), pad=[7, 7]), _circular),
    Row("pad", "constant 1x64x56x56 by 1", Case(f32(1, 64, 56, 56), pad=[1, 1, 1, 1]), _pad),
    Row("pad", "constant 1x56x56x96, behind", Case(f32(1, 56, 56, 96), pad=[0, 0, 0, 7, 0, 7]), _pad),
    Row("reflection_pad", "1x64x56x56 by 1", Case(f32(1, 64, 56, 56), pad=[1, 1, 1, 1]), _reflection),
    Row("reflection_pad", "1x3x224x224 by 3", Case(f32(1, 3, 224, 224), pad=[3, 3, 3, 3]), _reflection),
    Row("reflection_pad", "1x80x1000, last", Case(f32(1, 80, 1000), pad=[3, 3]), _reflection),
    Row("replication_pad", "1x64x56x56 by 1", Case(f32(1, 64, 56, 56), pad=[1, 1, 1, 1]), _replication),
    Row("replication_pad", "8x32x14x14 by 1", Case(f32(8, 32, 14, 14), pad=[1, 1, 1, 1]), _replication),
    Row("pixel_shuffle", "1x64x56x56 by 2", Case(f32(1, 64, 56, 56), upscale_factor=2), _shuffle),
    Row("pixel_shuffle", "1x48x64x64 by 4", Case(f32(1, 48, 64, 64), upscale_factor=4), _shuffle),
    Row("pixel_shuffle", "1x27x32x32 by 3", Case(f32(1, 27, 32, 32), upscale_factor=3), _shuffle),
    Row("pixel_unshuffle", "1x16x112x112 by 2", Case(f32(1, 16, 112, 112), downscale_factor=2), _unshuffle),
    Row("pixel_unshuffle", "1x3x224x224 by 4", Case(f32(1, 3, 224, 224), downscale_factor=4), _unshuffle),
    Row("pixel_unshuffle", "8x4x28x28 by 2", Case(f32(8, 4, 28, 28), downscale_factor=2), _unshuffle),
    Row("unfold", "3x3, 1x32x28x28", Case(f32(1, 32, 28, 28), kernel_size=[3], padding=[1]), _unfold),
    Row("unfold", "3x3, 1x16x64x64", Case(f32(1, 16, 64, 64), kernel_size=[3], padding=[1]), _unfold),
    Row(
        "unfold",
        "3x3 by 2, 1x64x32x32",
        Case(f32(1, 64, 32, 32), kernel_size=[3], padding=[1], stride=[2]),
        _unfold,
    ),
    Row(
        "unfold", "3x3 dilated, 1x16x32x32", Case(f32(1, 16, 32, 32), kernel_size=[3], dilation=[2]), _unfold
    ),
    Row(
        "unfold",
        "7x7 by 4, 1x3x112x112",
        Case(f32(1, 3, 112, 112), kernel_size=[7], padding=[3], stride=[4]),
        _unfold,
    ),
    Row(
        "unfold",
        "2x2 side by side, 1x64x56x56",
        Case(f32(1, 64, 56, 56), kernel_size=[2], stride=[2]),
        _unfold,
    ),
    Row(
        "unfold",
        "16x16 side by side, 1x3x224x224",
        Case(f32(1, 3, 224, 224), kernel_size=[16], stride=[16]),
        _unfold,
    ),
    Row(
        "fold",
        "3x3, 1x16x28x28",
        Case(f32(1, 144, 784), output_size=[28], kernel_size=[3], padding=[1]),
        _fold,
    ),
    Row(
        "fold",
        "7x7 by 4, 1x3x112x112",
        Case(f32(1, 147, 784), output_size=[112], kernel_size=[7], padding=[3], stride=[4]),
        _fold,
    ),
    Row(
        "fold",
        "2x2 side by side, 1x64x56x56",
        Case(f32(1, 256, 784), output_size=[56], kernel_size=[2], stride=[2]),
        _fold,
    ),
    Row("time_shift", "by 1, 8x100x256", Case(f32(8, 100, 256), shift=1, dim=1)),
    Row("time_shift", "by -2, 4x64x1000", Case(f32(4, 64, 1000), shift=-2)),
    Row("shift_concat", "5 shifts, 4x100x80", Case(f32(4, 100, 80), shifts=[2, 1, 0, -1, -2])),
    Row("splice_frames", "4 and 4, 1x500x40", Case(f32(1, 500, 40))),
    Row("temporal_shift", "8x64x28x28", Case(f32(8, 64, 28, 28), n_segment=8)),
    Row("rot90", "1x3x224x224", Case(f32(1, 3, 224, 224), k=1, dims=[2, 3]), _rot90),
    Row("rot90", "8x16x32x32, half", Case(f32(8, 16, 32, 32), k=2, dims=[2, 3]), _rot90),
    Row("rot90", "64x64x32, channels last", Case(f32(64, 64, 32), k=3), _rot90),
    Row("flip", "1x3x224x224, W", Case(f32(1, 3, 224, 224), dims=[3]), _flip),
    Row("flip", "1x3x224x224, H", Case(f32(1, 3, 224, 224), dims=[2]), _flip),
    Row("flip", "1x56x56x96, H and W", Case(f32(1, 56, 56, 96), dims=[1, 2]), _flip),
    Row("flip", "4x100x64, time", Case(f32(4, 100, 64), dims=[1]), _flip),
    Row("tril", "256x256", Case(f32(256, 256)), _tril),
    Row("tril", "8x12x64x64", Case(f32(8, 12, 64, 64)), _tril),
    Row("triu", "512x512, above", Case(f32(512, 512), diagonal=1), _triu),
    Row("repeat_interleave", "heads, 1x8x64x64 by 4", Case(f32(1, 8, 64, 64), repeats=4, dim=1), _repeat),
    Row("repeat_interleave", "1x64x56x56, W by 2", Case(f32(1, 64, 56, 56), repeats=2, dim=3), _repeat),
    Row("repeat_interleave", "1x64x56x56, H by 2", Case(f32(1, 64, 56, 56), repeats=2, dim=2), _repeat),
    Row(
        "repeat_interleave",
        "lengths, 1x80x256",
        Case(f32(80, 256), i64(80, low=1, high=9), dim=0),
        _repeat,
    ),
)
