"""In which precision a normalisation is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value

NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def wide(g: Builder, x: Value) -> Value:
    """``x`` in the type that PyTorch accumulates in: float32 for float16 and bfloat16.

    In float16 the square of 300 is infinite, and a sum of 2048 ones and one more stays 2048.
    """
    return g.cast(x, TensorProto.FLOAT) if x.dtype in NARROW else x


def wide_dtype(x: Value) -> int:
    return TensorProto.FLOAT if x.dtype in NARROW else x.dtype


def statistics_dtype(x: Value, *parameters: Value | None) -> int:
    """The type of mean and rstd: that of ``x``, unless it is narrow and the parameters are not."""
    mixed = any(p is not None and p.dtype != x.dtype for p in parameters)
    return wide_dtype(x) if mixed else x.dtype
