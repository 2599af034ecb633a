"""Eigenvalues and eigenvectors of symmetric matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes.linalg._draws import ONCE
from passes.linalg._jacobi import eigen, scaled
from passes.linalg._judges import close, orthonormal, slack
from passes.linalg._matrices import batch, check_matrix, is_empty, symmetric
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rewriter.placeholder import Builder, Value


class Eigh(Placeholder):
    """Eigenvalues from the least on and their eigenvectors in columns; the meaning of `torch.linalg.eigh`.

    Only the lower triangle is read, or the upper one where UPLO is "U".  An eigenvector's sign is free, and so is the
    basis that belongs to equal eigenvalues.  Without compute_v the second output is empty.
    """

    matches = ("aten::_linalg_eigh", "aten::linalg_eigh", "aten::linalg_eigvalsh")
    shapes = "A: ... N N"
    outputs = ("eigenvalues", "eigenvectors")
    auxiliary = ("eigenvectors",)
    dtypes = ("float32", "float64")
    finite = True

    def reference(self, A: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
        import torch

        # The triangle that is read; the gradient of PyTorch's own operator is spread over both.
        whole = A.triu() + A.triu(1).mT if UPLO.upper() == "U" else A.tril() + A.tril(-1).mT
        if not compute_v:
            return torch.linalg.eigvalsh(whole, UPLO), A.new_zeros(0)
        return tuple(torch.linalg.eigh(whole, UPLO))

    def decompose(self, g: Builder, A: Value, UPLO: str = "L", compute_v: bool = True) -> tuple[Value, Value]:
        check_matrix(g, A, square=True)
        nothing = g.const(np.zeros(0), A)
        if is_empty(A):
            values = g.reduce_sum(A, [A.rank - 2], keepdims=False)
            return values, g.identity(A if compute_v else nothing)
        a, scale = scaled(g, symmetric(g, A, upper=UPLO.upper() == "U"))
        found, vectors = eigen(g, a)
        size = g.dim(A, -1)
        values, order = g.top_k(found, size, largest=False)
        values = g.op("Mul", values, g.squeeze(scale, [A.rank - 1]))
        if not compute_v:
            return g.retyped(values, A.shape[:-1]), g.identity(nothing)
        index = g.expand(g.unsqueeze(order, [A.rank - 2]), [*batch(g, A), size, size])
        ordered = g.gather_elements(vectors, index, axis=A.rank - 1)
        return g.retyped(values, A.shape[:-1]), g.retyped(ordered, A.shape)

    def compare(  # type: ignore[override]
        self, actual: tuple[Any, ...], expected: tuple[Any, ...], arguments: Mapping[str, Any]
    ) -> str | None:
        a = np.asarray(arguments["A"], np.float64)
        allowed = slack(actual[0].dtype, a.shape[-1])
        values, *others = (np.asarray(v, np.float64) for v in actual)
        wrong = close("eigenvalues", values[..., None, :], np.asarray(expected[0])[..., None, :], allowed)
        if wrong or not others or not others[0].size:
            return wrong
        vectors = others[0]
        half = np.triu(a, 1) if arguments.get("UPLO", "L").upper() == "U" else np.tril(a, -1)
        full = half + np.swapaxes(half, -1, -2) + a * np.eye(a.shape[-1])
        built = vectors * values[..., None, :] @ np.swapaxes(vectors, -1, -2)
        return close("V·Λ·Vᵀ", built, full, allowed) or orthonormal("V", vectors, allowed)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3), compute_v=False)
        yield Case(f32(3, 3))
        yield Case(f32(2, 2, 4, 4), UPLO="U", **ONCE)
        yield Case(f32(9, 9), compute_v=False, **ONCE)
        yield Case(f32(2, 0, 0), **ONCE)
        # Equal eigenvalues, a multiple of 1, zero; numbers whose squares overflow.
        yield Case(f32(3, 3, value=(0, 0, 0, 1, 0, 0, 1, 1, 0)), **ONCE)
        yield Case(f32(2, 2, 2, value=(3, 0, 0, 3, 0, 0, 0, 0)), **ONCE)
        yield Case(f32(2, 2, value=(1e30, 0, 2e30, 1e30)), **ONCE)
