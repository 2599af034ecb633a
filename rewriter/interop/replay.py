"""Ready-made nodes, recorded through the builder of a pass.

The names of a body are its own: each becomes a value of the builder, so that two bodies never meet.  Calls of
functions that are known are written out, references to a function's attributes resolved, initializers and Constant
nodes turned into constants of the pass.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto, defs

from rewriter.errors import DecompositionError, UnsupportedAtOpset
from rewriter.interop import attributes as attrs
from rewriter.interop.source import prefixed
from rewriter.types import TensorType

if TYPE_CHECKING:
    from rewriter.placeholder.builder import Builder
    from rewriter.placeholder.value import Value

#: Values by the body's own names; None for an optional input that is not given.
Names = MutableMapping[str, "Value | None"]
#: Values of a function's attributes; one that is absent here is left out where it is referred to.
Attributes = Mapping[str, AttributeProto]

Key = tuple[str, str, str]

_STANDARD = ("", "ai.onnx")


def key_of(function: FunctionProto) -> Key:
    return (function.domain, function.name, function.overload)


@dataclass(frozen=True)
class Body:
    """Where nodes come from: what their names for operators mean."""

    #: For people: ``"function com.example::Swish"``.
    name: str
    #: Domain → version that the nodes were written for; None: for the opset of the model.
    imports: Mapping[str, int] | None = None
    functions: Mapping[Key, FunctionProto] = field(default_factory=dict)
    #: The functions that are being written out.
    within: tuple[Key, ...] = ()


def replay_function(
    g: Builder, function: FunctionProto, body: Body, inputs: Sequence[Value | None], given: Attributes
) -> list[Value | None]:
    """The results of ``function`` applied to ``inputs``, recorded in ``g``."""
    if len(inputs) > len(function.input):
        raise g.fault(f"{body.name} takes {len(function.input)} inputs, {len(inputs)} are given")
    names: Names = dict.fromkeys(function.input)
    names.update(zip(function.input, inputs, strict=False))
    defaults = {attribute.name: attribute for attribute in function.attribute_proto}
    replay(g, function.node, names, body, {**defaults, **given})
    return [_read(g, name, names, body) for name in function.output]


def replay(
    g: Builder, nodes: Iterable[NodeProto], names: Names, body: Body, given: Attributes | None = None
) -> None:
    """Record ``nodes``, which are in topological order; ``names`` gains what they make."""
    for node in nodes:
        resolved = [
            made for made in (_resolved(g, a, given or {}) for a in node.attribute) if made is not None
        ]
        try:
            results = _record(g, node, resolved, names, body, given or {})
        except DecompositionError as error:
            if getattr(error, "in_body", False):
                raise
            error.in_body = True  # type: ignore[attr-defined]
            raise prefixed(error, f"{body.name}, {_title(node)}") from error.__cause__
        for name, value in zip(node.output, results, strict=True):
            if name:
                if name in names:
                    raise g.fault(f"{body.name}, {_title(node)}: the name '{name}' is given twice")
                names[name] = value


def initializers(g: Builder, tensors: Iterable[TensorProto], names: Names, body: Body) -> None:
    """Record initializers as constants."""
    for tensor in tensors:
        if tensor.name in names:
            raise g.fault(f"{body.name}: the name '{tensor.name}' is given twice")
        names[tensor.name] = g.const(tensor)


def _record(
    g: Builder,
    node: NodeProto,
    attributes: Sequence[AttributeProto],
    names: Names,
    body: Body,
    given: Attributes,
) -> Sequence[Value | None]:
    domain = "" if node.domain in _STANDARD else node.domain
    inputs = [_read(g, name, names, body) for name in node.input]
    called = (node.domain, node.op_type, node.overload)
    if called in body.functions:
        return _call(g, body, called, inputs, attributes, len(node.output))
    if node.op_type == "Constant" and not domain and len(attributes) == 1:
        value = attrs.constant_of(g, attributes[0])
        if value is not None:
            return [value]
    _check_version(g, node.op_type, domain, body)
    attrs.check_types(g, node.op_type, domain, attributes)
    built = {f"{a.name}_t": _with_bodies(g, a, names, body, given) for a in attributes}
    made = g.op(node.op_type, *inputs, outputs=len(node.output), domain=domain, **built)
    results: tuple[Value, ...] = made if len(node.output) != 1 else (made,)
    for index, name in enumerate(node.output):
        if not name and _is_optional_output(g, node.op_type, domain, index):
            g.nodes[-1].output[index] = ""  # nobody asked for it: it stays so
    return results


def _is_optional_output(g: Builder, op_type: str, domain: str, index: int) -> bool:
    if domain or not defs.has(op_type, g.opset, ""):
        return False
    return bool(
        defs.get_schema(op_type, g.opset, "").outputs[index].option
        == defs.OpSchema.FormalParameterOption.Optional
    )


def _call(
    g: Builder,
    body: Body,
    called: Key,
    inputs: Sequence[Value | None],
    attributes: Sequence[AttributeProto],
    wanted: int,
) -> Sequence[Value | None]:
    function = body.functions[called]
    name = f"function {called[0]}::{called[1]}"
    if called in body.within:
        raise g.fault(f"{name} calls itself")
    inner = Body(name, imports_of(function), body.functions, (*body.within, called))
    results = replay_function(g, function, inner, inputs, {a.name: a for a in attributes})
    if len(results) < wanted:
        raise g.fault(f"{name} has {len(results)} outputs, {wanted} are asked for")
    return results[:wanted]


def imports_of(function: FunctionProto) -> dict[str, int]:
    return {"" if item.domain in _STANDARD else item.domain: item.version for item in function.opset_import}


def _check_version(g: Builder, op_type: str, domain: str, body: Body) -> None:
    """UnsupportedAtOpset where the operator was written in another form than the model's opset has."""
    if body.imports is None:
        return
    if domain not in body.imports:
        raise g.fault(f"{body.name} imports no opset of domain '{domain or 'ai.onnx'}'")
    written = body.imports[domain]
    if domain:
        have = g.domains.setdefault(domain, written)
        if have != written:
            raise UnsupportedAtOpset(
                f"it is written for version {written} of '{domain}', {have} is used", where=g.where
            )
        return
    if not defs.has(op_type, written, ""):
        raise g.fault(f"{op_type} does not exist at opset {written}, for which the body is written")
    then = defs.get_schema(op_type, written, "").since_version
    if defs.has(op_type, g.opset, ""):
        now = defs.get_schema(op_type, g.opset, "").since_version
        if now == then:
            return
        found = f"the model has opset {g.opset}, where it has the form of opset {now}"
    else:
        found = f"the model has opset {g.opset}, which lacks it"
    raise UnsupportedAtOpset(
        f"{op_type} is written for opset {written} (the form of opset {then}); {found}",
        where=g.where,
        remedy=f"write the body for opset {g.opset}, or export at opset {written}",
    )


def _resolved(g: Builder, attribute: AttributeProto, given: Attributes) -> AttributeProto | None:
    """``attribute``, or what it refers to in the function that is written out; None where that is absent."""
    if not attribute.ref_attr_name:
        return attribute
    value = given.get(attribute.ref_attr_name)
    if value is None:
        return None
    if value.type != attribute.type:
        raise g.fault(
            f"attribute '{attribute.name}' is {attrs.kind_name(attribute.type)}, "
            f"'{attribute.ref_attr_name}' is {attrs.kind_name(value.type)}"
        )
    made = AttributeProto()
    made.CopyFrom(value)
    made.name = attribute.name
    return made


def _with_bodies(
    g: Builder, attribute: AttributeProto, names: Names, body: Body, given: Attributes
) -> AttributeProto:
    if attribute.type not in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        return attribute
    made = AttributeProto(name=attribute.name, type=attribute.type)
    if attribute.type == AttributeProto.GRAPH:
        made.g.CopyFrom(_subgraph(g, attribute.g, names, body, given))
    else:
        made.graphs.extend(_subgraph(g, graph, names, body, given) for graph in attribute.graphs)
    return made


def _subgraph(g: Builder, graph: GraphProto, names: Names, body: Body, given: Attributes) -> GraphProto:
    """The body of an If, Loop or Scan in the builder's names; types that it does not declare stay undeclared."""
    if graph.sparse_initializer:
        raise g.fault(f"{body.name}: sparse initializers are not supported")
    inner = g.body()
    inner.domains = g.domains
    scope: dict[str, Value | None] = {}
    made = GraphProto(name=graph.name, doc_string=graph.doc_string)
    for info in graph.input:
        value = inner.fresh_input(TensorType.from_proto(info.type))
        scope[info.name] = value
        _declare(made.input.add, value, value.type)
    initializers(inner, graph.initializer, scope, body)
    # Only the inner scope is written to; a name of the outer one may be hidden.
    replay(inner, graph.node, _Inner(scope, names), body, given)
    for info in graph.output:
        result = _read(inner, info.name, ChainMap(scope, names), body)
        if result is None:
            raise g.fault(f"{body.name}: the body's result '{info.name}' is an omitted input")
        if all(result.name not in node.output for node in inner.nodes):
            # A body hands on nothing that it did not make: the outer value goes through an Identity.
            result = inner.identity(result)
        _declare(made.output.add, result, inner.values[result.name].type or TensorType.from_proto(info.type))
    made.node.extend(inner.nodes)
    made.initializer.extend(inner.initializers)
    return made


class _Inner(ChainMap[str, "Value | None"]):
    """The names of a body, in which those of the outer scope can be read and hidden."""

    def __contains__(self, name: object) -> bool:
        return name in self.maps[0]


def _declare(add: object, value: Value, known: TensorType | None) -> None:
    info = add(name=value.name)  # type: ignore[operator]
    if known is not None:
        info.type.CopyFrom(known.to_proto())


def _read(g: Builder, name: str, names: Mapping[str, Value | None], body: Body) -> Value | None:
    if not name:
        return None
    try:
        return names[name]
    except KeyError:
        raise g.fault(f"{body.name} reads '{name}', which nothing makes before") from None


def _title(node: NodeProto) -> str:
    operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return (
        f"{operator} '{node.name}'"
        if node.name
        else f"{operator} (output '{node.output[0] if node.output else ''}')"
    )
