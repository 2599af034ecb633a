"""A digest of what a model computes: graph, functions and opset imports, never metadata.

Two files have the same digest when they differ in nothing but doc strings, ``metadata_props``, header fields (producer,
IR version, …), the way payloads are stored (inline, typed fields, external), and the values of weights.  The exact
definition, for whoever wants to recompute it, is in ``docs/manifest.md``.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    numpy_helper,
)

from rewriter.storage.dtypes import element_bits

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from google.protobuf.message import Message
    from onnx import ModelProto
    from onnx.onnx_ml_pb2 import ValueInfoProto

#: A payload up to this many bytes is a parameter, and part of the digest by value.
BY_VALUE = 1024

#: Initializers of these types hold sizes, axes and indices rather than trained weights.
_COUNTS = frozenset({TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL})


class Payloads(Protocol):
    """Where the payloads of a model's tensors can be read (a ``ModelFile``)."""

    def array(self, tensor: TensorProto) -> np.ndarray[Any, Any]: ...


def digest(model: ModelProto, payloads: Payloads) -> str:
    """``"sha256:…"`` of ``model``, whose payloads may be withheld, external or inline."""
    hasher = _Hasher(payloads)
    for domain, version in sorted((_bytes(o.domain), o.version) for o in model.opset_import):
        hasher.add(b"opset", b"%s=%d" % (b"" if domain == b"ai.onnx" else domain, version))
    hasher.graph(model.graph)
    for function in model.functions:
        hasher.function(function)
    return "sha256:" + hasher.state.hexdigest()


class _Hasher:
    def __init__(self, payloads: Payloads) -> None:
        self.state = hashlib.sha256()
        self.payloads = payloads

    def add(self, tag: bytes, data: bytes) -> None:
        """Tag and length come first, so that no two sequences of parts run together into the same bytes."""
        self.state.update(b"%s %d\n" % (tag, len(data)))
        self.state.update(data)

    def messages(self, tag: bytes, messages: Iterable[Message]) -> None:
        for message in messages:
            self.add(tag, message.SerializeToString(deterministic=True))

    def graph(self, graph: GraphProto) -> None:
        self.add(b"graph", _bytes(graph.name))
        self.messages(b"input", map(_value, graph.input))
        self.messages(b"output", map(_value, graph.output))
        self.messages(b"value", map(_value, graph.value_info))
        self.messages(b"annotation", graph.quantization_annotation)
        self.messages(b"initializer", (self.tensor(t, weight=True) for t in graph.initializer))
        self.messages(b"sparse", (self.sparse(s) for s in graph.sparse_initializer))
        self.messages(b"node", map(self.node, graph.node))

    def function(self, function: FunctionProto) -> None:
        head = FunctionProto()
        head.CopyFrom(function)
        for field in ("node", "value_info", "doc_string", "metadata_props"):
            head.ClearField(field)
        for attribute in head.attribute_proto:
            self.reduce_attribute(attribute)
        self.messages(b"function", [head])
        self.messages(b"value", map(_value, function.value_info))
        self.messages(b"node", map(self.node, function.node))

    def node(self, node: NodeProto) -> NodeProto:
        copy = NodeProto()
        copy.CopyFrom(node)
        self.reduce_node(copy)
        return copy

    def reduce_node(self, node: NodeProto) -> None:
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
        for attribute in node.attribute:
            self.reduce_attribute(attribute)

    def reduce_attribute(self, attribute: AttributeProto) -> None:
        attribute.ClearField("doc_string")
        if attribute.HasField("t"):
            attribute.t.CopyFrom(self.tensor(attribute.t, weight=False))
        for index, tensor in enumerate(attribute.tensors):
            attribute.tensors[index].CopyFrom(self.tensor(tensor, weight=False))
        if attribute.HasField("sparse_tensor"):
            attribute.sparse_tensor.CopyFrom(self.sparse(attribute.sparse_tensor))
        for index, sparse in enumerate(attribute.sparse_tensors):
            attribute.sparse_tensors[index].CopyFrom(self.sparse(sparse))
        if attribute.HasField("g"):
            self.reduce_graph(attribute.g)
        for graph in attribute.graphs:
            self.reduce_graph(graph)

    def reduce_graph(self, graph: GraphProto) -> None:
        """Like :meth:`graph`, in place: a body is serialised with the node that holds it."""
        graph.ClearField("doc_string")
        graph.ClearField("metadata_props")
        for values in (graph.input, graph.output, graph.value_info):
            for value in values:
                value.ClearField("doc_string")
                value.ClearField("metadata_props")
        for index, tensor in enumerate(graph.initializer):
            graph.initializer[index].CopyFrom(self.tensor(tensor, weight=True))
        for index, sparse in enumerate(graph.sparse_initializer):
            graph.sparse_initializer[index].CopyFrom(self.sparse(sparse))
        for node in graph.node:
            self.reduce_node(node)

    def sparse(self, sparse: SparseTensorProto) -> SparseTensorProto:
        reduced = SparseTensorProto()
        reduced.values.CopyFrom(self.tensor(sparse.values, weight=True))
        reduced.indices.CopyFrom(self.tensor(sparse.indices, weight=True))
        reduced.dims.extend(sparse.dims)
        return reduced

    def tensor(self, tensor: TensorProto, *, weight: bool) -> TensorProto:
        """Name, type and shape; the value of a parameter, the length of a weight.

        A weight of a model (``weight``) counts by value only where it cannot have been trained.
        """
        reduced = TensorProto()
        if tensor.name:
            reduced.name = tensor.name
        reduced.dims.extend(tensor.dims)
        reduced.data_type = tensor.data_type
        if tensor.data_type == TensorProto.STRING:
            length = sum(map(len, tensor.string_data))
            if length <= BY_VALUE and not weight:
                reduced.string_data.extend(tensor.string_data)
        else:
            length = _length(tensor)
            if length <= BY_VALUE and (not weight or tensor.data_type in _COUNTS):
                reduced.raw_data = self.payload(tensor)
        reduced.int64_data.append(length)
        return reduced

    def payload(self, tensor: TensorProto) -> bytes:
        """The raw little-endian payload, however it is stored."""
        if tensor.data_location == TensorProto.DEFAULT and tensor.HasField("raw_data"):
            return tensor.raw_data
        return numpy_helper.from_array(self.payloads.array(tensor)).raw_data


def _bytes(text: str | bytes) -> bytes:
    """A string field; protobuf hands out bytes where it is not valid UTF-8."""
    return text.encode() if isinstance(text, str) else text


def _length(tensor: TensorProto) -> int:
    """Bytes of the packed payload."""
    elements = 1
    for dim in tensor.dims:
        elements *= dim
    return (elements * element_bits(tensor.data_type) + 7) // 8


def _value(value: ValueInfoProto) -> ValueInfoProto:
    if not value.HasField("doc_string") and not value.metadata_props:
        return value
    copy = type(value)()
    copy.CopyFrom(value)
    copy.ClearField("doc_string")
    copy.ClearField("metadata_props")
    return copy
