"""Bessel functions of order 0 and 1, and Airy's function.

Sources: NIST Digital Library of Mathematical Functions, 10.17 and 10.40 (asymptotic forms), 10.8 and 10.31 (what is
singular at 0), 9.7 (Airy).  What is smooth is a Chebyshev series.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from passes.special import _tables as tables
from passes.special._series import Fit, Unary, series
from rewriter.placeholder import Case, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

_INF, _NAN = float("inf"), float("nan")

#: Beyond 5 the oscillating ones are modulus and phase, of which the phase rounds.
_SPLIT = 5.0
#: Of J and Y: a few roundings of numbers of about 1, which cancel near their zeros; PyTorch's own are as many.
#: In float64 PyTorch's own are off by up to 3.8e-7 (J₀) and 8.6e-7 (Y₁) near 5, where it changes the formula
#: (against mpmath, 3,000 places from 0.05 to 45).
_OSCILLATING = {"float32": (6e-6, 2e-6), "float64": (2e-6, 2e-6)}
_SMOOTH = {"float32": (4e-6, 1e-37)}

#: Squares of the first two zeros of J0 and J1.
_ZEROS = ((5.783185962946785, 30.471262343662087), (14.681970642123893, 49.2184563216946))


class _Bessel(Unary):
    shapes = "x: ..."

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 8))
        yield Case(f32(60, draw=lambda rng, shape: rng.uniform(-20, 40, shape)), symbolic=False)
        special = (_INF, -_INF, _NAN, 0.0, -0.0, 1e-4, 0.3, 2.0, 5.0, 8.0, 100.0)
        yield Case(f32(len(special), value=special), symbolic=False)


class BesselJ0(_Bessel):
    """J₀(x), elementwise; the meaning of `torch.special.bessel_j0`."""

    matches = ("BesselJ0", "aten::special_bessel_j0")
    name = "bessel_j0"
    operator = "special_bessel_j0"
    tolerances = _OSCILLATING

    def formula(self, g: Builder, x: Value) -> Value:
        return _j(g, g.abs(x), 0)


class BesselJ1(_Bessel):
    """J₁(x), elementwise; the meaning of `torch.special.bessel_j1`."""

    matches = ("BesselJ1", "aten::special_bessel_j1")
    name = "bessel_j1"
    operator = "special_bessel_j1"
    tolerances = _OSCILLATING

    def formula(self, g: Builder, x: Value) -> Value:
        result = _j(g, g.abs(x), 1)
        return g.where_(g.less(x, 0.0), -result, result)


class BesselY0(_Bessel):
    """Y₀(x), elementwise, of x > 0; the meaning of `torch.special.bessel_y0`."""

    matches = ("BesselY0", "aten::special_bessel_y0")
    name = "bessel_y0"
    operator = "special_bessel_y0"
    tolerances = _OSCILLATING

    def formula(self, g: Builder, x: Value) -> Value:
        is_near, near, far = _sides(g, x, _SPLIT)
        square = near * near
        close = series(tables.Y0_NEAR, square) + g.log(near) * _j_near(square, 0) * (2 / math.pi)
        return _of_positive(g, x, g.where_(is_near, close, _hankel(g, far, 0, second=True)), -_INF)


class BesselY1(_Bessel):
    """Y₁(x), elementwise, of x > 0; the meaning of `torch.special.bessel_y1`."""

    matches = ("BesselY1", "aten::special_bessel_y1")
    name = "bessel_y1"
    operator = "special_bessel_y1"
    tolerances = _OSCILLATING

    def formula(self, g: Builder, x: Value) -> Value:
        is_near, near, far = _sides(g, x, _SPLIT)
        square = near * near
        singular = g.log(near) * (near * _j_near(square, 1)) - g.reciprocal(near)
        close = near * series(tables.Y1_NEAR, square) + singular * (2 / math.pi)
        return _of_positive(g, x, g.where_(is_near, close, _hankel(g, far, 1, second=True)), -_INF)


class I0(_Bessel):
    """The modified Bessel function I₀(x), elementwise; the meaning of `torch.special.i0`."""

    matches = ("I0", "aten::i0", "aten::special_i0", "aten::special_modified_bessel_i0")
    name = "i0"
    operator = "i0"
    tolerances = _SMOOTH

    def formula(self, g: Builder, x: Value) -> Value:
        a = g.abs(x)
        return _i(g, a, tables.I0_NEAR, tables.I0_FAR) * g.exp(a)


class I0e(_Bessel):
    """exp(−|x|)·I₀(x), elementwise; the meaning of `torch.special.i0e`."""

    matches = ("I0e", "aten::special_i0e")
    name = "i0e"
    operator = "special_i0e"
    tolerances = _SMOOTH

    def formula(self, g: Builder, x: Value) -> Value:
        return _i(g, g.abs(x), tables.I0_NEAR, tables.I0_FAR)


class I1(_Bessel):
    """The modified Bessel function I₁(x), elementwise; the meaning of `torch.special.i1`."""

    matches = ("I1", "aten::special_i1", "aten::special_modified_bessel_i1")
    name = "i1"
    operator = "special_i1"
    tolerances = _SMOOTH

    def formula(self, g: Builder, x: Value) -> Value:
        return _i1e(g, x) * g.exp(g.abs(x))


class I1e(_Bessel):
    """exp(−|x|)·I₁(x), elementwise; the meaning of `torch.special.i1e`."""

    matches = ("I1e", "aten::special_i1e")
    name = "i1e"
    operator = "special_i1e"
    tolerances = _SMOOTH

    def formula(self, g: Builder, x: Value) -> Value:
        return _i1e(g, x)


class _K(_Bessel):
    """K or exp(x)·K, of one order."""

    shapes = "x: ..."

    order: ClassVar[int]
    scaled: ClassVar[bool]
    # K has no zeros, but the two terms of its form for small x have signs of their own.
    tolerances = {"float32": (6e-6, 1e-37)}  # noqa: RUF012

    def formula(self, g: Builder, x: Value) -> Value:
        is_near, near, far = _sides(g, x, 2.0)
        square = near * near
        logarithm = g.log(near * 0.5)
        if self.order == 0:
            close = series(tables.K0_NEAR, square) - logarithm * series(tables.I0_SQUARE, square)
        else:
            regular = series(tables.K1_NEAR, square) * g.reciprocal(near)
            close = regular + logarithm * near * series(tables.I1_SQUARE, square)
        inverse = g.reciprocal(far)
        distant = series(tables.K1_FAR if self.order else tables.K0_FAR, inverse) * g.sqrt(inverse)
        if self.scaled:
            close = close * g.exp(near)
        else:
            distant = distant * g.exp(-far)
        return _of_positive(g, x, g.where_(is_near, close, distant), _INF)


class ModifiedBesselK0(_K):
    """The modified Bessel function K₀(x), elementwise; the meaning of `torch.special.modified_bessel_k0`."""

    matches = ("ModifiedBesselK0", "aten::special_modified_bessel_k0")
    name = "modified_bessel_k0"
    operator = "special_modified_bessel_k0"
    order, scaled = 0, False


class ModifiedBesselK1(_K):
    """The modified Bessel function K₁(x), elementwise; the meaning of `torch.special.modified_bessel_k1`."""

    matches = ("ModifiedBesselK1", "aten::special_modified_bessel_k1")
    name = "modified_bessel_k1"
    operator = "special_modified_bessel_k1"
    order, scaled = 1, False


class ScaledModifiedBesselK0(_K):
    """exp(x)·K₀(x), elementwise; the meaning of `torch.special.scaled_modified_bessel_k0`."""

    matches = ("ScaledModifiedBesselK0", "aten::special_scaled_modified_bessel_k0")
    name = "scaled_modified_bessel_k0"
    operator = "special_scaled_modified_bessel_k0"
    order, scaled = 0, True


class ScaledModifiedBesselK1(_K):
    """exp(x)·K₁(x), elementwise; the meaning of `torch.special.scaled_modified_bessel_k1`."""

    matches = ("ScaledModifiedBesselK1", "aten::special_scaled_modified_bessel_k1")
    name = "scaled_modified_bessel_k1"
    operator = "special_scaled_modified_bessel_k1"
    order, scaled = 1, True


class SphericalBesselJ0(_Bessel):
    """sin(x)/x, 1 at 0 and 0 at infinity; the meaning of `torch.special.spherical_bessel_j0`."""

    matches = ("SphericalBesselJ0", "aten::special_spherical_bessel_j0")
    name = "spherical_bessel_j0"
    operator = "special_spherical_bessel_j0"
    # sin(x) is right to an absolute error near its zeros.
    tolerances = {"float32": (2e-6, 1e-7)}  # noqa: RUF012

    def formula(self, g: Builder, x: Value) -> Value:
        is_zero = g.equal(x, 0.0)
        is_infinite = g.equal(g.abs(x), math.inf)
        safe = g.where_(g.or_(is_zero, is_infinite), 1.0, x)
        return g.where_(is_zero, 1.0, g.where_(is_infinite, 0.0, g.sin(safe) / safe))


class AiryAi(_Bessel):
    """Airy's function Ai(x), elementwise; the meaning of `torch.special.airy_ai`, which has NaN at both infinities."""

    matches = ("AiryAi", "aten::special_airy_ai")
    operator = "special_airy_ai"
    # The phase rounds, which is as much again for each unit of it.  In float64 PyTorch's own is off by up to 3e-6 near
    # −2.09 (against mpmath, 3,000 places from −12 to 6).
    tolerances = {"float32": (1e-5, 1e-5), "float64": (1e-5, 5e-6)}  # noqa: RUF012

    def formula(self, g: Builder, x: Value) -> Value:
        edge = tables.AIRY_NEAR.high
        is_left, is_right = g.less(x, -edge), g.greater(x, edge)
        left = g.where_(is_left, -x, edge)
        root = g.sqrt(left)
        zeta = left * root * (2 / 3)
        inverse = g.reciprocal(zeta)
        square, angle = inverse * inverse, zeta + math.pi / 4
        waves = g.sin(angle) * series(tables.AIRY_LEFT_F, square)
        waves = waves - g.cos(angle) * (inverse * series(tables.AIRY_LEFT_G, square))
        below = waves / g.sqrt(root) * math.sqrt(1 / math.pi)
        right = g.where_(is_right, x, edge)
        root = g.sqrt(right)
        zeta = right * root * (2 / 3)
        decay = series(tables.AIRY_RIGHT, g.reciprocal(zeta)) * g.exp(-zeta)
        above = decay / g.sqrt(root) * math.sqrt(1 / (4 * math.pi))
        middle = series(tables.AIRY_NEAR, g.where_(g.or_(is_left, is_right), 0.0, x))
        result = g.where_(is_left, below, g.where_(is_right, above, middle))
        return g.where_(g.equal(x, math.inf), math.nan, result)


def _sides(g: Builder, x: Value, split: float) -> tuple[Value, Value, Value]:
    """Whether 0 < x ≤ split, x there and ``split`` elsewhere, and x beyond and ``split`` elsewhere.

    NaN is beyond.
    """
    is_far = g.not_(g.less_equal(x, split))
    is_near = g.and_(g.greater(x, 0.0), g.not_(is_far))
    return is_near, g.where_(is_near, x, split), g.where_(is_far, x, split)


def _of_positive(g: Builder, x: Value, result: Value, at_zero: float) -> Value:
    """``result`` where x > 0, ``at_zero`` at 0, NaN below."""
    return g.where_(g.equal(x, 0.0), at_zero, g.where_(g.less(x, 0.0), math.nan, result))


def _j(g: Builder, a: Value, order: int) -> Value:
    """J of one order at a ≥ 0."""
    is_near = g.less_equal(a, _SPLIT)
    near, far = g.where_(is_near, a, 0.0), g.where_(is_near, _SPLIT, a)
    close = _j_near(near * near, order)
    return g.where_(is_near, near * close if order else close, _hankel(g, far, order, second=False))


def _j_near(square: Value, order: int) -> Value:
    """J₀(x), or J₁(x)/x, by x² up to 25: a series times what vanishes at the zeros."""
    first, second = _ZEROS[order]
    return (square - first) * (square - second) * series(tables.J1_NEAR if order else tables.J0_NEAR, square)


def _hankel(g: Builder, x: Value, order: int, *, second: bool) -> Value:
    """J, or Y (the ``second``), at x ≥ 5.

    √(2/πx)·(P·cos θ − Q·sin θ), or √(2/πx)·(P·sin θ + Q·cos θ), where θ = x − (2·order + 1)·π/4.
    """
    p, q = ((tables.HANKEL_P0, tables.HANKEL_Q0), (tables.HANKEL_P1, tables.HANKEL_Q1))[order]
    w = 5 / x
    angle = x - (2 * order + 1) * math.pi / 4
    sine, cosine = g.sin(angle), g.cos(angle)
    even, odd = series(p, w * w), w * series(q, w * w)
    waves = even * sine + odd * cosine if second else even * cosine - odd * sine
    return waves * math.sqrt(2 / math.pi) / g.sqrt(x)


def _i(g: Builder, a: Value, close: Fit, distant: Fit) -> Value:
    """exp(−a)·I₀(a), or exp(−a)·I₁(a)/a up to 8 and exp(−a)·I₁(a) beyond, at a ≥ 0."""
    is_near = g.less_equal(a, 8.0)
    near, inverse = g.where_(is_near, a, 0.0), g.reciprocal(g.where_(is_near, 8.0, a))
    inner = series(close, near)
    if close is tables.I1_NEAR:
        inner = near * inner
    return g.where_(is_near, inner, series(distant, inverse) * g.sqrt(inverse))


def _i1e(g: Builder, x: Value) -> Value:
    result = _i(g, g.abs(x), tables.I1_NEAR, tables.I1_FAR)
    return g.where_(g.less(x, 0.0), -result, result)
