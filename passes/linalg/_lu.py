"""A = P·L·U with partial pivoting, as LAPACK's getrf does it: the row of the largest element comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx import TensorProto

from passes.linalg._loop import repeat
from passes.linalg._matrices import (
    after,
    as_info,
    at,
    batch,
    before,
    columns,
    filled,
    rows,
    smaller,
    spread,
    take,
    transposed,
)
from passes.linalg._triangular import substitute

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value


@dataclass(frozen=True)
class Factors:
    """L below the diagonal, U on and above it, and how the rows were exchanged."""

    lu: Value
    #: (…, rows, 1): which row of A each row of L·U is.
    order: Value
    #: (…, 1, steps): the row, from 1 on, that each step exchanged with its own.
    pivots: Value
    #: (…, 1, 1): the determinant of P.
    sign: Value
    #: (…, 1, 1): the first step, from 1 on, whose pivot is 0; else 0.
    failed: Value

    def pivots_of_torch(self, g: Builder) -> Value:
        """(…, steps), int32."""
        return g.cast(g.squeeze(self.pivots, [self.pivots.rank - 2]), TensorProto.INT32)

    def info(self, g: Builder) -> Value:
        return as_info(g, self.failed)


def factor(g: Builder, a: Value) -> Factors:
    """Every matrix of ``a``."""
    height, width = g.dim(a, -2), g.dim(a, -1)
    steps = smaller(g, height, width)
    down, along = rows(g, height), columns(g, width)
    order = filled(g, a, height, 1, down)
    pivots = filled(g, a, 1, steps, g.ints([0]))
    sign = filled(g, a, 1, 1, g.const([1.0], a))
    failed = filled(g, a, 1, 1, g.ints([0]))
    states = [a, order, pivots, sign, failed]
    return Factors(*repeat(g, steps, states, _step, [down, along, columns(g, steps)]))


def _step(g: Builder, k: int | Value, states: list[Value], reads: list[Value]) -> list[Value]:
    a, order, pivots, sign, failed = states
    down, along, numbers = reads
    is_row, below = at(g, down, k), after(g, down, k)
    size = g.where_(before(g, down, k), -1.0, g.abs(take(g, a, k, -1)))
    chosen = g.arg_max(size, axis=a.rank - 2)
    is_chosen = g.equal(down, chosen)
    a, first = _exchanged(g, a, k, is_row, is_chosen)
    order, _ = _exchanged(g, order, k, is_row, is_chosen)
    pivots = g.where_(at(g, numbers, k), g.op("Add", chosen, g.ints([1])), pivots)
    moved = g.not_(g.equal(chosen, k))
    sign = g.where_(moved, g.op("Neg", sign), sign)
    pivot, column = take(g, first, k, -1), take(g, a, k, -1)
    is_zero = g.equal(pivot, 0.0)
    step = g.ints([k + 1]) if isinstance(k, int) else g.op("Add", k, g.ints([1]))
    failed = g.where_(g.and_(is_zero, g.equal(failed, 0)), step, failed)
    factors = g.where_(below, g.op("Div", column, g.where_(is_zero, 1.0, pivot)), column)
    rest = g.op("Sub", a, g.op("Mul", factors, first))
    a = g.where_(g.and_(below, after(g, along, k)), rest, a)
    return [g.where_(at(g, along, k), factors, a), order, pivots, sign, failed]


def _exchanged(g: Builder, x: Value, k: int | Value, is_row: Value, is_chosen: Value) -> tuple[Value, Value]:
    """``x`` with row ``k`` and the chosen one exchanged, and the chosen one."""
    chosen = g.reduce_sum(g.where_(is_chosen, x, g.const(0, x)), [x.rank - 2])
    return g.where_(is_row, chosen, g.where_(is_chosen, take(g, x, k, -2), x)), chosen


def order_of_pivots(g: Builder, pivots: Value, height: int | Value) -> Value:
    """:attr:`Factors.order` from PyTorch's pivots (…, steps)."""
    given = g.unsqueeze(g.cast(pivots, TensorProto.INT64), [pivots.rank - 1])
    down = rows(g, height)
    order = filled(g, given, height, 1, down)

    def step(g: Builder, k: int | Value, states: list[Value], reads: list[Value]) -> list[Value]:
        chosen = g.op("Sub", take(g, reads[0], k, -1), g.ints([1]))
        return [_exchanged(g, states[0], k, at(g, reads[1], k), g.equal(reads[1], chosen))[0]]

    return repeat(g, g.dim(pivots, -1), [order], step, [given, down])[0]


def permutation(g: Builder, order: Value, like: Value) -> Value:
    """The matrix P."""
    return g.cast(g.equal(rows(g, g.dim(order, -2)), transposed(g, order)), like)


def permuted(g: Builder, b: Value, order: Value) -> Value:
    """Pᵀ·B."""
    wide = spread(g, b, order)
    return g.gather_elements(
        wide, g.expand(order, [*batch(g, wide), g.dim(wide, -2), g.dim(wide, -1)]), axis=wide.rank - 2
    )


def unpermuted(g: Builder, b: Value, order: Value) -> Value:
    """P·B."""
    _, inverse = g.top_k(order, g.dim(order, -2), axis=order.rank - 2, largest=False)
    return permuted(g, b, inverse)


def solve(g: Builder, lu: Value, order: Value, b: Value) -> Value:
    """X with P·L·U·X = B."""
    return substitute(g, lu, substitute(g, lu, permuted(g, b, order), upper=False, unit=True), upper=True)


def solve_transposed(g: Builder, lu: Value, order: Value, b: Value) -> Value:
    """X with (P·L·U)ᵀ·X = B."""
    t = transposed(g, lu)
    return unpermuted(g, substitute(g, t, substitute(g, t, b, upper=False), upper=True, unit=True), order)
