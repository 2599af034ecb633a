"""What is known of an operator's results before anything runs: onnx's own inference, for one node at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    TypeProto,
    ValueInfoProto,
    numpy_helper,
    shape_inference,
)

from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import NodeProto, OperatorSetIdProto, defs

    from rewriter.placeholder.value import Value


def result_types(
    schema: defs.OpSchema,
    node: NodeProto,
    inputs: Sequence[Value | None],
    imports: Sequence[OperatorSetIdProto],
    ir_version: int,
) -> dict[str, TensorType | None]:
    """Types of the results by name, where the inputs' are known; InferenceError where the inputs do not fit."""
    if any(item is not None and item.type is None for item in inputs):
        return {}
    given = [item for item in inputs if item is not None]
    types: dict[str, TypeProto] = {item.name: item.type.to_proto() for item in given if item.type is not None}
    data = {
        item.name: numpy_helper.from_array(item.constant, item.name)
        for item in given
        if item.constant is not None and item.constant.dtype != object and item.constant.size <= 4096
    }
    if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
        # Bodies read outer values, which inference of a single node does not know: types are declared.
        return _body_types(node)
    inferred = shape_inference.infer_node_outputs(
        schema, node, types, data, opset_imports=list(imports), ir_version=ir_version
    )
    if not schema.has_type_and_shape_inference_function:
        # LessOrEqual and the like are typed by their function body, which inference of a single node leaves out.
        inferred = _infer_as_model(node, types, imports, ir_version)
    return {name: TensorType.from_proto(proto) for name, proto in inferred.items()}


def _infer_as_model(
    node: NodeProto, types: Mapping[str, TypeProto], imports: Sequence[OperatorSetIdProto], ir_version: int
) -> dict[str, TypeProto]:
    graph = GraphProto(name="node", node=[node])
    graph.input.extend(ValueInfoProto(name=name, type=type_) for name, type_ in types.items())
    graph.output.extend(ValueInfoProto(name=name) for name in node.output)
    model = ModelProto(ir_version=ir_version, graph=graph, opset_import=imports)
    found = shape_inference.infer_shapes(model).graph
    return {info.name: info.type for info in (*found.value_info, *found.output) if info.HasField("type")}


def _body_types(node: NodeProto) -> dict[str, TensorType | None]:
    bodies = [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]
    if node.op_type == "If":
        return {
            name: _joined([TensorType.from_proto(body.output[i].type) for body in bodies])
            for i, name in enumerate(node.output)
        }
    body = bodies[0]
    if node.op_type == "Loop":
        carried = len(body.input) - 2
        declared = body.output[1:]
    else:
        scanned = next(a.i for a in node.attribute if a.name == "num_scan_inputs")
        carried = len(node.input) - scanned
        declared = body.output[:]
    types: dict[str, TensorType | None] = {}
    for i, name in enumerate(node.output):
        inner = TensorType.from_proto(declared[i].type)
        if inner is not None and i >= carried:
            inner = inner.with_shape(None if inner.shape is None else (None, *inner.shape))
        types[name] = inner
    return types


def _joined(types: Sequence[TensorType | None]) -> TensorType | None:
    """What two branches of an If agree on."""
    first = types[0]
    for other in types[1:]:
        if first is None or other is None or first.dtype != other.dtype:
            return None
        if first.shape is None or other.shape is None or len(first.shape) != len(other.shape):
            first = first.with_shape(None)
        else:
            first = first.with_shape(
                a if a == b else None for a, b in zip(first.shape, other.shape, strict=True)
            )
    return first
