"""Operators of two real numbers that mind NaN, signs of zero, overflow or small results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from passes.arithmetic._dtypes import FLOATING, in_int64, promoted
from passes.special._exponential import log1p
from passes.special._series import widened
from rewriter.placeholder import ELEMENTWISE, Case, Placeholder, TensorSpec, f32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

_INF, _NAN = float("inf"), float("nan")
#: Each with each is what a binary operator is tried on.
_SPECIAL = (_INF, -_INF, _NAN, 0.0, -0.0, 1.0, -2.5)


class _Pair(Placeholder):
    """A function of two tensors, broadcast; subclasses say which, and how it is written."""

    shapes = "x: ...; other: ..."

    tolerances = ELEMENTWISE

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 1, 4), f32(3, 1))
        yield Case(f32(), f32(0, 3), symbolic=False)
        yield Case(f32(7, 1, value=_SPECIAL), f32(7, value=_SPECIAL), symbolic=False)


class Fmax(_Pair):
    """The larger of two, and the other where one is NaN; the meaning of `torch.fmax`."""

    matches = ("Fmax", "aten::fmax")

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        return torch.fmax(x, other)

    def decompose(self, g: Builder, x: Value, other: Value) -> Value:
        return _chosen(g, x, other, largest=True)

    def cases(self) -> Iterator[Case]:
        yield from super().cases()
        yield from _mixed()


class Fmin(_Pair):
    """The smaller of two, and the other where one is NaN; the meaning of `torch.fmin`."""

    matches = ("Fmin", "aten::fmin")

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        return torch.fmin(x, other)

    def decompose(self, g: Builder, x: Value, other: Value) -> Value:
        return _chosen(g, x, other, largest=False)

    def cases(self) -> Iterator[Case]:
        yield from super().cases()
        yield from _mixed()


class Copysign(_Pair):
    """The magnitude of `x` with the sign of `other`; the meaning of `torch.copysign`.

    The sign of a NaN is taken for positive: no operator of ONNX reads it.
    """

    matches = ("Copysign", "aten::copysign")

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        return torch.copysign(x, other)

    def decompose(self, g: Builder, x: Value, other: int | float | Value) -> Value:
        a, b = promoted(g, x, other, to_float=True)
        # A product, because onnxruntime's Where makes 0 of −0.
        return g.abs(a) * g.where_(is_negative(g, b), g.const(-1, a), 1)

    def cases(self) -> Iterator[Case]:
        yield from super().cases()
        yield from _mixed()
        yield Case(f32(2, 3), other=-0.0)


class Signbit(Placeholder):
    """Whether the sign is negative, also of −0; the meaning of `torch.signbit`.

    The sign of a NaN is taken for positive: no operator of ONNX reads it.
    """

    matches = ("Signbit", "aten::signbit")
    shapes = "x: ..."

    def reference(self, x: Any) -> Any:
        import torch

        return torch.signbit(x)

    def decompose(self, g: Builder, x: Value) -> Value:
        return is_negative(g, x)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3))
        yield Case(f32(7, value=_SPECIAL), symbolic=False)
        yield Case(i64(2, 3, low=-3, high=4), symbolic=False)
        yield Case(TensorSpec((4,), "bool"), symbolic=False)


class Hypot(_Pair):
    """√(x² + y²), which does not overflow before its result does; the meaning of `torch.hypot`."""

    matches = ("Hypot", "aten::hypot")

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        return torch.hypot(x, other)

    def decompose(self, g: Builder, x: Value, other: Value) -> Value:
        given = promoted(g, x, other)
        a, b = (g.abs(widened(g, value)) for value in given)
        is_infinite = g.or_(g.equal(a, math.inf), g.equal(b, math.inf))
        is_first = g.or_(g.greater(a, b), g.op("IsNaN", a))
        large, small = g.where_(is_first, a, b), g.where_(is_first, b, a)
        is_plain = g.not_(g.or_(is_infinite, g.equal(large, 0.0)))
        ratio = g.where_(is_plain, small, 0.0) / g.where_(is_plain, large, 1.0)
        result = large * g.sqrt(ratio * ratio + 1)
        return g.cast(g.where_(is_infinite, math.inf, result), given[0])

    def cases(self) -> Iterator[Case]:
        yield from super().cases()
        yield Case(
            f32(5, value=(3e30, 3e-30, 3e38, 1e-20, 0.0)),
            f32(5, value=(4e30, 4e-30, 1e20, 1.0, 0.0)),
            dtypes=("float32",),
            reason="no other dtype has these",
        )


class Logaddexp(_Pair):
    """ln(exp(x) + exp(y)), which does not overflow; the meaning of `torch.logaddexp`."""

    matches = ("Logaddexp", "aten::logaddexp")
    # x + ln 2 and the like lose digits where the result is near 0.
    tolerances = {"float32": (2e-6, 3e-7)}  # noqa: RUF012

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        return torch.logaddexp(x, other)

    def decompose(self, g: Builder, x: Value, other: Value) -> Value:
        return _log_add_exp(g, x, other, 1.0)

    def cases(self) -> Iterator[Case]:
        yield from super().cases()
        yield Case(
            f32(5, value=(100.0, -100.0, 1000.0, 0.0, 30.0)), f32(5, value=(100.5, -100.0, -9.0, -60.0, 0.0))
        )


class Logaddexp2(_Pair):
    """log₂(2^x + 2^y), which does not overflow; the meaning of `torch.logaddexp2`."""

    matches = ("Logaddexp2", "aten::logaddexp2")
    name = "logaddexp2"
    tolerances = Logaddexp.tolerances

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        return torch.logaddexp2(x, other)

    def decompose(self, g: Builder, x: Value, other: Value) -> Value:
        return _log_add_exp(g, x, other, math.log(2))

    def cases(self) -> Iterator[Case]:
        yield from super().cases()
        yield Case(f32(4, value=(200.0, -200.0, 1000.0, 0.0)), f32(4, value=(200.5, -200.0, -9.0, -60.0)))


class Xlogy(_Pair):
    """x·ln y, and 0 where x is 0 unless y is NaN; the meaning of `torch.xlogy`."""

    matches = ("Xlogy", "aten::xlogy", "aten::special_xlogy")

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        return torch.xlogy(x, other)

    def decompose(self, g: Builder, x: int | float | Value, other: int | float | Value) -> Value:
        a, b = promoted(g, x, other, to_float=True)
        is_zero, is_nan = g.equal(a, 0.0), g.op("IsNaN", b)
        result = g.where_(is_zero, 0.0, a * g.log(g.where_(is_zero, 1.0, b)))
        return g.where_(is_nan, math.nan, result)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3), f32(2, 3, draw=lambda rng, shape: rng.uniform(0.1, 3, shape)))
        yield Case(f32(7, 1, value=_SPECIAL), f32(7, value=_SPECIAL), symbolic=False)
        yield Case(2, f32(3, value=(0.5, 1.0, 2.0)))
        yield Case(f32(2, 3), 2.5)
        yield Case(i64(2, 3), i64(3, low=1), symbolic=False)


def is_negative(g: Builder, x: Value) -> Value:
    """Whether the sign of ``x`` is negative; −0 is known by its reciprocal, −∞."""
    if x.dtype == TensorProto.BOOL:
        return g.less(g.cast(x, TensorProto.INT32), 0)
    if x.dtype not in FLOATING:
        return g.less(in_int64(g, x)[0], 0)
    return g.or_(g.less(x, 0.0), g.less(g.reciprocal(x), 0.0))


def _chosen(g: Builder, x: Value, other: Value, *, largest: bool) -> Value:
    """The larger (or smaller) of two; a NaN is never chosen against a number."""
    a, b = promoted(g, x, other)
    if a.dtype == TensorProto.BOOL:
        return g.or_(a, b) if largest else g.and_(a, b)
    compare = g.greater if largest else g.less
    if a.dtype not in FLOATING:
        left, right = in_int64(g, a, b)
        return g.cast(g.where_(compare(left, right), left, right), a)
    return g.where_(g.or_(g.op("IsNaN", b), compare(a, b)), a, b)


def _log_add_exp(g: Builder, x: Value, other: Value, unit: float) -> Value:
    """log(b^x + b^y), where ``unit`` is ln b: the larger plus log(1 + b^−|x − y|)."""
    given = promoted(g, x, other)
    a, b = (widened(g, value) for value in given)
    is_equal = g.equal(a, b)  # so are infinities, whose difference is not a number
    distance = g.where_(is_equal, 0.0, g.abs(a - b))
    rest = log1p(g, g.exp(-distance) if unit == 1.0 else g.pow(g.const(2.0, distance), -distance))
    result = g.where_(g.greater(a, b), a, b) + (rest if unit == 1.0 else rest * (1 / unit))
    # Where a is NaN, the comparison chose b.
    return g.cast(g.where_(g.op("IsNaN", a), a, result), given[0])


def _mixed() -> Iterator[Case]:
    yield Case(i64(2, 3, low=-3, high=4), i64(3, low=-3, high=4), symbolic=False)
    yield Case(i64(2, 3, low=-3, high=4), f32(3), symbolic=False)
    yield Case(TensorSpec((2, 3), "bool"), TensorSpec((3,), "bool"), symbolic=False)
