"""The exponential of square matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from passes.linalg._draws import ONCE
from passes.linalg._judges import close, slack
from passes.linalg._loop import repeat
from passes.linalg._matrices import check_matrix, eye, is_empty
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

#: Terms of the series for a norm of at most 1: what is left out is below the last digit of float32, and of float64.
_DEGREE, _DEGREE_OF_DOUBLE = 11, 19
#: Powers up to here are made; the series is a polynomial in this one.
_BLOCK = 4


class MatrixExp(Placeholder):
    """The exponential of square matrices; the meaning of `torch.linalg.matrix_exp`.

    A Taylor series of the matrix divided by a power of two, squared as often as that says.
    """

    matches = ("MatrixExp", "aten::linalg_matrix_exp", "aten::matrix_exp")
    shapes = "A: ... N N"
    dtypes = ("float32", "float64")
    finite = True

    def reference(self, A: Any) -> Any:
        import torch

        return torch.linalg.matrix_exp(A)

    def decompose(self, g: Builder, A: Value) -> Value:
        check_matrix(g, A, square=True)
        if is_empty(A):
            return g.identity(A)
        sums = g.reduce_sum(g.abs(A), [A.rank - 2])
        norm = g.reduce_max(sums, [A.rank - 1])
        halvings = g.ceil(g.op("Div", g.log(g.maximum(norm, 1.0)), g.const(math.log(2), A)))
        halvings = g.minimum(halvings, 120.0)
        small = g.op("Mul", A, g.op("Pow", g.const(0.5, A), halvings))
        most = g.reduce_max(g.cast(halvings, TensorProto.INT64), list(range(A.rank)), keepdims=False)
        start = g.retyped(_series(g, small), A.shape)
        return repeat(g, g.reshape(most, [1]), [start], _square, [halvings])[0]

    def compare(self, actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
        return close("the result", actual[0], expected[0], slack(actual[0].dtype, actual[0].shape[-1]))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3))
        yield Case(f32(2, 0, 0), **ONCE)
        # Of very different sizes; the second is nilpotent.
        large = (0, 1e-3, -1e-3, 0, 0, 100, 0, 0, 0, 30, -30, 0)
        yield Case(f32(3, 2, 2, value=large), **ONCE)


def _series(g: Builder, x: Value) -> Value:
    """exp(x) to the last digit, by blocks of the polynomial (Paterson and Stockmeyer, 1973)."""
    size = g.dim(x, -1)
    powers = [eye(g, size, size, x), x]
    while len(powers) <= _BLOCK:
        powers.append(g.matmul(powers[-1], x))
    degree = _DEGREE_OF_DOUBLE if x.dtype == TensorProto.DOUBLE else _DEGREE
    result: Value | None = None
    for low in range(degree + 1 - _BLOCK, -1, -_BLOCK):
        block = None
        for i in range(_BLOCK):
            term = g.op("Mul", powers[i], g.const(1 / math.factorial(low + i), x))
            block = term if block is None else g.op("Add", block, term)
        assert block is not None
        result = block if result is None else g.op("Add", g.matmul(result, powers[_BLOCK]), block)
    assert result is not None
    return result


def _square(g: Builder, k: int | Value, states: list[Value], reads: list[Value]) -> list[Value]:
    number = g.cast(k, reads[0]) if not isinstance(k, int) else g.const(float(k), reads[0])
    is_due = g.less(number, reads[0])
    return [g.where_(is_due, g.matmul(states[0], states[0]), states[0])]
