"""Rows for the passes of passes/fused/; see the package's docstring."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from operator_cases import Row
from rewriter.placeholder import Case, f32


def _conv_bn_relu(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    bn_weight: torch.Tensor,
    bn_bias: torch.Tensor,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    **geometry: Any,
) -> torch.Tensor:
    made = torch.nn.functional.conv2d(input, weight, bias, **geometry)
    made = torch.nn.functional.batch_norm(made, running_mean, running_var, bn_weight, bn_bias)
    return torch.relu(made)


def _conv(channels: int, size: int, kernel: int, stride: int, groups: int = 1) -> Case:
    each = f32(channels)
    variance = f32(channels, draw=lambda rng, shape: rng.random(shape) + 0.5)
    return Case(
        f32(1, channels, size, size),
        f32(channels, channels // groups, kernel, kernel),
        None,
        each,
        each,
        each,
        variance,
        stride=[stride, stride],
        padding=[kernel // 2] * 2,
        groups=groups,
    )


def _linear_relu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.nn.functional.linear(x, weight, bias))


def _scan(dim: int, length: int, state: int = 16) -> Case:
    decay = f32(dim, state, draw=lambda rng, shape: -np.exp(rng.standard_normal(shape)))
    matrix = f32(1, state, length)
    signal = f32(1, dim, length)
    return Case(signal, signal, decay, matrix, matrix, f32(dim), signal, f32(dim), delta_softplus=True)


_SCAN = ("A", "D", "delta_bias")
_CONV = ("weight", "bn_weight", "bn_bias", "running_mean", "running_var")

ROWS: tuple[Row, ...] = (
    Row(
        "conv_bn_relu", "ResNet 1x64x56x56 k3", _conv(64, 56, 3, 1), _conv_bn_relu, _CONV, (1, 3136, 576, 64)
    ),
    Row("conv_bn_relu", "depthwise 1x96x28x28 k3", _conv(96, 28, 3, 1, 96), _conv_bn_relu, _CONV),
    Row(
        "linear_relu",
        "BERT-like 1x128x768 to 3072",
        Case(f32(1, 128, 768), f32(3072, 768), f32(3072)),
        _linear_relu,
        ("weight", "bias"),
        (1, 128, 768, 3072),
    ),
    Row(
        "linear_relu",
        "classifier 32x512 to 512",
        Case(f32(32, 512), f32(512, 512), f32(512)),
        _linear_relu,
        ("weight", "bias"),
        (1, 32, 512, 512),
    ),
    Row("fused_leaky_relu", "StyleGAN2 1x128x64x64", Case(f32(1, 128, 64, 64), f32(128)), None, ("bias",)),
    Row("selective_scan", "Mamba-130m 1x1536x64", _scan(1536, 64), None, _SCAN),
    Row("selective_scan", "small 1x64x256", _scan(64, 256), None, _SCAN),
)
