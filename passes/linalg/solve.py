"""Systems of equations and inverses of square matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes.linalg import _lu
from passes.linalg._draws import ONCE, regular
from passes.linalg._judges import slack
from passes.linalg._matrices import check_matrix, eye, is_empty, spread, transposed
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rewriter.placeholder import Builder, Value


class LinalgSolve(Placeholder):
    """X with A·X = B, or X·A = B; the meaning of `torch.linalg.solve_ex`.

    B is a vector for each matrix where it has one axis, or all of A's sizes but the last.  LU and pivots are those of
    A; only the gradient needs them.
    """

    matches = ("aten::_linalg_solve_ex", "aten::linalg_solve")
    shapes = "A: ... N N; B: ... _"
    outputs = ("result", "LU", "pivots", "info")
    auxiliary = ("LU", "pivots", "info")
    dtypes = ("float32", "float64")
    finite = True

    def reference(self, A: Any, B: Any, left: bool = True, check_errors: bool = False) -> Any:
        import torch

        result, info = torch.linalg.solve_ex(A, B, left=left, check_errors=check_errors)
        return result, *torch.linalg.lu_factor_ex(A)[:2], info

    def decompose(
        self, g: Builder, A: Value, B: Value, left: bool = True, check_errors: bool = False
    ) -> tuple[Value, Value, Value, Value]:
        check_matrix(g, A, square=True)
        is_vector = left and _is_vector(g, A, B)
        right = g.unsqueeze(B, [B.rank]) if is_vector else B
        found = _lu.factor(g, A)
        if is_empty(right):
            x = spread(g, right, A)
        elif left:
            x = _lu.solve(g, found.lu, found.order, right)
        else:
            x = transposed(g, _lu.solve_transposed(g, found.lu, found.order, transposed(g, right)))
        x = g.squeeze(x, [x.rank - 1]) if is_vector else x
        return g.identity(x), g.identity(found.lu), found.pivots_of_torch(g), found.info(g)

    def compare(  # type: ignore[override]
        self, actual: tuple[Any, ...], expected: tuple[Any, ...], arguments: Mapping[str, Any]
    ) -> str | None:
        a, b = (np.asarray(arguments[name], np.float64) for name in ("A", "B"))
        x, y = (np.asarray(v[0], np.float64) for v in (actual, expected))
        if b.ndim == 1 or b.shape == a.shape[:-1]:
            b, x, y = b[..., None], x[..., None], y[..., None]
        if not arguments.get("left", True):
            a, b, x, y = (np.swapaxes(v, -1, -2) for v in (a, b, x, y))
        return _infos(actual[3:], expected[3:]) or residual(a, x, y, b, actual[0].dtype)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3, draw=regular), f32(3, 2))
        # Named sizes do not tell whether these are vectors.
        yield Case(f32(2, 3, 3, draw=regular), f32(2, 3), symbolic=False, **ONCE)
        yield Case(f32(2, 1, 4, 4, draw=regular), f32(3, 2, 4), left=False, **ONCE)
        yield Case(f32(9, 9, draw=regular), f32(9), **ONCE)
        yield Case(f32(2, 0, 0), f32(2, 0, 3), **ONCE)
        # Of two matrices one is singular.
        yield Case(f32(2, 2, 2, value=(1, 2, 2, 4, 2, 0, 0, 1)), f32(2, 2, 1), **ONCE)


class Inverse(Placeholder):
    """The inverse of square matrices; the meaning of `torch.linalg.inv_ex`."""

    matches = ("Inverse", "aten::linalg_inv_ex", "aten::linalg_inv", "aten::inverse")
    shapes = "A: ... N N"
    outputs = ("inverse", "info")
    auxiliary = ("info",)
    dtypes = ("float32", "float64")
    finite = True

    def reference(self, A: Any, check_errors: bool = False) -> Any:
        import torch

        return tuple(torch.linalg.inv_ex(A, check_errors=check_errors))

    def decompose(self, g: Builder, A: Value, check_errors: bool = False) -> tuple[Value, Value]:
        check_matrix(g, A, square=True)
        found = _lu.factor(g, A)
        size = g.dim(A, -1)
        identity = eye(g, size, size, A)
        x = identity if is_empty(A) else _lu.solve(g, found.lu, found.order, identity)
        return g.retyped(x if not is_empty(A) else g.identity(A), A.shape), found.info(g)

    def compare(  # type: ignore[override]
        self, actual: tuple[Any, ...], expected: tuple[Any, ...], arguments: Mapping[str, Any]
    ) -> str | None:
        a = np.asarray(arguments["A"], np.float64)
        x, y = (np.asarray(v[0], np.float64) for v in (actual, expected))
        identity = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
        return _infos(actual[1:], expected[1:]) or residual(a, x, y, identity, actual[0].dtype)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3, draw=regular))
        yield Case(f32(2, 2, 4, 4, draw=regular), **ONCE)
        yield Case(f32(9, 9, draw=regular), **ONCE)
        yield Case(f32(2, 0, 0), **ONCE)
        yield Case(f32(2, 2, 2, value=(1, 2, 2, 4, 2, 0, 0, 1)), **ONCE)


def _is_vector(g: Builder, a: Value, b: Value) -> bool:
    """Whether ``b`` is one vector a matrix.  PyTorch decides by the sizes."""
    if b.rank == 1:
        return True
    pairs = list(zip(b.shape, a.shape[:-1], strict=True)) if b.rank == a.rank - 1 else [(0, 1)]
    if any(isinstance(ours, int) and isinstance(theirs, int) and ours != theirs for ours, theirs in pairs):
        return False
    if all(ours == theirs and ours is not None for ours, theirs in pairs):
        return True
    raise UnsupportedParameter(
        f"whether B of {b.shape} is a vector for each matrix of {a.shape} depends on sizes that are not known",
        where=g.where,
        remedy="export with known sizes, or give B an axis of 1 at the end",
    )


def _infos(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
    """What is wrong with info, where the node has it."""
    if not actual or np.array_equal(actual[0], expected[0]):
        return None
    return f"info is {np.asarray(actual[0]).tolist()}, not {np.asarray(expected[0]).tolist()}"


def residual(a: Any, x: Any, y: Any, b: Any, dtype: Any) -> str | None:
    """What is wrong with x as solution of a·x = b: its residual may be as large as that of a stable algorithm.

    A solution is compared where PyTorch's, y, is finite: it means nothing of a singular matrix.
    """
    if not y.size:
        return None
    finite = np.isfinite(y).all(axis=(-1, -2))
    off = np.abs(a @ np.where(np.isfinite(x), x, np.inf) - b).max(axis=(-1, -2))
    scale = np.abs(a).sum(-1).max(-1) * np.abs(x).max(axis=(-1, -2)) + np.abs(b).max(axis=(-1, -2))
    wrong = finite & ~(off <= slack(dtype, a.shape[-1]) * scale)
    return f"A·X − B is as large as {float(off[wrong].max()):.3g}" if wrong.any() else None
