"""Whether an operator may be written at an opset: it exists, its attributes do, and its inputs fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto, defs

from rewriter.errors import DecompositionFault, UnsupportedAtOpset, Where
from rewriter.types import dtype_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import NodeProto

    from rewriter.placeholder.value import Value


def schema_of(op_type: str, opset: int, where: Where) -> defs.OpSchema:
    """The operator of the default domain at ``opset``; UnsupportedAtOpset where it has none or has deprecated it."""
    if not defs.has(op_type, opset, ""):
        if not defs.has(op_type):
            raise _fault(
                where, f"ONNX has no operator '{op_type}'", "qualify an operator of your own: domain::Name"
            )
        first = min(
            s.since_version for s in defs.get_all_schemas_with_history() if s.name == op_type and not s.domain
        )
        raise UnsupportedAtOpset(
            f"{op_type} exists since opset {first}, the model has opset {opset}",
            where=where,
            remedy=f"mark the decomposition with opset={first}, or write it with older operators",
        )
    schema = defs.get_schema(op_type, opset, "")
    if schema.deprecated:
        raise UnsupportedAtOpset(f"{op_type} is deprecated at opset {opset}", where=where)
    return schema


def attribute_hint(op_type: str, name: str, opset: int) -> str | None:
    """Which opset has the attribute, or what took its place."""
    versions = sorted(
        s.since_version
        for s in defs.get_all_schemas_with_history()
        if s.name == op_type and not s.domain and name in s.attributes
    )
    if not versions:
        return None
    return (
        f"opset {versions[0]} has it"
        if versions[0] > opset
        else f"it is an input since: use g.{_method(op_type)}()"
    )


def check_counts(schema: defs.OpSchema, node: NodeProto, opset: int, where: Where) -> None:
    """DecompositionFault unless the numbers of inputs and outputs fit, and required attributes are there."""
    if not schema.min_input <= len(node.input) <= schema.max_input:
        raise _fault(
            where,
            f"{node.op_type} takes {schema.min_input} to {schema.max_input} inputs at opset {opset}, "
            f"{len(node.input)} are given",
        )
    if not schema.min_output <= len(node.output) <= schema.max_output:
        raise _fault(where, f"{node.op_type} has no {len(node.output)} outputs at opset {opset}")
    given = {a.name for a in node.attribute}
    for attribute in schema.attributes.values():
        if attribute.required and attribute.name not in given:
            raise _fault(where, f"{node.op_type} needs attribute '{attribute.name}'")


def check_types(schema: defs.OpSchema, inputs: Sequence[Value | None], opset: int, where: Where) -> None:
    """UnsupportedAtOpset where the operator does not take a dtype, DecompositionFault where dtypes clash."""
    constraints = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    for position, value in enumerate(inputs):
        if value is None or value.type is None:
            continue
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        dtype = value.type.dtype
        text = f"tensor({_schema_name(dtype)})"
        allowed = constraints.get(formal.type_str, {formal.type_str})
        if text not in allowed and not any(a.startswith(("seq(", "optional(")) for a in allowed):
            raise UnsupportedAtOpset(
                f"{schema.name} takes no {dtype_name(dtype)} as its input {position} ('{formal.name}') "
                f"at opset {opset}",
                where=where,
            )
    clash = clashing(schema, inputs)
    if clash is not None:
        raise _fault(
            where,
            f"{schema.name} is given {dtype_name(clash[0])} and {dtype_name(clash[1])}",
            "make constants with g.const(value, x), which takes the dtype of x",
        )


def clashing(schema: defs.OpSchema, inputs: Sequence[Value | None]) -> tuple[int, int] | None:
    """Two different dtypes of inputs that must be of one; None where there are none."""
    variables: dict[str, int] = {}
    names = {constraint.type_param_str for constraint in schema.type_constraints}
    for position, value in enumerate(inputs):
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        if value is None or value.type is None or formal.type_str not in names or not formal.is_homogeneous:
            continue
        first = variables.setdefault(formal.type_str, value.type.dtype)
        if first != value.type.dtype:
            return first, value.type.dtype
    return None


def _fault(where: Where, what: str, remedy: str | None = None) -> DecompositionFault:
    return DecompositionFault(what, where=where, remedy=remedy)


def _schema_name(dtype: int) -> str:
    return str(TensorProto.DataType.Name(dtype)).lower()


def _method(op_type: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(op_type))
