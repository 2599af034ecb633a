"""Values that are known before anything runs: initializers, Constant nodes, and what simple operators make of them.

Exporters write parameters as constants behind a Cast, an Unsqueeze or a Concat; those are computed here, while they are
small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import AttributeProto, FunctionProto

from rewriter.graph.arithmetic import MAX_ELEMENTS, OPERATORS, evaluate

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

    from rewriter.graph.scopes import Scope
    from rewriter.storage import ModelFile

Array = npt.NDArray[Any]

#: Nodes whose results may be known.
_FOLLOWED = frozenset({"Constant", *OPERATORS})
#: Longest chain of operators that is followed.
_MAX_DEPTH = 16
#: Elements that are computed at most, over a scope and the bodies in it.
_MAX_COMPUTED = 1 << 21


class Constants(Mapping[str, Array]):
    """The constants that a scope can see, loaded when asked for; an outer scope's too.

    ``given`` are values known from outside: constant arguments of a function's call.
    """

    def __init__(
        self,
        file: ModelFile,
        scope: Scope,
        outer: Constants | None = None,
        given: Mapping[str, Array] | None = None,
    ) -> None:
        self._file = file
        self._scope = scope
        self._outer = outer
        self._given = dict(given or {})
        self._known: dict[str, Array | None] = {}
        self._nodes: dict[str, NodeProto] | None = None
        self._tensors: dict[str, TensorProto] = {}
        self._variable: frozenset[str] = frozenset()
        #: Elements computed so far; shared by all scopes of one root.
        self._computed: list[int] = [0] if outer is None else outer._computed

    def _index(self) -> dict[str, NodeProto]:
        if self._nodes is None:
            graph = self._scope.graph
            # An inner scope's other values matter as well: they hide the outer scope's.
            every = self._scope.parent is not None
            self._nodes = {
                name: node
                for node in graph.node
                if every or node.op_type in _FOLLOWED
                for name in node.output
            }
            if isinstance(graph, FunctionProto):
                self._variable = frozenset(graph.input)
            else:
                self._tensors = {tensor.name: tensor for tensor in graph.initializer}
                inputs = {value.name for value in graph.input}
                # From IR version 4 on, an initializer that is an input is a default that a caller may override.
                if self._scope.parent is None and self._file.model.ir_version < 4:
                    inputs -= self._tensors.keys()
                self._variable = frozenset(inputs)
        return self._nodes

    def find(self, name: str, depth: int = 0) -> Array | None:
        """The value of ``name``; None where it is computed, or fed from outside."""
        if not name:
            return None
        if name in self._given:
            return self._given[name]
        nodes = self._index()
        if name in self._variable:
            return None
        if name not in self._known:
            if name in self._tensors:
                self._known[name] = self._file.array(self._tensors[name])
            elif name in nodes:
                self._known[name] = self._compute(nodes[name], depth) if depth < _MAX_DEPTH else None
            else:
                return self._outer.find(name, depth) if self._outer is not None else None
        return self._known[name]

    def holds(self, name: str) -> bool:
        """Whether ``name`` is a constant as it stands: an initializer, or what a Constant node gives."""
        if name in self._given:
            return True
        nodes = self._index()
        if name in self._variable:
            return False
        if name in self._tensors:
            return True
        if name in nodes:
            return nodes[name].op_type == "Constant"
        return self._outer is not None and self._outer.holds(name)

    def _compute(self, node: NodeProto, depth: int) -> Array | None:
        if node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type == "Constant":
            return self._constant(node)
        if node.op_type not in OPERATORS or len(node.output) != 1:
            return None
        inputs: list[Array | None] = []
        for name in node.input:
            value = self.find(name, depth + 1)
            if (value is None and name) or (value is not None and value.size > MAX_ELEMENTS):
                return None
            inputs.append(value)
        if self._computed[0] > _MAX_COMPUTED:
            return None
        result = evaluate(node, inputs)
        self._computed[0] += 0 if result is None else result.size
        return result

    def _constant(self, node: NodeProto) -> Array | None:
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                return None
            if attribute.name == "value" and attribute.type == AttributeProto.STRING:
                return np.asarray(attribute.s, dtype=object)  # what torch's fall-through makes of a string
            if attribute.name == "value":
                return self._file.array(attribute.t)
            value = literal(attribute)
            if value is not None:
                return value
        return None

    def __getitem__(self, name: str) -> Array:
        value = self.find(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def __iter__(self) -> Iterator[str]:
        names = [*self._index(), *self._tensors, *self._given]
        return (name for name in dict.fromkeys(names) if self.find(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def literal(attribute: AttributeProto) -> Array | None:
    """The value of a Constant node's attribute that is not a tensor; None for another attribute."""
    match attribute.name:
        case "value_int":
            return np.asarray(attribute.i, dtype=np.int64)
        case "value_ints":
            return np.asarray(attribute.ints, dtype=np.int64)
        case "value_float":
            return np.asarray(attribute.f, dtype=np.float32)
        case "value_floats":
            return np.asarray(attribute.floats, dtype=np.float32)
        case "value_string":
            return np.asarray(attribute.s, dtype=object)
        case "value_strings":
            return np.asarray(list(attribute.strings), dtype=object)
    return None
