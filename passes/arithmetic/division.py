"""Quotients and remainders, shifts of bits, and common divisors.

Where PyTorch raises because an integer is divided by 0, the result is that of a division by 1: a model may hold such
a number where its result is not used, and some runtimes crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.arithmetic._dtypes import FLOATING, in_int64, promoted
from passes.special._series import widened
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import ELEMENTWISE, Case, Placeholder, TensorSpec, f32, i64
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

_INF, _NAN = float("inf"), float("nan")
_SPECIAL = (_INF, -_INF, _NAN, 0.0, -0.0, 3.5, -1.25)

#: Steps that Euclid's algorithm takes at most for two integers of so many bits, the worst being Fibonacci numbers.
_STEPS: dict[int, int] = {
    TensorProto.INT8: 12,
    TensorProto.UINT8: 14,
    TensorProto.INT16: 24,
    TensorProto.INT32: 47,
    TensorProto.INT64: 92,
}
_BITS: dict[int, int] = {
    TensorProto.INT8: 8,
    TensorProto.UINT8: 8,
    TensorProto.INT16: 16,
    TensorProto.INT32: 32,
    TensorProto.INT64: 64,
}


class FloorDivide(Placeholder):
    """The quotient rounded down; the meaning of `torch.floor_divide`.

    It is computed from the remainder, as in Python: the rounded quotient may be an integer that the quotient is below.
    """

    matches = ("FloorDivide", "aten::floor_divide")
    shapes = "x: ...; other: ..."
    tolerances = ELEMENTWISE

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        with torch.no_grad():  # its backward raises: it has no derivative
            return torch.floor_divide(x, _divisor(x, other))

    def decompose(self, g: Builder, x: int | float | Value, other: int | float | Value) -> Value:
        a, b = promoted(g, x, other)
        if a.dtype not in FLOATING:
            left, right = in_int64(g, a, b)
            return g.cast(_floor_of_integers(g, left, _not_zero(g, right)), a)
        a, b, like = widened(g, a), widened(g, b), a
        rest = g.fmod(a, b)
        whole = (a - rest) / b
        is_other_side = _is_other_side(g, rest, b)
        whole = g.where_(is_other_side, whole - 1, whole)
        down = g.floor(whole)
        down = g.where_(g.greater(whole - down, 0.5), down + 1, down)
        return g.cast(g.where_(g.equal(b, 0.0), a / b, down), like)

    def cases(self) -> Iterator[Case]:
        yield from _cases()


class Remainder(Placeholder):
    """The remainder with the sign of the divisor; the meaning of `torch.remainder`, Python's %."""

    matches = ("Remainder", "aten::remainder")
    shapes = "x: ...; other: ..."
    tolerances = ELEMENTWISE

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        return torch.remainder(x, _divisor(x, other))

    def decompose(self, g: Builder, x: int | float | Value, other: int | float | Value) -> Value:
        a, b = promoted(g, x, other)
        if a.dtype not in FLOATING:
            left, right = in_int64(g, a, b)
            return g.cast(g.mod(left, _not_zero(g, right)), a)
        rest = g.fmod(a, b)
        return g.where_(_is_other_side(g, rest, b), rest + b, rest)

    def cases(self) -> Iterator[Case]:
        yield from _cases()


class Fmod(Placeholder):
    """The remainder with the sign of the dividend; the meaning of `torch.fmod`, C's fmod and %."""

    matches = ("Fmod", "aten::fmod")
    shapes = "x: ...; other: ..."
    tolerances = ELEMENTWISE

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        return torch.fmod(x, _divisor(x, other))

    def decompose(self, g: Builder, x: Value, other: int | float | Value) -> Value:
        a, b = promoted(g, x, other)
        if a.dtype not in FLOATING:
            left, right = in_int64(g, a, b)
            right = _not_zero(g, right)
            return g.cast(left - g.op("Div", left, right) * right, a)
        return g.fmod(a, b)

    def cases(self) -> Iterator[Case]:
        yield from _cases()


class _Shift(Placeholder):
    """A shift of the bits of integers; a distance of all bits or more, or below 0, leaves none of them."""

    shapes = "x: ...; other: ..."

    def cases(self) -> Iterator[Case]:
        yield Case(i64(3, 4, low=-9, high=9), i64(4, low=0, high=5))
        yield Case(
            i64(4, value=(-1, 5, -(2**63), 2**40)), i64(5, 1, value=(0, 1, 40, 63, 64)), symbolic=False
        )
        yield Case(TensorSpec((5,), "int32", value=(-7, 7, -1, 2**30, 3)), 2, symbolic=False)
        yield Case(TensorSpec((4,), "uint8", value=(255, 7, 128, 1)), 3, symbolic=False)

    dtypes = ("int64",)


class LeftShift(_Shift):
    """x·2ⁿ of integers, as their bits hold it; the meaning of `torch.bitwise_left_shift`."""

    matches = ("LeftShift", "aten::bitwise_left_shift", "aten::__lshift__")

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        return torch.bitwise_left_shift(x, other)

    def decompose(self, g: Builder, x: int | Value, other: int | Value) -> Value:
        value, factor, is_out, like = _shifted(g, x, other)
        return g.cast(g.where_(is_out, 0, value * factor), like)


class RightShift(_Shift):
    """x / 2ⁿ of integers, rounded down; the meaning of `torch.bitwise_right_shift`."""

    matches = ("RightShift", "aten::bitwise_right_shift", "aten::__rshift__")

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        return torch.bitwise_right_shift(x, other)

    def decompose(self, g: Builder, x: int | Value, other: int | Value) -> Value:
        value, factor, is_out, like = _shifted(g, x, other)
        is_below = g.less(value, 0)
        # Division rounds towards 0.  The largest power of two is negative in int64, and leaves only the sign.
        size = g.where_(is_below, g.const(-1, value) - value, value)
        is_out = g.or_(is_out, g.less(factor, 0))
        size = g.where_(is_out, 0, g.op("Div", size, g.where_(is_out, 1, factor)))
        return g.cast(g.where_(is_below, g.const(-1, value) - size, size), like)


class Gcd(Placeholder):
    """The greatest common divisor of integers; the meaning of `torch.gcd`."""

    matches = ("Gcd", "aten::gcd")
    shapes = "x: ...; other: ..."
    dtypes = ("int64",)

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        return torch.gcd(x, other)

    def decompose(self, g: Builder, x: Value, other: Value) -> Value:
        a, b = promoted(g, x, other)
        return g.cast(_gcd(g, a, b), a)

    def cases(self) -> Iterator[Case]:
        yield from _divisible()


class Lcm(Placeholder):
    """The least common multiple of integers; the meaning of `torch.lcm`."""

    matches = ("Lcm", "aten::lcm")
    shapes = "x: ...; other: ..."
    dtypes = ("int64",)

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        return torch.lcm(x, other)

    def decompose(self, g: Builder, x: Value, other: Value) -> Value:
        a, b = promoted(g, x, other)
        divisor = _gcd(g, a, b)
        left, right = in_int64(g, a, b)
        return g.cast(g.abs(g.op("Div", left, _not_zero(g, divisor)) * right), a)

    def cases(self) -> Iterator[Case]:
        yield from _divisible()


def _cases() -> Iterator[Case]:
    yield Case(f32(2, 3, 4), f32(3, 1))
    yield Case(f32(7, 1, value=_SPECIAL), f32(7, value=_SPECIAL), symbolic=False)
    yield Case(f32(5, value=(7.0, -7.0, 1.0, -1.0, 600.0)), -0.1, symbolic=False)
    yield Case(i64(7, 1, value=(-7, -3, -1, 0, 1, 4, 7)), i64(5, value=(-3, -1, 0, 1, 3)), symbolic=False)
    yield Case(i64(2, 3, low=-9, high=9), -4)
    yield Case(TensorSpec((4,), "int8", value=(-128, 127, 5, -5)), 3, symbolic=False)


def _divisible() -> Iterator[Case]:
    yield Case(i64(3, 4, low=-60, high=60), i64(4, low=-60, high=60))
    yield Case(i64(4, value=(0, 0, 2971215073, 12)), i64(4, value=(0, 5, 1836311903, -18)), symbolic=False)
    yield Case(TensorSpec((3,), "int32", value=(12, -8, 100)), i64(1, value=(30,)), symbolic=False)
    yield Case(i64(0, 3), i64(3), symbolic=False)


def _divisor(x: Any, other: Any) -> Any:
    """``other`` with 1 for 0 where both are integers."""
    import torch

    if not isinstance(other, torch.Tensor) or other.is_floating_point():
        return other
    if isinstance(x, torch.Tensor) and x.is_floating_point():
        return other
    return torch.where(other == 0, torch.ones_like(other), other)


def _not_zero(g: Builder, divisor: Value) -> Value:
    return g.where_(g.equal(divisor, 0), 1, divisor)


def _floor_of_integers(g: Builder, a: Value, b: Value) -> Value:
    """a / b rounded down, by Div, which rounds towards 0."""
    whole: Value = g.op("Div", a, b)
    # Of both signs together: the rest has the sign of a.
    rest = a - whole * b
    is_lower = g.and_(g.not_(g.equal(rest, 0)), g.not_(g.op("Equal", g.less(rest, 0), g.less(b, 0))))
    return whole - g.cast(is_lower, whole)


def _is_other_side(g: Builder, rest: Value, divisor: Value) -> Value:
    """Whether a remainder is not 0 and has another sign than the divisor."""
    is_above = g.and_(g.greater(rest, 0.0), g.less(divisor, 0.0))
    return g.or_(is_above, g.and_(g.less(rest, 0.0), g.greater(divisor, 0.0)))


def _shifted(g: Builder, x: int | Value, other: int | Value) -> tuple[Value, Value, Value, Value]:
    """The integers and the power of two in int64, whether the distance is out of range, and the result's dtype."""
    a, b = promoted(g, x, other)
    if a.dtype in FLOATING or a.dtype == TensorProto.BOOL:
        raise UnsupportedParameter("bits are shifted of integers only", where=g.where)
    bits = _BITS[a.dtype]
    value, distance = in_int64(g, a, b)
    is_out = g.or_(g.less(distance, 0), g.greater(distance, bits - 1))
    powers = g.const(np.left_shift(np.int64(1), np.arange(64, dtype=np.int64))[:bits])
    return value, g.gather(powers, g.where_(is_out, 0, distance), axis=0), is_out, a


def _gcd(g: Builder, x: Value, y: Value) -> Value:
    """Euclid's algorithm, as long as it goes on for one of the elements; in int64."""
    if x.dtype in FLOATING or x.dtype == TensorProto.BOOL:
        raise UnsupportedParameter("a common divisor is one of integers", where=g.where)
    a, b = (g.abs(value) for value in in_int64(g, x, y))
    # Both of the broadcast sizes.
    left, right = g.where_(g.equal(b, b), a, b), g.where_(g.equal(a, a), b, a)
    body = g.body()
    number = body.fresh_input(TensorType(TensorProto.INT64, ()))
    goes_on = body.fresh_input(TensorType(TensorProto.BOOL, ()))
    assert left.type is not None
    large, small = body.fresh_input(left.type), body.fresh_input(left.type)
    is_done = body.equal(small, 0)
    rest = body.where_(is_done, 0, body.mod(large, body.where_(is_done, 1, small)))
    results = [body.retyped(value, left.shape) for value in (body.where_(is_done, large, small), rest)]
    left_over = body.reduce_sum(
        body.concat([body.flatten(rest), body.ints([0])], axis=0), [0], keepdims=False
    )
    graph = g.subgraph(
        "euclid", body, [number, goes_on, large, small], [body.greater(left_over, 0), *results]
    )
    steps = g.ints(_STEPS[x.dtype])
    made, _ = g.op("Loop", steps, g.const(True), left, right, body=graph, outputs=2)
    return g.retyped(made, left.shape)
