"""Reductions, arg-reductions and cumulative sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rewriter.interpret.registry import Kernels
from rewriter.interpret.types import CARRIERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rewriter.interpret.call import Call

KERNELS = Kernels()


def _kept(x: Tensor) -> dict[str, torch.dtype]:
    """torch adds integers up as int64; ONNX in their own type."""
    return {} if x.is_floating_point() else {"dtype": x.dtype}


def _sum(x: Tensor, axes: list[int]) -> Tensor:
    return x.sum(axes, keepdim=True, **_kept(x))


def _mean(x: Tensor, axes: list[int]) -> Tensor:
    if x.is_floating_point():
        return x.mean(axes, keepdim=True)
    return x.double().mean(axes, keepdim=True).to(x.dtype)


def _product(x: Tensor, axes: list[int]) -> Tensor:
    for axis in axes:
        x = x.prod(axis, keepdim=True, **_kept(x))
    return x


def _largest(x: Tensor, axes: list[int]) -> Tensor:
    """Of nothing, the least number of the type."""
    if all(x.shape[axis] for axis in axes):
        return x.amax(axes, keepdim=True)
    return _filled(x, axes, -float("inf") if x.is_floating_point() else _limits(x.dtype)[0])


def _smallest(x: Tensor, axes: list[int]) -> Tensor:
    if all(x.shape[axis] for axis in axes):
        return x.amin(axes, keepdim=True)
    return _filled(x, axes, float("inf") if x.is_floating_point() else _limits(x.dtype)[1])


def _limits(dtype: torch.dtype) -> tuple[int, int]:
    if dtype == torch.bool:
        return 0, 1
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


def _filled(x: Tensor, axes: list[int], value: float) -> Tensor:
    shape = [1 if i in axes else size for i, size in enumerate(x.shape)]
    return torch.full(shape, value, dtype=x.dtype)


def _log_sum_exp(x: Tensor, axes: list[int]) -> Tensor:
    if not x.is_floating_point():
        return torch.logsumexp(x.double(), axes, keepdim=True).to(x.dtype)
    return torch.logsumexp(x, axes, keepdim=True)


def _l2(x: Tensor, axes: list[int]) -> Tensor:
    if not x.is_floating_point():
        return _sum(x * x, axes).double().sqrt().to(x.dtype)
    made: Tensor = torch.linalg.vector_norm(x, 2, axes, keepdim=True)
    return made


def _log_sum(x: Tensor, axes: list[int]) -> Tensor:
    made = _sum(x, axes)
    return made.log() if x.is_floating_point() else made.double().log().to(x.dtype)


_REDUCTIONS: dict[str, tuple[Callable[[Tensor, list[int]], Tensor], Callable[[Tensor], Tensor]]] = {
    # the reduction, and what is done to the elements where there are no axes to reduce
    "ReduceSum": (_sum, lambda x: x),
    "ReduceMean": (_mean, lambda x: x),
    "ReduceProd": (_product, lambda x: x),
    "ReduceMax": (_largest, lambda x: x),
    "ReduceMin": (_smallest, lambda x: x),
    "ReduceL1": (lambda x, axes: _sum(x.abs(), axes), torch.abs),
    "ReduceL2": (_l2, torch.abs),
    "ReduceSumSquare": (lambda x, axes: _sum(x * x, axes), lambda x: x * x),
    "ReduceLogSum": (_log_sum, torch.log),
    "ReduceLogSumExp": (_log_sum_exp, lambda x: x),
}


def _reduce(name: str) -> None:
    reduction, of_each = _REDUCTIONS[name]

    @KERNELS.operator(name)
    def kernel(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
        """No axes are all of them, or, with ``noop_with_empty_axes``, none."""
        chosen = call.ints("axes", axes)
        if not chosen:
            if call.get("noop_with_empty_axes", 0):
                return of_each(x)
            chosen = list(range(x.ndim))
        chosen = sorted({axis % x.ndim for axis in chosen} if x.ndim else set())
        carrier = CARRIERS.get(x.dtype)
        wide = x if carrier is None else x.to(carrier)
        made = reduction(wide, chosen) if chosen else of_each(wide)
        if not call["keepdims"] and chosen:
            made = made.squeeze(chosen)
        return made if carrier is None else made.to(x.dtype)


for _name in _REDUCTIONS:
    _reduce(_name)


@KERNELS.operator("ArgMax")
def argmax(call: Call, x: Tensor) -> Tensor:
    return _position(call, x, largest=True)


@KERNELS.operator("ArgMin")
def argmin(call: Call, x: Tensor) -> Tensor:
    return _position(call, x, largest=False)


def _position(call: Call, x: Tensor, *, largest: bool) -> Tensor:
    """Of equal ones the first, or the last where asked for."""
    axis = call["axis"]
    if not x.shape[axis]:
        raise call.refused("the axis is empty")
    best = x.amax(axis, keepdim=True) if largest else x.amin(axis, keepdim=True)
    hit = (x == best) | (x != x)  # NaN is both the largest and the smallest
    hit = torch.where((x != x).any(axis, keepdim=True), x != x, hit).to(torch.int8)
    if call.get("select_last_index", 0):
        found: Tensor = x.shape[axis] - 1 - hit.flip(axis).argmax(axis, keepdim=True)
    else:
        found = hit.argmax(axis, keepdim=True)
    return found if call["keepdims"] else found.squeeze(axis)


@KERNELS.operator("CumSum")
def cumsum(call: Call, x: Tensor, axis: Tensor) -> Tensor:
    return _cumulative(call, x, int(axis.item()), torch.cumsum, 0)


@KERNELS.operator("CumProd")
def cumprod(call: Call, x: Tensor, axis: Tensor) -> Tensor:
    return _cumulative(call, x, int(axis.item()), torch.cumprod, 1)


def _cumulative(call: Call, x: Tensor, axis: int, function: Callable[..., Tensor], neutral: int) -> Tensor:
    if call["reverse"]:
        x = x.flip(axis)
    made = function(x, axis, dtype=x.dtype)
    if call["exclusive"] and x.shape[axis]:
        first = torch.full_like(x.narrow(axis, 0, 1), neutral)
        made = torch.cat([first, made.narrow(axis, 0, x.shape[axis] - 1)], axis)
    return made.flip(axis) if call["reverse"] else made
