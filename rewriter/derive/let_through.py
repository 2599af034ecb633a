"""A whole program for the exporter, in which the operators that passes take are let through as placeholders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import NodeProto, numpy_helper

from rewriter.derive import stops
from rewriter.derive.translate import library

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto


def library_and_stops(passes: Any) -> dict[Any, Any]:
    """What operators of a program become, for ``ExportedProgram.run_decompositions``; ``passes`` as for a rewrite."""
    from rewriter.placeholder.registry import Selection

    return {**library()[1], **stops.table(stops.stops(Selection.load(passes).passes))}


def as_placeholders(model: ModelProto) -> None:
    """Write the operators that were let through as the fall-through of the legacy exporter writes them."""
    if _in_graph(model.graph, f"{stops.DOMAIN}/"):
        model.opset_import.add(domain=stops.ATEN, version=1)
    kept = [item for item in model.opset_import if item.domain != stops.DOMAIN]
    raw = [item.SerializeToString() for item in kept]
    del model.opset_import[:]
    for data in raw:
        model.opset_import.add().MergeFromString(data)


def _in_graph(graph: GraphProto, prefix: str) -> bool:
    """Whether there was any in ``graph`` or in its bodies."""
    found = False
    nodes: list[NodeProto] = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= _in_graph(attribute.g, f"{prefix}{node.name}/")
        if node.domain == stops.DOMAIN:
            nodes += _as_fallthrough(node, f"{prefix}{node.output[0]}/")
            found = True
        else:
            nodes.append(node)
    raw = [node.SerializeToString() for node in nodes]
    del graph.node[:]
    for data in raw:
        graph.node.add().MergeFromString(data)
    return found


def _as_fallthrough(node: NodeProto, prefix: str) -> list[NodeProto]:
    made = NodeProto()
    made.CopyFrom(node)
    made.domain = stops.ATEN
    del made.attribute[:], made.input[:]
    constants: list[NodeProto] = []
    for index, argument in enumerate(stops.arguments(node)):
        if isinstance(argument, np.ndarray):
            name = f"{prefix}{index}"
            constant = NodeProto(op_type="Constant", name=name, output=[name])
            constant.attribute.add(name="value", type="TENSOR").t.CopyFrom(numpy_helper.from_array(argument))
            constants.append(constant)
            made.input.append(name)
        else:
            made.input.append("" if argument is None else node.input[argument])
    return [*constants, made]
