"""A model in which every field of the ONNX protobuf is set, made by walking the descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
from google.protobuf.descriptor import FieldDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Deepest nesting of messages; graphs in attributes and types in types would go on for ever.
_DEPTH = 9

#: An unknown field (number 1000, length-delimited), as a newer ONNX might write.
UNKNOWN = b"\xc2\x3e\x05later"

#: Values that the model needs to be readable at all.
_FIXED: dict[str, Any] = {
    "onnx.NodeProto.op_type": "Relu",
    "onnx.NodeProto.domain": "",
    "onnx.NodeProto.overload": "o",
    "onnx.OperatorSetIdProto.domain": "",
    "onnx.OperatorSetIdProto.version": 17,
    "onnx.ModelProto.ir_version": 11,
    "onnx.TensorProto.data_location": onnx.TensorProto.DEFAULT,
    "onnx.AttributeProto.type": onnx.AttributeProto.INT,
}

_SCALARS: dict[int, Any] = {
    FieldDescriptor.CPPTYPE_FLOAT: 1.5,
    FieldDescriptor.CPPTYPE_DOUBLE: 2.5,
    FieldDescriptor.CPPTYPE_BOOL: True,
}


def filled_model() -> onnx.ModelProto:
    """Every field set, unknown fields in every message, and a placeholder in the main graph."""
    model = onnx.ModelProto()
    _fill(model, _Counter(), 0)
    graph = model.graph
    graph.input.add(name="x").type.CopyFrom(onnx.helper.make_tensor_type_proto(1, ["N", 3]))
    graph.output.add(name="y").type.CopyFrom(onnx.helper.make_tensor_type_proto(1, ["N", 3]))
    node = graph.node.add(
        name="placeholder", op_type="Affine", domain="com.example", input=["x"], output=["y"]
    )
    node.attribute.append(onnx.helper.make_attribute("scale", 2.0))
    model.opset_import.add(domain="com.example", version=1)
    return model


def fields_set(message: Any, prefix: str = "") -> Iterator[str]:
    """Qualified names of the fields that are set anywhere in ``message``."""
    for field, value in message.ListFields():
        yield field.full_name
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for item in value if field.is_repeated else [value]:
                yield from fields_set(item)


def all_fields() -> set[str]:
    """Qualified names of every field of every message that a ModelProto can hold."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [onnx.ModelProto.DESCRIPTOR]
    while waiting:
        descriptor = waiting.pop()
        if descriptor.full_name in seen:
            continue
        seen.add(descriptor.full_name)
        for field in descriptor.fields:
            found.add(field.full_name)
            if field.message_type is not None:
                waiting.append(field.message_type)
    return found


class _Counter:
    def __init__(self) -> None:
        self.value = 0

    def next(self) -> int:
        self.value += 1
        return self.value


def _fill(message: Any, count: _Counter, depth: int) -> None:
    chosen: dict[str, int] = {}
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        if oneof is not None:
            # Each message of the kind sets another member of the choice in turn.
            turn = chosen.setdefault(oneof.name, count.next() % len(oneof.fields))
            if oneof.fields[turn].name != field.name:
                continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth >= _DEPTH:
                continue
            # Two of what is repeated, as far as that stays small, so that their order matters.
            for _ in range((3 if oneof is None and depth < 3 else 1) if field.is_repeated else 1):
                inner = getattr(message, field.name)
                _fill(inner.add() if field.is_repeated else inner, count, depth + 1)
                if not field.is_repeated:
                    inner.SetInParent()
        elif field.is_repeated:
            getattr(message, field.name).extend([_value(field, count), _value(field, count)])
        else:
            setattr(message, field.name, _FIXED.get(field.full_name, _value(field, count)))
    message.MergeFromString(UNKNOWN)


def _value(field: FieldDescriptor, count: _Counter) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return f"{field.name} №{count.next()}"
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"\xff\x00" + str(count.next()).encode()
    if field.enum_type is not None:
        return field.enum_type.values[-1].number
    return _SCALARS.get(field.cpp_type, count.next() % 100)
