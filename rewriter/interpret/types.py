"""Element types between ONNX and PyTorch."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
from onnx import TensorProto

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "FLOAT16": "float16",
    "BFLOAT16": "bfloat16",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2",
    "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "BOOL": "bool",
    "COMPLEX64": "complex64",
    "COMPLEX128": "complex128",
}

#: Unsigned types for which torch has few kernels, and the type in which arithmetic is done instead: wide enough, or,
#: for 64 bits, equal modulo 2^64.
CARRIERS = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}


@functools.cache
def _table() -> dict[int, torch.dtype]:
    return {TensorProto.DataType.Value(onnx): getattr(torch, name) for onnx, name in _NAMES.items()}


def torch_dtype(element_type: int) -> torch.dtype | None:
    """The type of a ``TensorProto.DataType``; None for text and for types of less than a byte."""
    return _table().get(element_type)


def element_type(dtype: torch.dtype) -> int:
    """The ``TensorProto.DataType`` of a torch type."""
    return next(key for key, value in _table().items() if value == dtype)


def carried(function: Callable[..., torch.Tensor], *, ordered: bool = True) -> Callable[..., torch.Tensor]:
    """``function`` of tensors of one type, also for the unsigned types that torch hardly has.

    One whose result depends on the order of numbers raises NotImplementedError for those from 2^63 on.
    """

    @functools.wraps(function)
    def wrapped(*tensors: torch.Tensor) -> torch.Tensor:
        dtype = next((t.dtype for t in tensors if isinstance(t, torch.Tensor)), None)
        carrier = CARRIERS.get(dtype) if dtype is not None else None
        if carrier is None:
            return function(*tensors)
        wide = [t.to(carrier) if isinstance(t, torch.Tensor) and t.dtype == dtype else t for t in tensors]
        if ordered and dtype == torch.uint64 and any(bool((t < 0).any()) for t in wide if t.dtype == carrier):
            raise NotImplementedError("PyTorch has no order of numbers from 2^63 on")
        made = function(*wide)
        return made.to(dtype) if made.dtype == carrier else made

    return wrapped
