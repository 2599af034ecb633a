"""Models to store: written by hand, by onnx, or at random from the descriptors of ONNX's own messages."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
from google.protobuf.descriptor import FieldDescriptor as Field
from onnx import ModelProto, TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from google.protobuf.message import Message

#: A length-delimited field, a varint, a fixed32 and a group, all of numbers that ONNX does not use.
UNKNOWN = (
    b"\xfa\x3f\x05\xffbyte" + b"\xf0\x3f\x96\x01" + b"\xed\x3f\x01\x02\x03\x04" + b"\xe3\x3f\x08\x01\xe4\x3f"
)

INTEGERS = {Field.TYPE_INT32: 31, Field.TYPE_INT64: 63, Field.TYPE_UINT64: 64}
PAYLOADS = {
    "raw_data",
    "float_data",
    "int32_data",
    "int64_data",
    "double_data",
    "uint64_data",
    "string_data",
}


def weights(rows: int = 64, columns: int = 32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def everywhere() -> ModelProto:
    """A tensor of 8 KiB in every place that can hold one, fourteen in all: initializers, dense and sparse, attributes,
    bodies, functions, training information."""
    tensor = numpy_helper.from_array
    constant = helper.make_node("Constant", [], ["c"], value=tensor(weights(seed=1), "attribute"))
    body = helper.make_graph(
        [constant],
        "body",
        [],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, [64, 32])],
        [tensor(weights(seed=2), "inner")],
    )
    branch = helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body)
    many = helper.make_node("Many", [], ["z"], domain="test", values=[tensor(weights(seed=3), "listed")] * 2)
    graph = helper.make_graph(
        [branch, many],
        "main",
        [helper.make_tensor_value_info("x", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 32])],
        [tensor(weights(seed=4), "outer")],
    )
    sparse = graph.sparse_initializer.add(dims=[10_000])
    sparse.values.CopyFrom(tensor(weights(seed=5).reshape(-1), "sparse"))
    sparse.indices.CopyFrom(tensor(np.arange(2048), "sparse_indices"))
    inline = helper.make_node("Constant", [], ["s"])
    inline.attribute.add(name="sparse_value").sparse_tensor.CopyFrom(sparse)
    inline.attribute[0].type = 11
    graph.node.append(inline)
    function = helper.make_function("test", "F", [], ["c"], [constant], [helper.make_opsetid("", 17)])
    model = helper.make_model(graph, functions=[function])
    model.training_info.add().algorithm.CopyFrom(body)
    return model


def single(array: np.ndarray, name: str = "w", **more: np.ndarray) -> ModelProto:
    """Initializers and a node that uses the first."""
    tensors = [numpy_helper.from_array(array, name)]
    tensors += [numpy_helper.from_array(value, key) for key, value in more.items()]
    info = helper.make_tensor_value_info("y", tensors[0].data_type, list(array.shape))
    graph = helper.make_graph([helper.make_node("Identity", [name], ["y"])], "g", [], [info], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def filled(
    rng: random.Random, *, density: float = 0.4, unknown: float = 0.2, external: bool = False
) -> ModelProto:
    """A model with random fields set at all levels; contents mean nothing."""
    model = ModelProto()
    _fill(model, rng, density, unknown, 0, external)
    model.graph.SetInParent()
    return model


def complete() -> ModelProto:
    """Every field of every message, with unknown fields in each."""
    return filled(random.Random(1), density=1.0, unknown=1.0)


def _fill(
    message: Message, rng: random.Random, density: float, unknown: float, depth: int, external: bool
) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None:
            if depth > 5 or rng.random() > density / (1 if depth < 3 else depth):
                continue
            values = getattr(message, field.name)
            if field.name == "external_data" and not external:
                continue
            if field.is_repeated:
                for _ in range(1 if density >= 1 else rng.randint(1, 3)):
                    _fill(values.add(), rng, density, unknown, depth + 1, external)
            else:
                values.SetInParent()
                _fill(values, rng, density, unknown, depth + 1, external)
        elif rng.random() <= density:
            if field.name == "data_location":
                if rng.random() < 0.5:
                    message.data_location = TensorProto.DEFAULT
                continue
            if field.is_repeated:
                size = rng.choice((1, 5, 400)) if field.name in PAYLOADS else rng.randint(1, 3)
                getattr(message, field.name).extend(_scalar(field, rng) for _ in range(size))
            else:
                setattr(message, field.name, _scalar(field, rng))
    if rng.random() <= unknown:
        message.MergeFromString(UNKNOWN)


def _scalar(field: Field, rng: random.Random) -> object:
    if field.type in INTEGERS:
        bits = INTEGERS[field.type]
        value = rng.getrandbits(rng.choice((3, bits)))
        return -value if bits != 64 and rng.random() < 0.3 else value
    if field.type in (Field.TYPE_FLOAT, Field.TYPE_DOUBLE):
        return rng.choice((0.0, -1.5, float("inf"), 2.0**60))
    if field.type == Field.TYPE_BYTES:
        return rng.randbytes(rng.choice((0, 3, 3000)) if field.name == "raw_data" else 5)
    if field.type == Field.TYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    return rng.choice(("", "name", "größe", "p\x01", "location", "x" * 40))


def length(data: bytes) -> bytes:
    """``data`` after its length, as a varint."""
    out, n = bytearray(), len(data)
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out) + bytes([n]) + data
