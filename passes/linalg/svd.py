"""Singular values and vectors, and the pseudoinverse that is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.linalg._draws import ONCE
from passes.linalg._jacobi import epsilon
from passes.linalg._judges import close, first, orthonormal, slack
from passes.linalg._matrices import check_matrix, eye, filled, is_empty, smaller, symmetric, transposed
from passes.linalg._svd import decomposed
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rewriter.placeholder import Builder, Value


class Svd(Placeholder):
    """U, the singular values S from the largest on, and Vᵀ, with A = U·S·Vᵀ; the meaning of `torch.linalg.svd`.

    The signs of the vectors are free, and so is the basis that belongs to equal singular values.  Without
    compute_uv the first and last output are empty.
    """

    matches = ("aten::_linalg_svd",)
    shapes = "A: ... M N"
    outputs = ("U", "S", "Vh")
    dtypes = ("float32", "float64")
    finite = True

    def reference(
        self, A: Any, full_matrices: bool = False, compute_uv: bool = True, driver: str = ""
    ) -> Any:
        import torch

        if not compute_uv:
            return A.new_zeros(0), torch.linalg.svdvals(A), A.new_zeros(0)
        return tuple(torch.linalg.svd(A, full_matrices))

    def decompose(
        self,
        g: Builder,
        A: Value,
        full_matrices: bool = False,
        compute_uv: bool = True,
        driver: str = "",
    ) -> tuple[Value, Value, Value]:
        check_matrix(g, A)
        nothing = g.identity(g.const(np.zeros(0), A))
        height, width = A.shape[-2:]
        if is_empty(A):
            return _of_nothing(g, A, full_matrices, nothing if not compute_uv else None)
        is_wide = isinstance(height, int) and isinstance(width, int) and width > height
        found = decomposed(g, transposed(g, A) if is_wide else A)
        if not compute_uv:
            return nothing, found.values, g.identity(g.const(np.zeros(0), A))
        left, right = found.left(g, full_matrices), found.right
        if not full_matrices and not is_wide:
            count = smaller(g, g.dim(A, -2), g.dim(A, -1))
            known = found.values.shape[-1]
            if count != width:
                right = g.slice(right, [0], g.sizes([count]), [A.rank - 2])
            right = g.retyped(right, (*A.shape[:-2], known, A.shape[-1]))
        if is_wide:
            left, right = transposed(g, right), transposed(g, left)
        return g.identity(left), found.values, g.identity(right)

    def compare(  # type: ignore[override]
        self, actual: tuple[Any, ...], expected: tuple[Any, ...], arguments: Mapping[str, Any]
    ) -> str | None:
        a = np.asarray(arguments["A"], np.float64)
        allowed = slack(actual[0].dtype, *a.shape[-2:])
        u, s, v = (np.asarray(item, np.float64) for item in actual)
        wrong = close("S", s[..., None, :], np.asarray(expected[1])[..., None, :], allowed)
        if wrong or not u.size or not v.size:
            return wrong
        count = s.shape[-1]
        return first(
            [
                close("U·S·Vᵀ", u[..., :count] * s[..., None, :] @ v[..., :count, :], a, allowed),
                orthonormal("U", u, allowed),
                orthonormal("V", np.swapaxes(v, -1, -2), allowed),
            ]
        )

    def cases(self) -> Iterator[Case]:
        yield Case(f32(4, 3), compute_uv=False)
        yield Case(f32(4, 3))
        yield Case(f32(2, 2, 3, 4), full_matrices=True, **ONCE)
        yield Case(f32(9, 8), full_matrices=True, **ONCE)
        yield Case(f32(2, 3, 8), compute_uv=False, **ONCE)
        yield Case(f32(2, 0, 3), full_matrices=True, symbolic=False, **ONCE)
        # Of rank 1 and 0, with equal singular values, and with squares that overflow.
        yield Case(f32(2, 3, 3, value=(1, 2, 3, 2, 4, 6, 3, 6, 9) + (0,) * 9), full_matrices=True, **ONCE)
        yield Case(f32(2, 2, value=(0, 1e30, -1e30, 0)), **ONCE)


class Pinv(Placeholder):
    """The pseudoinverse; the meaning of `torch.linalg.pinv`.

    Singular values up to max(atol, rtol times the largest) count as zero.  Without either, rtol is the larger size
    times the distance from 1 to the next number; with atol alone, rtol is 0.  Of a Hermitian matrix the lower triangle
    is read.  PyTorch's form without names has one number, rtol, before the switch.
    """

    matches = ("aten::linalg_pinv",)
    shapes = "A: ... M N; atol: ...; rtol: ..."
    dtypes = ("float32", "float64")
    finite = True

    def reference(self, A: Any, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
        import torch

        if isinstance(rtol, torch.Tensor) and rtol.dtype == torch.bool:
            return torch.linalg.pinv(A, atol, hermitian=bool(rtol))
        return torch.linalg.pinv(A, atol=atol, rtol=rtol, hermitian=hermitian)

    def decompose(
        self,
        g: Builder,
        A: Value,
        atol: Value | None = None,
        rtol: Value | None = None,
        hermitian: bool = False,
    ) -> Value:
        check_matrix(g, A)
        if rtol is not None and rtol.dtype == TensorProto.BOOL:
            if rtol.constant is None:
                raise UnsupportedParameter("whether the matrix is Hermitian is computed", where=g.where)
            hermitian = bool(rtol.constant)
            atol, rtol = None, atol
        if is_empty(A):
            return g.identity(transposed(g, A))
        matrix = symmetric(g, A) if hermitian else A
        height, width = matrix.shape[-2:]
        is_wide = isinstance(height, int) and isinstance(width, int) and width > height
        found = decomposed(g, transposed(g, matrix) if is_wide else matrix)
        last = found.values.rank - 1
        largest = g.slice(found.values, [0], [1], [last])
        limit = self._limit(g, A, largest, atol, rtol)
        is_kept = g.greater(found.values, limit)
        factors = g.where_(is_kept, g.reciprocal(g.where_(is_kept, found.values, 1.0)), 0.0)
        count = g.dim(found.values, -1)
        right = g.slice(found.right, [0], g.sizes([count]), [A.rank - 2])
        scaled_left = g.op("Mul", found.left(g, full=False), g.unsqueeze(factors, [last]))
        inverse = g.matmul(transposed(g, right), transposed(g, scaled_left))
        inverse = transposed(g, inverse) if is_wide else inverse
        return g.retyped(inverse, (*A.shape[:-2], A.shape[-1], A.shape[-2]))

    def _limit(self, g: Builder, a: Value, largest: Value, atol: Value | None, rtol: Value | None) -> Value:
        """Up to where singular values count as zero, (…, 1)."""
        if rtol is not None:
            relative = g.cast(rtol, a)
        else:
            relative = _default(g, a)
            if atol is not None:
                relative = g.where_(g.greater(g.cast(atol, a), 0.0), g.const(0.0, a), relative)
        scaled = g.binary("Mul", _for_each(g, relative), largest)
        return scaled if atol is None else g.maximum(scaled, _for_each(g, g.cast(atol, a)))

    def compare(self, actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
        return close("the inverse", actual[0], expected[0], slack(actual[0].dtype, *actual[0].shape[-2:]))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(4, 3))
        yield Case(f32(2, 3, 8), f32(value=0.5), None, **ONCE)
        yield Case(f32(2, 3, 3), f32(2, value=(0.0, 0.5)), None, hermitian=True, **ONCE)
        yield Case(f32(2, 3, 3), None, f32(2, value=(0.1, 0.3)), **ONCE)
        yield Case(f32(0, 3), symbolic=False, **ONCE)
        # Of rank 1.
        yield Case(f32(3, 3, value=(1, 2, 3, 2, 4, 6, 3, 6, 9)), **ONCE)


def _default(g: Builder, a: Value) -> Value:
    """The larger size times the distance from 1 to the next number."""
    height, width = g.dim(a, -2), g.dim(a, -1)
    if isinstance(height, int) and isinstance(width, int):
        return g.const(epsilon(a) * max(height, width), a)
    larger = g.reduce_max(g.cast(g.sizes([height, width]), a), [0], keepdims=False)
    return g.binary("Mul", larger, epsilon(a))


def _for_each(g: Builder, tolerance: Value) -> Value:
    """One number for all, or one for each matrix, beside its singular values."""
    return g.unsqueeze(tolerance, [tolerance.rank]) if tolerance.rank else tolerance


def _of_nothing(g: Builder, a: Value, full: bool, nothing: Value | None) -> tuple[Value, Value, Value]:
    """The factors where a size is 0: identities."""
    height, width = g.dim(a, -2), g.dim(a, -1)
    count = smaller(g, height, width)
    # Nothing is added up where the other size is 0, and an axis of size 0 is left where it is this one.
    values = g.reduce_sum(a, [a.rank - (1 if a.shape[-2] == count else 2)], keepdims=False)
    if nothing is not None:
        return nothing, values, g.identity(nothing)
    left = filled(g, a, height, height if full else count, eye(g, height, height if full else count, a))
    right = filled(g, a, width if full else count, width, eye(g, width if full else count, width, a))
    return g.identity(left), values, g.identity(right)
