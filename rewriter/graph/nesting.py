"""Functions calling functions: how much there is when every call is followed."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from rewriter.graph.opsets import all_nodes
from rewriter.graph.scopes import FunctionKey, called_function, function_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import FunctionProto, GraphProto, ModelProto

#: Nodes that onnx's inference may visit: it infers a function at each call, and the calls in it again.
MOST_VISITED = 200_000
#: Calls within calls that onnx's inference may follow; each takes its place on the stack.
DEEPEST = 32


def is_nested_too_much(model: ModelProto) -> bool:
    """Whether onnx's inference, which follows every call, would take too long on the functions of ``model``.

    25 functions of which each calls the next one twice are 33 million calls.
    """
    if not model.functions:
        return False
    functions = {function_key(function): function for function in model.functions}
    visited, depth = extent(model.graph, functions)
    return visited > MOST_VISITED or depth > DEEPEST


def extent(
    place: GraphProto | FunctionProto, functions: Mapping[FunctionKey, FunctionProto]
) -> tuple[float, int]:
    """The nodes that calls from ``place`` lead to, those of ``place`` not counted, and the depth of these calls.

    Infinitely many where functions call one another in a circle.
    """
    calls = {key: _calls(function, functions) for key, function in functions.items()}
    own = {key: sum(1 for _ in all_nodes(function)) for key, function in functions.items()}
    done: dict[FunctionKey, tuple[float, int]] = {}
    started: set[FunctionKey] = set()
    first = _calls(place, functions)
    waiting = list(first)
    while waiting:
        key = waiting[-1]
        if key in done:
            waiting.pop()
        elif key not in started:
            started.add(key)
            waiting += [callee for callee in calls[key] if callee not in done]
        else:
            below = {callee: done.get(callee, (math.inf, 0)) for callee in calls[key]}
            nodes, depth = _total(calls[key], below)
            done[waiting.pop()] = own[key] + nodes, depth
    return _total(first, done)


def _total(calls: Counter[FunctionKey], of: Mapping[FunctionKey, tuple[float, int]]) -> tuple[float, int]:
    nodes = sum((count * of[callee][0] for callee, count in calls.items()), 0.0)
    return nodes, 1 + max((of[callee][1] for callee in calls), default=-1)


def _calls(
    place: GraphProto | FunctionProto, functions: Mapping[FunctionKey, FunctionProto]
) -> Counter[FunctionKey]:
    found: Counter[FunctionKey] = Counter()
    for node in all_nodes(place):
        key = called_function(node)
        if key in functions:
            found[key] += 1
    return found
