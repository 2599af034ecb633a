"""Constants of outer scopes, shown to the bodies that read them.

onnx's inference looks for the value of an input (the axes of a Squeeze, the shape of a Reshape) in the graph of the
node only.  A body that reads such a constant from a scope around it gets a copy of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import FunctionProto, TensorProto, numpy_helper

from rewriter.graph.constants import literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import GraphProto, NodeProto

    from rewriter.graph.scopes import Scope

#: Most elements of a constant that a type may depend on.
_MOST = 1024


def show_constants(root: Scope, graph: GraphProto) -> None:
    """Give the bodies of ``graph``, a copy of ``root``'s that may be changed, the small constants that they read.

    A name that a body has itself is left alone.  What was given before is not given twice.
    """
    if not root.bodies:
        return
    read = {
        name for scope in root.walk() if scope is not root for node in scope.graph.node for name in node.input
    }
    waiting: list[tuple[Scope, Mapping[str, TensorProto]]] = [(root, {})]
    while waiting:
        scope, known = waiting.pop()
        place = scope.ref.descend(graph)
        assert not isinstance(place, FunctionProto)
        taken = {value.name for value in place.input}
        own = {
            tensor.name: tensor
            for tensor in place.initializer
            if tensor.name in read and tensor.name not in taken and _is_small(tensor)
        }
        taken.update(tensor.name for tensor in place.initializer)
        for node in place.node:
            taken.update(node.output)
            if node.op_type == "Constant" and len(node.output) == 1 and node.output[0] in read:
                own |= _constant(node)
        visible = {name: tensor for name, tensor in known.items() if name not in taken}
        if scope is not root:
            wanted = {name for node in place.node for name in node.input}
            place.initializer.extend(tensor for name, tensor in visible.items() if name in wanted)
        visible |= own
        waiting += [(body, visible) for body in scope.bodies]


def _constant(node: NodeProto) -> dict[str, TensorProto]:
    """What a Constant node gives, by its name; nothing where it is large, text, or sparse."""
    for attribute in node.attribute:
        if attribute.name == "value" and _is_small(attribute.t):
            tensor = TensorProto()
            tensor.CopyFrom(attribute.t)
            tensor.name = node.output[0]
            return {tensor.name: tensor}
        value = literal(attribute)
        if value is not None and value.dtype != object and value.size <= _MOST:
            return {node.output[0]: numpy_helper.from_array(value, node.output[0])}
    return {}


def _is_small(tensor: TensorProto) -> bool:
    if tensor.data_location == TensorProto.EXTERNAL or tensor.data_type == TensorProto.STRING:
        return False
    count = 1
    for size in tensor.dims:
        count *= size
    return 0 <= count <= _MOST
