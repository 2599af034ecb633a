"""Rows for the passes of passes/normalisation/; see the package's docstring."""

from typing import Any

import torch

from operator_cases import Row
from rewriter.placeholder import Case, f32


def _layer_norm(
    x: torch.Tensor, normalized_shape: Any, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, normalized_shape, weight, bias)


def _layer(*shape: int) -> Case:
    return Case(f32(*shape), [shape[-1]], f32(shape[-1]), f32(shape[-1]))


def _rms_norm(x: torch.Tensor, normalized_shape: Any, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, normalized_shape, weight, eps)


def _rms(*shape: int) -> Case:
    return Case(f32(*shape), [shape[-1]], f32(shape[-1]), eps=1e-6)


def _group_norm(x: torch.Tensor, num_groups: int, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.group_norm(x, num_groups, weight, bias)


def _group(*shape: int, groups: int = 32) -> Case:
    return Case(f32(*shape), groups, f32(shape[1]), f32(shape[1]))


def _instance_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.instance_norm(x, weight=weight, bias=bias)


_AFFINE = ("weight", "bias")

ROWS: tuple[Row, ...] = (
    Row("layer_norm", "ViT-B 1x197x768", _layer(1, 197, 768), _layer_norm, _AFFINE),
    Row("layer_norm", "Swin 1x3136x96", _layer(1, 3136, 96), _layer_norm, _AFFINE),
    Row("layer_norm", "BERT-L 8x128x1024", _layer(8, 128, 1024), _layer_norm, _AFFINE),
    Row("rms_norm", "Llama 1x16x4096", _rms(1, 16, 4096), _rms_norm, _AFFINE[:1]),
    Row("rms_norm", "T5 8x128x1024", _rms(8, 128, 1024), _rms_norm, _AFFINE[:1]),
    Row("rms_norm", "per head 1x3136x96", _rms(1, 3136, 96), _rms_norm, _AFFINE[:1]),
    Row("group_norm", "U-Net 1x320x32x32", _group(1, 320, 32, 32), _group_norm, _AFFINE),
    Row("group_norm", "U-Net 2x640x16x16", _group(2, 640, 16, 16), _group_norm, _AFFINE),
    Row("group_norm", "one group 1x96x56x56", _group(1, 96, 56, 56, groups=1), _group_norm, _AFFINE),
    Row("group_norm", "1-D 8x256x64", _group(8, 256, 64), _group_norm, _AFFINE),
    Row(
        "instance_norm",
        "style 1x64x64x64",
        Case(f32(1, 64, 64, 64), f32(64), f32(64)),
        _instance_norm,
        _AFFINE,
    ),
    Row(
        "instance_norm",
        "U-Net 2x128x32x32",
        Case(f32(2, 128, 32, 32), f32(128), f32(128)),
        _instance_norm,
        _AFFINE,
    ),
)
