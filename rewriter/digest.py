"""A digest of what a model computes: graph, functions and opset imports, never metadata.

Two files have the same digest when they differ in nothing but doc strings, ``metadata_props``, header fields (producer,
IR version, …), the way payloads are stored (inline, typed fields, external), and the values of tensors of more than
1024 bytes, which are weights.  The exact definition, for whoever wants to recompute it, is in ``docs/manifest.md``.
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

from rewriter.errors import ExternalDataError, ModelReadError
from rewriter.graph.names import set_name
from rewriter.storage.dtypes import element_bits

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from google.protobuf.message import Message
    from onnx import ModelProto
    from onnx.onnx_ml_pb2 import ValueInfoProto

#: A payload up to this many bytes is part of the digest by value: a decomposition's constants are no larger.
BY_VALUE = 1024

#: Version of the definition.  In version 1, which manifests without ``digest_version`` have, initializers counted by
#: value only where they were of the types below, so that an edit of a small floating-point constant went unnoticed.
DIGEST_VERSION = 2
_COUNTS = frozenset({TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL})

#: Fields of an attribute that count as they are.
_FIELDS = frozenset({"name", "ref_attr_name", "type", "f", "i", "s", "floats", "ints", "strings"})


class Payloads(Protocol):
    """Where the payloads of a model's tensors can be read (a ``ModelFile``)."""

    def array(self, tensor: TensorProto) -> np.ndarray[Any, Any]: ...


def digest(model: ModelProto, payloads: Payloads, version: int = DIGEST_VERSION) -> str:
    """``"sha256:…"`` of ``model``, whose payloads may be withheld, external or inline.

    ``version`` is that of the definition.
    """
    hasher = _Hasher(payloads, version)
    for domain, number in sorted((_bytes(o.domain), o.version) for o in model.opset_import):
        hasher.add(b"opset", b"%s=%d" % (b"" if domain == b"ai.onnx" else domain, number))
    hasher.graph(model.graph)
    for function in model.functions:
        hasher.function(function)
    return "sha256:" + hasher.state.hexdigest()


class _Hasher:
    def __init__(self, payloads: Payloads, version: int) -> None:
        self.state = hashlib.sha256()
        self.payloads = payloads
        self.version = version

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
        self.nodes(graph.node)

    def nodes(self, nodes: Iterable[NodeProto]) -> None:
        """Most nodes count as they are, and are not copied."""
        for node in nodes:
            whole = (
                not node.HasField("doc_string")
                and not node.metadata_props
                and all(map(self.is_whole, node.attribute))
            )
            self.add(b"node", (node if whole else self.node(node)).SerializeToString(deterministic=True))

    def is_whole(self, attribute: AttributeProto) -> bool:
        """Whether nothing in ``attribute`` is left out or reduced."""
        return {field.name for field, _ in attribute.ListFields()} <= _FIELDS

    def function(self, function: FunctionProto) -> None:
        head = FunctionProto()
        head.CopyFrom(function)
        for field in ("node", "value_info", "doc_string", "metadata_props"):
            head.ClearField(field)
        for attribute in head.attribute_proto:
            self.reduce_attribute(attribute)
        self.messages(b"function", [head])
        self.messages(b"value", map(_value, function.value_info))
        self.nodes(function.node)

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
        """Name, type, shape and length; the value as well where it is small.

        In version 1 an initializer (``weight``) counted by value only where it cannot have been trained.
        """
        by_value = not weight or self.version > 1
        reduced = TensorProto()
        if tensor.name:
            set_name(reduced, tensor.name)
        reduced.dims.extend(tensor.dims)
        reduced.data_type = tensor.data_type
        if tensor.data_type == TensorProto.STRING:
            length = sum(map(len, tensor.string_data))
            if length <= BY_VALUE and by_value:
                reduced.string_data.extend(tensor.string_data)
        else:
            length = _length(tensor)
            if length <= BY_VALUE and (by_value or tensor.data_type in _COUNTS):
                reduced.raw_data = self.payload(tensor)
        reduced.int64_data.append(length)
        return reduced

    def payload(self, tensor: TensorProto) -> bytes:
        """The raw little-endian payload, however it is stored."""
        if tensor.data_location == TensorProto.DEFAULT and tensor.HasField("raw_data"):
            return tensor.raw_data
        try:
            return numpy_helper.from_array(self.payloads.array(tensor)).raw_data
        except (ModelReadError, ValueError, TypeError) as error:
            if self.version == 1 or isinstance(error, ExternalDataError):
                raise
            # It does not fit its type or dims: nothing reads it, and what stands there counts.
            whole: bytes = tensor.SerializeToString(deterministic=True)
            return whole


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
