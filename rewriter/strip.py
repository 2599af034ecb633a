"""Drops what exporters leave behind for debugging: it names the exporting machine, and is most of a small file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from onnx import AttributeProto

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto

#: ``metadata_props`` keys of torch's and onnxscript's exporters.
_KEYS = re.compile(r"namespace$|pkg\.(torch|onnxscript)\.")

#: A line of the stack trace that the TorchScript exporter writes into doc strings: ``/path/net.py(12): forward``.
_TRACE_LINE = re.compile(r".+\(\d+\): .+")


def strip_debug(model: ModelProto) -> int:
    """Drop them from nodes, values, tensors, graphs and functions, in place; the bytes that went."""
    before = model.ByteSize()
    _strip(model)
    _strip_graph(model.graph)
    for function in model.functions:
        _strip_body(function)
    return before - model.ByteSize()


def _strip_graph(graph: GraphProto) -> None:
    for values in (graph.input, graph.output, graph.initializer):
        for value in values:
            _strip(value)
    for sparse in graph.sparse_initializer:
        _strip(sparse.values)
        _strip(sparse.indices)
    _strip_body(graph)


def _strip_body(body: GraphProto | FunctionProto) -> None:
    _strip(body)
    for value in body.value_info:
        _strip(value)
    for node in body.node:
        _strip(node)
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                _strip_graph(attribute.g)
            elif attribute.type == AttributeProto.GRAPHS:
                for graph in attribute.graphs:
                    _strip_graph(graph)
            elif attribute.type == AttributeProto.TENSOR:
                _strip(attribute.t)


def _strip(message: Any) -> None:
    """``message`` has a doc string and metadata of its own."""
    if message.metadata_props:
        kept = [prop for prop in message.metadata_props if not _KEYS.match(prop.key)]
        if len(kept) < len(message.metadata_props):
            copies = [type(prop).FromString(prop.SerializeToString()) for prop in kept]
            del message.metadata_props[:]
            message.metadata_props.extend(copies)
    if message.HasField("doc_string") and _is_trace(message.doc_string):
        message.ClearField("doc_string")


def _is_trace(text: str) -> bool:
    lines = text.splitlines()
    return bool(lines) and all(_TRACE_LINE.fullmatch(line) for line in lines)
