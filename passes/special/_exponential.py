"""ln(1 + x), exp(x) − 1 and the error function's complement, none of which loses its small results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from passes.special import _tables as tables
from passes.special._series import series

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value

#: exp(x²) is infinite in float64 from here on.
_LARGEST = 28.0


def log1p(g: Builder, x: Value) -> Value:
    """ln(1 + x).

    With u = 1 + x as rounded, ln(u)·x / (u − 1) mends what the rounding lost (Kahan; Goldberg, 1991, theorem 4).
    """
    is_small = g.less(g.abs(x), 0.5)
    near = g.where_(is_small, x, 0.25)
    u = near + 1
    is_lost = g.equal(u, 1.0)
    mended = g.log(u) * near / g.where_(is_lost, 1.0, u - 1)
    return g.where_(is_small, g.where_(is_lost, near, mended), g.log(g.where_(is_small, 1.0, x + 1)))


def expm1(g: Builder, x: Value) -> Value:
    """exp(x) − 1; with u = exp(x) as rounded, (u − 1)·x / ln(u) near 0 (Kahan)."""
    is_small = g.less(g.abs(x), 0.5)
    near = g.where_(is_small, x, 0.25)
    u = g.exp(near)
    is_lost = g.equal(u, 1.0)
    mended = (u - 1) * near / g.where_(is_lost, 1.0, g.log(u))
    return g.where_(is_small, g.where_(is_lost, near, mended), g.exp(g.where_(is_small, 0.0, x)) - 1)


def erfcx_of_positive(a: Value) -> Value:
    """exp(a²)·erfc(a) where a ≥ 0 (Shepherd and Laframboise, 1981, Mathematics of Computation 36, 249)."""
    t = 1 - 7.5 / (a + 3.75)
    return series(tables.ERFCX, t) / (a * 2 + 1)


def exp_of_square(g: Builder, a: Value, sign: int) -> Value:
    """exp(±a²) where a ≥ 0: a² is split into an exact square and a small rest, so that its rounding does not show."""
    a = g.where_(g.greater(a, _LARGEST), _LARGEST, a)
    head = g.round(a * 16) * (1 / 16)
    square, rest = head * head, (a - head) * (a + head)
    return g.exp(-square) * g.exp(-rest) if sign < 0 else g.exp(square) * g.exp(rest)


def erfc(g: Builder, x: Value) -> Value:
    """1 − erf(x), with all digits also where it is small."""
    a = g.abs(x)
    upper = exp_of_square(g, a, -1) * erfcx_of_positive(a)
    return g.where_(g.less(x, 0.0), 2 - upper, upper)


def erfcx(g: Builder, x: Value) -> Value:
    """exp(x²)·erfc(x); below 0 by erfc(−a) = 2 − erfc(a)."""
    a = g.abs(x)
    above = erfcx_of_positive(a)
    is_below = g.less(x, 0.0)
    return g.where_(is_below, exp_of_square(g, g.where_(is_below, a, 0.0), 1) * 2 - above, above)
