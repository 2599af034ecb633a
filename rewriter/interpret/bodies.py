"""The bodies that ONNX itself gives to operators that are defined by others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from onnx import FunctionProto, NodeProto, TypeProto, helper

from rewriter.interpret.kernels import Schema, has_body, schema_of
from rewriter.interpret.types import element_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.interpret.call import Call


def schema_body(node: NodeProto, call: Call, inputs: Sequence[Any]) -> FunctionProto:
    """A function with the meaning of ``node`` for inputs of these types; CannotInterpretError where ONNX has none."""
    schema = schema_of(node.domain, node.op_type, call.opset)
    if schema is None or not has_body(schema):
        raise call.unsupported("the interpreter has no such operator")
    content = _content(schema, node, call, inputs)
    if not content:
        raise call.unsupported(
            "the interpreter has no such operator, and ONNX defines no body for this form of it"
        )
    function: FunctionProto = FunctionProto.FromString(content)
    if not function.name:
        function.name = node.op_type
    return function


def _content(schema: Schema, node: NodeProto, call: Call, inputs: Sequence[Any]) -> bytes:
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= call.opset]
        if versions:
            return bytes(schema.get_function_with_opset_version(max(versions)))
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= call.opset]
        if versions:
            types = [_type(value).SerializeToString() for value in inputs]
            return bytes(
                schema.get_context_dependent_function_with_opset_version(
                    max(versions), node.SerializeToString(), types
                )
            )
    return b""


def _type(value: Any) -> TypeProto:
    if isinstance(value, torch.Tensor):
        return helper.make_tensor_type_proto(element_type(value.dtype), list(value.shape))
    return TypeProto()
