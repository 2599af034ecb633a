"""Singular values and vectors by one-sided rotations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from passes.linalg._householder import apply, reflect
from passes.linalg._jacobi import orthogonalised, scaled
from passes.linalg._matrices import batch, eye, smaller, transposed

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value


@dataclass(frozen=True)
class Svd:
    """A·V = U·Σ, sorted; U is made of the first columns of A·V when it is wanted."""

    #: (…, k), from the largest on.
    values: Value
    #: The first k columns of A·V, of a matrix that was scaled: their directions are U's.
    directions: Value
    #: Vᵀ, all rows.
    right: Value

    def left(self, g: Builder, full: bool) -> Value:
        """U: its first k columns, or all.

        Reflections make an orthonormal basis also where singular values are 0, and of what no column spans.
        """
        made, tau = reflect(g, self.directions)
        height, count = g.dim(made, -2), g.dim(made, -1)
        kept = g.where_(g.equal(eye(g, height, count, made), 1.0), made, 0.0)
        signs = g.where_(g.less(g.reduce_sum(kept, [made.rank - 1]), 0.0), -1.0, g.const(1.0, made))
        start = g.op("Mul", eye(g, height, height if full else count, made), signs)
        return apply(g, made, tau, start)


def decomposed(g: Builder, a: Value) -> Svd:
    """Every matrix of ``a``; fastest where it is not wider than high."""
    matrix, scale = scaled(g, a)
    rows, right = orthogonalised(g, matrix)
    norms = g.sqrt(g.reduce_sum(g.op("Mul", rows, rows), [rows.rank - 1], keepdims=False))
    width = g.dim(a, -1)
    count = smaller(g, g.dim(a, -2), width)
    known = count if isinstance(count, int) else (count.sizes or (None,))[0]
    values, order = g.top_k(norms, width)
    values = g.retyped(g.slice(values, [0], g.sizes([count]), [values.rank - 1]), (*a.shape[:-2], known))
    directions = g.slice(_ordered(g, rows, order), [0], g.sizes([count]), [a.rank - 2])
    directions = g.retyped(directions, (*a.shape[:-2], known, a.shape[-2]))
    values = g.op("Mul", values, g.squeeze(scale, [a.rank - 1]))
    return Svd(
        g.retyped(values, (*a.shape[:-2], known)), transposed(g, directions), _ordered(g, right, order)
    )


def _ordered(g: Builder, rows: Value, order: Value) -> Value:
    """The rows of each matrix in an order of its own."""
    dims = [*batch(g, rows), g.dim(rows, -2), g.dim(rows, -1)]
    index = g.expand(g.unsqueeze(order, [order.rank]), dims)
    return g.retyped(g.gather_elements(rows, index, axis=rows.rank - 2), rows.shape)
