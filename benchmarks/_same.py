"""Whether onnxruntime does the very same work for two models, whatever anything in them is called."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Mapping

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)

#: Attributes that say nothing unless another one has the value.
_IDLE = {
    ("Resize", "nearest_mode"): ("mode", b"nearest"),
    ("Resize", "cubic_coeff_a"): ("mode", b"cubic"),
}

#: The last input of some operators, by its position: it may be left out, and then is 0.
_ZERO = {"Trilu": 1, "Pad": 2}


def with_plain_axes(model: onnx.ModelProto) -> onnx.ModelProto:
    """``axis`` counted from the front wherever ranks can be inferred."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    infos = [*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output]
    ranks = {i.name: len(i.type.tensor_type.shape.dim) for i in infos if i.type.tensor_type.HasField("shape")}
    ranks |= {t.name: len(t.dims) for t in inferred.graph.initializer}
    version = next(i.version for i in model.opset_import if not i.domain)
    for node in model.graph.node:
        if node.domain or not node.input or node.input[0] not in ranks:
            continue
        schema = onnx.defs.get_schema(node.op_type, version).attributes.get("axis")
        if schema is None or schema.type != onnx.defs.OpSchema.AttrType.INT:
            continue
        given = next((a for a in node.attribute if a.name == "axis"), None)
        axis = given.i if given is not None else schema.default_value.i
        if axis < 0:
            if given is not None:
                node.attribute.remove(given)
            node.attribute.append(helper.make_attribute("axis", axis + ranks[node.input[0]]))
    return model


def digest(model: onnx.ModelProto) -> str:
    """The operators of an optimised model with their attributes, constants and edges.

    Of numbers that are weights only the shape counts: exporters fold a batch norm in another order than we do, and
    what differs is rounding.
    """
    arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    names = {name: _constant(array) for name, array in arrays.items()}
    names |= {info.name: f"input {i}" for i, info in enumerate(model.graph.input)}
    told = []
    for number, node in enumerate(model.graph.node):
        names |= {output: f"{number}.{i}" for i, output in enumerate(node.output) if output}
        inputs = [names.get(name, name) for name in node.input]
        attributes = sorted(_attribute(a) for a in _told(node, model))
        if node.op_type == "Split":
            sizes = (
                arrays[node.input[1]].tolist() if len(node.input) > 1 and node.input[1] in arrays else None
            )
            attributes = [text for text in attributes if not text.startswith("num_outputs")]
            if len(node.input) < 2 or (sizes is not None and len(set(sizes)) == 1):
                inputs = [inputs[0], f"equal {len(node.output)}"]
        if node.op_type in _ZERO and len(inputs) == _ZERO[node.op_type] + 1:
            given = arrays.get(node.input[-1])
            if not node.input[-1] or (given is not None and given.size == 1 and not given.any()):
                inputs = inputs[:-1]
        told.append((node.domain, node.op_type, inputs, attributes))
    return repr(told)


def _constant(array: Any) -> str:
    kind = f"{array.dtype} {list(array.shape)}"
    if array.dtype.kind == "f":
        return f"{kind} {float(array.reshape(-1)[0]):.4g}" if array.size == 1 else kind
    return f"{kind} {hashlib.sha256(array.tobytes()).hexdigest()}"


def _attribute(attribute: onnx.AttributeProto) -> str:
    if attribute.type == onnx.AttributeProto.FLOAT:
        return f"{attribute.name} {attribute.f:.4g}"
    return f"{attribute.name} {attribute.SerializeToString(deterministic=True)!r}"


def _told(node: onnx.NodeProto, model: onnx.ModelProto) -> list[onnx.AttributeProto]:
    """The attributes that say something: a default that is written out means what its absence means."""
    versions = {i.domain: i.version for i in model.opset_import}
    if node.domain or not onnx.defs.has(node.op_type, versions[""]):
        return list(node.attribute)
    defaults = onnx.defs.get_schema(node.op_type, versions[""]).attributes
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return [
        a
        for a in node.attribute
        if (a.name not in defaults or given[a.name] != _default(defaults[a.name].default_value))
        and not _idle(node.op_type, a.name, given)
    ]


def _idle(op_type: str, name: str, given: Mapping[str, Any]) -> bool:
    condition = _IDLE.get((op_type, name))
    return condition is not None and given.get(condition[0]) != condition[1]


def _default(value: onnx.AttributeProto) -> Any:
    return onnx.helper.get_attribute_value(value) if value.type else None
