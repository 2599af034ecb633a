"""Orthogonal polynomials, by their recurrences in the degree (NIST Digital Library of Mathematical Functions, 18.9).

The degree is a number, or a tensor; of one that is not an integer, what follows the point is dropped.  At a negative
degree the result is 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from onnx import TensorProto

from passes.arithmetic._dtypes import promoted
from passes.special._series import widened
from rewriter.placeholder import Case, Placeholder, decomposition, f32, i64
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

#: Up to here a degree that is known is written out.
_MOST_STEPS = 32
#: PyTorch has no Hermite polynomial beyond.
_HERMITE: dict[int, int] = {TensorProto.FLOAT: 128, TensorProto.DOUBLE: 512}


class _Polynomial(Placeholder):
    """p(0) = 1, p(1) = a·x + b, and p(k + 1) = (α·x + β)·p(k) − γ·p(k − 1)."""

    shapes = "x: ...; n: ..."

    #: Of the operator in ``torch.special``.
    operator: ClassVar[str]
    #: a and b.
    first: ClassVar[tuple[float, float]]
    #: Whether the argument is 2x − 1.
    shifted: ClassVar[bool] = False
    #: The highest degree by dtype, beyond which the result is NaN.
    highest: ClassVar[dict[int, int]] = {}
    # Rounding grows with the degree, and more where terms cancel; PyTorch has cosines of multiples for some degrees.
    tolerances = {"float32": (1e-4, 2e-5)}  # noqa: RUF012

    def step(self, k: Any) -> tuple[Any, Any, Any]:
        """α, β and γ of the step from degree ``k``: a number, or a value in a loop."""
        raise NotImplementedError

    def reference(self, x: Any, n: Any) -> Any:
        import torch

        operator = getattr(torch.special, self.operator)
        tensors = [item for item in (x, n) if isinstance(item, torch.Tensor)]
        if all(item.dtype not in (torch.float16, torch.bfloat16) for item in tensors):
            return operator(x, n)
        dtype = torch.result_type(x, n)
        x, n = (item.float() if isinstance(item, torch.Tensor) else item for item in (x, n))
        return operator(x, n).to(dtype)

    @decomposition(
        requires=lambda n, **_: max(_degrees(n) or (_MOST_STEPS + 1,)) <= _MOST_STEPS,
        reason="the degree is known: every step is written out",
    )
    def unrolled(self, g: Builder, x: int | float | Value, n: int | float | Value) -> Value:
        degrees = _degrees(n)
        assert degrees is not None
        argument, degree, like = self._arguments(g, x, n)
        before, result = g.const(1.0, argument), self._line(argument)
        chosen = g.where_(g.less(degree, 1), before, result)
        for k in range(1, max(degrees, default=0)):
            before, result = result, self._next(argument, before, result, k)
            chosen = g.where_(g.greater(degree, k), result, chosen)
        return g.cast(self._limited(g, chosen, degree), like)

    @decomposition()
    def loop(self, g: Builder, x: int | float | Value, n: int | float | Value) -> Value:
        argument, degree, like = self._arguments(g, x, n)
        # Both of the broadcast sizes from the first step on.
        line = g.where_(g.equal(degree, degree), self._line(argument), 0.0)
        one = g.where_(g.const(True), g.const(1.0, line), line)
        most = g.reduce_max(g.concat([g.flatten(degree), g.ints([1])], axis=0), [0], keepdims=False)
        body = g.body()
        number = body.fresh_input(TensorType(TensorProto.INT64, ()))
        goes_on = body.fresh_input(TensorType(TensorProto.BOOL, ()))
        assert line.type is not None
        before, last = body.fresh_input(line.type), body.fresh_input(line.type)
        k = body.cast(number, argument) + 1
        following = self._next(body.identity(argument), before, last, k)
        is_on = body.greater(degree, number + 1)
        results = [body.where_(is_on, last, before), body.where_(is_on, following, last)]
        results = [body.retyped(result, line.shape) for result in results]
        graph = g.subgraph(
            "degree", body, [number, goes_on, before, last], [body.identity(goes_on), *results]
        )
        _, made = g.op("Loop", most - 1, g.const(True), one, line, body=graph, outputs=2)
        result = g.where_(g.less(degree, 1), one, g.retyped(made, line.shape))
        return g.cast(self._limited(g, result, degree), like)

    def _arguments(
        self, g: Builder, x: int | float | Value, n: int | float | Value
    ) -> tuple[Value, Value, Value]:
        """What the polynomial is of, the degree as an integer, and a value of the result's dtype."""
        argument, degree = promoted(g, x, n, to_float=True)
        wide = widened(g, argument)
        if isinstance(n, (int, float)):
            degree = g.ints(math.trunc(n))
        wide = wide * 2 - 1 if self.shifted else wide
        return wide, g.cast(degree, TensorProto.INT64), argument

    def _line(self, x: Value) -> Value:
        factor, added = self.first
        result = x if factor == 1.0 else x * factor
        return result if added == 0.0 else result + added

    def _next(self, x: Value, before: Value, last: Value, k: Any) -> Value:
        factor, added, subtracted = self.step(k)
        slope = x if isinstance(factor, int) and factor == 1 else x * factor
        slope = slope if isinstance(added, int) and added == 0 else slope + added
        result: Value = last * slope - before * subtracted
        return result

    def _limited(self, g: Builder, result: Value, degree: Value) -> Value:
        if self.highest:
            most = self.highest[result.dtype]
            result = g.where_(g.greater(degree, most), math.nan, result)
        return g.where_(g.less(degree, 0), 0.0, result)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 5), i64(5, value=(0, 1, 2, 5, -1)))
        yield Case(f32(4, 1, draw=_inside), f32(4, value=(0.0, 1.5, 3.0, 7.0)), symbolic=False)
        yield Case(f32(8, value=(0.0, 1.0, -1.0, 0.5, -2.0, 3.5, _INF, -_INF)), 3)
        yield Case(0.75, i64(4, value=(0, 1, 4, 9)), symbolic=False)


_INF = float("inf")


def _inside(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0, 1, shape)


def _degrees(n: int | float | Value) -> tuple[int, ...] | None:
    """The degrees where they are known."""
    if isinstance(n, (int, float)):
        return (math.trunc(n),)
    if n.constant is None:
        return None
    return tuple(int(value) for value in np.trunc(np.asarray(n.constant, np.float64)).ravel())


class _Chebyshev(_Polynomial):
    """One of the four kinds, which differ in the first degree."""

    shapes = "x: ...; n: ..."

    def step(self, k: Any) -> tuple[Any, Any, Any]:
        return 2, 0, 1


class ChebyshevPolynomialT(_Chebyshev):
    """Chebyshev polynomials of the first kind; the meaning of `torch.special.chebyshev_polynomial_t`."""

    matches = ("ChebyshevPolynomialT", "aten::special_chebyshev_polynomial_t")
    operator = "chebyshev_polynomial_t"
    first = (1.0, 0.0)


class ChebyshevPolynomialU(_Chebyshev):
    """Chebyshev polynomials of the second kind; the meaning of `torch.special.chebyshev_polynomial_u`."""

    matches = ("ChebyshevPolynomialU", "aten::special_chebyshev_polynomial_u")
    operator = "chebyshev_polynomial_u"
    first = (2.0, 0.0)


class ChebyshevPolynomialV(_Chebyshev):
    """Chebyshev polynomials of the third kind; the meaning of `torch.special.chebyshev_polynomial_v`."""

    matches = ("ChebyshevPolynomialV", "aten::special_chebyshev_polynomial_v")
    operator = "chebyshev_polynomial_v"
    first = (2.0, -1.0)


class ChebyshevPolynomialW(_Chebyshev):
    """Chebyshev polynomials of the fourth kind; the meaning of `torch.special.chebyshev_polynomial_w`."""

    matches = ("ChebyshevPolynomialW", "aten::special_chebyshev_polynomial_w")
    operator = "chebyshev_polynomial_w"
    first = (2.0, 1.0)


class ShiftedChebyshevPolynomialT(_Chebyshev):
    """Those of the first kind, at 2x − 1; the meaning of `torch.special.shifted_chebyshev_polynomial_t`."""

    matches = ("ShiftedChebyshevPolynomialT", "aten::special_shifted_chebyshev_polynomial_t")
    operator = "shifted_chebyshev_polynomial_t"
    first = (1.0, 0.0)
    shifted = True


class ShiftedChebyshevPolynomialU(_Chebyshev):
    """Those of the second kind, at 2x − 1; the meaning of `torch.special.shifted_chebyshev_polynomial_u`."""

    matches = ("ShiftedChebyshevPolynomialU", "aten::special_shifted_chebyshev_polynomial_u")
    operator = "shifted_chebyshev_polynomial_u"
    first = (2.0, 0.0)
    shifted = True


class ShiftedChebyshevPolynomialV(_Chebyshev):
    """Those of the third kind, at 2x − 1; the meaning of `torch.special.shifted_chebyshev_polynomial_v`."""

    matches = ("ShiftedChebyshevPolynomialV", "aten::special_shifted_chebyshev_polynomial_v")
    operator = "shifted_chebyshev_polynomial_v"
    first = (2.0, -1.0)
    shifted = True


class ShiftedChebyshevPolynomialW(_Chebyshev):
    """Those of the fourth kind, at 2x − 1; the meaning of `torch.special.shifted_chebyshev_polynomial_w`."""

    matches = ("ShiftedChebyshevPolynomialW", "aten::special_shifted_chebyshev_polynomial_w")
    operator = "shifted_chebyshev_polynomial_w"
    first = (2.0, 1.0)
    shifted = True


class HermitePolynomialH(_Polynomial):
    """The physicists' Hermite polynomials; the meaning of `torch.special.hermite_polynomial_h`."""

    matches = ("HermitePolynomialH", "aten::special_hermite_polynomial_h")
    operator = "hermite_polynomial_h"
    first = (2.0, 0.0)
    highest = _HERMITE

    def step(self, k: Any) -> tuple[Any, Any, Any]:
        return 2, 0, k * 2


class HermitePolynomialHe(_Polynomial):
    """The probabilists' Hermite polynomials; the meaning of `torch.special.hermite_polynomial_he`."""

    matches = ("HermitePolynomialHe", "aten::special_hermite_polynomial_he")
    operator = "hermite_polynomial_he"
    first = (1.0, 0.0)
    highest = _HERMITE

    def step(self, k: Any) -> tuple[Any, Any, Any]:
        return 1, 0, k


class LaguerrePolynomialL(_Polynomial):
    """Laguerre polynomials; the meaning of `torch.special.laguerre_polynomial_l`."""

    matches = ("LaguerrePolynomialL", "aten::special_laguerre_polynomial_l")
    operator = "laguerre_polynomial_l"
    first = (-1.0, 1.0)

    def step(self, k: Any) -> tuple[Any, Any, Any]:
        return -1 / (k + 1), (k * 2 + 1) / (k + 1), k / (k + 1)


class LegendrePolynomialP(_Polynomial):
    """Legendre polynomials; the meaning of `torch.special.legendre_polynomial_p`."""

    matches = ("LegendrePolynomialP", "aten::special_legendre_polynomial_p")
    operator = "legendre_polynomial_p"
    first = (1.0, 0.0)

    def step(self, k: Any) -> tuple[Any, Any, Any]:
        return (k * 2 + 1) / (k + 1), 0, k / (k + 1)
