"""Which values a model can take: what the operators that an input reaches require of it.

An integer input that reaches the indices of a Gather must lie within the axis it gathers from.  The value is followed
through operators that only move or convert it, through additions of constants, and into bodies and functions; so is a
floating-point one, of which a column may become an index.  What is required is in :mod:`rewriter.inputs.required`.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto

from rewriter.inputs.dims import evaluate
from rewriter.inputs.required import Boxes, Columns, Limit, View, int_of, required
from rewriter.types import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

    from rewriter.execution.numbers import Array
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


#: Ends of a Slice from which on they stand for "to the end".
_MANY = 1 << 20


@dataclass
class Range:
    """What is required of an input, with what is added to it on its way there."""

    requirements: list[tuple[Limit | Boxes, int, Columns]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def ends(self, sizes: Mapping[str, int], columns: Columns = None) -> tuple[float, float] | None:
        """Lowest and highest number of the columns for these sizes; None where no limit is known."""
        limits = [
            (item.low - offset, _highest(item, sizes) - offset)
            for item, offset, where in self.requirements
            if isinstance(item, Limit) and where == columns
        ]
        if not limits:
            return None
        low = max(end for end, _ in limits)
        high = min(end for _, end in limits)
        return (max(low, 0) if high >= 0 else low, max(high, low))

    def draw(
        self,
        rng: np.random.Generator,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        sizes: Mapping[str, int],
        others: Callable[[], Array],
    ) -> Array:
        """Values of which everything is as required; ``others`` gives those that nothing is required of."""
        whole = self.ends(sizes)
        made = others() if whole is None else _numbers(rng, shape, ends=whole, dtype=dtype)
        for item, _, columns in self.requirements:
            if isinstance(item, Boxes):
                _put(made, columns, partial(_boxes, rng, item, sizes))
        for columns in dict.fromkeys(where for _, _, where in self.requirements if where is not None):
            ends = self.ends(sizes, columns)
            if ends is not None:
                _put(made, columns, partial(_numbers, rng, ends=ends, dtype=dtype))
        return made


def _highest(limit: Limit, sizes: Mapping[str, int]) -> float:
    if limit.high is not None:
        return limit.high
    size = limit.size if isinstance(limit.size, int) else evaluate(limit.size, sizes) if limit.size else None
    return (1 if size is None else max(size, 1)) - 1 + limit.more


def _numbers(
    rng: np.random.Generator, shape: tuple[int, ...], *, ends: tuple[float, float], dtype: np.dtype[Any]
) -> Array:
    """Whole numbers, both ends included; fractions only where the ends are."""
    low, high = ends
    if any(end != int(end) for end in ends) and dtype.kind not in "iu":
        return rng.uniform(low, high, shape).astype(dtype)
    return np.asarray(rng.integers(int(np.ceil(low)), int(np.floor(high)), shape, endpoint=True)).astype(
        dtype
    )


def _boxes(rng: np.random.Generator, boxes: Boxes, sizes: Mapping[str, int], shape: tuple[int, ...]) -> Array:
    """Corners of boxes, (…, 4); at least half a pixel wide where there is room."""
    found = [_highest(Limit(size=dim, more=1), sizes) / boxes.scale for dim in (boxes.width, boxes.height)]
    corners = np.sort(rng.random((*shape[:-1], 2, 2)), axis=-2) * found
    return corners.reshape(shape)


def _put(values: Array, columns: Columns, make: Callable[[tuple[int, ...]], Array]) -> None:
    """Write what ``make`` gives into the columns, where there are so many."""
    if not values.ndim:
        return
    first, last = (0, values.shape[-1] - 1) if columns is None else columns
    part = values[..., first : last + 1]
    if part.size and part.shape[-1] == last - first + 1:
        with suppress(ValueError):  # rows of another length
            values[..., first : last + 1] = make(part.shape)


@dataclass(frozen=True)
class _Frame:
    """One scope: who reads a value, and what is known of values."""

    consumers: Mapping[str, list[tuple[NodeProto, int]]]
    view: View
    depth: int = 0


def required_ranges(
    model: ModelProto,
    names: Iterable[str],
    types: Mapping[str, TensorType],
    constants: Callable[[str], Any],
) -> dict[str, Range]:
    """What is required of each of the graph inputs ``names``, where anything is.

    ``types`` are those of the main graph's values, ``constants`` answers the array behind an initializer or constant.
    """
    functions = {(f.domain, f.name): f for f in model.functions}

    def shape_of(name: str) -> tuple[Dim, ...] | None:
        kind = types.get(name)
        return None if kind is None else kind.shape

    frame = _Frame(_consumers(model.graph), View(shape_of, constants))
    found = {}
    for name in names:
        result = Range()
        kind = types.get(name)
        whole = kind is None or kind.dtype in INTEGERS
        _follow(name, whole, frame, functions, result)
        if result:
            found[name] = result
    return found


def _follow(
    name: str,
    whole: bool,
    frame: _Frame,
    functions: Mapping[tuple[str, str], FunctionProto],
    result: Range,
) -> None:
    work: list[tuple[str, int, Columns, bool, _Frame]] = [(name, 0, None, whole, frame)]
    seen: set[Any] = set()
    while work:
        value, offset, columns, whole, frame = work.pop()
        key = (id(frame.consumers), value, offset, columns)
        if key in seen or len(seen) > 100_000:
            continue
        seen.add(key)
        for node, index in frame.consumers.get(value, ()):
            if node.domain in ("", "ai.onnx"):
                for item, where in required(node, index, frame.view, whole=whole):
                    result.requirements.append((item, offset, _within(columns, where)))
                turned = whole or (node.op_type == "Cast" and int_of(node, "to", 0) in INTEGERS)
                for target, step, where in _passes(node, index, frame):
                    work.append((target, offset + step, _within(columns, where), turned, frame))
            elif (node.domain, node.op_type) in functions and frame.depth < 32:
                function = functions[node.domain, node.op_type]
                if index < len(function.input):
                    work.append(
                        (function.input[index], offset, columns, whole, _inside(function, node, frame))
                    )


def _within(columns: Columns, part: Columns) -> Columns:
    """``part`` of ``columns``, as columns of the input."""
    if columns is None or part is None:
        return columns if part is None else part
    return columns[0] + part[0], min(columns[0] + part[1], columns[1])


def _passes(node: NodeProto, index: int, frame: _Frame) -> list[tuple[str, int, Columns]]:
    """Values that carry elements of input ``index`` on, what is added on the way, and of which columns they are."""
    kind = node.op_type
    if kind in ("Gather", "GatherElements", "GatherND") and index != 0:
        return []
    if index < _MOVES.get(kind, 0):
        outputs = node.output[: 1 if kind in ("Unique", "TopK") else None]
        return [
            (output, 0, _columns(node, position, frame.view))
            for position, output in enumerate(outputs)
            if output
        ]
    if kind == "Where" and index in (1, 2):
        return [(node.output[0], 0, None)]
    if kind in ("Add", "Sub") and len(node.input) == 2:
        other = frame.view.constant_of(node.input[1 - index])
        if other is None or other.size == 0 or other.dtype.kind not in "iu" or (kind == "Sub" and index == 1):
            return []
        sign = 1 if kind == "Add" else -1
        return [(node.output[0], sign * int(end), None) for end in {int(other.min()), int(other.max())}]
    if (kind == "Loop" and index >= 2) or kind == "Scan":
        body = _graph(node, "body")
        return [] if body is None or index >= len(body.input) else [(body.input[index].name, 0, None)]
    return []


def _columns(node: NodeProto, position: int, view: View) -> Columns:
    """Which columns of its input the node's output at ``position`` holds; None where all, or where it is not known."""
    shape = view.shape_of(node.input[0])
    if not shape:
        return None
    last = len(shape) - 1
    if node.op_type == "Gather" and int_of(node, "axis", 0) in (last, -1):
        picked = view.constant_of(node.input[1])
        if picked is not None and picked.size == 1:
            at = int(picked.reshape(-1)[0])
            size = shape[last]
            at += size if at < 0 and isinstance(size, int) else 0
            return (at, at) if at >= 0 else None
    if node.op_type == "Split" and int_of(node, "axis", 0) in (last, -1):
        return _split(node, position, shape[last], view)
    if node.op_type == "Slice":
        return _sliced(node, last, shape[last], view)
    return None


def _split(node: NodeProto, position: int, size: Dim, view: View) -> Columns:
    given = view.constant_of(node.input[1]) if len(node.input) > 1 else None
    parts = next((list(a.ints) for a in node.attribute if a.name == "split"), None)
    if given is not None:
        parts = [int(part) for part in given]
    if parts is None and isinstance(size, int) and len(node.output):
        each = -(-size // len(node.output))
        parts = [each] * len(node.output)
    if parts is None or position >= len(parts):
        return None
    first = sum(parts[:position])
    return first, first + parts[position] - 1


def _sliced(node: NodeProto, last: int, size: Dim, view: View) -> Columns:
    """Of a Slice along the last axis, in steps of 1."""

    def given(index: int, name: str) -> list[int] | None:
        for attribute in node.attribute:
            if attribute.name == name:
                return list(attribute.ints)
        value = view.constant_of(node.input[index]) if index < len(node.input) and node.input[index] else None
        return None if value is None else [int(item) for item in np.ravel(value)]

    starts, stops = given(1, "starts"), given(2, "ends")
    if starts is None or stops is None:
        return None
    axes = given(3, "axes") or list(range(len(starts)))
    steps = given(4, "steps") or [1] * len(starts)
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=False):
        if axis not in (last, -1) or step != 1:
            continue
        if not isinstance(size, int):
            return (start, stop - 1) if 0 <= start < stop < _MANY else None
        first, end, _ = slice(start, stop).indices(size)
        return (first, end - 1) if first < end else None
    return None


def _inside(function: FunctionProto, call: NodeProto, frame: _Frame) -> _Frame:
    actual = dict(zip(function.input, call.input, strict=False))
    own = {
        node.output[0]: node
        for node in function.node
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and len(node.output) == 1
    }

    def shape_of(name: str) -> tuple[Dim, ...] | None:
        if name in actual:
            return frame.view.shape_of(actual[name])
        if name in own and own[name].attribute and own[name].attribute[0].type == AttributeProto.TENSOR:
            return tuple(own[name].attribute[0].t.dims)
        return None

    def constant_of(name: str) -> Any:
        return frame.view.constant_of(actual[name]) if name in actual else None

    return _Frame(_consumers(function), View(shape_of, constant_of), frame.depth + 1)


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
