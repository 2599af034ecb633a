"""One tensor as a numpy array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from rewriter.errors import ModelReadError
from rewriter.storage.dtypes import PACKED, element_bits, element_count, numpy_dtype
from rewriter.storage.wire import NUMBER, PAYLOAD_NAMES, RAW_DATA

if TYPE_CHECKING:
    from rewriter.storage.payload import Payload
    from rewriter.storage.wire import Buffer

Array = np.ndarray[Any, Any]


def from_raw(header: TensorProto, buffer: Buffer, offset: int, length: int) -> Array:
    """Read-only array over raw little-endian bytes.

    It looks into ``buffer`` where type and alignment allow; packed types, and elements that do not stand at a
    multiple of their size (libraries that are handed the memory rely on that), are copied.
    """
    where = _where(header)
    _refuse_segments(header, where)
    count = element_count(header, where)
    bits = element_bits(header.data_type)
    if not bits:
        raise ModelReadError(
            f"type {header.data_type} has no raw form", where=where, remedy="export the model again"
        )
    if (count * bits + 7) // 8 != length:
        raise _mismatch(header, f"{length} bytes", f"{(count * bits + 7) // 8}")
    dims = tuple(header.dims)
    if header.data_type in PACKED:
        whole = TensorProto(
            dims=dims, data_type=header.data_type, raw_data=bytes(buffer[offset : offset + length])
        )
        return _frozen(_convert(whole, where))
    dtype = numpy_dtype(header.data_type)
    assert dtype is not None
    if length == 0:
        return _frozen(np.empty(dims, dtype))
    array = np.frombuffer(buffer, dtype, count, offset)
    if array.ctypes.data % dtype.alignment:
        array = np.frombuffer(bytes(buffer[offset : offset + length]), dtype, count)
    return _frozen(array.reshape(dims))


def from_message(tensor: TensorProto) -> Array:
    """Read-only array of a tensor whose elements are inline, raw or typed."""
    where = _where(tensor)
    _refuse_segments(tensor, where)
    count = element_count(tensor, where)
    if tensor.data_type == TensorProto.STRING:
        if len(tensor.string_data) != count:
            raise _mismatch(tensor, f"{len(tensor.string_data)} strings", f"{count}")
        return _frozen(_strings(list(tensor.string_data), tuple(tensor.dims)))
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data
        return from_raw(tensor, raw, 0, len(raw))
    if not element_bits(tensor.data_type):
        raise ModelReadError(
            f"the element type {tensor.data_type} is not known to the installed onnx",
            where=where,
            remedy="upgrade onnx, or export the model again",
        )
    return _frozen(_convert(tensor, where))


def raw_bytes(header: TensorProto, only: TensorProto) -> bytes:
    """The elements of a payload-only message as raw bytes (of a part of the tensor: dims are not looked at)."""
    if only.HasField("raw_data"):
        return only.raw_data
    data_type = header.data_type
    bits = element_bits(data_type)
    if data_type in PACKED and bits == 6:  # one element an entry here, four in three bytes there
        whole = TensorProto(dims=[len(only.int32_data)], data_type=data_type)
        whole.int32_data.MergeFrom(only.int32_data)
        return numpy_helper.from_array(_convert(whole, _where(header))).raw_data
    if only.int32_data:
        entries = np.array(only.int32_data, np.int32)
        width = np.uint8 if data_type in PACKED else np.dtype(f"u{bits // 8}")
        return entries.astype(width).tobytes()
    if only.int64_data:
        return np.array(only.int64_data, np.int64).tobytes()
    if only.uint64_data:
        return np.array(only.uint64_data, np.uint64).astype(np.dtype(f"u{bits // 8}")).tobytes()
    if only.float_data:
        return np.array(only.float_data, np.float32).tobytes()
    return np.array(only.double_data, np.float64).tobytes()


def raw_range(header: TensorProto, payload: Payload) -> tuple[int, int] | None:
    """(offset, length) of the payload in the source file, if it stands there in the raw form of the tensor's type."""
    found = payload.raw()
    if found is None or not element_bits(header.data_type):
        return None
    return found if payload.first_field in (RAW_DATA, _typed_field(header.data_type)) else None


def has_raw_form(header: TensorProto, payload: Payload) -> bool:
    """Whether the elements can stand in a data file: not strings, unknown types, or a field of another type."""
    return bool(element_bits(header.data_type)) and (
        payload.first_field == RAW_DATA or payload.first_field == _typed_field(header.data_type)
    )


def _typed_field(data_type: int) -> int:
    number: int = NUMBER[helper.tensor_dtype_to_field(data_type)]
    return number


def merge(header: TensorProto, pieces: list[TensorProto]) -> TensorProto:
    """A tensor of ``header``'s type and dims with the elements of ``pieces``."""
    whole = TensorProto(dims=header.dims, data_type=header.data_type, name=header.name)
    if header.HasField("segment"):
        whole.segment.CopyFrom(header.segment)
    for piece in pieces:
        for name in PAYLOAD_NAMES:
            if name == "raw_data":
                if piece.HasField(name):
                    whole.raw_data = piece.raw_data
            else:
                getattr(whole, name).MergeFrom(getattr(piece, name))
    return whole


def _refuse_segments(tensor: TensorProto, where: str) -> None:
    if tensor.HasField("segment"):
        raise ModelReadError(
            "the tensor is stored in segments, which nothing supports",
            where=where,
            remedy="export the model again",
        )


def _convert(tensor: TensorProto, where: str) -> Array:
    try:
        array: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError, IndexError) as error:
        raise ModelReadError(
            f"the tensor's elements do not fit its type and dims: {error}",
            where=where,
            remedy="export the model again",
        ) from None
    return array


def _strings(values: list[bytes], dims: tuple[int, ...]) -> Array:
    """Text where all of it is UTF-8, otherwise the bytes."""
    out = np.empty(len(values), object)
    try:
        out[:] = [value.decode() for value in values]
    except UnicodeDecodeError:
        out[:] = values
    return out.reshape(dims)


def _frozen(array: Array) -> Array:
    if array.flags.writeable:
        array.flags.writeable = False
    return array


def _mismatch(tensor: TensorProto, has: str, needs: str) -> ModelReadError:
    return ModelReadError(
        f"the tensor has {has}, but its type and dims {list(tensor.dims)} need {needs}",
        where=_where(tensor),
        remedy="the file is damaged or was written wrongly; export the model again",
    )


def _where(tensor: TensorProto) -> str:
    return f"tensor '{tensor.name}'" if tensor.name else "an unnamed tensor"
