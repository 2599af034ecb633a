"""Rows, columns and triangles of matrices, which are the last two axes of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from rewriter.errors import UnsupportedParameter

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value
    from rewriter.types import Dim


def check_matrix(g: Builder, x: Value, square: bool = False) -> None:
    """UnsupportedParameter where ``x`` is known not to be a (square) matrix."""
    if x.rank < 2:
        raise UnsupportedParameter(f"a tensor of rank {x.rank} holds no matrix", where=g.where)
    rows, columns = x.shape[-2:]
    if square and isinstance(rows, int) and isinstance(columns, int) and rows != columns:
        raise UnsupportedParameter(f"the matrix is {rows} by {columns}, not square", where=g.where)


def is_empty(x: Value) -> bool:
    """Whether ``x`` is known to have no element."""
    return 0 in x.shape


def transposed(g: Builder, x: Value) -> Value:
    """Every matrix of ``x`` with its two axes exchanged."""
    return g.transpose(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


def batch(g: Builder, x: Value) -> list[int | Value]:
    """The sizes in front of the matrix."""
    return [g.dim(x, axis) for axis in range(x.rank - 2)]


def columns(g: Builder, size: int | Value) -> Value:
    """0, 1, …, size − 1."""
    if isinstance(size, int):
        return g.range(0, size)
    made = g.range(0, g.squeeze(size, [0]))
    return g.retyped(made, (None if size.sizes is None else size.sizes[0],))


def rows(g: Builder, size: int | Value) -> Value:
    """0, 1, …, size − 1 as one column."""
    if isinstance(size, int):
        return g.const(np.arange(size, dtype=np.int64).reshape(-1, 1))
    return g.unsqueeze(columns(g, size), [1])


def at(g: Builder, places: Value, k: int | Value) -> Value:
    """Where ``places`` are ``k``."""
    if places.constant is not None and isinstance(k, int):
        return g.const(places.constant == k)
    return g.equal(places, k)


def after(g: Builder, places: Value, k: int | Value) -> Value:
    """Where ``places`` are behind ``k``."""
    if places.constant is not None and isinstance(k, int):
        return g.const(np.asarray(places.constant, np.int64) > k)
    return g.greater(places, k)


def before(g: Builder, places: Value, k: int | Value) -> Value:
    """Where ``places`` are before ``k``."""
    if places.constant is not None and isinstance(k, int):
        return g.const(np.asarray(places.constant, np.int64) < k)
    return g.less(places, k)


def take(g: Builder, x: Value, k: int | Value, axis: int) -> Value:
    """One row (axis −2) or column (axis −1), whose axis stays with size 1."""
    return g.gather(x, [k] if isinstance(k, int) else k, axis=axis % x.rank)


def eye(g: Builder, height: int | Value, width: int | Value, like: Value) -> Value:
    """The identity matrix, cut to ``height`` by ``width``."""
    if isinstance(height, int) and isinstance(width, int):
        g.afford(height * width)
        return g.const(np.eye(height, width), like)
    return g.cast(g.equal(rows(g, height), columns(g, width)), like)


def triangle(g: Builder, x: Value, upper: bool, offset: int = 0) -> Value:
    """``x`` with zeros beyond the diagonal ``offset``: above it, or below it where ``upper``."""
    height, width = rows(g, g.dim(x, -2)), columns(g, g.dim(x, -1))
    if height.constant is not None and width.constant is not None:
        gap = np.asarray(width.constant, np.int64) - np.asarray(height.constant, np.int64)
        kept = g.const(gap >= offset if upper else gap <= offset)
    else:
        gaps = g.op("Sub", width, height)
        kept = g.greater_equal(gaps, offset) if upper else g.less_equal(gaps, offset)
    return g.retyped(g.where_(kept, x, 0.0), x.shape)


def symmetric(g: Builder, x: Value, upper: bool = False) -> Value:
    """The symmetric matrix whose lower triangle, or upper one, is that of ``x``."""
    half = triangle(g, x, upper, offset=1 if upper else -1)
    whole = g.op("Add", triangle(g, x, upper), transposed(g, half))
    return g.retyped(whole, x.shape)


def diagonal(g: Builder, x: Value, axis: int = -1) -> Value:
    """The diagonal of a square matrix; without ``axis`` of it."""
    identity = eye(g, g.dim(x, -2), g.dim(x, -1), x)
    kept = g.where_(g.equal(identity, 1.0), x, 0.0)
    return g.reduce_sum(kept, [axis % x.rank], keepdims=False)


def spread(g: Builder, x: Value, like: Value) -> Value:
    """``x`` with its batch broadcast with that of ``like``; its matrix as it is."""
    ours, theirs = x.shape[:-2], like.shape[:-2]
    if ours == theirs and None not in ours:
        return x
    if all(isinstance(d, int) for d in (*ours, *theirs)):
        wide = np.broadcast_shapes(_numbers(ours), _numbers(theirs))
        return g.expand(x, [*wide, g.dim(x, -2), g.dim(x, -1)])
    made = g.op("Expand", x, g.sizes([*batch(g, like), 1, 1]))
    rank = max(x.rank, like.rank)
    known: list[Dim] = [None] * (rank - 2)
    return g.retyped(made, [*known, *x.shape[-2:]])


def filled(g: Builder, x: Value, height: int | Value, width: int | Value, fill: Value) -> Value:
    """For every matrix of ``x`` one of ``height`` by ``width``: ``fill``, broadcast."""
    return g.expand(fill, [*batch(g, x), height, width])


def smaller(g: Builder, a: int | Value, b: int | Value) -> int | Value:
    """The smaller of two sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    left, right = (g.ints([v]) if isinstance(v, int) else v for v in (a, b))
    if left.sizes is not None and left.sizes == right.sizes and None not in left.sizes:
        return a
    return g.retyped(g.where_(g.less(left, right), left, right), (1,))


def without_matrix(g: Builder, x: Value) -> Value:
    """A tensor of one element a matrix, (…, 1, 1), as (…)."""
    return g.squeeze(x, [x.rank - 2, x.rank - 1])


def as_info(g: Builder, x: Value) -> Value:
    """LAPACK's info, int32, from (…, 1, 1)."""
    return g.cast(without_matrix(g, x), TensorProto.INT32)


def _numbers(dims: tuple[Dim, ...]) -> tuple[int, ...]:
    return tuple(d for d in dims if isinstance(d, int))
