"""Products of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rewriter.interpret.registry import Kernels
from rewriter.interpret.types import carried

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()


@KERNELS.operator("MatMul")
def matmul(_: Call, a: Tensor, b: Tensor) -> Tensor:
    return carried(torch.matmul)(a, b)


@KERNELS.operator("Gemm")
def gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """alpha · A' B' + beta · C; C broadcasts."""
    made = torch.matmul(a.T if call["transA"] else a, b.T if call["transB"] else b)
    if call["alpha"] != 1:
        made = (made * call["alpha"]).to(a.dtype)
    if c is None:
        return made
    return made + (c if call["beta"] == 1 else (c * call["beta"]).to(c.dtype))


@KERNELS.operator("Einsum")
def einsum(call: Call, *inputs: Tensor) -> Tensor:
    return torch.einsum(call["equation"].replace(" ", ""), *inputs)


@KERNELS.operator("Det")
def det(_: Call, x: Tensor) -> Tensor:
    made: Tensor = torch.linalg.det(x)
    return made


@KERNELS.operator("MatMulInteger")
def matmul_integer(
    _: Call, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    """int32 products of 8-bit numbers; a zero point may be by row of ``a`` or by column of ``b``."""
    wide_a, wide_b = a.to(torch.int32), b.to(torch.int32)
    if a_zero is not None:
        shift = a_zero.to(torch.int32)
        wide_a = wide_a - (shift.unsqueeze(-1) if shift.ndim == 1 and shift.numel() > 1 else shift)
    if b_zero is not None:
        wide_b = wide_b - b_zero.to(torch.int32)
    return torch.matmul(wide_a, wide_b)
