"""One scope of a model, asked for what stands around its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import FunctionProto, NodeProto, TensorProto, numpy_helper

from rewriter.domains import normal_domain
from rewriter.execution.cut import outer_names
from rewriter.graph.scopes import graphs_of, opset_versions, text
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from onnx import GraphProto, ModelProto

#: Elements of a constant whose values are shown.
_SHOWN_ELEMENTS = 8
#: What exporters write for an open end of a slice.
_INT64_MAX = 2**63 - 1


class Neighbourhood:
    """Who makes and who reads each value of a scope; built once, in time linear in its nodes."""

    def __init__(self, model: ModelProto, graph: GraphProto | FunctionProto) -> None:
        self.graph = graph
        self.nodes = list(graph.node)  # held, so that each stays the same object
        self.opsets = opset_versions((graph if isinstance(graph, FunctionProto) else model).opset_import)
        self.makers: dict[str, tuple[NodeProto, int]] = {}
        self.readers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for index, name in enumerate(node.output):
                if name:
                    self.makers[name] = node, index
            for name in dict.fromkeys(reads(node)):
                self.readers.setdefault(name, []).append(node)
        self.types: dict[str, str] = {}
        self.tensors: dict[str, TensorProto] = {}
        if isinstance(graph, FunctionProto):
            self.inputs, self.outputs = set(graph.input), set(graph.output)
        else:
            self.inputs = {value.name for value in graph.input}
            self.outputs = {value.name for value in graph.output}
            self.tensors = {tensor.name: tensor for tensor in graph.initializer}
            for value in (*graph.value_info, *graph.output, *graph.input):
                self._declare(value.name, TensorType.from_proto(value.type))
        self._own = {id(node) for node in self.nodes}

    def holds(self, node: NodeProto) -> bool:
        return id(node) in self._own

    def _declare(self, name: str, kind: TensorType | None) -> None:
        if kind is not None:
            self.types[name] = str(kind)

    def leads_nowhere(self, node: NodeProto) -> bool:
        """Whether nothing uses what ``node`` gives: some decompositions leave nodes that simplification removes."""
        return not any(name in self.readers or name in self.outputs for name in node.output)

    def learn(self, types: Iterable[tuple[str, TensorType | None]]) -> None:
        """Types that are known from elsewhere; what the scope declares itself stays."""
        for name, kind in types:
            if name not in self.types:
                self._declare(name, kind)

    def correct(self, types: Iterable[tuple[str, TensorType | None]]) -> None:
        """Types that are better than what the scope declares: exporters invent sizes."""
        for name, kind in types:
            self._declare(name, kind)

    def constant(self, name: str) -> str | None:
        """The value of a constant, or its type where it is large; None for what is computed."""
        tensor = self.tensors.get(name) if name not in self.inputs else None
        if tensor is None and name in self.makers:
            tensor = _constant(self.makers[name][0])
            if tensor is None and is_constant(self.makers[name][0]):
                return "a constant"
        return None if tensor is None else tensor_text(tensor)


def reads(node: NodeProto) -> Iterator[str]:
    """The names that a node reads, also those that only its bodies read."""
    yield from (name for name in node.input if name)
    if any(True for _ in graphs_of(node)):
        yield from sorted(outer_names(node), key=text)


def is_constant(node: NodeProto) -> bool:
    return node.op_type == "Constant" and not normal_domain(text(node.domain))


def _constant(node: NodeProto) -> TensorProto | None:
    if not is_constant(node):
        return None
    attribute = next(iter(node.attribute), None)
    if attribute is None:
        return None
    if attribute.name == "value":
        tensor: TensorProto = attribute.t
        return tensor
    values: dict[str, object] = {
        "value_int": np.int64(attribute.i),
        "value_ints": np.array(attribute.ints, np.int64),
        "value_float": np.float32(attribute.f),
        "value_floats": np.array(attribute.floats, np.float32),
    }
    value = values.get(attribute.name)
    return None if value is None else numpy_helper.from_array(np.asarray(value))


def tensor_text(tensor: TensorProto) -> str:
    """``"[1, 2]"``, or ``"float32[96, 48]"`` where that would be long or the payload is not in memory."""
    kind = TensorType(tensor.data_type, tuple(tensor.dims))
    count = 1
    for size in tensor.dims:
        count *= size
    if tensor.data_location == TensorProto.EXTERNAL or count > _SHOWN_ELEMENTS:
        return str(kind)
    try:
        values = numpy_helper.to_array(tensor).tolist()
    except (ValueError, TypeError):  # no payload, or not one that fits the shape
        return str(kind)
    return _short(values)


def _short(value: object) -> str:
    if value in (_INT64_MAX, -_INT64_MAX - 1):
        return "the end" if value == _INT64_MAX else "the beginning"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    return text(value) if isinstance(value, (str, bytes)) else str(value)


def attribute_lines(node: NodeProto) -> list[str]:
    """``"perm = [0, 2, 1]"`` for each attribute; of a body how many nodes it has."""
    return [f"{text(a.name)} = {_attribute(node, a.name)}" for a in node.attribute]


def _attribute(node: NodeProto, name: str) -> str:
    attribute = next(a for a in node.attribute if a.name == name)
    if attribute.ref_attr_name:
        return f"the function's {text(attribute.ref_attr_name)}"
    bodies = [graph for a, _, graph in graphs_of(node) if a.name == name]
    if bodies:
        return f"{sum(len(graph.node) for graph in bodies)} nodes"
    fields: Mapping[int, object] = {
        1: attribute.f,
        2: attribute.i,
        3: text(attribute.s),
        6: list(attribute.floats),
        7: list(attribute.ints),
        8: [text(item) for item in attribute.strings],
    }
    if attribute.type == 4:
        return tensor_text(attribute.t)
    value = fields.get(attribute.type, "…")
    if isinstance(value, list) and len(value) > _SHOWN_ELEMENTS:
        return f"[{', '.join(map(_short, value[:_SHOWN_ELEMENTS]))}, … {len(value)} in all]"
    return _short(value)
