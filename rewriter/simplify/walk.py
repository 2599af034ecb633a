"""Walking graphs: bodies, captured names, topological order."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnx import GraphProto, NodeProto, TensorProto


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs held by ``node``'s attributes, not those nested deeper."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """``graph`` and every body below it."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from graphs(body)


def defined(graph: GraphProto) -> set[str]:
    """The names that ``graph`` itself defines: inputs, initializers, outputs of nodes."""
    names = {value.name for value in graph.input}
    names.update(tensor.name for tensor in graph.initializer)
    names.update(sparse.values.name for sparse in graph.sparse_initializer)
    for node in graph.node:
        names.update(node.output)
    names.discard("")
    return names


def captures(node: NodeProto) -> list[str]:
    """The names that ``node``'s bodies read from outside, each once, in the order of their first use."""
    names: dict[str, None] = {}
    for body in bodies(node):
        own = defined(body)
        for inner in body.node:
            for name in (*inner.input, *captures(inner)):
                if name and name not in own:
                    names[name] = None
        for value in body.output:
            if value.name not in own:
                names[value.name] = None
    return list(names)


def rename(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Renames values read or defined in ``graph`` and, where not shadowed, in its bodies; declared inputs and
    outputs keep their names, and are not to be in ``names``."""
    if not names:
        return
    for node in graph.node:
        for field in (node.input, node.output):
            for i, name in enumerate(field):
                if name in names:
                    field[i] = names[name]
        for body in bodies(node):
            rename_captures(body, names)


def rename_captures(body: GraphProto, names: Mapping[str, str]) -> None:
    """Renames in ``body`` what it reads from outside under a name in ``names``."""
    own = defined(body)
    outer = {old: new for old, new in names.items() if old not in own}
    if not outer:
        return
    for node in body.node:
        for i, name in enumerate(node.input):
            if name in outer:
                node.input[i] = outer[name]
        for inner in bodies(node):
            rename_captures(inner, outer)
    for value in body.output:
        if value.name in outer:
            value.name = outer[value.name]


def sort(graph: GraphProto) -> list[NodeProto] | None:
    """The nodes of ``graph`` (bodies aside) so that each comes after what it reads; None where there is a cycle.

    Stable: nodes keep their order as far as it is possible, so that a sorted graph comes back as it is.
    """
    producer = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    waiting: list[int] = []
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(graph.node):
        before = {producer[name] for name in (*node.input, *captures(node)) if name in producer}
        waiting.append(len(before))
        for j in before:
            readers.setdefault(j, []).append(i)
    ready = [i for i, count in enumerate(waiting) if count == 0]
    order: list[NodeProto] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(graph.node[i])
        for reader in readers.get(i, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    return order if len(order) == len(graph.node) else None


def tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor below ``graph``: initializers, sparse ones' parts, attributes, bodies."""
    for scope in graphs(graph):
        yield from scope.initializer
        for sparse in scope.sparse_initializer:
            yield sparse.values
            yield sparse.indices
        for node in scope.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
                for sparse in (
                    *([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []),
                    *attribute.sparse_tensors,
                ):
                    yield sparse.values
                    yield sparse.indices
