"""Bounds for onnx's data propagation, which follows the elements of shapes through a model.

onnx's inference keeps a message for each element of each one-dimensional value that it follows.  How many there are,
the file says: a few hundred bytes can ask for gigabytes.  So inference runs without data propagation first, which costs
nothing by size.  It runs again with data propagation where that can tell more, and then the operators that follow
elements (:data:`FOLLOWING`) are hidden where

- an input is not known to be small: neither made of shapes by such operators, nor typed in the first run;
- or the elements that are followed grow beyond :data:`BUDGET`.

A hidden operator is typed by onnx's inference of one node, in a hook.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx import FunctionProto, NodeProto, TypeProto, defs, helper, shape_inference

from rewriter.graph.opsets import all_nodes
from rewriter.graph.scopes import called_function, function_key, graphs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import GraphProto, ModelProto, TensorProto
    from onnx.shape_inference import InferenceContext

    from rewriter.graph.hooks import Operator
    from rewriter.graph.scopes import FunctionKey

#: Operators whose results onnx computes from the elements of their inputs.
FOLLOWING = frozenset(
    {"Cast", "Shape", "Size", "Concat", "Slice", "Gather", "Squeeze", "Unsqueeze", "Add", "Sub", "Mul"}
)
#: Those of them that take parameters as inputs.
_PARAMETERS = frozenset({"Slice", "Squeeze", "Unsqueeze"})
#: Operators whose result's shape depends on elements that are followed.
_READERS = frozenset(
    {"Reshape", "Expand", "ConstantOfShape", "Resize", "Upsample", "CenterCropPad", "AffineGrid"}
)
#: Elements of one value that are always followed: shapes, pads, axes.
SMALL = 64
#: Elements that are followed besides, over one model.  One takes about 70 bytes.
BUDGET = 1 << 18

HIDDEN = "rewriter.hidden"
_DEFAULT = ("", "ai.onnx")
#: The rank that a value of unknown rank is taken to have at most; onnx itself makes none above 1024.
_RANK = 16


def hidden_operators() -> set[Operator]:
    """What :func:`infer_hidden` is registered for."""
    return {(HIDDEN, op_type, 1) for op_type in FOLLOWING}


def can_tell_more(inferred: ModelProto) -> bool:
    """Whether a shape that was left open in ``inferred``, made without data propagation, may follow with it."""
    readers = _reading_functions(inferred)
    waiting: list[GraphProto] = [inferred.graph]
    while waiting:
        graph = waiting.pop()
        asked: list[str] = []
        for node in graph.node:
            if (node.op_type in _READERS and node.domain in _DEFAULT) or (
                readers and (node.domain, node.op_type) in readers
            ):
                asked += node.output
            if node.attribute:
                waiting += [body for _, _, body in graphs_of(node)]
        if asked:
            types = _types(graph)
            if any(name and not _is_complete(types.get(name)) for name in asked):
                return True
    return False


def hide(model: ModelProto, inferred: ModelProto) -> int:
    """Hide the operators of ``model`` that could follow too much, by what ``inferred``, the same graph, tells.

    Returns how many there are.
    """
    functions = {function_key(function): function for function in model.functions}
    walk = _Walk(functions)
    opsets = {item.domain: item.version for item in model.opset_import}
    walk.graph(model.graph, inferred.graph, None, opsets)
    for function in reversed(_callees_first(model.graph, functions)):
        own = {item.domain: item.version for item in function.opset_import}
        before = walk.hidden
        walk.graph(function, None, None, own)
        if walk.hidden > before and HIDDEN not in own:
            function.opset_import.add(domain=HIDDEN, version=1)
    if walk.hidden:
        model.opset_import.add(domain=HIDDEN, version=1)
    return walk.hidden


def _callees_first(
    place: GraphProto | FunctionProto, functions: Mapping[FunctionKey, FunctionProto]
) -> list[FunctionProto]:
    """The functions that ``place`` calls, directly or not.  Their calls are not nested deeply, see ``nesting``."""
    found: dict[FunctionKey, FunctionProto] = {}

    def visit(inner: GraphProto | FunctionProto) -> None:
        for node in all_nodes(inner):
            key = called_function(node)
            if key in functions and key not in found:
                visit(functions[key])
                found[key] = functions[key]

    if functions:
        visit(place)
    return list(found.values())


def infer_hidden(context: InferenceContext) -> None:
    """The hook of hidden operators.  What onnx refuses stays without a type."""
    try:
        said = context.get_attribute(HIDDEN)
        if said is None:
            return
        op_type, version = said.s.decode(), said.i
        schema = defs.get_schema(op_type, version)
        node = NodeProto(op_type=op_type)
        types: dict[str, TypeProto] = {}
        data = {}
        for index in range(context.get_num_inputs()):
            proto = context.get_input_type(index)
            name = f"i{index}" if isinstance(proto, TypeProto) and proto.WhichOneof("value") else ""
            node.input.append(name)
            if name:
                types[name] = proto
                tensor = context.get_input_data(index) if index and op_type in _PARAMETERS else None
                if tensor is not None:
                    data[name] = tensor
        for name in schema.attributes:
            attribute = context.get_attribute(name)
            if attribute is not None:
                node.attribute.append(attribute)
        node.output.append("o")
        made = shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=[helper.make_opsetid("", version)]
        )
        if "o" in made:
            context.set_output_type(0, made["o"])
    except Exception:  # noqa: BLE001  (an exception here would end the whole inference)
        return


@dataclass
class _Sizes:
    """How many elements of each value of a scope may be followed; no entry: what its type says."""

    types: Mapping[str, TypeProto]
    is_function: bool
    known: dict[str, int] = field(default_factory=dict)
    outer: _Sizes | None = None

    def of(self, name: str) -> int | None:
        """None where it cannot be told."""
        place: _Sizes | None = self
        while place is not None:
            if name in place.known:
                return place.known[name]
            if name in place.types:
                return _from_type(place.types[name])
            place = place.outer
        return None


class _Walk:
    """Hides operators, callers before the functions that they call."""

    def __init__(self, functions: Mapping[FunctionKey, FunctionProto]) -> None:
        self.hidden = 0
        self.spent = 0
        self._functions = functions
        #: For each function, what may be followed of its inputs, over all calls.
        self._given: dict[FunctionKey, list[int | None]] = {}

    def graph(
        self,
        graph: GraphProto | FunctionProto,
        inferred: GraphProto | None,
        outer: _Sizes | None,
        opsets: Mapping[str, int],
    ) -> None:
        inside = isinstance(graph, FunctionProto) or (outer is not None and outer.is_function)
        sizes = _Sizes({} if inferred is None else _types(inferred), inside, {}, outer)
        if isinstance(graph, FunctionProto):
            given = zip(graph.input, self._given.get(function_key(graph), []), strict=False)
            sizes.known.update((name, count) for name, count in given if count is not None)
        else:
            sizes.known.update((tensor.name, _count(tensor)) for tensor in graph.initializer)
        version = opsets.get("", opsets.get("ai.onnx", 1))
        others = iter(()) if inferred is None else iter(inferred.node)
        for node in graph.node:
            other = next(others, None)
            if node.domain in _DEFAULT:
                if node.op_type in FOLLOWING:
                    self._node(node, sizes, version)
                elif node.op_type == "Constant" and len(node.output) == 1:
                    sizes.known[node.output[0]] = _constant(node)
            elif self._functions and (key := called_function(node)) in self._functions:
                self._call(key, [sizes.of(name) for name in node.input])
            if node.attribute:
                seen = {} if other is None else {(a.name, n): body for a, n, body in graphs_of(other)}
                for attribute, number, body in graphs_of(node):
                    self.graph(body, seen.get((attribute.name, number)), sizes, opsets)

    def _call(self, key: FunctionKey, given: list[int | None]) -> None:
        """What a function is called with counts once for each call, so only small values may be followed in it."""
        small = [count if count is not None and count <= SMALL else None for count in given]
        before = self._given.get(key)
        if before is not None:
            small = [
                None if a is None or b is None else max(a, b) for a, b in zip(before, small, strict=False)
            ]
        self._given[key] = small

    def _node(self, node: NodeProto, sizes: _Sizes, version: int) -> None:
        result: int | None
        if node.op_type in ("Shape", "Size"):
            result = (sizes.of(node.output[0]) or _RANK) if node.op_type == "Shape" and node.output else 1
        else:
            read = [sizes.of(name) for name in node.input if name]
            result = None
            if None not in read:
                counts = [count for count in read if count is not None]
                result = sum(counts) if node.op_type == "Concat" else max(counts, default=0)
        large = 0 if result is None or result <= SMALL else result
        if result is not None and not (large and sizes.is_function) and self.spent + large <= BUDGET:
            self.spent += large
            for name in node.output:
                sizes.known[name] = result
            return
        self.hidden += 1
        node.attribute.add(name=HIDDEN, type=3, s=node.op_type.encode(), i=version)
        node.domain = HIDDEN


def _constant(node: NodeProto) -> int:
    count = 1
    for attribute in node.attribute:
        count = max(count, len(attribute.ints), len(attribute.floats))
        if attribute.HasField("t"):
            count = _count(attribute.t)
    return count


def _count(tensor: TensorProto) -> int:
    """Elements of a tensor of rank 0 or 1; onnx follows no others."""
    return max(tensor.dims[0], 0) if len(tensor.dims) == 1 else int(not tensor.dims)


def _from_type(proto: TypeProto) -> int | None:
    """The elements that onnx would make up for a value of this type; None where later inference may tell a size."""
    if proto.WhichOneof("value") != "tensor_type":
        return 0
    if not proto.tensor_type.HasField("shape"):
        return None
    dims = proto.tensor_type.shape.dim
    if len(dims) != 1:
        return 0
    if dims[0].HasField("dim_value"):
        return max(int(dims[0].dim_value), 0)
    return 0 if _is_named(dims[0].dim_param) else None


def _is_complete(proto: TypeProto | None) -> bool:
    if proto is None:
        return False
    if proto.WhichOneof("value") != "tensor_type":
        return True
    return proto.tensor_type.HasField("shape") and all(
        dim.HasField("dim_value") or _is_named(dim.dim_param) for dim in proto.tensor_type.shape.dim
    )


def _is_named(name: str | bytes) -> bool:
    """Whether a size has a name of the file's, not one that inference made up."""
    return bool(name) and not (isinstance(name, str) and name.startswith("unk__"))


def _types(graph: GraphProto) -> dict[str, TypeProto]:
    return {
        value.name: value.type for values in (graph.value_info, graph.input, graph.output) for value in values
    }


def _reading_functions(model: ModelProto) -> set[tuple[str, str]]:
    """Functions in which, or below which, a shape is read."""
    if not model.functions:
        return set()
    found: set[tuple[str, str]] = set()
    callers: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for function in model.functions:
        key = (function.domain, function.name)
        for node in all_nodes(function):
            callers.setdefault((node.domain, node.op_type), set()).add(key)
            if node.op_type in _READERS and node.domain in _DEFAULT:
                found.add(key)
    waiting = list(found)
    while waiting:
        more = callers.get(waiting.pop(), set()) - found
        found |= more
        waiting += more
    return found
