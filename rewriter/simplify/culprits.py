"""What grew: the nodes whose results onnxsim wrote out as constants larger than what they replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rewriter.simplify import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import GraphProto, ModelProto, TensorProto

    from rewriter.simplify.prepare import Prepared

#: A new constant of fewer bytes is a shape, an axis or a scalar, whatever it came from.
SMALL: Final = 64


def find(prepared: Prepared, after: ModelProto) -> frozenset[str]:
    """Names of values (as sent) that became large constants in ``after``.

    A constant is known by its name where the value kept it, else by the position at which a surviving node reads it.
    """
    constants = {
        name
        for graph in walk.graphs(after.graph)
        for name, tensor in _constants(graph)
        if tensor.ByteSize() > SMALL
    }
    had = set(prepared.tensors) | set(prepared.constants)
    producers = {name: sent for sent in prepared.nodes.values() for name in sent.original.output if name}
    constants -= had
    constants -= {n for n in constants if n in producers and producers[n].original.op_type == "Constant"}
    found = {name for name in constants if name in producers}
    by_output = {tuple(sent.original.output): sent.original for sent in prepared.nodes.values()}
    for graph in walk.graphs(after.graph):
        for node in graph.node:
            before = by_output.get(tuple(node.output))
            if before is None or before.op_type != node.op_type:
                continue
            for old, new in zip(before.input, node.input, strict=False):
                if new in constants and old in producers:
                    found.add(old)
    return frozenset(found)


def _constants(graph: GraphProto) -> Iterator[tuple[str, TensorProto]]:
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield node.output[0], attribute.t
