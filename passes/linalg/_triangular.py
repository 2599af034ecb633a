"""Substitution: one row of the solution after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from passes.linalg._loop import from_the_end, repeat
from passes.linalg._matrices import after, at, before, rows, spread, take

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value


def substitute(g: Builder, a: Value, b: Value, *, upper: bool, unit: bool = False) -> Value:
    """X with A·X = B, where A is triangular; its other triangle is not read.

    What is infinite or NaN in one row only reaches the rows that depend on it.
    """
    size = g.dim(b, -2)
    x = spread(g, b, a)

    def step(g: Builder, number: int | Value, states: list[Value], reads: list[Value]) -> list[Value]:
        matrix, places = reads[:2]
        k = number if not upper else from_the_end(g, size if isinstance(size, int) else reads[2], number)
        row, column = take(g, states[0], k, -2), take(g, matrix, k, -1)
        if not unit:
            row = g.op("Div", row, take(g, column, k, -2))
        pending = before(g, places, k) if upper else after(g, places, k)
        rest = g.where_(pending, g.op("Sub", states[0], g.op("Mul", column, row)), states[0])
        return [g.where_(at(g, places, k), row, rest)]

    reads = [a, rows(g, size), *([] if isinstance(size, int) else [size])]
    return repeat(g, size, [x], step, reads)[0]
