"""Drops what exporters leave behind for debugging: it names the exporting machine, and is most of a small file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from onnx import GraphProto

from rewriter.graph.scopes import function_scope, main_scope

if TYPE_CHECKING:
    from onnx import ModelProto

    from rewriter.graph.scopes import Scope

#: ``metadata_props`` keys of torch's and onnxscript's exporters.
_KEYS = re.compile(r"namespace$|pkg\.(torch|onnxscript)\.")

#: A line of the stack trace that the TorchScript exporter writes into doc strings: ``/path/net.py(12): forward``.
_TRACE_LINE = re.compile(r".+\(\d+\): .+")


def strip_debug(model: ModelProto) -> int:
    """Drop them from nodes, values, tensors, graphs and functions, in place; the bytes that went."""
    before: int = model.ByteSize()
    _strip(model)
    _strip_scopes(main_scope(model))
    for function in model.functions:
        _strip_scopes(function_scope(function))
    return before - int(model.ByteSize())


def _strip_scopes(root: Scope) -> None:
    for scope in root.walk():
        graph = scope.graph
        _strip(graph)
        for value in graph.value_info:
            _strip(value)
        for node in graph.node:
            _strip(node)
        if isinstance(graph, GraphProto):
            for message in (*graph.input, *graph.output, *graph.initializer):
                _strip(message)


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
