"""The weights of a model as onnxruntime gets them: mapped from the file, not copied, and shared by all sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, numpy_helper

from rewriter.verify.values import ort_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnx import NodeProto

    from rewriter.storage import ModelFile
    from rewriter.verify.numbers import Array

#: Element types that onnxruntime takes as a ready tensor; others (4-bit, text) are put into the model.
_SHAREABLE = frozenset(
    {
        TensorProto.FLOAT,
        TensorProto.DOUBLE,
        TensorProto.FLOAT16,
        TensorProto.BFLOAT16,
        TensorProto.INT8,
        TensorProto.INT16,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.UINT8,
        TensorProto.UINT16,
        TensorProto.UINT32,
        TensorProto.UINT64,
        TensorProto.BOOL,
        TensorProto.FLOAT8E4M3FN,
        TensorProto.FLOAT8E4M3FNUZ,
        TensorProto.FLOAT8E5M2,
        TensorProto.FLOAT8E5M2FNUZ,
    }
)


@dataclass
class Weights:
    """Payloads of ``file``'s tensors.

    A tensor that lies aligned in its file is used where it lies.  An unaligned one (protobuf aligns nothing) is
    copied once, because vectorised kernels may crash on it, and the copy serves every session.
    """

    file: ModelFile
    _values: dict[bytes, Any] = field(default_factory=dict)

    def array(self, tensor: TensorProto) -> Array:
        return self.file.array(tensor)

    def shared(self, tensor: TensorProto) -> Any:
        """The OrtValue of an external or withheld tensor."""
        key = _identity(tensor)
        if key not in self._values:
            array = self.file.array(tensor)
            if not array.flags.aligned or not array.flags.c_contiguous:
                array = np.require(array, requirements=["A", "C", "O"])
            self._values[key] = ort_value(array, tensor.data_type)
        return self._values[key]

    def runnable(self, model: ModelProto) -> tuple[ModelProto, dict[str, Any]]:
        """A copy of ``model`` that onnxruntime can load, and the weights of its main graph by name.

        Large initializers and constants of the main graph come apart from the model; other payloads (those in bodies
        and functions, which onnxruntime does not take from outside) are put into the copy.
        """
        copy = ModelProto()
        copy.CopyFrom(model)
        given: dict[str, Any] = {}
        self._lift_constants(copy.graph)
        for tensor in copy.graph.initializer:
            if tensor.data_location != TensorProto.EXTERNAL:
                continue
            if tensor.data_type in _SHAREABLE:
                given[tensor.name] = self.shared(tensor)
                del tensor.external_data[:]
                tensor.external_data.add(key="location", value="given-by-name")
            else:
                self._inline(tensor)
        for sparse in copy.graph.sparse_initializer:
            self._inline(sparse.values)
            self._inline(sparse.indices)
        self._inline_nodes(copy.graph.node)
        for function in copy.functions:
            self._inline_nodes(function.node)
        return copy, given

    def _lift_constants(self, graph: GraphProto) -> None:
        """Turn Constant nodes with large payloads into initializers, which can be given from outside."""
        kept = []
        for node in graph.node:
            tensor = _large_constant(node)
            if tensor is None:
                kept.append(node)
            else:
                graph.initializer.add().CopyFrom(tensor)
                graph.initializer[-1].name = node.output[0]
        if len(kept) < len(graph.node):
            nodes = [type(node).FromString(node.SerializeToString()) for node in kept]
            del graph.node[:]
            graph.node.extend(nodes)

    def _inline_nodes(self, nodes: Iterable[NodeProto]) -> None:
        for node in nodes:
            for attribute in node.attribute:
                if attribute.type == AttributeProto.TENSOR:
                    self._inline(attribute.t)
                elif attribute.type == AttributeProto.TENSORS:
                    for tensor in attribute.tensors:
                        self._inline(tensor)
                elif attribute.type == AttributeProto.SPARSE_TENSOR:
                    self._inline(attribute.sparse_tensor.values)
                    self._inline(attribute.sparse_tensor.indices)
                elif attribute.type == AttributeProto.GRAPH:
                    self._inline_graph(attribute.g)
                elif attribute.type == AttributeProto.GRAPHS:
                    for graph in attribute.graphs:
                        self._inline_graph(graph)

    def _inline_graph(self, graph: GraphProto) -> None:
        for tensor in graph.initializer:
            self._inline(tensor)
        for sparse in graph.sparse_initializer:
            self._inline(sparse.values)
            self._inline(sparse.indices)
        self._inline_nodes(graph.node)

    def _inline(self, tensor: TensorProto) -> None:
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(self.file.array(tensor)), tensor.name))


def _identity(tensor: TensorProto) -> bytes:
    """What names the payload, whatever the tensor is called in this model."""
    bare = TensorProto(data_type=tensor.data_type, dims=tensor.dims, data_location=tensor.data_location)
    bare.external_data.extend(tensor.external_data)
    return bytes(bare.SerializeToString(deterministic=True))


def _large_constant(node: NodeProto) -> TensorProto | None:
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.type != AttributeProto.TENSOR or attribute.t.data_location != TensorProto.EXTERNAL:
        return None
    return attribute.t if attribute.t.data_type in _SHAREABLE else None
