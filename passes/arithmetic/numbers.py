"""The parts of floating-point numbers, their neighbours, and functions that mind special values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from passes.arithmetic._dtypes import FLOATING, promoted
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import ELEMENTWISE, Case, Placeholder, TensorSpec, f32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Ints, Value

_INF, _NAN = float("inf"), float("nan")


@dataclass(frozen=True)
class _Format:
    """A floating-point format: so many bits of a significand, and the exponent of its least number."""

    digits: int
    least: int


#: The power of two that makes a subnormal number a normal one.
_LIFT = 100

#: PyTorch's numbers of dtypes.
_DTYPES: dict[int, tuple[str, int]] = {
    3: ("int32", TensorProto.INT32),
    4: ("int64", TensorProto.INT64),
    5: ("float16", TensorProto.FLOAT16),
    6: ("float32", TensorProto.FLOAT),
    7: ("float64", TensorProto.DOUBLE),
    15: ("bfloat16", TensorProto.BFLOAT16),
}

_FORMATS: dict[int, _Format] = {
    TensorProto.FLOAT: _Format(24, -149),
    TensorProto.DOUBLE: _Format(53, -1074),
}


class Frexp(Placeholder):
    """The mantissa, 1/2 to 1 in size, and the exponent of 2, an int32; the meaning of `torch.frexp`."""

    matches = ("Frexp", "aten::frexp")
    shapes = "x: ..."
    outputs = ("mantissa", "exponent")
    tolerances = ELEMENTWISE

    def reference(self, x: Any) -> Any:
        import torch

        return torch.frexp(x)

    def decompose(self, g: Builder, x: Value) -> Any:
        wide = x if x.dtype in _FORMATS else g.cast(x, TensorProto.FLOAT)
        mantissa, exponent = _parts(g, wide)
        return g.cast(mantissa, x), g.cast(exponent, TensorProto.INT32)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3))
        yield Case(f32(9, value=(_INF, -_INF, _NAN, 0.0, -0.0, 1.0, -0.5, 65504.0, 6e-8)), symbolic=False)
        yield Case(
            f32(6, value=(3e38, -1.5e-45, 1e-38, 2.0**127, 0.99999994, 1.9999999)),
            dtypes=("float32",),
            symbolic=False,
        )


class Nextafter(Placeholder):
    """The number next to `x` in the direction of `other`; the meaning of `torch.nextafter`."""

    matches = ("Nextafter", "aten::nextafter")
    shapes = "x: ...; other: ..."
    dtypes = ("float32", "float64")
    tolerances = {"float32": (0.0, 0.0), "float64": (0.0, 0.0)}  # noqa: RUF012

    def reference(self, x: Any, other: Any) -> Any:
        import torch

        with torch.no_grad():  # a step has no derivative that would train
            return torch.nextafter(x, other)

    def decompose(self, g: Builder, x: Value, other: Value) -> Value:
        a, b = promoted(g, x, other)
        size = g.abs(a)
        shape = _FORMATS[a.dtype]
        smallest = math.ldexp(1.0, shape.least)
        is_infinite = g.equal(size, math.inf)
        mantissa, exponent = _parts(g, g.where_(is_infinite, 1.0, size))
        is_up = g.greater(b, a)
        is_outward = g.op("Equal", is_up, g.greater(a, 0.0))
        # Towards 0 from a power of two, the step is half as long.
        is_halved = g.and_(g.equal(mantissa, 0.5), g.not_(is_outward))
        places = exponent - shape.digits - g.cast(is_halved, TensorProto.INT64)
        step = _power_of_two(g, g.where_(g.less(places, shape.least), shape.least, places), a.dtype)
        stepped = g.where_(is_up, a + step, a - step)
        largest = g.where_(g.less(a, 0.0), g.const(-_largest(shape), a), _largest(shape))
        stepped = g.where_(is_infinite, largest, stepped)
        stepped = g.where_(g.equal(a, 0.0), g.where_(is_up, g.const(smallest, a), -smallest), stepped)
        is_number = g.and_(g.equal(a, a), g.equal(b, b))
        return g.where_(g.or_(g.equal(a, b), g.not_(is_number)), g.where_(is_number, b, a + b), stepped)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3), f32(3))
        special = (_INF, -_INF, _NAN, 0.0, -0.0, 1.0, -2.0, 3.5)
        yield Case(f32(8, 1, value=special), f32(8, value=special), symbolic=False)
        edges = (3.4028234663852886e38, 2.0**-126, 1.5e-45, 1e-40, -(2.0**-126), 2.0**100)
        yield Case(f32(6, 1, value=edges), f32(2, value=(_INF, 0.0)), dtypes=("float32",), symbolic=False)


class Heaviside(Placeholder):
    """0 below 0, 1 above, and at 0 what `values` says; the meaning of `torch.heaviside`."""

    matches = ("Heaviside", "aten::heaviside")
    shapes = "x: ...; values: ..."
    tolerances = ELEMENTWISE

    def reference(self, x: Any, values: Any) -> Any:
        import torch

        with torch.no_grad():  # its backward raises: it has no derivative
            return torch.heaviside(x, values)

    def decompose(self, g: Builder, x: Value, values: Value) -> Value:
        a, b = promoted(g, x, values)
        if a.dtype not in (*FLOATING, TensorProto.INT32, TensorProto.INT64):
            left, right = g.cast(a, TensorProto.INT64), g.cast(b, TensorProto.INT64)
        else:
            left, right = a, b
        # NaN is not above 0.
        step = g.cast(g.greater(left, 0), left)
        return g.cast(g.where_(g.equal(left, 0), right, step), a)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3), f32(3))
        yield Case(
            f32(5, 1, value=(_INF, -_INF, _NAN, 0.0, -0.0)), f32(3, value=(_NAN, _INF, 0.5)), symbolic=False
        )
        yield Case(i64(5, value=(-2, 0, 0, 1, 3)), i64(5), symbolic=False)
        yield Case(TensorSpec((4,), "bool"), TensorSpec((4,), "bool"), symbolic=False)


class Angle(Placeholder):
    """π below 0, NaN at NaN, and 0 elsewhere: the angle of real numbers; the meaning of `torch.angle`."""

    matches = ("Angle", "aten::angle")
    shapes = "x: ..."
    tolerances = ELEMENTWISE

    def reference(self, x: Any) -> Any:
        import torch

        return torch.angle(x)

    def decompose(self, g: Builder, x: Value) -> Value:
        if x.dtype not in FLOATING:
            below = g.less(g.cast(x, TensorProto.INT64), 0)
            return g.where_(below, g.const(math.pi, TensorProto.FLOAT), 0.0)
        flat = g.where_(g.less(x, 0.0), g.const(math.pi, x), 0.0)
        return g.where_(g.op("IsNaN", x), x, flat)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3))
        yield Case(f32(5, value=(_INF, -_INF, _NAN, 0.0, -0.0)), symbolic=False)
        yield Case(i64(4, low=-2, high=3), symbolic=False)


class Nansum(Placeholder):
    """The sum over `dim`, all axes without it, with 0 for NaN; the meaning of `torch.nansum`.

    `dtype` is PyTorch's number of the result's; integers give int64 without it.
    """

    matches = ("Nansum", "aten::nansum")
    shapes = "x: ..."

    def reference(self, x: Any, dim: Any = None, keepdim: bool = False, dtype: int | None = None) -> Any:
        import torch

        names = {number: getattr(torch, name) for number, (name, _) in _DTYPES.items()}
        return torch.nansum(x, dim or None, keepdim, dtype=None if dtype is None else names[dtype])

    def decompose(
        self, g: Builder, x: Value, dim: Ints | None = None, keepdim: bool = False, dtype: int | None = None
    ) -> Value:
        if dtype is not None and dtype not in _DTYPES:
            raise UnsupportedParameter(f"PyTorch's dtype number {dtype} is not known here", where=g.where)
        is_real = x.dtype in FLOATING
        target = _DTYPES[dtype][1] if dtype is not None else x.dtype if is_real else TensorProto.INT64
        numbers = g.where_(g.op("IsNaN", x), 0.0, x) if is_real else x
        # Halves are summed in float32, as in PyTorch.
        wide = target if target in (TensorProto.DOUBLE, TensorProto.INT64) else TensorProto.FLOAT
        axes = sorted({axis % x.rank for axis in dim}) if dim and x.rank else list(range(x.rank))
        return g.cast(g.reduce_sum(g.cast(numbers, wide), axes, keepdim), target)

    def cases(self) -> Iterator[Case]:
        values = (1.0, _NAN, -2.0, 0.5, _NAN, _NAN)
        yield Case(f32(2, 3, value=values))
        yield Case(f32(2, 3, value=values), dim=[-1], keepdim=True)
        yield Case(f32(3, 2, value=values), dim=[0, 1], symbolic=False)
        yield Case(f32(2, 3), dim=[0], dtype=7, symbolic=False)
        yield Case(f32(), symbolic=False)
        yield Case(f32(0, 3), dim=[0], symbolic=False)
        yield Case(i64(2, 3), dim=[1])
        yield Case(TensorSpec((4,), "bool"), symbolic=False)


def _largest(shape: _Format) -> float:
    return 3.4028234663852886e38 if shape.digits == 24 else 1.7976931348623157e308


def _power_of_two(g: Builder, exponent: Value, dtype: int) -> Value:
    """2ⁿ of an int64 ``exponent``, exactly; subnormal ones in two factors, since Exp would lose them."""
    half = g.op("Div", exponent, g.ints(2))
    two = g.const(2.0, dtype)
    return g.pow(two, g.cast(half, dtype)) * g.pow(two, g.cast(exponent - half, dtype))


def _parts(g: Builder, x: Value) -> tuple[Value, Value]:
    """Mantissa and exponent, an int64, of ``x``; those of 0, infinities and NaN are themselves and 0."""
    size = g.abs(x)
    # False for NaN, too.
    is_plain = g.and_(g.greater(size, 0.0), g.less(size, math.inf))
    # Subnormal numbers are scaled up, so that logarithm and product have all their digits.
    is_tiny = g.and_(is_plain, g.less(size, math.ldexp(1.0, -_LIFT)))
    raw = g.where_(is_plain, g.where_(is_tiny, x * math.ldexp(1.0, _LIFT), x), 0.5)
    exponent = g.cast(g.floor(g.log(g.abs(raw)) * (1 / math.log(2))), TensorProto.INT64)
    mantissa = raw * _power_of_two(g, -exponent, x.dtype)
    # It is in [1, 2), unless the rounded logarithm was that of a neighbouring power.
    for _ in range(2):
        is_large = g.greater_equal(g.abs(mantissa), 1.0)
        mantissa = g.where_(is_large, mantissa * 0.5, mantissa)
        exponent = exponent + g.cast(is_large, TensorProto.INT64)
    is_small = g.less(g.abs(mantissa), 0.5)
    mantissa = g.where_(is_small, mantissa * 2, mantissa)
    exponent = exponent - g.cast(is_small, TensorProto.INT64)
    exponent = g.where_(is_tiny, exponent - _LIFT, exponent)
    return g.where_(is_plain, mantissa, x), g.where_(is_plain, exponent, 0)
