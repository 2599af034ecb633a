"""Putting what a placeholder becomes in its place, in time linear in the nodes of the graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx import FunctionProto, NodeProto, TensorProto, ValueInfoProto

from rewriter.errors import DecompositionFault
from rewriter.graph.names import value_named
from rewriter.graph.scopes import first_output, graphs_of, text
from rewriter.graph.templates import assembled
from rewriter.graph.types import without_made_up
from rewriter.storage.wire import varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onnx import GraphProto

    from rewriter.errors import Where
    from rewriter.graph.names import Names
    from rewriter.graph.templates import Piece, Template
    from rewriter.types import TensorType

#: An Identity as it is serialised, but for its names.
_IDENTITY = NodeProto(op_type="Identity").SerializeToString()


@dataclass
class Replacement:
    """The nodes and constants that stand for one placeholder, under their final names."""

    nodes: list[NodeProto]
    initializers: list[TensorProto]
    #: Types of the new values and of the outputs.
    types: dict[str, TensorType] = field(default_factory=dict)
    domains: dict[str, int] = field(default_factory=dict)


@dataclass
class Edit:
    """What stands at ``index`` from now on; nothing where ``replacement`` is None."""

    index: int
    replacement: Replacement | None


def base_name(node: NodeProto) -> str:
    """What the names of a placeholder's replacements begin with: its own name, or that of its first output."""
    return text(node.name) or first_output(node) or text(node.op_type)


def place(
    template: Template,
    node: NodeProto,
    names: Names,
    where: Where,
    inputs: Mapping[str, str],
    wanted: Sequence[bool] = (),
) -> Replacement:
    """The expansion of ``template`` under names of its own, with the outputs of ``node``.

    ``inputs`` gives the model's names for the inputs as the expansion spells them.  An output that is one of the
    inputs, a constant, or the same value as another output gets an Identity: rewiring the readers instead would
    change nodes that are none of ours.  The placeholder's metadata and doc string go to every new node.
    """
    expansion = template.expansion
    base = base_name(node)
    mapping = dict(inputs)
    identities = _outputs(template, node, mapping, wanted, where)
    wish = f"{base}/constant"
    initializers: list[TensorProto] = []
    for tensor in expansion.initializers:
        copy = TensorProto()
        copy.CopyFrom(tensor)
        copy.name = mapping[tensor.name] = names.fresh(wish)
        initializers.append(copy)
    parts = [_named(piece, mapping, names, base, where) for piece in template.pieces]
    for local, final in identities:
        if local not in mapping:
            raise DecompositionFault(
                f"the decomposition gives an unknown value '{local}' as its output", where=where
            )
        parts.append(("Identity", _IDENTITY, [mapping[local]], [final]))
    keeps_name = len(parts) == 1 and bool(node.name)
    heading = (
        _heading(node).SerializeToString() if node.HasField("doc_string") or node.metadata_props else b""
    )
    finished = [
        assembled(heading, rest, reads, makes, base if keeps_name else names.fresh(f"{base}/{op_type}"))
        for op_type, rest, reads, makes in parts
    ]
    types = {mapping[local]: known for local, known in expansion.types.items() if local in mapping}
    results = zip(node.output, expansion.output_types, strict=False)
    types |= {final: known for final, known in results if final and known is not None}
    return Replacement(finished, initializers, types, dict(expansion.domains))


def _outputs(
    template: Template, node: NodeProto, mapping: dict[str, str], wanted: Sequence[bool], where: Where
) -> list[tuple[str, str]]:
    """The outputs that need an Identity, with the values behind them; ``mapping`` gets the others."""
    identities: list[tuple[str, str]] = []
    outputs = template.expansion.outputs
    for index, final in enumerate(node.output):
        if not final:
            continue
        local = outputs[index] if index < len(outputs) else ""
        if not local and wanted and not wanted[index]:
            continue
        if not local:
            raise DecompositionFault(
                f"the decomposition leaves out output {index} ('{text(final)}')", where=where
            )
        if local in template.made and local not in mapping:
            mapping[local] = final
        else:
            identities.append((local, final))
    return identities


def _named(
    piece: Piece, mapping: dict[str, str], names: Names, base: str, where: Where
) -> tuple[str, bytes, list[str], list[str]]:
    """Operator, serialised rest, inputs and outputs of a new node under final names; ``mapping`` gets its outputs."""
    reads = _known(piece.inputs, mapping, piece.op_type, where)
    makes: list[str] = []
    for index, name in enumerate(piece.outputs):
        if name and name not in mapping:
            mapping[name] = names.fresh(f"{base}/{piece.op_type}_output_{index}")
        makes.append(mapping[name] if name else name)
    rest = piece.rest
    if piece.has_bodies:
        copy = NodeProto.FromString(rest)
        for _, _, graph in graphs_of(copy):
            _rename_body(graph, mapping, names, base, where)
        rest = copy.SerializeToString()
    return piece.op_type, rest, reads, makes


def _known(local: Iterable[str], mapping: Mapping[str, str], op_type: str, where: Where) -> list[str]:
    """The final names of what a new node reads."""
    try:
        return [mapping[name] if name else name for name in local]
    except KeyError as error:
        raise DecompositionFault(
            f"{op_type} reads '{error.args[0]}', which nothing in the decomposition makes", where=where
        ) from None


def _heading(node: NodeProto) -> NodeProto:
    """Metadata and doc string of ``node`` alone, byte for byte (they need not be valid UTF-8)."""
    heading = NodeProto()
    heading.CopyFrom(node)
    for descriptor in NodeProto.DESCRIPTOR.fields:
        if descriptor.name not in ("doc_string", "metadata_props"):
            heading.ClearField(descriptor.name)
    heading.DiscardUnknownFields()
    return heading


def _renamed(node: NodeProto, mapping: dict[str, str], names: Names, base: str, where: Where) -> NodeProto:
    """A copy of ``node`` with local names made final; ``mapping`` grows by its outputs."""
    copy = NodeProto()
    copy.CopyFrom(node)
    inputs = _known(node.input, mapping, node.op_type, where)
    stem = f"{base}/{node.op_type}_output"
    outputs: list[str] = []
    for index, name in enumerate(node.output):
        if name and name not in mapping:
            mapping[name] = names.fresh(f"{stem}_{index}")
        outputs.append(mapping[name] if name else name)
    for _, _, graph in graphs_of(copy):
        _rename_body(graph, mapping, names, base, where)
    return with_names(copy, inputs, outputs)


def _rename_body(graph: GraphProto, mapping: dict[str, str], names: Names, base: str, where: Where) -> None:
    inner = dict(mapping)
    for value in graph.input:
        inner[value.name] = names.fresh(f"{base}/{graph.name or 'body'}_input")
        value.name = inner[value.name]
    for tensor in graph.initializer:
        inner[tensor.name] = names.fresh(f"{base}/constant")
        tensor.name = inner[tensor.name]
    for node in graph.node:
        renamed = _renamed(node, inner, names, base, where)
        renamed.name = names.fresh(f"{base}/{node.op_type}")
        node.CopyFrom(renamed)
    for value in (*graph.output, *graph.value_info):
        if value.name not in inner:
            raise DecompositionFault(f"a body names '{value.name}', which nothing makes", where=where)
        value.name = inner[value.name]


def with_names(node: NodeProto, inputs: Sequence[str], outputs: Sequence[str]) -> NodeProto:
    """``node`` with these inputs and outputs.  Names that are not UTF-8 (protobuf gives them as bytes) go in by the
    wire.
    """
    del node.input[:]
    del node.output[:]
    for number, values in ((1, inputs), (2, outputs)):
        for value in values:
            raw = value if isinstance(value, bytes) else value.encode()
            node.MergeFromString(bytes([number << 3 | 2]) + varint(len(raw)) + raw)
    return node


def apply(
    graph: GraphProto | FunctionProto,
    edits: Iterable[Edit],
    *,
    as_nodes: bool,
    symbols: frozenset[str] = frozenset(),
) -> None:
    """Make ``edits`` (in order of their index) in ``graph``.

    ``as_nodes`` writes constants as Constant nodes: functions have no initializers, and before IR version 4 every
    initializer is an input as well.  Types of new values are declared where the graph declares types at all.  Nodes
    that are not edited are not touched.
    """
    edits = list(edits)
    if not edits:
        return
    nodes = graph.node
    order = [(position, 0) for position in range(len(nodes))]
    last = (len(nodes), 0)
    removed = 0
    for edit in edits:
        if edit.replacement is None:
            order[edit.index] = last
            removed += 1
            continue
        new = edit.replacement.nodes
        if as_nodes:
            new = [*(constant_node(tensor, new) for tensor in edit.replacement.initializers), *new]
        elif not isinstance(graph, FunctionProto):
            graph.initializer.extend(edit.replacement.initializers)
        if not new:
            order[edit.index] = last
            removed += 1
            continue
        nodes[edit.index].CopyFrom(new[0])
        nodes.extend(new[1:])
        order.extend((edit.index, offset) for offset in range(1, len(new)))
    positions = iter(order)
    # `sort` asks for the keys once, in order.
    nodes.sort(key=lambda _: next(positions))
    if removed:
        del nodes[-removed:]
    if not isinstance(graph, FunctionProto) and graph.value_info:
        _declare(graph, edits, symbols)


def constant_node(tensor: TensorProto, neighbours: Sequence[NodeProto]) -> NodeProto:
    """A Constant node for ``tensor``, with the metadata of the nodes that it serves."""
    node = NodeProto()
    if neighbours:
        node.CopyFrom(_heading(neighbours[0]))
    node.MergeFrom(NodeProto(op_type="Constant", name=tensor.name, output=[tensor.name]))
    attribute = node.attribute.add(name="value", type=4)
    attribute.t.CopyFrom(tensor)
    attribute.t.ClearField("name")
    return node


def _declare(graph: GraphProto, edits: Sequence[Edit], symbols: frozenset[str]) -> None:
    present = {value.name for values in (graph.input, graph.output, graph.value_info) for value in values}
    for edit in edits:
        if edit.replacement is None:
            continue
        made = [name for node in edit.replacement.nodes for name in node.output if name]
        for name in made:
            known = without_made_up(edit.replacement.types.get(name), symbols)
            if known is not None and name not in present:
                present.add(name)
                graph.value_info.append(_value_info(name, known))


def _value_info(name: str, known: TensorType) -> ValueInfoProto:
    value = value_named(name)
    value.type.CopyFrom(known.to_proto())
    return value
