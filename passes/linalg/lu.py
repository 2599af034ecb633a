"""The LU factors of matrices, with partial pivoting, and what is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes.linalg import _lu
from passes.linalg._draws import ONCE, exchanges, lower, regular
from passes.linalg._judges import close, first, slack
from passes.linalg._matrices import check_matrix, eye, is_empty, smaller, transposed, triangle
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, TensorSpec, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class LuFactor(Placeholder):
    """L and U in one matrix, and the exchanges of rows; the meaning of `torch.linalg.lu_factor_ex`."""

    matches = ("aten::linalg_lu_factor_ex", "aten::linalg_lu_factor")
    shapes = "A: ... M N"
    outputs = ("LU", "pivots", "info")
    auxiliary = ("info",)
    dtypes = ("float32", "float64")
    finite = True

    def reference(self, A: Any, pivot: bool = True, check_errors: bool = False) -> Any:
        import torch

        return tuple(torch.linalg.lu_factor_ex(A, pivot=pivot, check_errors=check_errors))

    def decompose(
        self, g: Builder, A: Value, pivot: bool = True, check_errors: bool = False
    ) -> tuple[Value, Value, Value]:
        _check_pivoting(g, pivot)
        check_matrix(g, A)
        found = _lu.factor(g, A)
        return g.identity(found.lu), found.pivots_of_torch(g), found.info(g)

    def compare(self, actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
        for name, ours, theirs in zip(self.outputs[1:], actual[1:], expected[1:], strict=False):
            if not np.array_equal(ours, theirs):
                return f"{name} are {np.asarray(ours).tolist()}, not {np.asarray(theirs).tolist()}"
        return close("LU", actual[0], expected[0], slack(actual[0].dtype, *actual[0].shape[-2:]))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3, draw=regular))
        yield Case(f32(2, 2, 4, 3), **ONCE)
        yield Case(f32(9, 12), **ONCE)
        yield Case(f32(2, 0, 3), **ONCE)
        # Singular: info tells the first pivot of 0; equal candidates: the first one is the pivot.
        yield Case(f32(3, 3, value=(1, 2, 0, -1, -2, 0, 1, 2, 0)), **ONCE)


class Lu(Placeholder):
    """P, L and U with A = P·L·U; the meaning of `torch.linalg.lu`."""

    matches = ("aten::linalg_lu",)
    shapes = "A: ... M N"
    outputs = ("P", "L", "U")
    dtypes = ("float32", "float64")
    finite = True

    def reference(self, A: Any, pivot: bool = True) -> Any:
        import torch

        return tuple(torch.linalg.lu(A, pivot=pivot))

    def decompose(self, g: Builder, A: Value, pivot: bool = True) -> tuple[Value, Value, Value]:
        _check_pivoting(g, pivot)
        check_matrix(g, A)
        found = _lu.factor(g, A)
        return (_lu.permutation(g, found.order, A), *_unpacked(g, found.lu))

    def compare(self, actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
        allowed = slack(actual[1].dtype, *actual[1].shape[-2:])
        return first(
            [close(name, a, b, allowed) for name, a, b in zip(self.outputs, actual, expected, strict=True)]
        )

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3, draw=regular))
        yield Case(f32(2, 4, 3), **ONCE)
        yield Case(f32(8, 9), **ONCE)
        yield Case(f32(0, 3), **ONCE)


class LuUnpack(Placeholder):
    """P, L and U from `LU` and its pivots; the meaning of `torch.lu_unpack`."""

    matches = ("aten::lu_unpack",)
    shapes = "LU: ... M N; pivots: ... K"
    outputs = ("P", "L", "U")
    dtypes = ("float32", "float64")
    finite = True

    def reference(self, LU: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
        import torch

        return tuple(torch.lu_unpack(LU, pivots, unpack_data, unpack_pivots))

    def decompose(
        self,
        g: Builder,
        LU: Value,
        pivots: Value,
        unpack_data: bool = True,
        unpack_pivots: bool = True,
    ) -> tuple[Value, Value, Value]:
        check_matrix(g, LU)
        nothing = g.const(np.zeros(0), LU)
        p = nothing
        if unpack_pivots:
            p = _lu.permutation(g, _lu.order_of_pivots(g, pivots, g.dim(LU, -2)), LU)
        left, right = _unpacked(g, LU) if unpack_data else (nothing, nothing)
        return g.identity(p), g.identity(left), g.identity(right)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3), _pivots(3, 3))
        yield Case(f32(2, 4, 3), _pivots(4, 2, 3), unpack_data=False, **ONCE)
        yield Case(f32(2, 2, 8, 9), _pivots(8, 2, 2, 8), **ONCE)
        yield Case(f32(2, 3), _pivots(2, 2), unpack_pivots=False, **ONCE)


class LuSolve(Placeholder):
    """X with A·X = B, X·A = B or Aᵀ·X = B from A's LU factors; the meaning of `torch.linalg.lu_solve`."""

    matches = ("aten::linalg_lu_solve",)
    shapes = "LU: ... N N; pivots: ... N; B: ... _ _"
    dtypes = ("float32", "float64")
    finite = True

    def reference(self, LU: Any, pivots: Any, B: Any, left: bool = True, adjoint: bool = False) -> Any:
        import torch

        return torch.linalg.lu_solve(LU, pivots, B, left=left, adjoint=adjoint)

    def decompose(
        self, g: Builder, LU: Value, pivots: Value, B: Value, left: bool = True, adjoint: bool = False
    ) -> Value:
        check_matrix(g, LU, square=True)
        check_matrix(g, B)
        if is_empty(B):
            return g.identity(B)
        order = _lu.order_of_pivots(g, pivots, g.dim(LU, -2))
        solve = _lu.solve_transposed if adjoint == left else _lu.solve
        return solve(g, LU, order, B) if left else transposed(g, solve(g, LU, order, transposed(g, B)))

    def compare(self, actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
        return close("the solution", actual[0], expected[0], slack(actual[0].dtype, *actual[0].shape[-2:]))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3, draw=lower), _pivots(3, 3), f32(3, 2))
        yield Case(f32(2, 3, 3, draw=lower), _pivots(3, 2, 3), f32(2, 3, 2), adjoint=True, **ONCE)
        yield Case(f32(8, 8, draw=lower), _pivots(8, 8), f32(2, 3, 8), left=False, **ONCE)
        yield Case(f32(4, 4, draw=lower), _pivots(4, 4), f32(2, 4), left=False, adjoint=True, **ONCE)


def _pivots(height: int, *shape: int) -> TensorSpec:
    return TensorSpec(shape, "int32", draw=exchanges(height))


def _check_pivoting(g: Builder, pivot: bool) -> None:
    if not pivot:
        raise UnsupportedParameter(
            "LU without pivoting has no reference: PyTorch has it on CUDA only", where=g.where
        )


def _unpacked(g: Builder, lu: Value) -> tuple[Value, Value]:
    """L with its ones, and U, cut to what they have in common."""
    height, width = g.dim(lu, -2), g.dim(lu, -1)
    common = smaller(g, height, width)
    cut = g.sizes([common])
    wide, high = (g.slice(lu, [0], cut, [axis]) for axis in (lu.rank - 1, lu.rank - 2))
    size = lu.shape[:-2]
    known = common if isinstance(common, int) else (common.sizes or (None,))[0]
    wide, high = g.retyped(wide, (*size, lu.shape[-2], known)), g.retyped(high, (*size, known, lu.shape[-1]))
    left = g.op("Add", triangle(g, wide, upper=False, offset=-1), eye(g, height, common, lu))
    return g.retyped(left, wide.shape), triangle(g, high, upper=True)
