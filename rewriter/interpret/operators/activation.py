"""Activation functions, and the exponential ones over an axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()


@KERNELS.operator("Relu")
def relu(_: Call, x: Tensor) -> Tensor:
    return torch.relu(x)


@KERNELS.operator("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Tensor:
    return F.leaky_relu(x, call["alpha"])


@KERNELS.operator("PRelu")
def prelu(_: Call, x: Tensor, slope: Tensor) -> Tensor:
    """``slope`` broadcasts as anything does."""
    return torch.where(x < 0, slope * x, x)


@KERNELS.operator("Elu")
def elu(call: Call, x: Tensor) -> Tensor:
    return F.elu(x, call["alpha"])


@KERNELS.operator("Celu")
def celu(call: Call, x: Tensor) -> Tensor:
    return F.celu(x, call["alpha"])


@KERNELS.operator("Selu")
def selu(call: Call, x: Tensor) -> Tensor:
    """The constants are the node's, single-precision ones, not torch's."""
    return torch.mul(F.elu(x, call["alpha"]), call["gamma"])


@KERNELS.operator("ThresholdedRelu")
def thresholded_relu(call: Call, x: Tensor) -> Tensor:
    return torch.where(x > call["alpha"], x, torch.zeros_like(x))


@KERNELS.operator("Sigmoid")
def sigmoid(_: Call, x: Tensor) -> Tensor:
    return torch.sigmoid(x)


@KERNELS.operator("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    return torch.clamp(call["alpha"] * x + call["beta"], 0, 1)


@KERNELS.operator("HardSwish")
def hard_swish(_: Call, x: Tensor) -> Tensor:
    return F.hardswish(x)


@KERNELS.operator("Softplus")
def softplus(_: Call, x: Tensor) -> Tensor:
    """torch's own is the identity from 20 on, which is not exact in float64."""
    return torch.logaddexp(x, torch.zeros((), dtype=x.dtype))


@KERNELS.operator("Softsign")
def softsign(_: Call, x: Tensor) -> Tensor:
    return F.softsign(x)


@KERNELS.operator("Mish")
def mish(call: Call, x: Tensor) -> Tensor:
    return x * torch.tanh(softplus(call, x))


@KERNELS.operator("Swish")
def swish(call: Call, x: Tensor) -> Tensor:
    return x * torch.sigmoid(call["alpha"] * x)


@KERNELS.operator("Gelu")
def gelu(call: Call, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=call["approximate"])


@KERNELS.operator("Shrink")
def shrink(call: Call, x: Tensor) -> Tensor:
    bias, lambd = call["bias"], call["lambd"]
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, torch.zeros_like(x))).to(
        x.dtype
    )


@KERNELS.operator("Softmax", since=13)
def softmax(call: Call, x: Tensor) -> Tensor:
    return torch.softmax(x, call["axis"])


@KERNELS.operator("LogSoftmax", since=13)
def log_softmax(call: Call, x: Tensor) -> Tensor:
    return torch.log_softmax(x, call["axis"])


@KERNELS.operator("Softmax")
def softmax_of_the_rest(call: Call, x: Tensor) -> Tensor:
    """Below 13: over everything from the axis on."""
    return torch.softmax(_matrix(x, call["axis"]), 1).reshape(x.shape)


@KERNELS.operator("LogSoftmax")
def log_softmax_of_the_rest(call: Call, x: Tensor) -> Tensor:
    return torch.log_softmax(_matrix(x, call["axis"]), 1).reshape(x.shape)


@KERNELS.operator("Hardmax", since=13)
def hardmax(call: Call, x: Tensor) -> Tensor:
    """One at the first of the largest."""
    at = first_largest(x, call["axis"])
    return torch.zeros_like(x).scatter(call["axis"], at, 1)


@KERNELS.operator("Hardmax")
def hardmax_of_the_rest(call: Call, x: Tensor) -> Tensor:
    flat = _matrix(x, call["axis"])
    return torch.zeros_like(flat).scatter(1, first_largest(flat, 1), 1).reshape(x.shape)


def first_largest(x: Tensor, axis: int) -> Tensor:
    """Index of the first maximum along ``axis``, which is kept."""
    hit = x == x.amax(axis, keepdim=True)
    return hit.to(torch.int8).argmax(axis, keepdim=True)


def _matrix(x: Tensor, axis: int) -> Tensor:
    axis = axis % x.ndim if x.ndim else 0
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
