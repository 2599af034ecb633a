"""Householder's reflections, as LAPACK's geqrf makes them and ormqr applies them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from passes.linalg._loop import from_the_end, repeat
from passes.linalg._matrices import after, at, columns, filled, rows, smaller, spread, take, transposed

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value


def reflect(g: Builder, a: Value) -> tuple[Value, Value]:
    """R on and above the diagonal, the reflections' vectors below it; and their factors τ (…, 1, steps)."""
    height, width = g.dim(a, -2), g.dim(a, -1)
    steps = smaller(g, height, width)
    factors = filled(g, a, 1, steps, g.const([0.0], a))
    reads = [rows(g, height), columns(g, width), columns(g, steps)]
    made, tau = repeat(g, steps, [a, factors], _step, reads)
    return made, tau


def _step(g: Builder, k: int | Value, states: list[Value], reads: list[Value]) -> list[Value]:
    a, factors = states
    down, along, numbers = reads
    below, is_row = after(g, down, k), at(g, down, k)
    column, axis = take(g, a, k, -1), a.rank - 2
    # Squares of what is scaled neither overflow nor vanish.
    alpha, tail = take(g, column, k, -2), g.where_(below, column, 0.0)
    largest = g.reduce_max(g.abs(tail), [axis])
    is_done = g.equal(largest, 0.0)
    scale = g.where_(is_done, 1.0, g.maximum(largest, g.abs(alpha)))
    tail, head = g.op("Div", tail, scale), g.op("Div", alpha, scale)
    square = g.op("Add", g.reduce_sum(g.op("Mul", tail, tail), [axis]), g.op("Mul", head, head))
    norm = g.sqrt(g.where_(is_done, 1.0, square))
    turned = g.where_(g.less(head, 0.0), norm, g.op("Neg", norm))
    gap = g.op("Sub", head, turned)
    vector = g.op("Div", tail, g.where_(is_done, 1.0, gap))
    tau = g.where_(is_done, 0.0, g.op("Div", g.op("Neg", gap), turned))
    beta = g.where_(is_done, alpha, g.op("Mul", turned, scale))
    rest = _reflected(g, g.where_(is_row, 1.0, vector), tau, a)
    a = g.where_(after(g, along, k), rest, a)
    done = g.where_(below, vector, g.where_(is_row, beta, column))
    return [g.where_(at(g, along, k), done, a), g.where_(at(g, numbers, k), tau, factors)]


def _reflected(g: Builder, vector: Value, tau: Value, x: Value) -> Value:
    """x − τ·v·(vᵀ·x)."""
    share = g.matmul(transposed(g, vector), x)
    return g.binary("Sub", x, g.op("Mul", g.op("Mul", tau, vector), share))


def apply(g: Builder, a: Value, tau: Value, x: Value, transpose: bool = False) -> Value:
    """Q·x, or Qᵀ·x, with Q from the reflections in ``a`` and τ (…, 1, steps)."""
    count = g.dim(tau, -1)

    def step(g: Builder, number: int | Value, states: list[Value], reads: list[Value]) -> list[Value]:
        vectors, factors, down = reads[:3]
        k = number
        if not transpose:
            k = from_the_end(g, count if isinstance(count, int) else reads[3], number)
        column = take(g, vectors, k, -1)
        vector = g.where_(at(g, down, k), 1.0, g.where_(after(g, down, k), column, 0.0))
        return [_reflected(g, vector, take(g, factors, k, -1), states[0])]

    reads = [a, tau, rows(g, g.dim(a, -2))]
    if not isinstance(count, int):
        reads.append(count)
    return repeat(g, count, [spread(g, x, a)], step, reads)[0]
