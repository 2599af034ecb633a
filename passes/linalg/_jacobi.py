"""Jacobi's rotations, of disjoint pairs of indices at a time, all pairs in one sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from passes.linalg._loop import repeat
from passes.linalg._matrices import columns, diagonal, eye, filled, transposed

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value

#: Convergence is quadratic at the end; LAPACK's own Jacobi allows as many.
_SWEEPS = 30


def epsilon(x: Value) -> float:
    """The distance from 1 to the next number."""
    return float(np.finfo(helper.tensor_dtype_to_np_dtype(x.dtype)).eps)


def smallest(x: Value) -> float:
    """The least number with all its digits."""
    return float(np.finfo(helper.tensor_dtype_to_np_dtype(x.dtype)).tiny)


def scaled(g: Builder, x: Value) -> tuple[Value, Value]:
    """``x`` with a largest element near 1, and what it was divided by, (…, 1, 1)."""
    largest = g.reduce_max(g.abs(x), [x.rank - 2, x.rank - 1])
    is_fine = g.and_(g.greater(largest, 1e-3), g.less(largest, 1e3))
    is_usable = g.and_(g.greater(largest, 0.0), g.less(largest, float("inf")))
    scale = g.where_(g.or_(is_fine, g.not_(is_usable)), 1.0, largest)
    return g.retyped(g.op("Div", x, scale), x.shape), scale


def _rounds(g: Builder, size: int | Value) -> int | Value:
    """How many rounds a sweep has: the size, made odd."""
    if isinstance(size, int):
        return size | 1
    return g.binary("Add", size, g.binary("Sub", 1, g.mod(size, g.ints([2]))))


def _partners(g: Builder, along: Value, rounds: Value, number: Value, size: Value) -> Value:
    """Whom each index is paired with in a round; itself where with nobody.

    In an odd number of rounds r every two indices i and j meet once: where i + j is r.
    """
    turn = g.mod(number, rounds)
    # Mod of negative numbers differs between runtimes.
    other = g.mod(g.op("Add", g.op("Sub", turn, along), rounds), rounds)
    return g.where_(g.less(other, size), other, along)


def _angles(g: Builder, ours: Value, theirs: Value, shared: Value, leads: Value) -> tuple[Value, Value]:
    """The cosine and the sine of the smaller angle that makes ``shared`` 0 between two diagonal elements.

    ``leads`` decides between the two where both are equal.  The partner's sine is minus this one.
    """
    is_zero = g.equal(shared, 0.0)
    gap = g.op("Sub", theirs, ours)
    theta = g.op("Div", gap, g.op("Mul", g.where_(is_zero, 1.0, shared), g.const(2.0, shared)))
    size = g.abs(theta)
    # Beyond, the square overflows or vanishes, and the 1 is nothing.
    is_large = g.greater(size, 1e8)
    bounded = g.where_(is_large, 1.0, size)
    root = g.sqrt(g.op("Add", g.op("Mul", bounded, bounded), g.const(1.0, shared)))
    below = g.where_(is_large, g.op("Mul", size, g.const(2.0, shared)), g.op("Add", bounded, root))
    sign = g.where_(g.equal(theta, 0.0), leads, g.sign(theta))
    tangent = g.where_(is_zero, 0.0, g.op("Div", sign, below))
    square = g.op("Mul", tangent, tangent)
    cosine = g.op("Div", g.const(1.0, shared), g.sqrt(g.op("Add", square, g.const(1.0, shared))))
    return cosine, g.op("Mul", cosine, tangent)


def _rotated(g: Builder, x: Value, partner: Value, cosine: Value, sine: Value, axis: int) -> Value:
    """cos · own − sin · partner's, along ``axis``."""
    other = g.gather(x, partner, axis=axis % x.rank)
    return g.binary("Sub", g.op("Mul", cosine, x), g.op("Mul", sine, other))


def _column(g: Builder, x: Value) -> Value:
    return g.unsqueeze(x, [x.rank])


def _row(g: Builder, x: Value) -> Value:
    return g.unsqueeze(x, [x.rank - 1])


class _Sweeps:
    """What both methods read in every round."""

    def __init__(self, g: Builder, size: int | Value, like: Value) -> None:
        self.size = g.ints([size]) if isinstance(size, int) else size
        rounds = _rounds(g, size)
        self.rounds = g.ints([rounds]) if isinstance(rounds, int) else rounds
        self.most = rounds * _SWEEPS if isinstance(rounds, int) else g.binary("Mul", rounds, _SWEEPS)
        self.along = columns(g, size)
        self.like = like

    @property
    def reads(self) -> list[Value]:
        return [self.along, self.rounds, self.size]


def _pairing(g: Builder, number: int | Value, reads: list[Value], like: Value) -> tuple[Value, Value, Value]:
    """The partners, where they are the index itself, and 1 for the first of a pair, else −1."""
    along, rounds, size = reads[:3]
    k = g.ints([number]) if isinstance(number, int) else number
    partner = _partners(g, along, rounds, k, size)
    leads = g.where_(g.less(along, partner), g.const(1.0, like), g.const(-1.0, like))
    return partner, g.equal(partner, along), leads


def eigen(g: Builder, a: Value) -> tuple[Value, Value]:
    """Eigenvalues (…, n) and eigenvectors, in columns, of symmetric matrices; in no order."""
    size = g.dim(a, -1)
    sweeps = _Sweeps(g, size, a)
    identity = eye(g, size, size, a)
    vectors = filled(g, a, size, size, identity)
    largest = g.reduce_max(g.abs(a), [a.rank - 2, a.rank - 1])
    reads = [*sweeps.reads, g.op("Mul", largest, g.const(epsilon(a) / 16, a)), identity]

    def step(g: Builder, number: int | Value, states: list[Value], reads: list[Value]) -> list[Value]:
        matrix, vectors = states
        partner, is_alone, leads = _pairing(g, number, reads, matrix)
        is_pair = g.equal(_column(g, reads[0]), partner)
        ours = diagonal(g, matrix)
        shared = g.reduce_sum(g.where_(is_pair, matrix, 0.0), [matrix.rank - 1], keepdims=False)
        shared = g.where_(is_alone, 0.0, shared)
        theirs = g.gather(ours, partner, axis=ours.rank - 1)
        cosine, sine = _angles(g, ours, theirs, shared, leads)
        turned = _rotated(g, matrix, partner, _column(g, cosine), _column(g, sine), -2)
        turned = _rotated(g, turned, partner, _row(g, cosine), _row(g, sine), -1)
        settled = g.and_(is_pair, _column(g, g.not_(is_alone)))
        turned = g.where_(settled, 0.0, turned)
        # Both halves are rounded differently, and two that are paired must see the same numbers.
        turned = g.op("Mul", g.op("Add", turned, transposed(g, turned)), g.const(0.5, turned))
        return [turned, _rotated(g, vectors, partner, _row(g, cosine), _row(g, sine), -1)]

    def more(g: Builder, states: list[Value], reads: list[Value]) -> Value:
        beside = g.where_(g.equal(reads[4], 0.0), g.abs(states[0]), 0.0)
        return _any(g, g.greater(beside, reads[3]))

    matrix, vectors = repeat(g, sweeps.most, [a, vectors], step, reads, more)
    return diagonal(g, matrix), vectors


def orthogonalised(g: Builder, a: Value) -> tuple[Value, Value]:
    """A·V with orthogonal columns, transposed (its rows are orthogonal), and Vᵀ; one-sided rotations."""
    rows = transposed(g, a)
    size = g.dim(rows, -2)
    sweeps = _Sweeps(g, size, a)
    vectors = filled(g, rows, size, size, eye(g, size, size, rows))
    # What rounding leaves between two orthogonal vectors of this length.
    length = g.dim(rows, -1)
    if isinstance(length, int):
        limit = g.const([max(1.0, length**0.5) * epsilon(a)], a)
    else:
        limit = g.op("Mul", g.sqrt(g.cast(length, a)), g.const([epsilon(a)], a))
    quiet = g.ints([0])

    def step(g: Builder, number: int | Value, states: list[Value], reads: list[Value]) -> list[Value]:
        rows, vectors, quiet = states
        partner, is_alone, leads = _pairing(g, number, reads, rows)
        other = g.gather(rows, partner, axis=rows.rank - 2)
        ours = g.reduce_sum(g.op("Mul", rows, rows), [rows.rank - 1], keepdims=False)
        theirs = g.gather(ours, partner, axis=ours.rank - 1)
        shared = g.reduce_sum(g.op("Mul", rows, other), [rows.rank - 1], keepdims=False)
        bound = g.op("Mul", reads[3], g.op("Mul", g.sqrt(ours), g.sqrt(theirs)))
        bound = g.op("Add", bound, g.const(smallest(rows), rows))  # what has vanished is left alone
        is_turned = g.and_(g.not_(is_alone), g.greater(g.abs(shared), bound))
        cosine, sine = _angles(g, ours, theirs, g.where_(is_turned, shared, 0.0), leads)
        cosine, sine = _column(g, cosine), _column(g, sine)
        passed = g.op("Add", quiet, g.ints([1]))
        return [
            _rotated(g, rows, partner, cosine, sine, -2),
            _rotated(g, vectors, partner, cosine, sine, -2),
            g.where_(_any(g, is_turned), g.ints([0]), passed),
        ]

    def more(g: Builder, states: list[Value], reads: list[Value]) -> Value:
        return g.squeeze(g.less(states[2], reads[1]), [0])

    made = repeat(g, sweeps.most, [rows, vectors, quiet], step, [*sweeps.reads, limit], more)
    return made[0], made[1]


def _any(g: Builder, condition: Value) -> Value:
    """Whether any element holds, as a 0-D value."""
    counted = g.cast(condition, TensorProto.FLOAT)
    most = g.reduce_max(counted, list(range(counted.rank)), keepdims=False)
    return g.greater(most, 0.5)
