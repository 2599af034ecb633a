"""Sizes of tensors, by type and dims."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from onnx import TensorProto, helper

from rewriter.errors import ModelReadError

if TYPE_CHECKING:
    import numpy as np

_PACKED_BITS = {
    "UINT4": 4,
    "INT4": 4,
    "FLOAT4E2M1": 4,
    "UINT2": 2,
    "INT2": 2,
    "FLOAT6E2M3": 6,
    "FLOAT6E3M2": 6,
}
#: Types whose raw form has less than a byte for an element → bits.
PACKED = {value: _PACKED_BITS[name] for name, value in TensorProto.DataType.items() if name in _PACKED_BITS}


def numpy_dtype(data_type: int) -> np.dtype[np.generic] | None:
    """The numpy (or ml_dtypes) type of one element; None for strings and for types that onnx does not know."""
    if data_type in (TensorProto.UNDEFINED, TensorProto.STRING):
        return None
    try:
        return helper.tensor_dtype_to_np_dtype(data_type)
    except (KeyError, ValueError):
        return None


def element_bits(data_type: int) -> int:
    """Bits of an element in raw form; 0 where it has none (strings, unknown types)."""
    if data_type in PACKED:
        return PACKED[data_type]
    dtype = numpy_dtype(data_type)
    return 0 if dtype is None else dtype.itemsize * 8


def element_count(tensor: TensorProto, where: str) -> int:
    """Product of the dims; raises ModelReadError on a negative one."""
    if any(dim < 0 for dim in tensor.dims):
        raise ModelReadError(
            f"the tensor has the impossible dims {list(tensor.dims)}",
            where=where,
            remedy="export the model again",
        )
    return prod(tensor.dims)
