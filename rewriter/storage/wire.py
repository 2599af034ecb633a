"""The protobuf wire format, as far as storage needs it: records of a message, and where tensors can stand.

A *record* is one field on the wire: key, length where it has one, and value.  Nothing here builds messages; that
stays protobuf's own work.  ``records`` is at least as strict as protobuf: what it rejects is no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.descriptor import FieldDescriptor
from onnx import ModelProto, TensorProto

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator, Mapping

    from google.protobuf.descriptor import Descriptor

    Buffer = bytes | memoryview | mmap.mmap

#: Wire types.
VARINT, FIXED64, LENGTH, GROUP, END_GROUP, FIXED32 = range(6)

#: Protobuf's own limit on nesting; what lies deeper is left for its parser to refuse.
MAX_DEPTH = 100


class WireError(Exception):
    """The bytes are no protobuf message; the text says at which byte and why."""


class IrregularError(Exception):
    """Legal protobuf of a form that only the full parser handles."""


def varint(value: int) -> bytes:
    """The encoding of a non-negative integer."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def key(field: int, wire_type: int = LENGTH) -> bytes:
    return varint(field << 3 | wire_type)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Value and the position after it; at most ten bytes, 64 bits."""
    value = shift = 0
    start = position
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise WireError(f"a number at byte {start} does not end")
    if value >> 64:
        raise WireError(f"a number at byte {start} does not fit 64 bits")
    return value, position


def records(buffer: Buffer, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """``(field, wire type, start of the record, start of its value, end)`` of each record in ``[start, end)``.

    A group is one record.  Raises WireError on truncated or malformed bytes.
    """
    position = start
    try:
        while position < end:
            at = position
            tag = buffer[position]
            position += 1
            if tag >= 0x80:
                tag, position = read_varint(buffer, at)
                if position - at > 5 or tag > 0xFFFFFFFF:
                    raise WireError(f"the field key at byte {at} is too large")
            wire_type = tag & 7
            if tag < 8:
                raise WireError(f"the field key at byte {at} is zero")
            if wire_type == LENGTH:
                length = buffer[position]
                position += 1
                if length >= 0x80:
                    length, position = read_varint(buffer, position - 1)
                value = position
                position += length
            elif wire_type == VARINT:
                value = position
                if buffer[position] < 0x80:
                    position += 1
                else:
                    position = read_varint(buffer, position)[1]
            elif wire_type == FIXED32:
                value = position
                position += 4
            elif wire_type == FIXED64:
                value = position
                position += 8
            elif wire_type == GROUP:
                value = position
                position = _skip_group(buffer, position, end, tag >> 3)
            else:
                raise WireError(f"the field at byte {at} has the impossible wire type {wire_type}")
            if position > end:
                raise WireError(
                    f"the field at byte {at} needs {position - value} bytes, but only {max(end - value, 0)} remain"
                )
            yield tag >> 3, wire_type, at, value, position
    except IndexError:
        raise WireError(f"the data ends inside the field at byte {position}") from None


def _skip_group(buffer: Buffer, position: int, end: int, number: int) -> int:
    """The position after the end of group ``number``.  ONNX has none, but an unknown field may be one."""
    open_ = [number]
    while open_:
        at = position
        if at >= end:
            raise WireError(f"the group at byte {at} does not end")
        tag, position = read_varint(buffer, position)
        wire_type = tag & 7
        if wire_type == GROUP:
            open_.append(tag >> 3)
            if len(open_) > MAX_DEPTH:
                raise WireError(f"groups are nested too deeply at byte {at}")
        elif wire_type == END_GROUP:
            if open_.pop() != tag >> 3:
                raise WireError(f"the wrong group ends at byte {at}")
        elif wire_type == VARINT:
            position = read_varint(buffer, position)[1]
        elif wire_type == LENGTH:
            length, position = read_varint(buffer, position)
            position += length
        elif wire_type in (FIXED32, FIXED64):
            position += 4 if wire_type == FIXED32 else 8
        else:
            raise WireError(f"the field at byte {at} has the impossible wire type {wire_type}")
    return position


@dataclass(frozen=True, slots=True)
class Child:
    """A field through which tensors can be reached: the message it holds, and whether it repeats."""

    name: str
    message: str
    repeated: bool


TENSOR = TensorProto.DESCRIPTOR.full_name
MODEL = ModelProto.DESCRIPTOR.full_name


def _messages(root: Descriptor) -> dict[str, Descriptor]:
    found: dict[str, Descriptor] = {}
    open_ = [root]
    while open_:
        message = open_.pop()
        if message.full_name not in found:
            found[message.full_name] = message
            open_.extend(f.message_type for f in message.fields if f.message_type is not None)
    return found


def _children() -> Mapping[str, Mapping[int, Child]]:
    """Message type → field number → child, for all fields that lead to tensors; taken from onnx's descriptors,
    so that a field added by a later ONNX is covered."""
    messages = _messages(ModelProto.DESCRIPTOR)
    reaching = {TENSOR}
    grown = True
    while grown:
        grown = False
        for name, message in messages.items():
            if name not in reaching and any(
                f.message_type is not None and f.message_type.full_name in reaching for f in message.fields
            ):
                reaching.add(name)
                grown = True
    return {
        name: {
            f.number: Child(f.name, f.message_type.full_name, f.is_repeated)
            for f in messages[name].fields
            if f.message_type is not None and f.message_type.full_name in reaching
        }
        for name in reaching
        if name != TENSOR
    }


CHILDREN = _children()

_SCALAR_WIRE = {
    FieldDescriptor.TYPE_FLOAT: FIXED32,
    FieldDescriptor.TYPE_DOUBLE: FIXED64,
    FieldDescriptor.TYPE_INT32: VARINT,
    FieldDescriptor.TYPE_INT64: VARINT,
    FieldDescriptor.TYPE_UINT64: VARINT,
}

#: Names of the fields of TensorProto that hold its elements.
PAYLOAD_NAMES = (
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "raw_data",
    "double_data",
    "uint64_data",
)
_FIELDS = {name: TensorProto.DESCRIPTOR.fields_by_name[name] for name in PAYLOAD_NAMES}
NUMBER: dict[str, int] = {name: field.number for name, field in _FIELDS.items()}
RAW_DATA: int = NUMBER["raw_data"]
STRING_DATA = NUMBER["string_data"]
EXTERNAL_DATA = TensorProto.DESCRIPTOR.fields_by_name["external_data"].number
DATA_LOCATION = TensorProto.DESCRIPTOR.fields_by_name["data_location"].number

#: Payload field number → wire type of one unpacked element.
ELEMENT_WIRE = {NUMBER[n]: _SCALAR_WIRE[f.type] for n, f in _FIELDS.items() if f.type in _SCALAR_WIRE}
#: (field, wire type) of the records that are payload; the same field with another wire type is an unknown field.
PAYLOAD = {(number, LENGTH) for number in NUMBER.values()} | set(ELEMENT_WIRE.items())
