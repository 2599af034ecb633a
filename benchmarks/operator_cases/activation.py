"""Rows for the passes of passes/activation/; see the package's docstring."""

import torch

from operator_cases import Row
from rewriter.placeholder import Case, f32


def _silu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(x)


ROWS: tuple[Row, ...] = (
    Row("swish", "silu 1x96x56x56", Case(f32(1, 96, 56, 56)), _silu),
    Row("swish", "silu 8x64x14x14", Case(f32(8, 64, 14, 14)), _silu),
    Row("swish", "silu 1x197x3072", Case(f32(1, 197, 3072)), _silu),
)
