"""The weights of a model as onnxruntime gets them: mapped from the file where they lie, not copied."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, numpy_helper

from rewriter.execution.random import plant_seeds
from rewriter.execution.values import ort_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onnx import NodeProto

    from rewriter.execution.numbers import Array
    from rewriter.storage import ModelFile

#: Element types that onnxruntime takes as a ready tensor.
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
class Runnable:
    """A copy of a model that onnxruntime can load, and what it must be given with it."""

    model: ModelProto
    #: Where the external data of ``model`` is looked up; None where it has none.
    folder: Path | None = None
    #: Weights that lie in no file, by the name of the initializer.
    given: dict[str, Any] = field(default_factory=dict)
    #: The main graph's initializers, as the file knows them.
    tensors: dict[str, TensorProto] = field(default_factory=dict)
    #: Whether an operator draws random numbers: what a session gives then depends on how often it ran.
    draws: bool = False


@dataclass
class Weights:
    """Payloads of ``file``'s tensors.

    Those that stand raw in a file (the model file itself, at an offset, or a data file) become external data there,
    which onnxruntime maps.  Others, those of a model in memory, are handed over as tensors, which it copies; what it
    takes in neither way is put into the model.
    """

    file: ModelFile
    _values: dict[bytes, Any] = field(default_factory=dict)

    def array(self, tensor: TensorProto) -> Array:
        return self.file.array(tensor)

    def runnable(self, model: ModelProto) -> Runnable:
        """``model`` for onnxruntime; the model itself is left alone."""
        result = Runnable(ModelProto())
        result.model.CopyFrom(model)
        result.draws = plant_seeds(result.model)
        _lift_constants(result.model.graph)
        placed: list[tuple[TensorProto, Path, int, int]] = []
        read = _names_read(result.model.graph)
        for tensor in result.model.graph.initializer:
            result.tensors[tensor.name] = _copy(tensor)
            if tensor.data_location != TensorProto.EXTERNAL or tensor.name not in read:
                continue
            if self._place(tensor, placed):
                continue
            if tensor.data_type in _SHAREABLE:
                result.given[tensor.name] = self._shared(tensor)
                _refer(tensor, "given-by-name")
            else:
                self._inline(tensor)
        _drop_unread(result.model.graph, read)
        for tensor in _inner_initializers(result.model.graph):
            if tensor.data_location == TensorProto.EXTERNAL and not self._place(tensor, placed):
                self._inline(tensor)
        for tensor in _other_tensors(result.model):
            if tensor.data_location == TensorProto.EXTERNAL:
                self._inline(tensor)
        if placed:
            result.folder = Path(os.path.commonpath({path.parent for _, path, _, _ in placed}))
            for tensor, path, offset, length in placed:
                _refer(tensor, path.relative_to(result.folder).as_posix(), offset=offset, length=length)
        return result

    def _place(self, tensor: TensorProto, placed: list[tuple[TensorProto, Path, int, int]]) -> bool:
        """Note where in a file ``tensor`` lies, if it lies in one."""
        raw = self.file.raw(tensor)
        if raw is None or not raw.length:
            return False
        # onnxruntime follows no links
        placed.append((tensor, Path(os.path.realpath(raw.path)), raw.offset, raw.length))
        return True

    def _shared(self, tensor: TensorProto) -> Any:
        """The tensor as an OrtValue, the same one for every session."""
        key = _identity(tensor)
        if key not in self._values:
            array = np.require(self.file.array(tensor), requirements=["A", "C"])
            self._values[key] = ort_value(array, tensor.data_type)
        return self._values[key]

    def _inline(self, tensor: TensorProto) -> None:
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(self.file.array(tensor)), tensor.name))


def _refer(tensor: TensorProto, location: str, **place: int) -> None:
    del tensor.external_data[:]
    tensor.external_data.add(key="location", value=location)
    for key, value in place.items():
        tensor.external_data.add(key=key, value=str(value))


def _identity(tensor: TensorProto) -> bytes:
    """What names the payload, whatever the tensor is called in this model."""
    bare = _copy(tensor)
    bare.name = ""
    return bytes(bare.SerializeToString(deterministic=True))


def _copy(tensor: TensorProto) -> TensorProto:
    copy = TensorProto()
    copy.CopyFrom(tensor)
    return copy


def _lift_constants(graph: GraphProto) -> None:
    """Turn Constant nodes with large payloads into initializers: onnxruntime takes no external data in attributes."""
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


def _large_constant(node: NodeProto) -> TensorProto | None:
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.type != AttributeProto.TENSOR or attribute.t.data_location != TensorProto.EXTERNAL:
        return None
    tensor: TensorProto = attribute.t
    return tensor


def _names_read(main: GraphProto) -> set[str]:
    """What nodes and bodies read and the graph gives out, and its inputs, which have their defaults there."""
    names = {value.name for value in (*main.input, *main.output)}
    for graph in (main, *_bodies(main.node)):
        names.update(output.name for output in graph.output)
        for node in graph.node:
            names.update(node.input)
    return names


def _drop_unread(graph: GraphProto, read: set[str]) -> None:
    """Take out withheld initializers that nothing reads: onnxruntime drops them before it looks for what is given."""
    unread = [t.name not in read and t.data_location == TensorProto.EXTERNAL for t in graph.initializer]
    for index in reversed([index for index, flag in enumerate(unread) if flag]):
        del graph.initializer[index]


def _inner_initializers(main: GraphProto) -> Iterator[TensorProto]:
    """Initializers of the bodies in the main graph."""
    for graph in _bodies(main.node):
        yield from graph.initializer


def _other_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Tensors everywhere else: in attributes, functions, and the parts of sparse initializers."""
    scopes = [(model.graph, False), *((graph, False) for graph in _bodies(model.graph.node))]
    for function in model.functions:
        yield from _attribute_tensors(function.node)
        scopes += [(graph, True) for graph in _bodies(function.node)]
    for graph, in_function in scopes:
        yield from _attribute_tensors(graph.node)
        if in_function:
            yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)


def _bodies(nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield attribute.g
                yield from _bodies(attribute.g.node)
            elif attribute.type == AttributeProto.GRAPHS:
                for graph in attribute.graphs:
                    yield graph
                    yield from _bodies(graph.node)


def _attribute_tensors(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.TENSORS:
                yield from attribute.tensors
            elif attribute.type == AttributeProto.SPARSE_TENSOR:
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
