"""PyTorch's numbers of element types, which exporters write where an operator has a `dtype`."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from rewriter.types import dtype_name

#: The element type of ONNX by PyTorch's number.
DTYPES: dict[int, int] = {
    0: TensorProto.UINT8,
    1: TensorProto.INT8,
    2: TensorProto.INT16,
    3: TensorProto.INT32,
    4: TensorProto.INT64,
    5: TensorProto.FLOAT16,
    6: TensorProto.FLOAT,
    7: TensorProto.DOUBLE,
    11: TensorProto.BOOL,
    15: TensorProto.BFLOAT16,
}


def torch_dtype(number: int) -> Any:
    import torch

    return getattr(torch, dtype_name(DTYPES[number]))
