"""A skeleton of a model in memory: everything but the large payloads is copied, and those are only pointed at.

Messages that lead to a large tensor are rebuilt field by field; the rest is copied by protobuf.  The argument is
not changed, and need not fit protobuf's 2 GiB limit, since it is never serialised as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import TensorProto

from rewriter.storage.dtypes import element_bits
from rewriter.storage.payload import HeldPayload
from rewriter.storage.wire import CHILDREN, PAYLOAD_NAMES, TENSOR, key, varint

if TYPE_CHECKING:
    from google.protobuf.message import Message

#: The stub-to-be in the copy, and what it stands for.
Taken = list[tuple[TensorProto, HeldPayload]]


def strip(model: Message, threshold: int) -> tuple[Message, Taken]:
    """A copy of ``model`` without payloads above ``threshold`` bytes, and where they were."""
    taken: Taken = []
    heavy = _heavy(model, threshold)
    copy = type(model)()
    if heavy is None:
        copy.CopyFrom(model)
    else:
        _fill(copy, model, heavy, taken)
    return copy, taken


#: Which children of a message lead to large tensors: field name → index → the same for the child.
Heavy = dict[str, dict[int, "Heavy"]]


def _heavy(message: Message, threshold: int) -> Heavy | None:
    """None where nothing in ``message`` is large; empty for a large tensor."""
    kind = message.DESCRIPTOR.full_name
    if kind == TENSOR:
        return {} if isinstance(message, TensorProto) and _is_large(message, threshold) else None
    found: Heavy = {}
    for child in CHILDREN[kind].values():
        if child.repeated:
            items = getattr(message, child.name)
        else:
            items = (getattr(message, child.name),) if message.HasField(child.name) else ()
        for i, item in enumerate(items):
            below = _heavy(item, threshold)
            if below is not None:
                found.setdefault(child.name, {})[i] = below
    return found or None


def _is_large(tensor: TensorProto, threshold: int) -> bool:
    if tensor.data_location == TensorProto.EXTERNAL:
        return False
    if tensor.HasField("raw_data"):
        # Reading raw_data copies it, so dims are asked first; where they lie, the copy is made.
        count = 1
        for dim in tensor.dims:
            count *= max(dim, 0)
        if count * element_bits(tensor.data_type) // 8 > threshold or len(tensor.raw_data) > threshold:
            return True
    if len(tensor.string_data) and sum(map(len, tensor.string_data)) > threshold:
        return True
    entries = sum(len(getattr(tensor, n)) for n in PAYLOAD_NAMES if n not in ("raw_data", "string_data"))
    return entries * 4 > threshold


def _fill(copy: Message, message: Message, heavy: Heavy, taken: Taken) -> None:
    if isinstance(message, TensorProto) and isinstance(copy, TensorProto):
        _fill_tensor(copy, message, taken)
        return
    for field, value in message.ListFields():
        below = heavy.get(field.name)
        if below is None:
            _copy_field(
                copy, field.name, value, repeated=field.is_repeated, message=field.message_type is not None
            )
        elif not field.is_repeated:
            target = getattr(copy, field.name)
            target.SetInParent()
            _fill(target, value, below[0], taken)
        else:
            target = getattr(copy, field.name)
            for i, item in enumerate(value):
                if i in below:
                    _fill(target.add(), item, below[i], taken)
                else:
                    target.add().CopyFrom(item)
    copy.MergeFromString(_unknown(message))


def _fill_tensor(copy: TensorProto, tensor: TensorProto, taken: Taken) -> None:
    for field, value in tensor.ListFields():
        if field.name not in PAYLOAD_NAMES:
            _copy_field(
                copy, field.name, value, repeated=field.is_repeated, message=field.message_type is not None
            )
    copy.MergeFromString(_unknown(tensor))
    location = tensor.data_location if tensor.HasField("data_location") else None
    taken.append((copy, HeldPayload(tensor, location)))


def _copy_field(copy: Message, name: str, value: Any, *, repeated: bool, message: bool) -> None:
    if repeated and not message and any(isinstance(item, bytes) for item in value):
        for item in value:
            _copy_field(
                copy, name, item if isinstance(item, bytes) else item.encode(), repeated=False, message=False
            )
    elif repeated:
        getattr(copy, name).MergeFrom(value)
    elif message:
        getattr(copy, name).CopyFrom(value)
    elif isinstance(
        value, bytes
    ):  # bytes, or a string that is not UTF-8, which protobuf reads but does not take
        copy.MergeFromString(key(copy.DESCRIPTOR.fields_by_name[name].number) + varint(len(value)) + value)
    else:
        setattr(copy, name, value)


def _unknown(message: Message) -> bytes:
    """The unknown fields of a message, on the wire."""
    return b"".join(_encode(field) for field in UnknownFieldSet(message))


def _encode(field: object) -> bytes:
    number: int = field.field_number  # type: ignore[attr-defined]
    wire_type: int = field.wire_type  # type: ignore[attr-defined]
    data = field.data  # type: ignore[attr-defined]
    if wire_type == 0:
        return key(number, 0) + varint(data)
    if wire_type == 1:
        return key(number, 1) + int(data).to_bytes(8, "little")
    if wire_type == 5:
        return key(number, 5) + int(data).to_bytes(4, "little")
    if wire_type == 2:
        return key(number) + varint(len(data)) + bytes(data)
    return key(number, 3) + b"".join(map(_encode, data)) + key(number, 4)
