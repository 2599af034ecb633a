"""Hurwitz's zeta function and the derivatives of digamma.

Sources: NIST Digital Library of Mathematical Functions, 25.11.28 (Euler and Maclaurin's formula), 25.11.12 (polygamma),
5.15.6 (reflection).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from passes.arithmetic._dtypes import promoted
from passes.special._gamma import digamma, offset_from_integer
from passes.special._series import restored, widened
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, f32, i64
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

_INF, _NAN = float("inf"), float("nan")
#: B(2j) / (2j)! for j = 1, 2, …
_BERNOULLI = tuple(
    number / math.factorial(2 * j)
    for j, number in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510), 1)
)
#: Terms that are summed one by one.
_TERMS = 9
#: From this exponent on, what follows the first terms rounds away.
_LARGE = 100.0
#: Beyond, n! overflows in float32.
_MOST_DERIVATIVES = 30


class Zeta(Placeholder):
    """Hurwitz's ζ(x, q) = Σ (q + k)^−x; the meaning of `torch.special.zeta`.

    NaN where x < 1, and where q < 0 and x is not an integer; infinite at x = 1, and where q is 0 or an integer below.
    """

    matches = ("Zeta", "aten::special_zeta")
    shapes = "x: ...; q: ..."
    tolerances = {"float32": (1e-5, 1e-37)}  # noqa: RUF012

    def reference(self, x: Any, q: Any) -> Any:
        import torch

        tensors = [item for item in (x, q) if isinstance(item, torch.Tensor)]
        if any(item.dtype in (torch.float16, torch.bfloat16) for item in tensors):
            dtype = torch.result_type(x, q)
            x, q = (item.float() if isinstance(item, torch.Tensor) else item for item in (x, q))
            return torch.special.zeta(x, q).to(dtype)
        return torch.special.zeta(x, q)

    def decompose(self, g: Builder, x: int | float | Value, q: int | float | Value) -> Value:
        given = promoted(g, x, q, to_float=True)
        s, a = (widened(g, item) for item in given)
        # Comparisons with NaN are false, so that NaN goes through.
        is_pole = g.and_(g.less_equal(a, 0.0), g.equal(a, g.floor(a)))
        is_fraction = g.and_(g.less(a, 0.0), g.not_(g.equal(s, g.floor(s))))
        is_below_one = g.less(s, 1.0)
        is_apart = g.or_(g.or_(is_pole, is_fraction), g.less_equal(s, 1.0))
        exponent, start = g.where_(is_apart, 2.0, s), g.where_(is_apart, 1.0, a)
        below, start = _up_to_zero(g, exponent, start)
        result = below + _hurwitz(g, exponent, start)
        result = g.where_(is_pole, math.inf, g.where_(is_fraction, math.nan, result))
        result = g.where_(is_below_one, math.nan, result)
        return g.cast(g.where_(g.equal(s, 1.0), math.inf, result), given[0])

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 1, value=(1.25, 4.0, 2.7)), f32(5, draw=_above_zero), symbolic=False)
        yield Case(
            f32(4, 1, value=(1.0, 0.5, 2.0, 3.5)), f32(5, value=(0.0, -1.0, -2.5, 1.0, 40.0)), symbolic=False
        )


class Polygamma(Placeholder):
    """The n-th derivative of digamma, for an n that is known; the meaning of `torch.polygamma`."""

    matches = ("Polygamma", "aten::polygamma", "aten::special_polygamma")
    shapes = "x: ..."
    # PyTorch takes the sine of a rounded πx in the first derivative, and rounds n! in the others.
    tolerances = {"float32": (2e-4, 1e-5), "float64": (1e-6, 1e-6)}  # noqa: RUF012

    def reference(self, n: int, x: Any) -> Any:
        import torch

        if x.dtype not in (torch.float16, torch.bfloat16):
            return torch.polygamma(n, x)
        return torch.polygamma(n, x.float()).to(x.dtype)

    def decompose(self, g: Builder, n: int, x: Value) -> Value:
        if not 0 <= n <= _MOST_DERIVATIVES:
            raise UnsupportedParameter(
                f"the derivative number {n} of digamma is asked for, and up to {_MOST_DERIVATIVES} are known",
                where=g.where,
            )
        wide = widened(g, x)
        return restored(g, digamma(g, wide) if n == 0 else _polygamma(g, n, wide), x)

    def cases(self) -> Iterator[Case]:
        yield Case(1, f32(2, 5))
        yield Case(2, f32(9, value=(0.1, 0.7, 1.5, 3.0, 12.0, -0.4, -1.3, -5.6, 0.02)), symbolic=False)
        yield Case(5, f32(5, value=(0.5, 1.5, 3.0, -0.5, -2.25)), symbolic=False)
        yield Case(0, f32(4), symbolic=False)
        yield Case(1, f32(4, value=(_INF, _NAN, 0.0, -0.0)), symbolic=False)
        yield Case(1, f32(4, value=(-1.0, -2.0, -1.0009766, -30.0)), dtypes=("float32",), symbolic=False)
        yield Case(2, f32(3, value=(0.0, -1.0, -3.0)), symbolic=False)
        yield Case(3, i64(4, low=1, high=9), symbolic=False)


def _hurwitz(g: Builder, s: float | Value, a: Value) -> Value:
    """ζ(s, a) where s > 1 and a > 0: the first terms, and the sum of the others by Euler and Maclaurin's formula."""
    total = _power(g, a, s)
    for k in range(1, _TERMS):
        total = total + _power(g, a + k, s)
    base = a + _TERMS
    if isinstance(s, (int, float)):
        return total + _tail(g, s, base)
    # The tail is nothing beside the first term, and its factors overflow.
    is_large = g.greater(s, _LARGE)
    return total + g.where_(is_large, 0.0, _tail(g, g.where_(is_large, 2.0, s), base))


def _tail(g: Builder, s: Any, base: Value) -> Value:
    """Σ (base + k)^−s from k = 0 on."""
    inverse = g.reciprocal(base)
    square = inverse * inverse
    # s·(s + 1)···(s + 2j − 2) / base^(2j − 1), times the numbers, from the last one on.
    series: Any = 0.0
    for j in range(len(_BERNOULLI), 0, -1):
        series = _BERNOULLI[j - 1] if isinstance(series, float) else series * square + _BERNOULLI[j - 1]
        if j > 1:
            series = series * ((s + (2 * j - 3)) * (s + (2 * j - 2)))
    result: Value = _power(g, base, s - 1) / (s - 1) + _power(g, base, s) * (inverse * s * series + 0.5)
    return result


def _power(g: Builder, base: Value, s: float | Value) -> Value:
    """base^−s."""
    if isinstance(s, (int, float)):
        return g.pow(base, -float(s))
    result: Value = g.op("Pow", base, -s)
    return result


def _up_to_zero(g: Builder, s: Value, a: Value) -> tuple[Value, Value]:
    """The terms of ζ(s, a) whose base is below 0, s being an integer where there are any, and the base after them."""
    steps = g.where_(g.less(a, 0.0), g.ceil(-a), 0.0)
    most = g.reduce_max(g.concat([g.flatten(steps), g.const([0.0], a)], axis=0), [0], keepdims=False)
    is_odd = g.not_(g.equal(s, g.floor(s * 0.5) * 2))
    body = g.body()
    number = body.fresh_input(TensorType(TensorProto.INT64, ()))
    goes_on = body.fresh_input(TensorType(TensorProto.BOOL, ()))
    zero = g.where_(g.equal(s, s), a * 0.0, 0.0)
    assert zero.type is not None
    total = body.fresh_input(zero.type)
    base = body.identity(a) + body.cast(number, a)
    is_below = body.less(base, 0.0)
    term = _power(body, body.where_(is_below, -base, 1.0), s)
    term = body.where_(is_odd, -term, term)
    following = body.retyped(total + body.where_(is_below, term, 0.0), zero.shape)
    graph = g.subgraph("below", body, [number, goes_on, total], [body.identity(goes_on), following])
    made = g.op("Loop", g.cast(most, TensorProto.INT64), g.const(True), zero, body=graph)
    return g.retyped(made, zero.shape), a + steps


def _polygamma(g: Builder, n: int, x: Value) -> Value:
    """(−1)^(n+1)·n!·ζ(n + 1, x) above 0, and below by the reflection to 1 − x; n ≥ 1."""
    a = g.abs(x)
    is_below = g.less(x, 0.0)
    sign = -1.0 if n % 2 == 0 else 1.0
    above = _hurwitz(g, n + 1, g.where_(is_below, a + 1, a)) * (sign * math.factorial(n))
    if n == 1:
        # As PyTorch has it, with a rounded πx: at the poles it is large, not infinite.
        sine = g.sin(g.where_(is_below, a, 0.5) * math.pi)
        return g.where_(is_below, math.pi**2 / (sine * sine) - above, above)
    offset = offset_from_integer(g, a)
    is_pole = g.equal(offset, 0.0)
    angle = g.where_(is_pole, 0.5, offset) * math.pi
    # cot πx of x = −a; its derivatives are polynomials of it.
    cotangent = -(g.cos(angle) / g.sin(angle))
    coefficients = _derivative_of_cotangent(n)
    derivative = cotangent * coefficients[-1] + coefficients[-2]
    for value in reversed(coefficients[:-2]):
        derivative = derivative * cotangent + value
    reflected = above * -sign - derivative * math.pi ** (n + 1)
    return g.where_(is_below, g.where_(is_pole, sign * math.inf, reflected), above)


def _derivative_of_cotangent(n: int) -> list[float]:
    """Coefficients of the polynomial p with dⁿ/dxⁿ cot x = p(cot x)."""
    found = [0.0, 1.0]
    for _ in range(n):
        slope = [k * value for k, value in enumerate(found)][1:]
        found = [-value for value in (*slope, 0.0, 0.0)]
        for k, value in enumerate(slope):
            found[k + 2] -= value
    return found


def _above_zero(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.1, 12, shape)
