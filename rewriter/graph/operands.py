"""What a node is given, in words: its inputs with types and known values, and its attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import FunctionProto, TensorProto, helper, numpy_helper

from rewriter.graph.scopes import text
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import AttributeProto, NodeProto

    from rewriter.graph.scopes import Scope

#: Inputs, elements of a constant, and characters of an attribute that are shown.
_INPUTS, _ELEMENTS, _CHARACTERS = 16, 8, 40


def described(node: NodeProto, scope: Scope, hidden: Sequence[str] = ()) -> str:
    """``"inputs: 0 'x' float32[2, 8], 1 constant int64[1] = [1]; attributes: dims=[2]"``; "" where it has neither."""
    inputs = [_input(index, text(name), scope) for index, name in enumerate(node.input[:_INPUTS])]
    more = [f"and {len(node.input) - _INPUTS} more"] if len(node.input) > _INPUTS else []
    attributes = [
        f"{text(attribute.name)}={_short(attribute)}"
        for attribute in node.attribute
        if attribute.name not in hidden
    ]
    parts = [f"inputs: {', '.join([*inputs, *more])}"] if inputs else []
    parts += [f"attributes: {', '.join(attributes)}"] if attributes else []
    return "; ".join(parts)


def declared(name: str, scope: Scope | None) -> TensorType | None:
    """The type that the file itself declares for ``name`` in ``scope`` or around it."""
    while scope is not None:
        graph = scope.graph
        interface = () if isinstance(graph, FunctionProto) else (*graph.input, *graph.output)
        for value in (*interface, *graph.value_info):
            if value.name == name:
                return TensorType.from_proto(value.type)
        scope = scope.parent
    return None


def _input(index: int, name: str, scope: Scope) -> str:
    if not name:
        return f"{index} omitted"
    constant = _constant(name, scope)
    if constant is not None:
        return f"{index} constant {TensorType(constant.data_type, tuple(constant.dims))}{_elements(constant)}"
    kind = declared(name, scope)
    return f"{index} '{name}'{f' {kind}' if kind is not None else ''}"


def _constant(name: str, scope: Scope | None) -> TensorProto | None:
    while scope is not None:
        graph = scope.graph
        held = () if isinstance(graph, FunctionProto) else graph.initializer
        tensors: list[TensorProto] = [tensor for tensor in held if tensor.name == name]
        for node in graph.node:
            if node.op_type == "Constant" and name in node.output:
                tensors += [attribute.t for attribute in node.attribute if attribute.name == "value"]
        if tensors:
            return tensors[0]
        scope = scope.parent
    return None


def _elements(tensor: TensorProto) -> str:
    count = 1
    for size in tensor.dims:
        count *= size
    if not 0 < count <= _ELEMENTS or tensor.data_location == TensorProto.EXTERNAL:
        return ""
    try:
        return f" = {numpy_helper.to_array(tensor).tolist()}"
    except Exception:  # noqa: BLE001  (a broken tensor is reported elsewhere; here it only has no value to show)
        return ""


def _short(attribute: AttributeProto) -> str:
    try:
        value = helper.get_attribute_value(attribute)
    except ValueError:
        return "?"
    shown = repr(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
    return shown if len(shown) <= _CHARACTERS else shown[: _CHARACTERS - 1] + "…"
