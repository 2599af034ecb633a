"""An onnxscript function, or a ``FunctionProto``, as the body of a pass."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from onnx import AttributeProto, FunctionProto, NodeProto, helper, numpy_helper

from rewriter.errors import PassDefinitionError
from rewriter.interop import attributes as attrs
from rewriter.interop.declare import Cases, InteropPass, Options, declare
from rewriter.interop.parameters import infer_signature
from rewriter.interop.replay import Body, imports_of, key_of, replay_function
from rewriter.placeholder.signature import Kind, Parameter, Signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rewriter.placeholder.builder import Builder
    from rewriter.placeholder.contract import Placeholder
    from rewriter.placeholder.value import Value

_KINDS = {
    AttributeProto.INT: Kind.INT,
    AttributeProto.FLOAT: Kind.FLOAT,
    AttributeProto.STRING: Kind.STR,
    AttributeProto.INTS: Kind.INTS,
    AttributeProto.FLOATS: Kind.FLOATS,
    AttributeProto.STRINGS: Kind.STRS,
    AttributeProto.TENSOR: Kind.ARRAY,
}


def from_function(
    operator: str | Sequence[str],
    function: FunctionProto,
    *,
    functions: Iterable[FunctionProto] = (),
    reference: Callable[..., Any] | None = None,
    cases: Cases | None = None,
    **options: Unpack[Options],
) -> Placeholder:
    """A pass for ``operator`` whose body is ``function``; ``functions`` are those that it calls.

    Its inputs and then its attributes are the operator's parameters.  A body written for another opset than the model's
    serves where every operator in it has the same form at both, and is refused elsewhere.
    """
    if not isinstance(function, FunctionProto):
        raise PassDefinitionError(f"{function!r} is no FunctionProto", where=str(operator))
    summary = (
        function.doc_string.strip().split("\n")[0] or f"The function {function.domain}::{function.name}."
    )
    if "outputs" not in options:
        options["outputs"] = tuple(function.output)
    body = _Function(function, tuple(functions))
    return declare(operator, body, summary=summary, reference=reference, cases=cases, options=options)


def from_onnxscript(
    operator: str | Sequence[str],
    function: Any,
    *,
    reference: Callable[..., Any] | None = None,
    cases: Cases | None = None,
    **options: Unpack[Options],
) -> Placeholder:
    """A pass for ``operator`` whose body is an onnxscript function and what it calls; see :func:`from_function`."""
    if not hasattr(function, "to_function_proto") or not hasattr(function, "function_ir"):
        raise PassDefinitionError(
            f"{function!r} is no onnxscript function",
            where=str(operator),
            remedy="decorate it with @onnxscript.script()",
        )
    called = function.function_ir.get_called_functions().values()
    return from_function(
        operator,
        function.to_function_proto(),
        functions=[item.to_function_proto() for item in called],
        reference=reference,
        cases=cases,
        **options,
    )


class _Function:
    def __init__(self, function: FunctionProto, functions: Sequence[FunctionProto]) -> None:
        self._function = function
        self._functions = {key_of(item): item for item in functions}
        self._kinds = _attribute_types(function)

    def signature(self, owner: InteropPass) -> Signature:
        required = (*self._function.input, *self._function.attribute)
        declared = [_parameter(name, inspect.Parameter.empty) for name in required]
        declared += [_parameter(a.name, _value(a)) for a in self._function.attribute_proto]
        found = infer_signature(
            declared,
            owner=owner.pass_name(),
            cases=owner.case_list,
            explicit=owner.options.get("parameters", {}),
        )
        return Signature(tuple(self._typed(parameter) for parameter in found.parameters))

    def _typed(self, parameter: Parameter) -> Parameter:
        """What the function itself says comes before what the cases show."""
        if parameter.name in self._function.input:
            kinds: tuple[Kind, ...] = (Kind.TENSOR,)
        elif parameter.name in self._kinds:
            kinds = (_KINDS[self._kinds[parameter.name]],)  # type: ignore[index]
        else:
            kinds = parameter.kinds
        return Parameter(parameter.name, kinds, parameter.default, parameter.nullable, parameter.variadic)

    def build(self, owner: InteropPass, g: Builder, arguments: dict[str, Any]) -> Any:  # noqa: ARG002
        function = self._function
        inputs: list[Value | None] = [arguments[name] for name in function.input]
        given = {}
        for name, kind in self._kinds.items():
            if arguments.get(name) is not None:
                given[name] = attrs.make(name, kind, arguments[name])
        name = f"function {function.domain}::{function.name}"
        body = Body(name, imports_of(function), self._functions, (key_of(function),))
        return tuple(replay_function(g, function, body, inputs, given))


def _parameter(name: str, default: Any) -> inspect.Parameter:
    made = inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
    made._name = name  # type: ignore[attr-defined]  # ONNX names need not be Python's
    return made


def _attribute_types(function: FunctionProto) -> dict[str, int]:
    """The type of each attribute of ``function``: of its default, or of the attributes that refer to it."""
    found: dict[str, int] = {a.name: a.type for a in function.attribute_proto}
    for node in _all_nodes(function.node):
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                found.setdefault(attribute.ref_attr_name, attribute.type)
    known = {*function.attribute, *(a.name for a in function.attribute_proto)}
    for name, kind in found.items():
        if name not in known:
            raise PassDefinitionError(
                f"the body refers to an attribute '{name}' that the function does not declare",
                where=function.name,
            )
        if kind not in _KINDS:
            raise PassDefinitionError(
                f"attribute '{name}' is {attrs.kind_name(kind)}, no parameter of an operator",
                where=function.name,
            )
    return found


def _all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _all_nodes(graph.node)


def _value(attribute: AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if attribute.type == AttributeProto.TENSOR:
        return np.asarray(numpy_helper.to_array(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (str, int, float)):
        return value
    return tuple(
        item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else item for item in value
    )
