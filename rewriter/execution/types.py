"""Types of the values of a model, as far as shape inference tells without loading weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import ModelProto, TensorProto

from rewriter.graph.inference import infer, open_impossible_types
from rewriter.graph.scopes import graphs_of
from rewriter.types import TensorType

if TYPE_CHECKING:
    from onnx import GraphProto


def value_types(model: ModelProto) -> dict[str, TensorType]:
    """Types by name, of the main graph's values and of those of its bodies.

    Where bodies use one name for values of different types, the name is left out.  Declared types serve where
    inference does not come through.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    _without_payloads(copy.graph)
    open_impossible_types(copy)
    try:
        copy = infer(copy)
    except Exception:  # noqa: BLE001  (types only help to choose inputs; the runtime has the last word)
        copy = ModelProto()
        copy.CopyFrom(model)
    found: dict[str, TensorType] = {}
    ambiguous: set[str] = set()
    pending = [copy.graph]
    while pending:
        graph = pending.pop()
        own: dict[str, TensorType] = {
            t.name: TensorType(t.data_type, tuple(t.dims)) for t in graph.initializer
        }
        for value in (*graph.value_info, *graph.output, *graph.input):
            kind = TensorType.from_proto(value.type)
            if kind is not None:
                own[value.name] = kind
        for name, kind in own.items():
            if found.setdefault(name, kind) != kind and graph is not copy.graph:
                ambiguous.add(name)
        for node in graph.node:
            pending.extend(body for _, _, body in graphs_of(node))
    return {name: kind for name, kind in found.items() if name not in ambiguous}


def _without_payloads(graph: GraphProto) -> None:
    """Turn large initializers into typed inputs: inference needs their types only."""
    kept = []
    inputs = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            kept.append(tensor)
        elif tensor.name not in inputs:
            value = graph.input.add()
            value.name = tensor.name
            value.type.CopyFrom(TensorType(tensor.data_type, tuple(tensor.dims)).to_proto())
    if len(kept) < len(graph.initializer):
        remaining = [TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
        del graph.initializer[:]
        graph.initializer.extend(remaining)
