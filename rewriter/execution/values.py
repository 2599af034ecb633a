"""Tensors between numpy, onnxruntime and torch, the formats that numpy lacks included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from rewriter.execution.numbers import Array

#: What a model gives and takes: a tensor, a sequence of them, or the absent value of an optional.
Data = Any


def ort_value(array: Array, dtype: int) -> Any:
    """``array`` as an OrtValue of ONNX element type ``dtype``; shares memory where onnxruntime lets it."""
    import onnxruntime

    if is_native(dtype):
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    stored = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(stored, dtype)


def from_ort_value(value: Any) -> Data:
    """The tensor behind an OrtValue, as a numpy array of its own memory (ml_dtypes for the formats numpy lacks)."""
    if not value.has_value():
        return None
    if not value.is_tensor():
        return value.numpy()
    dtype = value.element_type()
    if is_native(dtype) or dtype == TensorProto.STRING:
        return value.numpy()
    import ctypes

    size = value.tensor_size_in_bytes()
    data = bytes((ctypes.c_uint8 * size).from_address(value.data_ptr())) if size else b""
    return np.frombuffer(data, helper.tensor_dtype_to_np_dtype(dtype)).reshape(value.shape())


def is_native(dtype: int) -> bool:
    """Whether numpy itself has the element type (and onnxruntime's arrays of it need no detour)."""
    return (
        dtype not in (TensorProto.STRING, TensorProto.UNDEFINED)
        and helper.tensor_dtype_to_np_dtype(dtype).type.__module__ == "numpy"
    )


def element_type(array: Array) -> int:
    """The ``TensorProto.DataType`` of a numpy array, text included."""
    if array.dtype.kind in "OSU":
        return int(TensorProto.STRING)
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def to_torch(array: Array) -> Any:
    """A torch tensor with a copy of the values, so that a reference that works in place harms nobody.

    TypeError where torch has no such element type.
    """
    import torch

    if array.dtype.kind in "biufc" and array.dtype.type.__module__ == "numpy":
        return torch.from_numpy(np.array(array, order="C", copy=True))
    known = {name: getattr(torch, name, None) for name in _TORCH_NAMES}
    target = known.get(array.dtype.name)
    if array.dtype.kind in "OSU":
        raise TypeError("PyTorch has no tensors of strings, so its reference cannot run")
    if target is None:
        raise TypeError(f"PyTorch has no {array.dtype.name}, so its reference cannot run")
    stored = np.array(array, order="C", copy=True).view(
        np.dtype(f"i{array.dtype.itemsize}" if array.dtype.itemsize > 1 else "u1")
    )
    return torch.from_numpy(stored).view(target)


def from_torch(tensor: Any) -> Array:
    """A torch tensor as a numpy array (ml_dtypes for the formats numpy lacks)."""
    import torch

    plain = tensor.detach().cpu().contiguous()
    name = str(plain.dtype).removeprefix("torch.")
    if name not in _TORCH_NAMES:
        return np.asarray(plain.resolve_conj().resolve_neg().numpy())
    import ml_dtypes

    stored = plain.view(torch.int16 if plain.element_size() == 2 else torch.uint8).numpy()
    return np.asarray(stored).view(np.dtype(getattr(ml_dtypes, name)))


_TORCH_NAMES = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
