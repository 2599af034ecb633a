"""ln Γ and ψ, for other passes to build on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnx import TensorProto

from passes.special import _tables as tables
from passes.special._series import series

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value


def lgamma(g: Builder, x: Value) -> Value:
    """ln |Γ(x)|.

    1. Up to 3: a series of Γ(t + 2) without its zeros, and ln Γ(x) = ln Γ(x + 1) − ln x below 1.
    2. From 3 on: Stirling's formula, written so that its large terms do not cancel.
    3. Below 0: ln |Γ(−a)| = ln(π / (a·|sin πa|)) − ln Γ(a).  Near a zero there, only the absolute error is small.
    """
    a = g.abs(x)
    result = lgamma_of_positive(g, a)
    offset = offset_from_integer(g, a)
    is_below = g.less(x, 0.0)
    is_pole = g.equal(offset, 0.0)
    height = g.abs(g.sin(g.where_(is_pole, 0.5, offset) * math.pi))
    reflected = (math.log(math.pi) - g.log(g.where_(is_below, a, 1.0))) - g.log(height) - result
    return g.where_(is_below, g.where_(is_pole, math.inf, reflected), result)


def lgamma_of_positive(g: Builder, a: Value) -> Value:
    """ln Γ(a) where a ≥ 0."""
    is_near, is_small = g.less_equal(a, 3.0), g.less(a, 1.0)
    t = g.where_(is_near, g.where_(is_small, a - 1, a - 2), 0.0)
    near = t * (t + 1) * series(tables.LGAMMA_NEAR, t) - g.log(g.where_(is_small, a, 1.0))
    far = g.where_(is_near, 3.0, a)
    inverse = g.reciprocal(far)
    rest = inverse * series(tables.LGAMMA_FAR, inverse * inverse) + (math.log(2 * math.pi) - 1) / 2
    return g.where_(is_near, near, (far - 0.5) * (g.log(far) - 1) + rest)


def digamma(g: Builder, x: Value) -> Value:
    """ψ(x): from ψ(1 + |x|) by ψ(x) = ψ(1 + x) − 1/x and ψ(−a) = ψ(1 + a) + π·cot πa."""
    a = g.abs(x)
    is_near = g.less_equal(a, 2.0)
    near = series(tables.DIGAMMA_NEAR, g.where_(is_near, a, 1.0))
    far = g.where_(is_near, 2.0, a)
    inverse = g.reciprocal(far)
    square = inverse * inverse
    tail = g.log(far) + (inverse * 0.5 + square * series(tables.DIGAMMA_FAR, square))
    following = g.where_(is_near, near, tail)
    is_below = g.less(x, 0.0)
    offset = offset_from_integer(g, a)
    is_pole = g.equal(offset, 0.0)
    angle = g.where_(is_pole, 0.5, offset) * math.pi
    reflected = following + g.cos(angle) / g.sin(angle) * math.pi
    above = following - g.reciprocal(g.where_(is_below, 1.0, x))
    return g.where_(is_below, g.where_(is_pole, math.nan, reflected), above)


def offset_from_integer(g: Builder, a: Value) -> Value:
    """``a`` less the nearest integer; 0 where it is infinite."""
    # From here on every number is an integer.
    whole = 2.0**23 if a.dtype == TensorProto.FLOAT else 2.0**52
    a = g.where_(g.less(a, whole), a, whole)
    return a - g.round(a)
