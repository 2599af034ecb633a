"""Steps of an algorithm, written out one by one or as an ONNX Loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from rewriter.placeholder import Value
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rewriter.placeholder import Builder

    #: The builder, the number of the step, the states and the values that are only read; the new states.
    Step = Callable[[Builder, "int | Value", list[Value], list[Value]], list[Value]]
    #: The builder, the new states and the values that are only read; whether to go on, a 0-D bool.
    More = Callable[[Builder, list[Value], list[Value]], Value]

#: Up to so many steps are written out: they need no control flow, and every runtime has their operators.
UNROLLED = 4


def repeat(
    g: Builder,
    count: int | Value,
    states: Sequence[Value],
    step: Step,
    reads: Sequence[Value] = (),
    more: More | None = None,
) -> list[Value]:
    """The states after ``count`` steps, or after fewer where ``more`` says so.

    The number of a step is an int where the steps are written out.  In a Loop it is a 1-D value of one element.
    """
    if isinstance(count, int) and count <= UNROLLED and more is None:
        current = list(states)
        for number in range(count):
            made = step(g, number, current, list(reads))
            current = [g.retyped(new, old.shape) for new, old in zip(made, states, strict=True)]
        return current
    trips = g.ints(count) if isinstance(count, int) else g.squeeze(count, [0])
    body = g.body()
    trip = body.fresh_input(TensorType(TensorProto.INT64, ()))
    going = body.fresh_input(TensorType(TensorProto.BOOL, ()))
    inside = [body.fresh_input(state.type) for state in states]
    known = [Value(body, v.name, v.type, v.constant, v.sizes) for v in reads]
    made = step(body, body.unsqueeze(trip, [0]), inside, known)
    # An output of a body may not be one of its inputs, nor a value of the outer graph.
    made = [body.retyped(body.identity(new), old.shape) for new, old in zip(made, states, strict=True)]
    cond = body.identity(going) if more is None else more(body, made, known)
    graph = body.subgraph("step", body, [trip, going, *inside], [body.retyped(cond, ()), *made])
    results = g.op("Loop", trips, g.const(True), *states, body=graph, outputs=len(states))
    several = [results] if len(states) == 1 else list(results)
    return [g.retyped(new, old.shape) for new, old in zip(several, states, strict=True)]


def from_the_end(g: Builder, count: int | Value, number: int | Value) -> int | Value:
    """The number of the same step, counted from the last one."""
    if isinstance(count, int):
        return count - 1 - number if isinstance(number, int) else g.binary("Sub", count - 1, number)
    return g.binary("Sub", g.binary("Sub", count, 1), number)
