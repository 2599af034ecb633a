"""The logarithm of the gamma function, and its first derivative.

Sources: NIST Digital Library of Mathematical Functions, 5.5 (recurrence, reflection) and 5.11 (asymptotic expansions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from passes.special._gamma import digamma, lgamma
from passes.special._series import Unary
from rewriter.placeholder import Case, f32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

_INF, _NAN = float("inf"), float("nan")


class Lgamma(Unary):
    """ln |Γ(x)|, elementwise; the meaning of `torch.lgamma`."""

    matches = ("Lgamma", "aten::lgamma", "aten::special_gammaln")
    shapes = "x: ..."
    operator = "lgamma"
    # Near the zeros between the poles, terms of about 1 cancel: there, only the absolute error is small.
    tolerances = {"float32": (3e-6, 2e-6)}  # noqa: RUF012

    def formula(self, g: Builder, x: Value) -> Value:
        return lgamma(g, x)

    def cases(self) -> Iterator[Case]:
        yield from _cases()


class Digamma(Unary):
    """ψ(x), the derivative of ln Γ, elementwise; the meaning of `torch.digamma`."""

    matches = ("Digamma", "aten::digamma", "aten::special_digamma", "aten::special_psi")
    shapes = "x: ..."
    operator = "digamma"
    # Near its zeros terms of about 1 cancel, in PyTorch too.
    tolerances = {"float32": (3e-6, 2e-6)}  # noqa: RUF012

    def formula(self, g: Builder, x: Value) -> Value:
        return digamma(g, x)

    def cases(self) -> Iterator[Case]:
        yield from _cases()


def _cases() -> Iterator[Case]:
    yield Case(f32(2, 3, 8))
    yield Case(f32(60, draw=lambda rng, shape: rng.uniform(-6, 12, shape)), symbolic=False)
    yield Case(i64(2, 3, low=1, high=30), symbolic=False)
    yield Case(f32(9, value=(1.0, 2.0, 1.0009766, 1.9990234, 3.0, 50000.0, 1e-4, -1e-4, 0.5)), symbolic=False)
    yield Case(f32(8, value=(_INF, -_INF, _NAN, 0.0, -0.0, -1.0, -2.0, -40000.0)), symbolic=False)
