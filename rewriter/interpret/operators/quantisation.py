"""Quantised numbers and products of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rewriter.interpret.operators.convolution import conv
from rewriter.interpret.operators.elementwise import convert
from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()


def _spread(call: Call, parameter: Tensor, x: Tensor) -> Tensor:
    """A scale or zero point as it lies over ``x``: one for all, one along an axis, or one for each block."""
    if parameter.numel() == 1 and parameter.ndim <= 1:
        return parameter.reshape(())
    axis = call.get("axis", 1) % x.ndim
    block = call.get("block_size", 0)
    if parameter.ndim == 1 and not block:
        shape = [1] * x.ndim
        shape[axis] = -1
        return parameter.reshape(shape)
    if not block:
        return parameter
    return parameter.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])


@KERNELS.operator("QuantizeLinear")
def quantize_linear(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """round(x / scale) + zero, halves to even, limited to the type; no gradient goes through it."""
    target = torch.uint8 if zero is None else zero.dtype
    if call.get("output_dtype"):
        target = call.dtype(call["output_dtype"])
    made = (
        x.float() / _spread(call, scale, x).float()
        if not x.is_floating_point()
        else x / _spread(call, scale, x)
    )
    if target.is_floating_point:
        return convert(made, target, bool(call.get("saturate", 1)))
    made = made.double().round()
    if zero is not None:
        made = made + _spread(call, zero, x).double()
    limits = torch.iinfo(target)
    return made.clamp(limits.min, limits.max).to(target)


@KERNELS.operator("DequantizeLinear")
def dequantize_linear(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """(x − zero) · scale in the type of the scale."""
    target = call.dtype(call["output_dtype"]) if call.get("output_dtype") else scale.dtype
    wide = x.to(scale.dtype)
    if zero is not None:
        wide = wide - _spread(call, zero, x).to(scale.dtype)
    return (wide * _spread(call, scale, x)).to(target)


@KERNELS.operator("QLinearMatMul")
def qlinear_matmul(
    _: Call,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    def rows(parameter: Tensor) -> Tensor:
        return parameter.unsqueeze(-1) if parameter.ndim == 1 and parameter.numel() > 1 else parameter

    exact = (a.double() - rows(a_zero).double()) @ (b.double() - b_zero.double())
    return _requantised(exact * (rows(a_scale).double() * b_scale.double() / y_scale.double()), y_zero)


@KERNELS.operator("QLinearConv")
def qlinear_conv(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """The bias is in units of x_scale · w_scale."""

    def channels(parameter: Tensor, rank: int) -> Tensor:
        return (
            parameter.double().reshape(-1, *[1] * rank)
            if parameter.numel() > 1
            else parameter.double().reshape(())
        )

    spatial = x.ndim - 2
    exact = conv(
        call,
        x.double() - x_zero.double(),
        w.double() - channels(w_zero, spatial + 1),
        None if bias is None else bias.double(),
    )
    return _requantised(exact * (x_scale.double() * channels(w_scale, spatial) / y_scale.double()), y_zero)


def _requantised(x: Tensor, zero: Tensor) -> Tensor:
    if zero.is_floating_point():
        return convert(x, zero.dtype)
    limits = torch.iinfo(zero.dtype)
    return (x.round() + zero.double()).clamp(limits.min, limits.max).to(zero.dtype)
