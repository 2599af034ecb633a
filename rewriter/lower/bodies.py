"""The bodies by which ONNX itself defines operators, written node by node in the forms of the target."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto, defs

from rewriter.errors import UnsupportedAtOpset
from rewriter.graph.scopes import graphs_of
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rewriter.lower.writer import Writer
    from rewriter.placeholder.standard import Call
    from rewriter.placeholder.value import Value


def write_body(g: Writer, call: Call) -> tuple[Value | None, ...] | None:
    """The operator by ONNX's own body, the one of the oldest opset first; None where it has none."""
    refused: UnsupportedAtOpset | None = None
    for function, version in _bodies(call):
        mark = g.mark()
        try:
            return _write(g, call, function, version)
        except UnsupportedAtOpset as error:
            refused = refused or error
            g.rewind(mark)
    if refused is not None:
        raise refused
    return None


def _write(g: Writer, call: Call, function: FunctionProto, version: int) -> tuple[Value | None, ...]:
    schema = defs.get_schema(call.op_type, call.version, "")
    values = {name: item.default_value for name, item in schema.attributes.items() if item.default_value.type}
    values |= dict(call.attributes)
    names: dict[str, Value | None] = {"": None}
    names |= dict(zip_longest(function.input, call.inputs[: len(function.input)]))
    nodes = [bound(node, values) for node in function.node]
    replay(g, nodes, names, version)
    return tuple(names[name] for name in function.output[: call.outputs])


def _bodies(call: Call) -> Iterator[tuple[FunctionProto, int]]:
    """The bodies that ONNX has for this use of the operator, with the opset that each is written in."""
    schema: Any = defs.get_schema(call.op_type, call.version, "")
    versions = {*schema.function_opset_versions, *schema.context_dependent_function_opset_versions}
    if not versions:
        return
    node = NodeProto(op_type=call.op_type)
    node.input.extend("" if item is None else f"x{i}" for i, item in enumerate(call.inputs))
    node.output.extend(f"y{i}" for i in range(call.outputs))
    node.attribute.extend(call.attributes.values())
    types = [
        b"" if item is None or item.type is None else item.type.to_proto().SerializeToString()
        for item in call.inputs
    ]
    for version in sorted(versions):
        found: Any
        if version in schema.function_opset_versions:
            found = schema.get_function_with_opset_version(version)
        else:
            found = schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), types
            )
        if not found:
            continue
        raw = found if isinstance(found, bytes) else found.SerializeToString()
        function = FunctionProto.FromString(raw)
        written = [item.version for item in function.opset_import if item.domain in ("", "ai.onnx")]
        yield function, max(written, default=version)


def bound(node: NodeProto, values: Mapping[str, AttributeProto]) -> NodeProto:
    """A copy of ``node`` in which references to the operator's attributes have their values."""
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.append(attribute)
        elif attribute.ref_attr_name in values:
            copy.attribute.append(values[attribute.ref_attr_name])
            copy.attribute[-1].name = attribute.name
    for _, _, graph in graphs_of(copy):
        inside = [bound(inner, values) for inner in graph.node]
        del graph.node[:]
        graph.node.extend(inside)
    return copy


def replay(g: Writer, nodes: Sequence[NodeProto], names: dict[str, Value | None], version: int) -> None:
    """Write ``nodes``, meant at ``version``; ``names`` maps their names to values and grows by their results."""
    for node in nodes:
        inputs = [names[name] if name else None for name in node.input]
        attributes = {item.name: item for item in node.attribute}
        if any(True for _ in graphs_of(node)):
            attributes = _with_bodies(g, node, inputs, names, version)
        made = g.emit(node.op_type, inputs, len(node.output), attributes, version)
        names.update(zip(node.output, made, strict=False))


def _with_bodies(
    g: Writer,
    node: NodeProto,
    inputs: Sequence[Value | None],
    names: Mapping[str, Value | None],
    version: int,
) -> dict[str, AttributeProto]:
    """The attributes of an If, Loop or Scan, its bodies written for the target."""
    found: dict[str, AttributeProto] = {}
    for attribute in node.attribute:
        copy = AttributeProto()
        copy.CopyFrom(attribute)
        if attribute.type == AttributeProto.GRAPH:
            known = _types_inside(node, attribute.g, inputs)
            copy.g.CopyFrom(_body(g, attribute.g, known, names, version))
        found[attribute.name] = copy
    return found


def _body(
    g: Writer,
    graph: GraphProto,
    types: Sequence[TypeProto | None],
    names: Mapping[str, Value | None],
    version: int,
) -> GraphProto:
    inner = g.body()
    inside = dict(names)
    given: list[Value] = []
    for item, known in zip(graph.input, types, strict=True):
        value = inner.fresh_input(TensorType.from_proto(known))
        given.append(value)
        inside[item.name] = value
    for tensor in graph.initializer:
        inside[tensor.name] = inner.const(tensor)
    replay(inner, graph.node, inside, version)
    made = {name for node in inner.nodes for name in node.output}
    results: list[Value] = []
    for item in graph.output:
        result = inside[item.name]
        assert result is not None
        # A body gives what it makes itself: an outer value or a constant goes through an Identity.
        results.append(result if result.name in made else inner.identity(result))
    return inner.subgraph(graph.name or "body", inner, given, results)


def _types_inside(
    node: NodeProto, graph: GraphProto, inputs: Sequence[Value | None]
) -> list[TypeProto | None]:
    """Types of a body's inputs: what is carried keeps its type, what is scanned loses its first axis."""
    types = [None if item is None or item.type is None else item.type for item in inputs]
    declared = [item.type if item.type.WhichOneof("value") else None for item in graph.input]
    if node.op_type == "Loop":
        counter = [TensorType(7, ()), TensorType(9, ())]
        # What is carried may change its sizes from round to round.
        carried = [None if known is None else known.with_shape(None) for known in types[2:]]
        return [_merged(a, b) for a, b in zip(declared, [*counter, *carried], strict=False)]
    if node.op_type == "Scan":
        scanned = next(a.i for a in node.attribute if a.name == "num_scan_inputs")
        carried = types[: len(types) - scanned]
        rows = [
            None if known is None or known.shape is None else known.with_shape(known.shape[1:])
            for known in types[len(types) - scanned :]
        ]
        return [_merged(a, b) for a, b in zip(declared, [*carried, *rows], strict=False)]
    return list(declared)


def _merged(declared: TypeProto | None, known: TensorType | None) -> TypeProto | None:
    return known.to_proto() if known is not None else declared
