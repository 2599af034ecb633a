"""Mutations of a model: what protobuf allows and ONNX does not, or what ONNX allows and few write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor as Field
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from google.protobuf.message import Message

#: Stands for a name that is not UTF-8; protobuf's own setter refuses one, so it is put into the bytes.
BROKEN, NOT_UTF8 = "\x01broken\x02", b"\xff\xfebrok\xc3\xe9"
assert len(BROKEN.encode()) == len(NOT_UTF8)

EDGES = (
    0,
    1,
    -1,
    2,
    3,
    7,
    -5,
    127,
    255,
    4096,
    65537,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 3.4e38, float("nan"), float("inf"), float("-inf"))
STRINGS = (
    "",
    "x",
    "weight",
    BROKEN,
    "größe",
    "a" * 300,
    "ai.onnx",
    "com.microsoft",
    "com.example",
    "Relu",
    "\x1b[31m",
    "a\nb",
)
OPERATORS = (
    "Relu", "Constant", "If", "Loop", "Scan", "Shape", "Reshape", "Slice", "Concat", "Cast", "ConstantOfShape",
    "Range", "Tile", "Expand", "Where", "Split", "SequenceConstruct", "Optional", "Roll", "Swish", "Pad", "Resize",
    "Bernoulli", "Unsqueeze", "Squeeze", "Transpose", "Gather", "Mod", "Div", "ATen", "aten::roll", "::", "",
)  # fmt: skip

DOMAINS = (
    "",
    "ai.onnx",
    "com.example",
    "ai.onnx.ml",
    "com.microsoft",
    "test.local",
    BROKEN,
    "ai.onnx.training",
)


def mutated(rng: random.Random, model: ModelProto) -> bytes:
    """``model`` after one to four mutations, serialised."""
    count = rng.choice((1, 1, 1, 2, 2, 3, 4))
    for _ in range(count):
        if rng.random() < 0.5:
            _anywhere(rng, model)
        else:
            try:
                rng.choice(KINDS)(rng, model)
            except (IndexError, ValueError):  # there is nothing of the kind in what is left of this model
                _anywhere(rng, model)
    data = model.SerializeToString().replace(BROKEN.encode(), NOT_UTF8)
    return _bytes(rng, data) if rng.random() < 0.12 else data


def _bytes(rng: random.Random, data: bytes) -> bytes:
    content = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(content)) if content else 0
        match rng.randrange(5):
            case 0 if content:
                content[at] = rng.randrange(256)
            case 1 if content:
                content[at] ^= 1 << rng.randrange(8)
            case 2:
                content[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                del content[at : at + rng.randint(1, 12)]
            case _:
                end = at + rng.randint(1, 40)
                content[end:end] = content[at:end]
    return bytes(content)


# --- any field of any message -----------------------------------------------------------------------------------


def messages(message: Message) -> Iterator[Message]:
    """``message`` and all messages below it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if field.is_repeated else [value]:
                yield from messages(item)


def _anywhere(rng: random.Random, model: ModelProto) -> None:
    """One field of one message: removed, repeated, moved, or given a value from the ends of its type."""
    everything = list(messages(model))
    # Messages near the root are few and matter most, so half of the time one kind is chosen first.
    if rng.random() < 0.5:
        kind = rng.choice(sorted({item.DESCRIPTOR.name for item in everything}))
        everything = [item for item in everything if item.DESCRIPTOR.name == kind]
    message = rng.choice(everything)
    fields = [field for field, _ in message.ListFields()]
    field = rng.choice(fields) if fields and rng.random() < 0.8 else rng.choice(message.DESCRIPTOR.fields)
    if field.is_repeated:
        _repeated(rng, model, getattr(message, field.name), field)
    elif rng.random() < 0.25:
        message.ClearField(field.name)
    elif field.message_type is not None:
        getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, _value(rng, model, field))


def _repeated(rng: random.Random, model: ModelProto, values: Any, field: Field) -> None:
    at = rng.randrange(len(values)) if len(values) else 0
    match rng.randrange(5):
        case 0 if len(values):
            del values[at]
        case 1 if len(values):
            values.append(values[at])
        case 2 if len(values) > 1:
            items = list(values)
            rng.shuffle(items)
            copies = [_copy(item) for item in items]
            del values[:]
            values.extend(copies)
        case 3:
            del values[:]
        case _ if field.message_type is not None:
            values.add()
        case _ if len(values):
            values[at] = _value(rng, model, field)
        case _:
            values.append(_value(rng, model, field))


def _copy(item: Any) -> Any:
    if not hasattr(item, "CopyFrom"):
        return item
    copy = type(item)()
    copy.CopyFrom(item)
    return copy


def _value(rng: random.Random, model: ModelProto, field: Field) -> Any:
    if field.type == Field.TYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    if field.type == Field.TYPE_INT32:
        return rng.choice([item for item in EDGES if -(2**31) <= item < 2**31])
    if field.type == Field.TYPE_INT64:
        return rng.choice(EDGES)
    if field.type == Field.TYPE_UINT64:
        return rng.choice([item for item in EDGES if item >= 0])
    if field.type in (Field.TYPE_FLOAT, Field.TYPE_DOUBLE):
        return rng.choice(FLOATS)
    if field.type == Field.TYPE_BYTES:
        return rng.choice((b"", b"x", b"\xff\xfe", b"\0" * 64, b"roll", rng.randbytes(7)))
    if field.name == "op_type" and rng.random() < 0.8:
        return rng.choice(OPERATORS)
    return rng.choice(STRINGS) if rng.random() < 0.5 else _name(rng, model)


def _names(model: ModelProto) -> list[str]:
    return [name for node in nodes(model) for name in (*node.input, *node.output)] or [""]


def _name(rng: random.Random, model: ModelProto) -> str:
    return rng.choice([name for name in _names(model) if isinstance(name, str)] or [""])


# --- kinds that random fields rarely make -----------------------------------------------------------------------


def nodes(model: ModelProto) -> list[NodeProto]:
    return [item for item in messages(model) if isinstance(item, NodeProto)]


def graphs(model: ModelProto) -> list[GraphProto]:
    return [item for item in messages(model) if isinstance(item, GraphProto)]


def _of(rng: random.Random, model: ModelProto, kind: type[Any]) -> Any:
    return rng.choice([item for item in messages(model) if isinstance(item, kind)])


def _opset(rng: random.Random, model: ModelProto) -> None:
    owner = rng.choice([model, *model.functions])
    item = rng.choice(owner.opset_import)
    item.version = rng.choice((*EDGES, 9, 10, 22, 24, 25, 26, 27, 28))


def _tensor_dtype(rng: random.Random, model: ModelProto) -> None:
    _of(rng, model, TensorProto).data_type = rng.choice(
        (0, 8, 9, 14, 16, 17, 22, 23, 24, 25, 30, 99, -1, 2**31 - 1)
    )


def _declared_dtype(rng: random.Random, model: ModelProto) -> None:
    found = [item for item in messages(model) if item.DESCRIPTOR.full_name == "onnx.TypeProto.Tensor"]
    rng.choice(found).elem_type = rng.choice((0, 7, 8, 10, 11, 14, 16, 17, 22, 23, 24, 99, -1, 2**31 - 1))


def _declared_dim(rng: random.Random, model: ModelProto) -> None:
    found = [
        item for item in messages(model) if item.DESCRIPTOR.full_name == "onnx.TensorShapeProto.Dimension"
    ]
    for dim in rng.sample(found, min(len(found), rng.randint(1, 3))):
        dim.dim_value = rng.choice(EDGES)


def _declared_name(rng: random.Random, model: ModelProto) -> None:
    found = [
        item for item in messages(model) if item.DESCRIPTOR.full_name == "onnx.TensorShapeProto.Dimension"
    ]
    rng.choice(found).dim_param = rng.choice((*STRINGS, "unk__0", "batch", "Roll1_dim_0", "Roll_p1_dim_0"))


def _tensor_dims(rng: random.Random, model: ModelProto) -> None:
    tensor = _of(rng, model, TensorProto)
    tensor.dims[:] = [rng.choice(EDGES) for _ in range(rng.randint(0, 4))]


def _undefined_tensor(rng: random.Random, model: ModelProto) -> None:
    node = rng.choice(nodes(model))
    attribute = node.attribute.add(name=rng.choice(("value", "shifts", "dims", "weight", "x")))
    attribute.type = AttributeProto.TENSOR
    if rng.random() < 0.5:
        attribute.t.SetInParent()


def _attribute_type(rng: random.Random, model: ModelProto) -> None:
    attribute = _of(rng, model, AttributeProto)
    attribute.type = rng.choice((*range(15), 99)) if rng.random() < 0.1 else rng.choice(range(15))


def _attribute_kind(rng: random.Random, model: ModelProto) -> None:
    """An attribute of another type, well-formed."""
    attribute = _of(rng, model, AttributeProto)
    name = attribute.name
    values = [
        3,
        -1,
        0.5,
        "text",
        [1, 2],
        [0.5],
        ["a"],
        [],
        2**40,
        [2**62, -1],
        b"\xff",
        [0],
        [-9],
        float("nan"),
    ]
    value = rng.choice([*values, np.zeros((2, 0), np.int64), np.ones(3, np.float32)])
    attribute.Clear()
    if isinstance(value, np.ndarray):
        value = helper.make_tensor(
            "t", TensorProto.INT64 if value.dtype == np.int64 else 1, value.shape, value
        )
    kind = AttributeProto.INTS if value == [] else None
    attribute.CopyFrom(helper.make_attribute(name, value, attr_type=kind))


def _reference(rng: random.Random, model: ModelProto) -> None:
    _of(rng, model, AttributeProto).ref_attr_name = rng.choice(("amount", "absent", "", "shifts", BROKEN))


def _not_utf8(rng: random.Random, model: ModelProto) -> None:
    found = [
        (item, field)
        for item in messages(model)
        for field, _ in item.ListFields()
        if field.type == Field.TYPE_STRING and not field.is_repeated
    ]
    message, field = rng.choice(found)
    old = getattr(message, field.name)
    if rng.random() < 0.5 or not isinstance(old, str) or not old:
        setattr(message, field.name, BROKEN)
        return
    # Everywhere under the same name, so that the graph stays whole.
    for item in messages(model):
        for field, value in item.ListFields():
            if field.type == Field.TYPE_STRING:
                if field.is_repeated:
                    value[:] = [BROKEN if name == old else name for name in value]
                elif value == old:
                    setattr(item, field.name, BROKEN)


def _rename(rng: random.Random, model: ModelProto) -> None:
    """One value is called like another."""
    node = rng.choice([node for node in nodes(model) if node.output])
    node.output[rng.randrange(len(node.output))] = rng.choice(_names(model))


def _rewire(rng: random.Random, model: ModelProto) -> None:
    node = rng.choice([node for node in nodes(model) if node.input])
    node.input[rng.randrange(len(node.input))] = rng.choice(_names(model))


def _counts(rng: random.Random, model: ModelProto) -> None:
    node = rng.choice(nodes(model))
    values = rng.choice((node.input, node.output))
    match rng.randrange(4):
        case 0:
            del values[:]
        case 1:
            del values[-1]
        case 2:
            values.append(rng.choice(_names(model)))
        case _:
            values.extend([""] * rng.randint(1, 3))


def _body_end(rng: random.Random, model: ModelProto) -> None:
    """A body or the graph without (all of) its outputs or inputs."""
    graph = rng.choice(graphs(model))
    values = rng.choice((graph.output, graph.output, graph.input))
    del values[rng.randrange(len(values)) :]


def _contradiction(rng: random.Random, model: ModelProto) -> None:
    """A declared type that is not what is computed."""
    place = rng.choice([*graphs(model), *model.functions])
    name = rng.choice([name for node in place.node for name in node.output])
    kind = rng.choice((1, 1, 1, 6, 7, 9, 10, 11, 16, 8))
    shape = rng.choice(
        (
            None,
            [],
            [5],
            ["n"],
            [2, 4, 6, 6],
            [2, 4, 6, 7],
            [2, 4, 36],
            [1, 1, 1, 1],
            [3, "c", None, 6],
            [-1, 4],
        )
    )
    info = helper.make_tensor_value_info(name, kind, shape)
    if isinstance(place, GraphProto) and rng.random() < 0.4:
        for value in place.output:
            if rng.random() < 0.7:
                value.type.CopyFrom(info.type)
        return
    for value in place.value_info:
        if value.name == name:
            value.type.CopyFrom(info.type)
            return
    place.value_info.add().CopyFrom(info)


def _other_type(rng: random.Random, model: ModelProto) -> None:
    """A value that is declared a sequence, an optional, a map, a sparse tensor, or nothing."""
    place = rng.choice(graphs(model))
    value = rng.choice([*place.input, *place.output, *place.value_info])
    value.type.Clear()
    match rng.randrange(6):
        case 0:
            value.type.sequence_type.elem_type.tensor_type.elem_type = 1
        case 1:
            value.type.optional_type.elem_type.tensor_type.elem_type = 1
        case 2:
            value.type.map_type.key_type = 7
            value.type.map_type.value_type.tensor_type.elem_type = 1
        case 3:
            value.type.sparse_tensor_type.elem_type = 1
            value.type.sparse_tensor_type.shape.dim.add(dim_value=4)
        case 4:
            value.type.tensor_type.SetInParent()
        case _:
            value.type.denotation = "TENSOR"


def _no_schema(rng: random.Random, model: ModelProto) -> None:
    """A name or domain for which onnx can register no schema, or has one of another shape."""
    node = rng.choice(nodes(model))
    domain = rng.choice(
        (
            "",
            "ai.onnx",
            "com.example",
            "ai.onnx.ml",
            "com.microsoft",
            "test.local",
            BROKEN,
            "ai.onnx.training",
        )
    )
    node.domain = domain
    if rng.random() < 0.6:
        node.op_type = rng.choice(OPERATORS)


def _import(rng: random.Random, model: ModelProto) -> None:
    owner = rng.choice([model, *model.functions])
    match rng.randrange(3):
        case 0:
            del owner.opset_import[rng.randrange(len(owner.opset_import))]
        case 1:
            owner.opset_import.add(
                domain=rng.choice(("", "ai.onnx", "com.example")), version=rng.choice((1, 9, 13, 18, 2**33))
            )
        case _:
            rng.choice(owner.opset_import).domain = rng.choice(("", "ai.onnx", "com.example", BROKEN, "x"))


def _circle(rng: random.Random, model: ModelProto) -> None:
    """Functions that call one another, or two of one name."""
    function = rng.choice(model.functions)
    other = rng.choice(model.functions)
    if rng.random() < 0.3:
        function.name = other.name
        model.functions.add().CopyFrom(function)
        return
    node = helper.make_node(other.name, [*function.input], [*function.output], domain=other.domain)
    if rng.random() < 0.5:
        del function.node[:]
    function.node.insert(rng.randint(0, len(function.node)), node)


def _function_interface(rng: random.Random, model: ModelProto) -> None:
    function = rng.choice(model.functions)
    values = rng.choice((function.input, function.output, function.attribute))
    if values and rng.random() < 0.5:
        del values[rng.randrange(len(values))]
    else:
        values.append(rng.choice((*STRINGS, "a", "amount")))


def _rare(rng: random.Random, model: ModelProto) -> None:
    """Training, sparse, quantisation and device data that mean little."""
    graph = rng.choice(graphs(model))
    match rng.randrange(5):
        case 0:
            sparse = graph.sparse_initializer.add(dims=[rng.choice(EDGES), rng.choice(EDGES)])
            sparse.values.data_type = rng.choice((0, 1, 7, 99))
            sparse.values.name = rng.choice(_names(model))
        case 1:
            graph.quantization_annotation.add(tensor_name=rng.choice(_names(model)))
        case 2:
            training = model.training_info.add()
            training.algorithm.CopyFrom(graph)
            training.update_binding.add(key=rng.choice(STRINGS), value=rng.choice(_names(model)))
        case 3:
            tensor = graph.initializer.add(
                name=rng.choice(_names(model)), data_type=rng.choice((0, 1, 7, 8, 99))
            )
            tensor.dims.append(rng.choice(EDGES))
        case _:
            node = rng.choice(nodes(model))
            node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=rng.choice(STRINGS))
            node.overload = rng.choice(STRINGS)


def _stamp(rng: random.Random, model: ModelProto) -> None:
    """A manifest that nobody made."""
    entry = model.metadata_props.add(key="rewriter.manifest")
    entry.value = rng.choice(
        ("", "{}", "[]", '{"version": 1}', '{"version": 1, "replaced": 3}', "null", BROKEN, "[" * 5000)
    )


def _swap(rng: random.Random, model: ModelProto) -> None:
    """One message becomes a copy of another of its kind, somewhere else."""
    kind = rng.choice((NodeProto, GraphProto, AttributeProto, TensorProto, FunctionProto))
    source, target = _copy(_of(rng, model, kind)), _of(rng, model, kind)
    if source.ByteSize() < 20_000:
        target.CopyFrom(source)


KINDS: tuple[Callable[[random.Random, ModelProto], None], ...] = (
    _opset, _tensor_dtype, _declared_dtype, _declared_dim, _declared_name, _tensor_dims, _undefined_tensor,
    _attribute_type, _attribute_kind, _reference, _not_utf8, _rename, _rewire, _counts, _body_end, _contradiction,
    _contradiction, _other_type, _no_schema, _import, _circle, _function_interface, _rare, _stamp, _swap,
)  # fmt: skip
