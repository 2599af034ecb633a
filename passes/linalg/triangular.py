"""Systems of equations whose matrix is triangular."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from passes.linalg._draws import ONCE, lower
from passes.linalg._judges import close, first, slack
from passes.linalg._matrices import check_matrix, spread, transposed
from passes.linalg._triangular import substitute
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class SolveTriangular(Placeholder):
    """X with A·X = B, or X·A = B, where A is triangular; the meaning of `torch.linalg.solve_triangular`."""

    matches = ("aten::linalg_solve_triangular",)
    shapes = "A: ... N N; B: ... _ _"
    dtypes = ("float32", "float64")
    finite = True

    def reference(self, A: Any, B: Any, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
        import torch

        return torch.linalg.solve_triangular(A, B, upper=upper, left=left, unitriangular=unitriangular)

    def decompose(
        self,
        g: Builder,
        A: Value,
        B: Value,
        upper: bool,
        left: bool = True,
        unitriangular: bool = False,
    ) -> Value:
        check_matrix(g, A, square=True)
        check_matrix(g, B)
        if left:
            return substitute(g, A, B, upper=upper, unit=unitriangular)
        flipped = substitute(g, transposed(g, A), transposed(g, B), upper=not upper, unit=unitriangular)
        return transposed(g, flipped)

    def compare(self, actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
        return close("the solution", actual[0], expected[0], slack(actual[0].dtype, *actual[0].shape[-2:]))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3, draw=lower), f32(3, 2), upper=False)
        yield Case(f32(3, 3, draw=lower), f32(2, 3, 2), upper=True, **ONCE)
        yield Case(f32(2, 1, 4, 4, draw=lower), f32(3, 2, 4), upper=True, left=False, **ONCE)
        yield Case(f32(8, 8, draw=lower), f32(8, 1), upper=False, unitriangular=True, **ONCE)
        yield Case(f32(8, 8, draw=lower), f32(8, 3), upper=True, **ONCE)
        yield Case(f32(2, 0, 0), f32(2, 0, 3), upper=True, **ONCE)
        # Singular: infinite, and only what depends on it.
        yield Case(f32(2, 2, value=(1, 0, 1, 0)), f32(2, 1, value=(1, 3)), upper=False, **ONCE)


class TriangularSolve(Placeholder):
    """X with A·X = B, and A; the meaning of `torch.triangular_solve`."""

    matches = ("aten::triangular_solve",)
    shapes = "x: ... N K; A: ... N N"
    outputs = ("solution", "cloned_coefficient")
    auxiliary = ("cloned_coefficient",)
    dtypes = ("float32", "float64")
    finite = True

    def reference(
        self, x: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
    ) -> Any:
        import torch

        return tuple(torch.ops.aten.triangular_solve(x, A, upper, transpose, unitriangular))

    def decompose(
        self,
        g: Builder,
        x: Value,
        A: Value,
        upper: bool = True,
        transpose: bool = False,
        unitriangular: bool = False,
    ) -> tuple[Value, Value]:
        check_matrix(g, A, square=True)
        check_matrix(g, x)
        matrix = transposed(g, A) if transpose else A
        solution = substitute(g, matrix, x, upper=upper != transpose, unit=unitriangular)
        return solution, g.identity(spread(g, A, x))

    def compare(self, actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
        allowed = slack(actual[0].dtype, *actual[0].shape[-2:])
        return first(
            [close(name, a, b, allowed) for name, a, b in zip(self.outputs, actual, expected, strict=False)]
        )

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 2), f32(3, 3, draw=lower))
        yield Case(f32(2, 3, 2), f32(2, 3, 3, draw=lower), upper=False, transpose=True, **ONCE)
        yield Case(f32(8, 1), f32(2, 8, 8, draw=lower), upper=True, unitriangular=True, **ONCE)
