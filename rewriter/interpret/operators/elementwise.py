"""Arithmetic, comparison, logic and conversion, element by element with broadcasting."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rewriter.interpret.registry import Kernels
from rewriter.interpret.types import carried

if TYPE_CHECKING:
    from collections.abc import Callable

    from rewriter.interpret.call import Call

KERNELS = Kernels()

#: What is the same for numbers and for numbers modulo 2^64.
_ON_BITS = frozenset(
    {"Add", "Sub", "Mul", "Sum", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"}
)


def _plain(name: str, function: Callable[..., Tensor], since: int = 1) -> None:
    """``function`` of the inputs alone."""
    function = carried(function, ordered=name not in _ON_BITS)
    KERNELS.add(name, lambda _, *inputs: function(*inputs), since)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point():
        return a / b
    return torch.div(a, b, rounding_mode="trunc")


def _power(a: Tensor, b: Tensor) -> Tensor:
    """The result has the type of the base."""
    if not a.is_floating_point() and b.is_floating_point():
        return torch.pow(a.double(), b).to(a.dtype)
    return torch.pow(a, b if b.is_floating_point() or not a.is_floating_point() else b.to(a.dtype)).to(
        a.dtype
    )


def _sign(x: Tensor) -> Tensor:
    made = torch.sign(x)
    return torch.where(torch.isnan(x), x, made) if x.is_floating_point() else made


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Div": _divide,
    "Pow": _power,
    "Neg": torch.neg,
    "Abs": torch.abs,
    "Exp": torch.exp,
    "Log": torch.log,
    "Sqrt": torch.sqrt,
    "Reciprocal": torch.reciprocal,
    "Floor": torch.floor,
    "Ceil": torch.ceil,
    "Round": torch.round,  # halves to even, as in ONNX
    "Sign": _sign,
    "Erf": torch.erf,
    "Sin": torch.sin,
    "Cos": torch.cos,
    "Tan": torch.tan,
    "Asin": torch.asin,
    "Acos": torch.acos,
    "Atan": torch.atan,
    "Sinh": torch.sinh,
    "Cosh": torch.cosh,
    "Tanh": torch.tanh,
    "Asinh": torch.asinh,
    "Acosh": torch.acosh,
    "Atanh": torch.atanh,
    "Equal": torch.eq,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Xor": torch.logical_xor,
    "Not": torch.logical_not,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
    "BitwiseNot": torch.bitwise_not,
    "IsNaN": torch.isnan,
    "Sum": lambda *xs: functools.reduce(torch.add, xs),
    "Max": lambda *xs: functools.reduce(torch.maximum, xs),
    "Min": lambda *xs: functools.reduce(torch.minimum, xs),
    "Mean": lambda *xs: functools.reduce(torch.add, xs) / len(xs),
}
for _name, _function in _FUNCTIONS.items():
    _plain(_name, _function)


@KERNELS.operator("Mod")
def mod(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The sign is the divisor's, or, with ``fmod``, the dividend's as in C."""
    return carried(torch.fmod if call["fmod"] else torch.remainder)(a, b)


@KERNELS.operator("BitShift")
def bit_shift(call: Call, x: Tensor, y: Tensor) -> Tensor:
    if call["direction"] == "LEFT":
        return carried(torch.bitwise_left_shift, ordered=False)(x, y)
    if x.dtype == torch.uint64:
        # torch shifts the sign bit in; by one it is cleared, the rest follows
        wide, by = x.view(torch.int64), y.view(torch.int64)
        cleared = (wide >> 1) & torch.iinfo(torch.int64).max
        return torch.where(by == 0, wide, cleared >> (by - 1).clamp(min=0)).view(torch.uint64)
    return carried(torch.bitwise_right_shift)(x, y)


@KERNELS.operator("IsInf")
def is_inf(call: Call, x: Tensor) -> Tensor:
    found = torch.zeros_like(x, dtype=torch.bool)
    if call["detect_positive"]:
        found = found | (x == float("inf"))
    if call["detect_negative"]:
        found = found | (x == float("-inf"))
    return found


@KERNELS.operator("Where")
def where(_: Call, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(condition, x, y)


@KERNELS.operator("Clip")
def clip(_: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Where the limits cross, the upper one."""
    if low is None and high is None:
        return x
    if low is not None and high is not None:
        return carried(lambda a, b, c: torch.clamp(a, b, c))(x, low, high)
    if low is not None:
        return carried(lambda a, b: torch.clamp(a, min=b))(x, low)
    return carried(lambda a, c: torch.clamp(a, max=c))(x, high)


@KERNELS.operator("Identity")
def identity(_: Call, x: Any) -> Any:
    return x


@KERNELS.operator("Cast")
def cast(call: Call, x: Tensor) -> Tensor:
    return convert(x, call.dtype(call["to"]), bool(call.get("saturate", 1)))


@KERNELS.operator("CastLike")
def cast_like(call: Call, x: Tensor, like: Tensor) -> Tensor:
    return convert(x, like.dtype, bool(call.get("saturate", 1)))


@KERNELS.operator("BitCast")
def bit_cast(call: Call, x: Tensor) -> Tensor:
    if call.floating is not None:
        raise call.unsupported("bits have no meaning while another type stands for floating-point types")
    return x.view(call.dtype(call["to"]))


def convert(x: Tensor, dtype: torch.dtype, saturate: bool = True) -> Tensor:
    """Cast; ``saturate`` keeps what is beyond a float8 at its largest number."""
    if not dtype.is_floating_point or dtype.itemsize > 1:
        return x.to(dtype)
    wide = x if x.is_floating_point() else x.float()
    if saturate:
        limit = torch.finfo(dtype).max
        return wide.clamp(-limit, limit).to(dtype)
    if dtype == torch.float8_e4m3fn:
        # torch saturates this one always; halfway to the number after 448 there is none.
        wide = torch.where(wide.abs() > 464, float("nan"), wide)
    return wide.to(dtype)
