"""Values that follow from sizes which inference has found: the arithmetic between a Shape and a Reshape or Pad."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, TypeProto, numpy_helper

from rewriter.errors import ModelReadError
from rewriter.graph.arithmetic import MAX_ELEMENTS, OPERATORS, Array, evaluate, is_known, settled
from rewriter.graph.constants import literal
from rewriter.storage.arrays import from_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import GraphProto, NodeProto

#: Elements that are computed at most, over one graph.
MAX_FOLDED = 1 << 21


def fold(source: GraphProto, inferred: GraphProto) -> dict[str, Array]:
    """Turn nodes of ``source`` into Constant nodes where the sizes in ``inferred`` (the same graph, with types)
    tell their value.

    Every node keeps its position and outputs.  Returns the new constants, by value name; nothing where there is no
    more to be had.
    """
    types = {
        value.name: value.type
        for values in (inferred.input, inferred.value_info, inferred.output)
        for value in values
    }
    overridable = {value.name for value in source.input}
    known: dict[str, Array] = {}
    for tensor in source.initializer:
        value = _small(tensor)
        if value is not None and tensor.name not in overridable:
            known[tensor.name] = value
    made: dict[str, Array] = {}
    elements = 0
    for node in source.node:
        if elements > MAX_FOLDED:
            break
        if len(node.output) != 1 or node.domain not in ("", "ai.onnx"):
            continue
        name = node.output[0]
        result = _constant(node) if node.op_type == "Constant" else _value(node, known, types)
        if result is None:
            continue
        known[name] = result
        elements += result.size
        if node.op_type != "Constant" and is_known(result) and result.dtype.kind in "iufb":
            made[name] = result
            constant = numpy_helper.from_array(np.ascontiguousarray(result).reshape(result.shape))
            node.Clear()
            node.op_type = "Constant"
            node.output.append(name)
            node.attribute.add(name="value", type=4).t.CopyFrom(constant)
    return made


def _value(node: NodeProto, known: Mapping[str, Array], types: Mapping[str, TypeProto]) -> Array | None:
    if node.op_type == "Shape":
        return _shape(node, types.get(node.input[0]) if node.input else None)
    if node.op_type not in OPERATORS or not node.input:
        return None
    inputs: list[Array | None] = []
    for name in node.input:
        value = known.get(name)
        if name and value is None:
            return None
        inputs.append(value)
    return evaluate(node, inputs)


def _shape(node: NodeProto, proto: TypeProto | None) -> Array | None:
    """The sizes of a tensor, None for those that are not known."""
    if proto is None or not proto.tensor_type.HasField("shape"):
        return None
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in proto.tensor_type.shape.dim]
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    return settled(np.asarray(sizes[bounds.get("start", 0) : bounds.get("end", len(sizes))], dtype=object))


def _constant(node: NodeProto) -> Array | None:
    for attribute in node.attribute:
        value = _small(attribute.t) if attribute.name == "value" else literal(attribute)
        if value is not None:
            return value if value.dtype != object else None
    return None


def _small(tensor: TensorProto) -> Array | None:
    """The value of a small inline tensor of numbers."""
    if tensor.data_location == TensorProto.EXTERNAL or tensor.data_type == TensorProto.STRING:
        return None
    if prod(tensor.dims) > MAX_ELEMENTS:
        return None
    try:
        return from_message(tensor)
    except ModelReadError:  # its elements do not fit its type and dims: whoever needs them says so
        return None
