"""The QR factors of matrices, and Householder's reflections that they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes.linalg._draws import ONCE
from passes.linalg._householder import apply, reflect
from passes.linalg._judges import close, first, slack
from passes.linalg._matrices import check_matrix, eye, smaller, transposed, triangle
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class _Reflections(Placeholder):
    """Results that are as exact as LAPACK's."""

    dtypes = ("float32", "float64")
    finite = True

    def compare(self, actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
        allowed = slack(actual[0].dtype, *actual[0].shape[-2:])
        names = self.outputs or ("the result",)
        return first([close(name, a, b, allowed) for name, a, b in zip(names, actual, expected, strict=True)])


class Qr(_Reflections):
    """Q and R with A = Q·R; the meaning of `torch.linalg.qr`.

    The mode is "reduced", "complete" or "r"; then Q is empty.
    """

    matches = ("aten::linalg_qr",)
    shapes = "A: ... M N"
    outputs = ("Q", "R")

    def reference(self, A: Any, mode: str = "reduced") -> Any:
        import torch

        return tuple(torch.linalg.qr(A, mode))

    def decompose(self, g: Builder, A: Value, mode: str = "reduced") -> tuple[Value, Value]:
        check_matrix(g, A)
        if mode not in ("reduced", "complete", "r"):
            raise UnsupportedParameter(
                f"the mode is {mode!r}", where=g.where, remedy="reduced, complete or r"
            )
        made, tau = reflect(g, A)
        height = g.dim(A, -2)
        kept = height if mode == "complete" else smaller(g, height, g.dim(A, -1))
        upper = triangle(g, _top(g, made, kept), upper=True)
        if mode == "r":
            return g.identity(g.const(np.zeros(0), A)), upper
        return apply(g, made, tau, eye(g, height, kept, A)), upper

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3))
        yield Case(f32(2, 4, 3), mode="complete", **ONCE)
        yield Case(f32(2, 9, 8), **ONCE)
        yield Case(f32(2, 3, 4), mode="r", **ONCE)
        yield Case(f32(2, 0, 3), **ONCE)
        # A column that is zero from the diagonal on; squares that overflow.
        yield Case(f32(3, 2, value=(1e30, 2e30, 0, 3e30, 0, 1e30)), **ONCE)


class Geqrf(_Reflections):
    """R, the reflections' vectors below it, and their factors; the meaning of `torch.geqrf`."""

    matches = ("aten::geqrf",)
    shapes = "A: ... M N"
    outputs = ("a", "tau")

    def reference(self, A: Any) -> Any:
        import torch

        return tuple(torch.geqrf(A.detach()))  # it has no derivative

    def decompose(self, g: Builder, A: Value) -> tuple[Value, Value]:
        check_matrix(g, A)
        made, tau = reflect(g, A)
        return g.identity(made), g.squeeze(tau, [tau.rank - 2])

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 4, 3))
        yield Case(f32(8, 9), **ONCE)


class HouseholderProduct(_Reflections):
    """The first columns of Q from its reflections; the meaning of `torch.linalg.householder_product`."""

    matches = ("aten::linalg_householder_product", "aten::orgqr")
    shapes = "A: ... M N; tau: ... K"

    def reference(self, A: Any, tau: Any) -> Any:
        import torch

        return torch.linalg.householder_product(A, tau)

    def decompose(self, g: Builder, A: Value, tau: Value) -> Value:
        check_matrix(g, A)
        start = eye(g, g.dim(A, -2), g.dim(A, -1), A)
        made = apply(g, A, g.unsqueeze(tau, [tau.rank - 1]), start)
        return g.retyped(g.identity(made), A.shape)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 4, 3), f32(2, 3))
        yield Case(f32(9, 8), f32(7), **ONCE)
        yield Case(f32(3, 2), f32(0), **ONCE)


class Ormqr(_Reflections):
    """Q·C, Qᵀ·C, C·Q or C·Qᵀ with Q from its reflections; the meaning of `torch.ormqr`."""

    matches = ("aten::ormqr",)
    shapes = "A: ... M N; tau: ... K; C: ... _ _"

    def reference(self, A: Any, tau: Any, C: Any, left: bool = True, transpose: bool = False) -> Any:
        import torch

        return torch.ormqr(A, tau, C, left, transpose)

    def decompose(
        self, g: Builder, A: Value, tau: Value, C: Value, left: bool = True, transpose: bool = False
    ) -> Value:
        check_matrix(g, A)
        factors = g.unsqueeze(tau, [tau.rank - 1])
        if left:
            return g.identity(apply(g, A, factors, C, transpose))
        return transposed(g, apply(g, A, factors, transposed(g, C), not transpose))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(4, 3), f32(3), f32(4, 2))
        yield Case(f32(2, 9, 8), f32(2, 8), f32(2, 3, 9), left=False, transpose=True, **ONCE)


def _top(g: Builder, x: Value, height: int | Value) -> Value:
    """The first ``height`` rows."""
    if x.shape[-2] == height:
        return x
    known = height if isinstance(height, int) else (height.sizes or (None,))[0]
    cut = g.slice(x, [0], g.sizes([height]), [x.rank - 2])
    return g.retyped(cut, (*x.shape[:-2], known, x.shape[-1]))
