"""The Cholesky factor of symmetric positive definite matrices, and what is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes.linalg._draws import ONCE, lower, positive
from passes.linalg._judges import close, slack
from passes.linalg._loop import repeat
from passes.linalg._matrices import (
    after,
    as_info,
    at,
    check_matrix,
    columns,
    eye,
    filled,
    rows,
    take,
    transposed,
    triangle,
)
from passes.linalg._triangular import substitute
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


def _step(g: Builder, k: int | Value, states: list[Value], reads: list[Value]) -> list[Value]:
    """One column of the factor; what it explains is taken from the columns behind it."""
    a, failed = states
    down, along = reads
    column = take(g, a, k, -1)
    pivot = take(g, column, k, -2)
    number = g.ints([k + 1]) if isinstance(k, int) else g.op("Add", k, g.ints([1]))
    is_bad = g.and_(g.not_(g.greater(pivot, 0.0)), g.equal(failed, 0))
    root = g.sqrt(pivot)
    below = after(g, down, k)
    made = g.where_(below, g.op("Div", column, root), g.where_(at(g, down, k), root, column))
    rest = g.op("Sub", a, g.op("Mul", made, transposed(g, made)))
    a = g.where_(g.and_(below, after(g, along, k)), rest, a)
    return [g.where_(at(g, along, k), made, a), g.where_(is_bad, number, failed)]


class Cholesky(Placeholder):
    """L with A = L·Lᵀ, or U with A = Uᵀ·U; the meaning of `torch.linalg.cholesky_ex`.

    Only the lower triangle is read, or the upper one where `upper`.  Where A is not positive definite, the second
    output is the order of the first minor that is not, and the factor means nothing.
    """

    matches = ("Cholesky", "aten::linalg_cholesky_ex", "aten::linalg_cholesky", "aten::cholesky")
    shapes = "A: ... N N"
    outputs = ("L", "info")
    auxiliary = ("info",)
    dtypes = ("float32", "float64")
    finite = True

    def reference(self, A: Any, upper: bool = False, check_errors: bool = False) -> Any:
        import torch

        # The triangle that is read; the gradient of PyTorch's own operator is spread over both.
        whole = A.triu() + A.triu(1).mT if upper else A.tril() + A.tril(-1).mT
        return tuple(torch.linalg.cholesky_ex(whole, upper=upper, check_errors=check_errors))

    def decompose(
        self, g: Builder, A: Value, upper: bool = False, check_errors: bool = False
    ) -> tuple[Value, Value]:
        check_matrix(g, A, square=True)
        size = g.dim(A, -1)
        reads = [rows(g, size), columns(g, size)]
        start = transposed(g, A) if upper else A
        failed = filled(g, A, 1, 1, g.ints([0]))
        factor, failed = repeat(g, size, [start, failed], _step, reads)
        factor = triangle(g, factor, upper=False)
        return transposed(g, factor) if upper else factor, as_info(g, failed)

    def compare(self, actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
        if len(actual) > 1 and not np.array_equal(actual[1], expected[1]):
            return f"info is {actual[1].tolist()}, not {expected[1].tolist()}"
        # Without info, what PyTorch refuses shows as NaN.
        right = np.asarray(expected[1]) == 0 if len(expected) > 1 else np.isfinite(expected[0]).all((-1, -2))
        return close(
            "the factor",
            np.asarray(actual[0])[right],
            np.asarray(expected[0])[right],
            slack(actual[0].dtype, actual[0].shape[-1]),
        )

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3, draw=positive))
        yield Case(f32(2, 3, 4, 4, draw=positive), upper=True, **ONCE)
        yield Case(f32(9, 9, draw=positive), **ONCE)
        yield Case(f32(0, 3, 3), **ONCE)
        yield Case(f32(2, 0, 0), **ONCE)
        # Only one triangle is read; not positive definite at all, and from the second minor on.
        yield Case(f32(2, 2, value=(4, 100, 2, 5)), **ONCE)
        yield Case(f32(2, 2, 2, value=(-1, 0, 0, 1, 1, 2, 2, 1)), **ONCE)


class CholeskyInverse(Placeholder):
    """The inverse of A from its Cholesky factor; the meaning of `torch.cholesky_inverse`."""

    matches = ("aten::cholesky_inverse",)
    shapes = "L: ... N N"
    dtypes = ("float32", "float64")
    finite = True

    def reference(self, L: Any, upper: bool = False) -> Any:
        import torch

        return torch.cholesky_inverse(L.triu() if upper else L.tril(), upper=upper)

    def decompose(self, g: Builder, L: Value, upper: bool = False) -> Value:
        check_matrix(g, L, square=True)
        factor = transposed(g, L) if upper else L
        size = g.dim(L, -1)
        inverse = substitute(g, factor, eye(g, size, size, L), upper=False)
        return g.matmul(transposed(g, inverse), inverse)

    def compare(self, actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
        return close("the inverse", actual[0], expected[0], slack(actual[0].dtype, actual[0].shape[-1]))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3, draw=lower))
        yield Case(f32(2, 8, 8, draw=lower), upper=True, **ONCE)
        yield Case(f32(0, 0), **ONCE)


class CholeskySolve(Placeholder):
    """X with A·X = B from A's Cholesky factor; the meaning of `torch.cholesky_solve`."""

    matches = ("aten::cholesky_solve",)
    shapes = "B: ... N K; L: ... N N"
    dtypes = ("float32", "float64")
    finite = True

    def reference(self, B: Any, L: Any, upper: bool = False) -> Any:
        import torch

        return torch.cholesky_solve(B, L.triu() if upper else L.tril(), upper=upper)

    def decompose(self, g: Builder, B: Value, L: Value, upper: bool = False) -> Value:
        check_matrix(g, L, square=True)
        check_matrix(g, B)
        factor = transposed(g, L) if upper else L
        half = substitute(g, factor, B, upper=False)
        return substitute(g, transposed(g, factor), half, upper=True)

    def compare(self, actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
        return close("the solution", actual[0], expected[0], slack(actual[0].dtype, *actual[0].shape[-2:]))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 2), f32(3, 3, draw=lower))
        yield Case(f32(2, 8, 2), f32(3, 1, 8, 8, draw=lower), upper=True, **ONCE)
        yield Case(f32(0, 2), f32(0, 0), **ONCE)
