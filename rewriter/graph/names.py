"""Names that are taken, and new ones that are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import FunctionProto, ValueInfoProto

from rewriter.graph.scopes import function_scope, main_scope
from rewriter.storage.wire import key, varint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnx import GraphProto, ModelProto, TensorProto

    from rewriter.graph.scopes import Scope


def set_name(message: TensorProto | ValueInfoProto, name: str | bytes) -> None:
    """Name ``message``.  A name that is not UTF-8 (protobuf gives it as bytes) goes in by the wire."""
    if isinstance(name, str):
        message.name = name
    else:
        field = message.DESCRIPTOR.fields_by_name["name"].number
        message.MergeFromString(key(field) + varint(len(name)) + name)


def value_named(name: str | bytes) -> ValueInfoProto:
    """A value without a type."""
    value = ValueInfoProto()
    set_name(value, name)
    return value


class Names:
    """The names in use, of values and nodes alike; hands out new ones that depend on nothing but the order of calls."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken: set[str] = set(taken)
        self._next: dict[str, int] = {}

    @classmethod
    def of_model(cls, model: ModelProto, main: Scope | None = None) -> Names:
        """All names in the main graph, its bodies, training graphs and functions, so that inlining finds no clash."""
        names = cls()
        names.add_scope(main or main_scope(model))
        for function in model.functions:
            names.add(function.name)
            names.add_scope(function_scope(function))
        for training in model.training_info:
            names._add_graph(training.initialization)
            names._add_graph(training.algorithm)
        return names

    @classmethod
    def of_scope(cls, root: Scope) -> Names:
        """All names in a scope and its bodies: a function's values are visible nowhere else."""
        names = cls()
        names.add_scope(root)
        return names

    def add(self, *names: str) -> None:
        self._taken.update(names)

    def add_scope(self, root: Scope) -> None:
        for scope in root.walk():
            self._add_graph(scope.graph)

    def _add_graph(self, graph: GraphProto | FunctionProto) -> None:
        taken = self._taken
        nodes = graph.node
        taken.update([name for node in nodes for name in node.output])
        taken.update([name for node in nodes for name in node.input])
        taken.update([node.name for node in nodes])
        taken.update(value.name for value in graph.value_info)
        if isinstance(graph, FunctionProto):
            taken.update(graph.input, graph.output)
            return
        taken.update(value.name for value in graph.input)
        taken.update(value.name for value in graph.output)
        taken.update(tensor.name for tensor in graph.initializer)
        for sparse in graph.sparse_initializer:
            taken.update((sparse.values.name, sparse.indices.name))
        for annotation in graph.quantization_annotation:
            taken.add(annotation.tensor_name)
            taken.update(entry.value for entry in annotation.quant_parameter_tensor_names)

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def fresh(self, wish: str) -> str:
        """``wish``, or where that is taken ``wish_2``, ``wish_3``, …; taken from now on."""
        name = wish
        if name in self._taken or not name:
            count = self._next.get(wish, 2)
            while (name := f"{wish}_{count}") in self._taken:
                count += 1
            self._next[wish] = count + 1
        self._taken.add(name)
        return name
