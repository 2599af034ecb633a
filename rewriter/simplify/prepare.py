"""What is sent to onnxsim: the model without whatever it cannot be trusted with.

Large payloads become typed graph inputs, nodes it may not understand take a type of their own (:mod:`hiding`), every
node gets a token for a name, by which it is known again in the result.  value_info, metadata, doc strings, functions
and the like stay behind; :mod:`restore` puts them back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from onnx import GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, numpy_helper

from rewriter.simplify import hiding, walk
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Collection

    from onnx import AttributeProto, ValueInfoProto

    from rewriter.storage import ModelFile

HIDDEN_DOMAIN: Final = "rewriter.hidden"
HIDDEN_TYPE: Final = "Hidden"
TOKEN: Final = "n"


class CannotPrepare(Exception):  # noqa: N818  (an outcome that the caller turns into a reason, not a user's error)
    """The model is beyond repair for onnxsim; the message says why."""


@dataclass(frozen=True)
class Sent:
    """A node as it was and as it was sent."""

    original: NodeProto
    sent: NodeProto


#: What a hidden node may stand for besides a node: a constant of the graph it stands in.
Stand = TensorProto | SparseTensorProto


@dataclass
class Prepared:
    model: ModelProto
    #: Initializers that stay whether or not a node reads them.
    pinned: frozenset[str]
    #: By token (the name under which the node was sent).
    nodes: dict[str, Sent] = field(default_factory=dict)
    #: By hidden operator type: the hidden node's token, or the constant it stands for.
    hidden: dict[str, str | Stand] = field(default_factory=dict)
    #: Hidden types that stand for graph inputs (by type: the input's name) and for the readers of graph outputs.
    sources: dict[str, str] = field(default_factory=dict)
    sinks: set[str] = field(default_factory=set)
    #: Initializers by name (bodies may use one twice): as they were and as they were sent.
    tensors: dict[str, list[tuple[TensorProto, TensorProto]]] = field(default_factory=dict)
    #: By the name of a temporary graph input: the constant that it stands for (a node where it was a Constant).
    constants: dict[str, Stand | NodeProto] = field(default_factory=dict)


def prepare(
    model: ModelProto, file: ModelFile, *, hold: Collection[str] = (), pinned: Collection[str] = ()
) -> Prepared:
    """``model`` (a skeleton, not changed) as it is sent.

    Nodes that write a value named in ``hold`` are hidden besides; initializers named in ``pinned`` are not sent.

    Raises:
        CannotPrepare: no opset for the default domain, a cycle.
    """
    return _Preparation(model, file, frozenset(hold), frozenset(pinned)).run()


class _Preparation:
    def __init__(
        self, model: ModelProto, file: ModelFile, hold: frozenset[str], pinned: frozenset[str]
    ) -> None:
        self.source = model
        self.file = file
        self.hold = hold
        self.result = Prepared(ModelProto(), pinned)
        versions = [o.version for o in model.opset_import if hiding.is_default_domain(o.domain)]
        if not versions:
            raise CannotPrepare("the model imports no opset of the default domain")
        self.opset = max(versions)
        self.count = self.fresh = 0
        self.empty = {t.name for t in model.graph.initializer if 0 in t.dims}
        self.taken = {n for g in walk.graphs(model.graph) for n in walk.defined(g)}
        self.taken.update(value.name for value in model.graph.output)

    def run(self) -> Prepared:
        source, sent = self.source, self.result.model
        sent.ir_version = max(source.ir_version, 4)  # below 4, initializers must be inputs
        sent.opset_import.add(domain="", version=self.opset)
        sent.opset_import.add(domain=HIDDEN_DOMAIN, version=1)
        graph = sent.graph
        graph.name = "g"
        self._inputs(graph)
        self._constants(source.graph, graph)
        self._nodes(source.graph, graph, main=True)
        self._outputs(graph)
        return self.result

    # --- the main graph's edges ------------------------------------------------------------------------------

    def _inputs(self, graph: GraphProto) -> None:
        for value in self.source.graph.input:
            kind = TensorType.from_proto(value.type)
            if kind is None or kind.shape is None:
                # Sequences, optionals, unknown ranks: onnxsim refuses or renames them as inputs.
                node = self._hide(graph)
                node.output.append(value.name)
                self.result.sources[node.op_type] = value.name
                continue
            self._value(graph.input.add(), value.name, kind)

    def _outputs(self, graph: GraphProto) -> None:
        types: dict[str, TensorType | None] = {}
        produced = {name for node in graph.node for name in node.output}
        for value in self.source.graph.output:
            kind = TensorType.from_proto(value.type)
            if value.name in types or value.name not in produced or kind is None or kind.shape is None:
                # Read by a hidden node instead, so that nothing false need be said of it.
                node = self._hide(graph)
                node.input.append(value.name)
                node.output.append(self._fresh("sink"))
                self.result.sinks.add(node.op_type)
                self._value(graph.output.add(), node.output[0], TensorType(TensorProto.FLOAT, ()))
                continue
            types[value.name] = kind
            # Declared sizes may be wrong, and would be folded.
            self._value(graph.output.add(), value.name, kind.with_shape([None] * len(kind.shape)))

    @staticmethod
    def _value(target: ValueInfoProto, name: str, kind: TensorType) -> None:
        target.name = name
        target.type.CopyFrom(kind.to_proto())

    # --- constants -------------------------------------------------------------------------------------------

    def _is_weight(self, tensor: TensorProto) -> bool:
        """Whether the payload is not sent."""
        return tensor.data_type not in hiding.FOLDABLE or self.file.nbytes(tensor) > hiding.LIMIT

    def _constants(self, source: GraphProto, graph: GraphProto) -> None:
        """The main graph's initializers; those that are inputs as well can be overridden and are no constants."""
        inputs = {value.name for value in source.input}
        for tensor in source.initializer:
            if tensor.name in inputs:
                continue
            if tensor.name in self.result.pinned or self._is_weight(tensor):
                self._stand_in(graph, tensor.name, tensor, tensor.data_type, tensor.dims)
            else:
                self._initializer(tensor, graph)
        for sparse in source.sparse_initializer:
            if sparse.values.name not in inputs:
                self._stand_in(graph, sparse.values.name, sparse, sparse.values.data_type, sparse.dims)

    def _stand_in(
        self, graph: GraphProto, name: str, what: Stand | NodeProto, dtype: int, dims: Collection[int]
    ) -> None:
        self.result.constants[name] = what
        self._value(graph.input.add(), name, TensorType(dtype, tuple(dims)))

    def _initializer(self, tensor: TensorProto, graph: GraphProto) -> None:
        sent = graph.initializer.add()
        self._send(tensor, sent)
        self.result.tensors.setdefault(tensor.name, []).append((tensor, sent))

    def _send(self, tensor: TensorProto, target: TensorProto) -> None:
        """A small tensor with its payload, wherever that was."""
        if tensor.data_location == TensorProto.EXTERNAL:
            target.CopyFrom(numpy_helper.from_array(self.file.array(tensor), tensor.name))
        else:
            target.CopyFrom(tensor)
            target.ClearField("doc_string")
            target.ClearField("metadata_props")

    # --- nodes -----------------------------------------------------------------------------------------------

    def _nodes(self, source: GraphProto, graph: GraphProto, *, main: bool) -> None:
        order = walk.sort(source)
        if order is None:
            raise CannotPrepare("the graph has a cycle")
        outputs = {value.name for value in source.output}
        for node in order:
            if node.op_type == "Constant" and hiding.is_default_domain(node.domain) and len(node.output) == 1:
                self._constant(node, graph, main=main and node.output[0] not in outputs)
            else:
                self._node(node, graph)

    def _constant(self, node: NodeProto, graph: GraphProto, *, main: bool) -> None:
        """A Constant node; a heavy one becomes an input where a graph can have one more, which tells its type."""
        value = next((a for a in node.attribute if a.name in ("value", "sparse_value")), None)
        name = node.output[0]
        if main and value is not None and value.name == "value" and self._is_weight(value.t):
            self._stand_in(graph, name, node, value.t.data_type, value.t.dims)
        elif main and value is not None and value.name == "sparse_value":
            sparse = value.sparse_tensor
            self._stand_in(graph, name, node, sparse.values.data_type, sparse.dims)
        else:
            self._node(node, graph)
            if value is not None and value.name == "value" and 0 in value.t.dims:
                self.empty.add(name)

    def _node(self, node: NodeProto, graph: GraphProto) -> None:
        token = f"{TOKEN}{self.count}"
        self.count += 1
        if hiding.must_hide(node, self.opset, self._is_weight) or not self.hold.isdisjoint(node.output):
            if hiding.is_noop_reduce(node, self.empty.__contains__):
                sent = graph.node.add(op_type="Identity", input=node.input[:1])
            else:
                sent = self._hide(graph, token)
                sent.input.extend(node.input)
                # Bodies are not sent: what they read must be seen to be in use, and be renamed with the rest.
                sent.input.extend(walk.captures(node))
        else:
            sent = graph.node.add(op_type=node.op_type, input=node.input)
            for attribute in node.attribute:
                self._attribute(attribute, sent.attribute.add())
        sent.name = token
        # Unused outputs get names, which onnxsim's representation must have.
        sent.output.extend(name or self._fresh("unused") for name in node.output)
        self.result.nodes[token] = Sent(node, sent)

    def _hide(self, graph: GraphProto, what: str | Stand = "") -> NodeProto:
        op_type = f"{HIDDEN_TYPE}{len(self.result.hidden)}"
        self.result.hidden[op_type] = what
        node: NodeProto = graph.node.add(op_type=op_type, domain=HIDDEN_DOMAIN)
        return node

    def _attribute(self, source: AttributeProto, target: AttributeProto) -> None:
        if not source.HasField("g") and not source.graphs:
            target.CopyFrom(source)
            target.ClearField("doc_string")
            if target.HasField("t"):
                self._send(source.t, target.t)
            return
        target.name = source.name
        target.type = source.type
        if source.HasField("g"):
            self._body(source.g, target.g)
        for body in source.graphs:
            self._body(body, target.graphs.add())

    def _body(self, source: GraphProto, graph: GraphProto) -> None:
        graph.name = source.name or "body"
        for ours, theirs in ((source.input, graph.input), (source.output, graph.output)):
            for value in ours:
                copy = theirs.add(name=value.name)
                if (kind := TensorType.from_proto(value.type)) is not None:
                    # Declared shapes may be wrong (a Loop's state may change its own), and would be folded.
                    copy.type.CopyFrom(kind.with_shape(None).to_proto())
                elif value.HasField("type"):
                    copy.type.CopyFrom(value.type)
        constants: list[tuple[str, Stand]] = []
        for tensor in source.initializer:
            if self._is_weight(tensor):
                constants.append((tensor.name, tensor))
            else:
                self._initializer(tensor, graph)
        constants.extend((sparse.values.name, sparse) for sparse in source.sparse_initializer)
        for name, what in constants:
            self._hide(graph, what).output.append(name)
        self._nodes(source, graph, main=False)

    def _fresh(self, stem: str) -> str:
        while True:
            name = f"{stem}_{self.fresh}"
            self.fresh += 1
            if name not in self.taken:
                return name
