"""The error function's complement and inverse, the normal distribution's quantile, and logarithms near 1."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnx import TensorProto

from passes.special import _tables as tables
from passes.special._exponential import erfc, erfcx, erfcx_of_positive, expm1, log1p
from passes.special._series import Unary, series
from rewriter.placeholder import ELEMENTWISE, Case, f32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

_INF, _NAN = float("inf"), float("nan")
#: A few roundings of a function and its argument.
_FEW = {"float32": (4e-6, 1e-37)}


class Log1p(Unary):
    """ln(1 + x), elementwise, also where 1 + x rounds to 1; the meaning of `torch.log1p`."""

    matches = ("Log1p", "aten::log1p", "aten::special_log1p")
    shapes = "x: ..."
    name = "log1p"
    operator = "log1p"
    tolerances = ELEMENTWISE

    def formula(self, g: Builder, x: Value) -> Value:
        return log1p(g, x)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 8, draw=lambda rng, shape: rng.uniform(-0.9, 3, shape)))
        yield from _edges(1e-30, -1e-10, 1e-4, -0.4999, 0.5001, -1.0, 60000.0)


class Expm1(Unary):
    """exp(x) − 1, elementwise, also where exp(x) rounds to 1; the meaning of `torch.expm1`."""

    matches = ("Expm1", "aten::expm1", "aten::special_expm1")
    shapes = "x: ..."
    name = "expm1"
    operator = "expm1"
    tolerances = ELEMENTWISE

    def formula(self, g: Builder, x: Value) -> Value:
        return expm1(g, x)

    def cases(self) -> Iterator[Case]:
        yield from _cases(1e-30, -1e-10, 1e-4, -0.4999, 0.5001, -100.0, 10.0)


class Erfc(Unary):
    """1 − erf(x), elementwise, with all digits where it is small; the meaning of `torch.erfc`."""

    matches = ("Erfc", "aten::erfc", "aten::special_erfc")
    shapes = "x: ..."
    operator = "erfc"
    tolerances = _FEW

    def formula(self, g: Builder, x: Value) -> Value:
        return erfc(g, x)

    def cases(self) -> Iterator[Case]:
        yield from _cases(0.25, 1.5, 2.5, 3.0, 9.0, -9.0, 100.0)


class Erfcx(Unary):
    """exp(x²)·erfc(x), elementwise; the meaning of `torch.special.erfcx`."""

    matches = ("Erfcx", "aten::special_erfcx")
    shapes = "x: ..."
    operator = "special_erfcx"
    # PyTorch rounds x² before it takes its exponential.
    tolerances = {"float32": (8e-6, 1e-37)}  # noqa: RUF012

    def formula(self, g: Builder, x: Value) -> Value:
        return erfcx(g, x)

    def cases(self) -> Iterator[Case]:
        yield from _cases(0.25, 3.0, 40.0, 1000.0, -2.5, -30.0)


class LogNdtr(Unary):
    """ln of the normal distribution function, elementwise; the meaning of `torch.special.log_ndtr`."""

    matches = ("LogNdtr", "aten::special_log_ndtr")
    shapes = "x: ..."
    operator = "special_log_ndtr"
    tolerances = _FEW

    def formula(self, g: Builder, x: Value) -> Value:
        t = x * math.sqrt(0.5)
        is_low = g.less(x, -1.0)
        a = g.where_(is_low, -t, 1.0)
        low = g.log(erfcx_of_positive(a) * 0.5) - a * a
        return g.where_(is_low, low, log1p(g, erfc(g, g.where_(is_low, 1.0, t)) * -0.5))

    def cases(self) -> Iterator[Case]:
        yield from _cases(-1.0, -1.001, -5.0, -30.0, -10000.0, 3.0, 9.0)


class Erfinv(Unary):
    """The inverse of erf, elementwise; the meaning of `torch.erfinv`.

    x times a series in w = −ln(1 − x²), further out in √w (after Giles, 2010, "Approximating the erfinv function").
    """

    matches = ("Erfinv", "aten::erfinv", "aten::special_erfinv")
    shapes = "x: ..."
    operator = "erfinv"
    tolerances = _FEW

    def formula(self, g: Builder, x: Value) -> Value:
        w = -g.log((1 - x) * (x + 1))
        is_near = g.less_equal(w, tables.ERFINV_NEAR.high)
        root = g.sqrt(g.where_(is_near, tables.ERFINV_NEAR.high, w))
        further = tables.ERFINV_FURTHER
        if x.dtype == TensorProto.DOUBLE:
            is_far = g.less_equal(root, tables.ERFINV_FAR.high)
            last = series(further, g.where_(is_far, further.low, root))
            far = g.where_(is_far, series(tables.ERFINV_FAR, g.where_(is_far, root, further.low)), last)
        else:  # The largest float32 below 1 is within the second interval.
            far = series(tables.ERFINV_FAR, root)
        near = series(tables.ERFINV_NEAR, g.where_(is_near, w, 0.0))
        result = g.where_(g.equal(x, 1.0), math.inf, x * g.where_(is_near, near, far))
        return g.where_(g.equal(x, -1.0), -math.inf, result)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 8, draw=lambda rng, shape: rng.uniform(-1, 1, shape)))
        yield Case(i64(3, low=-2, high=3))
        yield Case(f32(9, value=(1.0, -1.0, 1.5, 0.0, -0.0, _NAN, 1e-7, 0.9990234, -0.99951172)))


class Ndtri(Unary):
    """The quantile of the normal distribution, elementwise; the meaning of `torch.special.ndtri`.

    A series about 1/2, and y − ln(y)/y less a series in 1/y in the tails, where y² = −2·ln p (the form of Cephes).
    """

    matches = ("Ndtri", "aten::special_ndtri")
    shapes = "x: ..."
    operator = "special_ndtri"
    tolerances = _FEW

    def formula(self, g: Builder, p: Value) -> Value:
        is_high = g.greater(p, 0.5)
        tail = g.where_(is_high, 1 - p, p)
        is_inner = g.greater(tail, math.exp(-2))
        off = g.where_(is_inner, p - 0.5, 0.0)
        inner = off * series(tables.NDTRI_NEAR, off * off)
        is_end = g.equal(tail, 0.0)
        y = g.sqrt(g.log(g.where_(g.or_(is_inner, is_end), math.exp(-2), tail)) * -2)
        inverse = g.reciprocal(y)
        outer = y - g.log(y) * inverse - inverse * series(tables.NDTRI_FAR, inverse)
        outer = g.where_(is_end, math.inf, outer)
        return g.where_(is_inner, inner, g.where_(is_high, outer, -outer))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 8, draw=lambda rng, shape: rng.uniform(0, 1, shape)))
        yield Case(f32(10, value=(0.0, 1.0, 1.5, -0.5, 0.5, _NAN, 1e-4, 1e-7, 0.9990234, 0.13)))


def _cases(*values: float) -> Iterator[Case]:
    yield Case(f32(2, 3, 8))
    yield from _edges(*values)


def _edges(*values: float) -> Iterator[Case]:
    yield Case(i64(2, 3, low=-2, high=5), symbolic=False)
    special = (_INF, -_INF, _NAN, 0.0, -0.0, *values)
    yield Case(f32(len(special), value=special), symbolic=False)
