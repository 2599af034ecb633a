"""Which integers a model can take: the range of what an input indexes.

An integer input that reaches the indices of a Gather must lie within the axis it gathers from.  The value is followed
through operators that only move or convert it, through additions of constants, and into bodies and functions.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto

from rewriter.inputs.dims import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

    from rewriter.types import Dim, TensorType

#: Operators that hand on elements of their first inputs unchanged: type → how many inputs.
_MOVES: Mapping[str, int] = {
    **dict.fromkeys(("Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose"), 1),
    **dict.fromkeys(("Expand", "Tile", "Slice", "Split", "Gather", "GatherND", "GatherElements", "Pad"), 1),
    **dict.fromkeys(
        (
            "Compress",
            "Unique",
            "TopK",
            "DepthToSpace",
            "SpaceToDepth",
            "ReduceMax",
            "ReduceMin",
            "ScatterND",
            "ScatterElements",
        ),
        1,
    ),
    **dict.fromkeys(("Concat", "Max", "Min"), 1 << 30),
}


@dataclass
class Range:
    """Whole numbers ``low <= n < high``; ``high`` may be the size of a dim (known once sizes are drawn)."""

    low: int = 0
    high: list[Dim] = field(default_factory=list)
    #: Added to the input on its way to the operator that indexes.
    offset: list[int] = field(default_factory=list)

    def ends(self, sizes: Mapping[str, int]) -> tuple[int, int] | None:
        """Lowest and highest number for these sizes; None where no limit is known."""
        limits = []
        for dim, offset in zip(self.high, self.offset, strict=True):
            size = dim if isinstance(dim, int) else evaluate(dim, sizes) if dim is not None else None
            limits.append((self.low - offset, (1 if size is None else max(size, 1)) - 1 - offset))
        if not limits:
            return None
        low = max(end for end, _ in limits)
        high = min(end for _, end in limits)
        return (max(low, 0) if high >= 0 else low, max(high, low))


@dataclass(frozen=True)
class _Frame:
    """One scope: who reads a value, and what is known of values."""

    consumers: Mapping[str, list[tuple[NodeProto, int]]]
    shape_of: Callable[[str], tuple[Dim, ...] | None]
    constant_of: Callable[[str], Any]
    depth: int = 0


def indexed_ranges(
    model: ModelProto,
    names: Iterable[str],
    types: Mapping[str, TensorType],
    constants: Callable[[str], Any],
) -> dict[str, Range]:
    """The range of each of the integer graph inputs ``names`` that index something.

    ``types`` are those of the main graph's values, ``constants`` answers the array behind an initializer or constant.
    """
    functions = {(f.domain, f.name): f for f in model.functions}

    def shape_of(name: str) -> tuple[Dim, ...] | None:
        kind = types.get(name)
        return None if kind is None else kind.shape

    frame = _Frame(_consumers(model.graph), shape_of, constants)
    found = {}
    for name in names:
        result = Range()
        _follow(name, 0, frame, functions, result, set())
        if result.high:
            found[name] = result
    return found


def _follow(
    name: str,
    offset: int,
    frame: _Frame,
    functions: Mapping[tuple[str, str], FunctionProto],
    result: Range,
    seen: set[tuple[int, str, int]],
) -> None:
    work = [(name, offset, frame)]
    while work:
        value, offset, frame = work.pop()
        key = (id(frame.consumers), value, offset)
        if key in seen or len(seen) > 100_000:
            continue
        seen.add(key)
        for node, index in frame.consumers.get(value, ()):
            if node.domain in ("", "ai.onnx"):
                for dim in _limits(node, index, frame):
                    result.high.append(dim)
                    result.offset.append(offset)
                for target, step in _passes(node, index, frame):
                    work.append((target, offset + step, frame))
            elif (node.domain, node.op_type) in functions and frame.depth < 32:
                function = functions[node.domain, node.op_type]
                if index < len(function.input):
                    work.append((function.input[index], offset, _inside(function, node, frame)))


def _limits(node: NodeProto, index: int, frame: _Frame) -> list[Dim]:
    """Sizes that the value at input ``index`` of ``node`` must stay below."""
    kind = node.op_type
    if kind in ("Gather", "GatherElements", "ScatterElements", "Scatter") and index == 1:
        shape = frame.shape_of(node.input[0])
        axis = _int(node, "axis", 0)
        return [shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None]
    if kind in ("GatherND", "ScatterND") and index == 1:
        data, indices = frame.shape_of(node.input[0]), frame.shape_of(node.input[1])
        batch = _int(node, "batch_dims", 0)
        count = indices[-1] if indices else None
        if data is None:
            return [None]
        return list(data[batch : batch + count] if isinstance(count, int) else data[batch:])
    if kind == "OneHot" and index == 0:
        depth = frame.constant_of(node.input[1])
        return [None if depth is None else int(np.ravel(depth)[0])]
    if kind in ("TopK",) and index == 1:
        shape = frame.shape_of(node.input[0])
        axis = _int(node, "axis", -1)
        return [shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None]
    if kind in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss") and index == 1:
        shape = frame.shape_of(node.input[0])
        return [shape[1] if shape is not None and len(shape) > 1 else None]
    return []


def _passes(node: NodeProto, index: int, frame: _Frame) -> list[tuple[str, int]]:
    """Values that carry the elements of input ``index`` on, each with what is added on the way."""
    kind = node.op_type
    if kind in ("Gather", "GatherElements", "GatherND") and index != 0:
        return []
    if index < _MOVES.get(kind, 0):
        return [(output, 0) for output in node.output[: 1 if kind in ("Unique", "TopK") else None] if output]
    if kind == "Where" and index in (1, 2):
        return [(node.output[0], 0)]
    if kind in ("Add", "Sub") and len(node.input) == 2:
        other = frame.constant_of(node.input[1 - index])
        if other is None or other.size == 0 or other.dtype.kind not in "iu" or (kind == "Sub" and index == 1):
            return []
        sign = 1 if kind == "Add" else -1
        return [(node.output[0], sign * int(end)) for end in {int(other.min()), int(other.max())}]
    if kind == "Loop" and index >= 2:
        body = _graph(node, "body")
        return [] if body is None or index >= len(body.input) else [(body.input[index].name, 0)]
    if kind == "Scan":
        body = _graph(node, "body")
        return [] if body is None or index >= len(body.input) else [(body.input[index].name, 0)]
    return []


def _inside(function: FunctionProto, call: NodeProto, frame: _Frame) -> _Frame:
    actual = dict(zip(function.input, call.input, strict=False))
    own = {
        node.output[0]: node
        for node in function.node
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and len(node.output) == 1
    }

    def shape_of(name: str) -> tuple[Dim, ...] | None:
        if name in actual:
            return frame.shape_of(actual[name])
        if name in own and own[name].attribute and own[name].attribute[0].type == AttributeProto.TENSOR:
            return tuple(own[name].attribute[0].t.dims)
        return None

    def constant_of(name: str) -> Any:
        return frame.constant_of(actual[name]) if name in actual else None

    return _Frame(_consumers(function), shape_of, constant_of, frame.depth + 1)


def _consumers(scope: GraphProto | FunctionProto) -> dict[str, list[tuple[NodeProto, int]]]:
    """Readers of each value, those in bodies included: a body reads outer values by name."""
    found: dict[str, list[tuple[NodeProto, int]]] = defaultdict(list)
    pending: list[Any] = [scope]
    while pending:
        graph = pending.pop()
        for node in graph.node:
            for index, name in enumerate(node.input):
                if name:
                    found[name].append((node, index))
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    pending.append(attribute.g)
                elif attribute.type == AttributeProto.GRAPHS:
                    pending.extend(attribute.graphs)
    return found


def _graph(node: NodeProto, name: str) -> GraphProto | None:
    for attribute in node.attribute:
        if attribute.name == name and attribute.type == AttributeProto.GRAPH:
            graph: GraphProto = attribute.g
            return graph
    return None


def _int(node: NodeProto, name: str, default: int) -> int:
    for attribute in node.attribute:
        if attribute.name == name:
            return int(attribute.i)
    return default
