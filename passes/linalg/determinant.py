"""Determinants and their logarithms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from passes.linalg import _lu
from passes.linalg._draws import ONCE, positive, regular
from passes.linalg._judges import close, first, slack
from passes.linalg._matrices import check_matrix, diagonal, without_matrix
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


def _pivots(g: Builder, found: _lu.Factors) -> tuple[Value, Value]:
    """U's diagonal (…, n), and the determinant of P (…)."""
    return diagonal(g, found.lu), without_matrix(g, found.sign)


class _OfFactors(Placeholder):
    """What is made of the LU factors; they are the last results, which only the gradient needs."""

    shapes = "A: ... N N"
    dtypes = ("float32", "float64")
    finite = True

    def compare(self, actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
        names = [name for name in self.outputs if name not in self.auxiliary] or ["the result"]
        told = zip(names, actual, expected, strict=False)
        return first([close(name, a, b, slack(a.dtype, 8)) for name, a, b in told])

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3, draw=regular))
        yield Case(f32(2, 1, 2, 2, draw=regular), **ONCE)
        yield Case(f32(8, 8, draw=regular), **ONCE)
        yield Case(f32(2, 0, 0), **ONCE)
        yield Case(f32(2, 2, value=(1, 2, 2, 4)), **ONCE)


class Det(_OfFactors):
    """The determinant; the meaning of `torch.linalg.det`."""

    matches = ("Det", "aten::_linalg_det", "aten::linalg_det", "aten::det")
    outputs = ("result", "LU", "pivots")
    auxiliary = ("LU", "pivots")

    def reference(self, A: Any) -> Any:
        import torch

        return (torch.linalg.det(A), *torch.linalg.lu_factor_ex(A)[:2])

    def decompose(self, g: Builder, A: Value) -> tuple[Value, Value, Value]:
        check_matrix(g, A, square=True)
        found = _lu.factor(g, A)
        pivots, sign = _pivots(g, found)
        product = g.reduce_prod(pivots, [pivots.rank - 1], keepdims=False)
        return g.op("Mul", product, sign), g.identity(found.lu), found.pivots_of_torch(g)


class Slogdet(_OfFactors):
    """The sign of the determinant and the logarithm of its absolute value; the meaning of `torch.linalg.slogdet`."""

    matches = ("aten::_linalg_slogdet", "aten::linalg_slogdet", "aten::slogdet")
    outputs = ("sign", "logabsdet", "LU", "pivots")
    auxiliary = ("LU", "pivots")

    def reference(self, A: Any) -> Any:
        import torch

        return (*torch.linalg.slogdet(A), *torch.linalg.lu_factor_ex(A)[:2])

    def decompose(self, g: Builder, A: Value) -> tuple[Value, Value, Value, Value]:
        check_matrix(g, A, square=True)
        found = _lu.factor(g, A)
        sign, size = _sign_and_logarithm(g, found)
        return sign, size, g.identity(found.lu), found.pivots_of_torch(g)


class Logdet(_OfFactors):
    """The logarithm of the determinant, NaN where that is negative; the meaning of `torch.logdet`."""

    matches = ("aten::logdet",)

    def reference(self, A: Any) -> Any:
        import torch

        return torch.logdet(A)

    def decompose(self, g: Builder, A: Value) -> Value:
        check_matrix(g, A, square=True)
        sign, size = _sign_and_logarithm(g, _lu.factor(g, A))
        return size + g.log(sign)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 3, draw=positive))
        yield Case(f32(8, 8, draw=positive), **ONCE)
        yield Case(f32(2, 2, 2, value=(0, 1, 1, 0, 1, 2, 2, 4)), **ONCE)


def _sign_and_logarithm(g: Builder, found: _lu.Factors) -> tuple[Value, Value]:
    pivots, sign = _pivots(g, found)
    last = pivots.rank - 1
    signs = g.op("Mul", g.reduce_prod(g.sign(pivots), [last], keepdims=False), sign)
    return signs, g.reduce_sum(g.log(g.abs(pivots)), [last], keepdims=False)
