"""Puts back, into what onnxsim returned, everything that it was not sent or has dropped.

The result starts from a copy of the original model, so that whatever is not nodes, constants or value_info is the
original's own message; nodes known by their token are the original's own messages too, with the inputs they have
now.  Only what onnxsim wrote itself is taken from its result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, numpy_helper

from rewriter.simplify import walk

if TYPE_CHECKING:
    from onnx import AttributeProto

    from rewriter.simplify.prepare import Prepared, Sent


class CannotRestore(Exception):  # noqa: N818  (an outcome that the caller turns into a reason, not a user's error)
    """onnxsim's result does not fit what was sent; the message says where."""


def restore(original: ModelProto, prepared: Prepared, result: ModelProto) -> ModelProto:
    """The simplified ``original``; ``result`` is used up.

    Raises:
        CannotRestore: the result is garbage.
    """
    return _Restoration(original, prepared, result).run()


class _Restoration:
    def __init__(self, original: ModelProto, prepared: Prepared, result: ModelProto) -> None:
        self.original = original
        self.prepared = prepared
        self.result = result
        self.seen: set[str] = set()
        self.hidden = prepared.hidden
        #: Whose output a name was: a node that onnxsim wrote inherits from the one whose result it now gives.
        self.producer = {
            name: sent for sent in prepared.nodes.values() for name in sent.original.output if name
        }
        self.alive = {node.name for graph in walk.graphs(result.graph) for node in graph.node}

    def run(self) -> ModelProto:
        self._rename()
        model = ModelProto()
        # All but nodes and constants, which may be large.
        model.CopyFrom(self.original)
        for field in ("node", "initializer", "sparse_initializer"):
            model.graph.ClearField(field)
        self._graph(self.result.graph, model.graph, main=True)
        self._constants(model.graph)
        if self.original.ir_version < 4:
            _as_nodes(model.graph)
        for graph in walk.graphs(model.graph):
            _prune(graph)
        return model

    # --- the interface ---------------------------------------------------------------------------------------

    def _rename(self) -> None:
        """Gives graph inputs and outputs the names they had, whatever onnxsim called them."""
        graph = self.result.graph
        names: dict[str, str] = {}
        sent = self.prepared.model.graph
        if len(graph.input) < len(sent.input) or len(graph.output) != len(sent.output):
            raise CannotRestore("inputs or outputs are missing")
        for ours, theirs in zip(sent.input, graph.input, strict=False):
            if ours.name != theirs.name:
                names[theirs.name] = ours.name
        wanted = self._sources(graph, names)
        walk.rename(graph, names)
        self._results(graph, wanted)

    def _sources(self, graph: GraphProto, names: dict[str, str]) -> list[str]:
        """Takes the stand-ins of graph inputs and outputs away; the values that the graph's outputs have, in order."""
        kept: list[NodeProto] = []
        sunk: dict[str, str] = {}
        for node in graph.node:
            if node.op_type in self.prepared.sources:
                name = self.prepared.sources[node.op_type]
                if node.output[0] != name:
                    names[node.output[0]] = name
            elif node.op_type in self.prepared.sinks:
                sunk[node.output[0]] = node.input[0]
            else:
                kept.append(node)
        _replace_nodes(graph, kept)
        outputs = [sunk.get(value.name, value.name) for value in graph.output]
        return [names.get(name, name) for name in outputs]

    def _results(self, graph: GraphProto, values: list[str]) -> None:
        """Makes the graph's outputs available under the original names; ``values`` are the names they have now."""
        produced = {name for node in graph.node for name in node.output if name}
        outputs = [value.name for value in self.original.graph.output]
        settled = set(outputs)
        names: dict[str, str] = {}
        for name, value in zip(outputs, values, strict=True):
            if name == value:
                continue
            if value in produced and value not in settled and value not in names and name not in produced:
                names[value] = name
            else:
                graph.node.add(op_type="Identity", input=[names.get(value, value)], output=[name])
        walk.rename(graph, names)

    # --- graphs and nodes ------------------------------------------------------------------------------------

    def _graph(self, result: GraphProto, target: GraphProto, *, main: bool) -> None:
        """Fills ``target`` (an original graph without nodes and constants) with what ``result`` has."""
        if not main:
            for ours, theirs in ((target.input, result.input), (target.output, result.output)):
                if len(ours) != len(theirs):
                    raise CannotRestore("a body's inputs or outputs are missing")
                for mine, its in zip(ours, theirs, strict=True):
                    mine.name = its.name
        for tensor in result.initializer:
            target.initializer.add().CopyFrom(self._tensor(tensor))
        for node in result.node:
            what = self.hidden.get(node.op_type)
            if isinstance(what, TensorProto | SparseTensorProto):
                _add_constant(target, what, node.output[0])
            else:
                self._node(node, target.node.add(), self.prepared.nodes.get(what or node.name))

    def _tensor(self, tensor: TensorProto) -> TensorProto:
        """The original's own message where one of that name has the same elements."""
        for original, sent in self.prepared.tensors.get(tensor.name, ()):
            if same_tensor(sent, tensor):
                return original
        return tensor

    def _node(self, node: NodeProto, target: NodeProto, known: Sent | None) -> None:
        if known is None or known.sent.op_type != node.op_type or known.sent.name in self.seen:
            self._written(node, target)
            return
        self.seen.add(known.sent.name)
        original = known.original
        target.CopyFrom(original)
        hidden = node.op_type in self.hidden
        inputs = list(node.input)
        if hidden:
            count = len(original.input)
            captured = dict(zip(walk.captures(original), inputs[count:], strict=True))
            renamed = {old: new for old, new in captured.items() if old != new}
            if renamed:
                for body in walk.bodies(target):
                    walk.rename_captures(body, renamed)
            inputs = inputs[:count]
        else:
            # Trailing omitted inputs, which the result may leave out.
            inputs.extend([""] * (len(original.input) - len(inputs)))
        del target.input[:]
        target.input.extend(inputs)
        outputs = [
            old and (node.output[i] if i < len(node.output) and node.output[i] else old)
            for i, old in enumerate(original.output)
        ]
        del target.output[:]
        target.output.extend(outputs)
        if not hidden and known.sent.op_type == original.op_type:
            self._attributes(node, known, target)

    def _written(self, node: NodeProto, target: NodeProto) -> None:
        """A node of onnxsim's own, with what is known of the one whose output it gives."""
        target.CopyFrom(node)
        target.ClearField("name")
        target.ClearField("doc_string")
        target.ClearField("metadata_props")
        for body in walk.bodies(target):
            _clear_written(body)
        parent = next((self.producer[name] for name in node.output if name in self.producer), None)
        if parent is None:
            return
        if parent.original.doc_string:
            target.doc_string = parent.original.doc_string
        target.metadata_props.extend(parent.original.metadata_props)
        if parent.original.name and parent.sent.name not in self.alive:
            target.name = parent.original.name

    # --- attributes ------------------------------------------------------------------------------------------

    def _attributes(self, node: NodeProto, known: Sent, target: NodeProto) -> None:
        """Takes over those attributes that onnxsim has changed."""
        now = {attribute.name: attribute for attribute in node.attribute}
        sent = {attribute.name: attribute for attribute in known.sent.attribute}
        kept = [a for a in known.original.attribute if a.name in now]
        if len(kept) != len(target.attribute):
            del target.attribute[:]
            target.attribute.extend(kept)
        for attribute in target.attribute:
            theirs = now.pop(attribute.name)
            if attribute.HasField("g"):
                self._body(theirs.g, attribute.g)
            elif attribute.graphs:
                for mine, its in zip(attribute.graphs, theirs.graphs, strict=True):
                    self._body(its, mine)
            elif not same_attribute(sent[attribute.name], theirs):
                doc = attribute.doc_string
                attribute.CopyFrom(theirs)
                attribute.doc_string = doc
        target.attribute.extend(now.values())

    def _body(self, result: GraphProto, target: GraphProto) -> None:
        for field in ("node", "initializer", "sparse_initializer"):
            target.ClearField(field)
        self._graph(result, target, main=False)

    # --- constants -------------------------------------------------------------------------------------------

    def _constants(self, graph: GraphProto) -> None:
        """The constants that were not sent, where something still reads them; the defaults of inputs, always."""
        used = _used(graph) | self.prepared.pinned
        inputs = {value.name for value in self.original.graph.input}
        new = {tensor.name: tensor for tensor in graph.initializer}
        ordered: list[TensorProto] = []
        for tensor in self.original.graph.initializer:
            if tensor.name in inputs:
                ordered.append(tensor)
            elif tensor.name in new:
                ordered.append(new.pop(tensor.name))
            elif tensor.name in self.prepared.constants and tensor.name in used:
                ordered.append(tensor)
        ordered.extend(new.values())
        copies = GraphProto()
        copies.initializer.extend(ordered)
        graph.ClearField("initializer")
        graph.initializer.MergeFrom(copies.initializer)
        for sparse in self.original.graph.sparse_initializer:
            if sparse.values.name in used or sparse.values.name in inputs:
                graph.sparse_initializer.add().CopyFrom(sparse)
        first = [w for n, w in self.prepared.constants.items() if isinstance(w, NodeProto) and n in used]
        if first:
            _replace_nodes(graph, [*first, *graph.node])


def _used(graph: GraphProto) -> set[str]:
    """The names that the graph's nodes (bodies included) and outputs read."""
    used = {value.name for value in graph.output}
    for node in graph.node:
        used.update(node.input)
        used.update(walk.captures(node))
    return used


def _add_constant(graph: GraphProto, what: TensorProto | SparseTensorProto, name: str) -> None:
    if isinstance(what, TensorProto):
        tensor = graph.initializer.add()
        tensor.CopyFrom(what)
        tensor.name = name
    else:
        sparse = graph.sparse_initializer.add()
        sparse.CopyFrom(what)
        sparse.values.name = name


def _replace_nodes(graph: GraphProto, nodes: list[NodeProto]) -> None:
    copies = GraphProto()
    copies.node.extend(nodes)
    graph.ClearField("node")
    graph.node.MergeFrom(copies.node)


def _as_nodes(graph: GraphProto) -> None:
    """Turns the initializers that are no inputs into Constant nodes: before IR version 4 there are none."""
    inputs = {value.name for value in graph.input}
    loose = [tensor for tensor in graph.initializer if tensor.name not in inputs]
    if not loose:
        return
    nodes: list[NodeProto] = []
    for tensor in loose:
        node = NodeProto(op_type="Constant", output=[tensor.name])
        attribute = node.attribute.add(name="value", type=4)
        attribute.t.CopyFrom(tensor)
        nodes.append(node)
    kept = [tensor for tensor in graph.initializer if tensor.name in inputs]
    copies = GraphProto()
    copies.initializer.extend(kept)
    _replace_nodes(graph, [*nodes, *graph.node])
    graph.ClearField("initializer")
    graph.initializer.MergeFrom(copies.initializer)


def _clear_written(graph: GraphProto) -> None:
    """Takes tokens off the nodes of a body inside a node that onnxsim wrote."""
    for node in graph.node:
        node.ClearField("name")
        for body in walk.bodies(node):
            _clear_written(body)


def _prune(graph: GraphProto) -> None:
    """Annotations of tensors that are gone."""
    if graph.quantization_annotation:
        names = walk.defined(graph)
        kept = [a for a in graph.quantization_annotation if a.tensor_name in names]
        copies = GraphProto()
        copies.quantization_annotation.extend(kept)
        graph.ClearField("quantization_annotation")
        graph.quantization_annotation.MergeFrom(copies.quantization_annotation)


def same_tensor(a: TensorProto, b: TensorProto) -> bool:
    """Whether dtype, dims and elements (bit by bit) are the same; both with their payloads."""
    if a.data_type != b.data_type or list(a.dims) != list(b.dims):
        return False
    if a.HasField("raw_data") and b.HasField("raw_data"):
        return a.raw_data == b.raw_data
    return numpy_helper.to_array(a).tobytes() == numpy_helper.to_array(b).tobytes()


def same_attribute(a: AttributeProto, b: AttributeProto) -> bool:
    if a.type != b.type:
        return False
    if a.HasField("t"):
        return b.HasField("t") and same_tensor(a.t, b.t)
    return bool(a == b)
