"""Initializers that something besides the graph's nodes refers to, and that therefore must stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewriter.simplify import walk

if TYPE_CHECKING:
    from onnx import ModelProto


class CannotPin(Exception):  # noqa: N818  (an outcome that the caller turns into a reason, not a user's error)
    """Something refers to a value that simplification may remove."""


def pinned(model: ModelProto) -> frozenset[str]:
    """Names of initializers that are neither folded nor dropped: what quantization annotations and the training
    graphs name.

    Raises:
        CannotPin: a training graph reads a value that a node of the main graph computes.
    """
    names: set[str] = set()
    for annotation in model.graph.quantization_annotation:
        names.update(entry.value for entry in annotation.quant_parameter_tensor_names)
    for info in model.training_info:
        for entry in (*info.initialization_binding, *info.update_binding):
            names.add(entry.key)
        for graph in (info.initialization, info.algorithm):
            own = walk.defined(graph)
            for node in graph.node:
                names.update(name for name in (*node.input, *walk.captures(node)) if name and name not in own)
    computed = {name for node in model.graph.node for name in node.output if name}
    if model.training_info and (read := sorted(names & computed)):
        raise CannotPin(f"training_info reads '{read[0]}', which the graph computes")
    return frozenset(names)
