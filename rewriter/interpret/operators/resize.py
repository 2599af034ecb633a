"""Resize: one axis at a time, as a weighted sum of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()


@dataclass(frozen=True)
class _Axis:
    """How one axis is resized."""

    size: int
    new: int
    #: Original places per new one.
    step: float
    #: The new size before it is rounded down.
    exact: float
    start: float = 0
    end: float = 1


@KERNELS.operator("Resize")
def resize(
    call: Call,
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Tensor:
    axes = [axis % x.ndim for axis in call.get("axes") or range(x.ndim)]
    outside: Tensor | None = None
    result = x if x.is_floating_point() else x.double()
    for axis, found in zip(axes, _axes(call, x, axes, roi, scales, sizes), strict=True):
        places = _places(call, found)
        line = [1] * x.ndim
        line[axis] = found.new
        if call["coordinate_transformation_mode"] == "tf_crop_and_resize":
            beyond = ((places < 0) | (places > found.size - 1)).reshape(line)
            outside = beyond if outside is None else outside | beyond
        elif found.new == found.size and found.step == 1:
            continue
        result = _along(call, result, axis, found, places)
    if outside is not None and bool(outside.any()):
        result = torch.where(outside, torch.tensor(call["extrapolation_value"], dtype=result.dtype), result)
    if x.is_floating_point():
        return result
    limits = torch.iinfo(x.dtype)
    return result.round().clamp(limits.min, limits.max).to(x.dtype)


def _axes(
    call: Call,
    x: Tensor,
    axes: list[int],
    roi: Tensor | None,
    scales: Tensor | None,
    sizes: Tensor | None,
) -> list[_Axis]:
    count = len(axes)
    region = [0.0] * count + [1.0] * count
    if call["coordinate_transformation_mode"] == "tf_crop_and_resize":
        if roi is None or not roi.numel():
            raise call.refused("tf_crop_and_resize needs the input 'roi'")
        region = [float(item) for item in roi.detach().tolist()]
    if sizes is not None and sizes.numel():
        target = [int(item) for item in sizes.tolist()]
        policy = call.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [new / x.shape[axis] for new, axis in zip(target, axes, strict=True)]
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            target = [int(ratio * x.shape[axis] + 0.5) for axis in axes]
            return [
                _Axis(x.shape[a], new, 1 / ratio, ratio * x.shape[a], region[i], region[count + i])
                for i, (a, new) in enumerate(zip(axes, target, strict=True))
            ]
        return [
            _Axis(x.shape[a], new, x.shape[a] / new if new else 1, new, region[i], region[count + i])
            for i, (a, new) in enumerate(zip(axes, target, strict=True))
        ]
    if scales is None:
        raise call.refused("neither scales nor sizes are given")
    found = []
    for i, (axis, scale) in enumerate(zip(axes, scales.detach().float().numpy(), strict=True)):
        share = np.float32(region[count + i] - region[i])
        # In the precision of the scales: 0.7 · 10 is 7 there.
        new = int(np.floor(np.float32(x.shape[axis]) * share * scale))
        exact = x.shape[axis] * float(share) * float(scale)
        found.append(_Axis(x.shape[axis], new, 1 / float(scale), exact, region[i], region[count + i]))
    return found


def _places(call: Call, axis: _Axis) -> Tensor:
    """Where each new element lies on the original axis, in float64."""
    mode = call["coordinate_transformation_mode"]
    at = torch.arange(axis.new, dtype=torch.float64)
    if mode == "asymmetric":
        return at * axis.step
    if mode == "align_corners":
        return at * (axis.size - 1) / (axis.new - 1) if axis.new > 1 else torch.zeros_like(at)
    if mode == "tf_crop_and_resize":
        last = axis.size - 1
        if axis.new > 1:
            return axis.start * last + at * (axis.end - axis.start) * last / (axis.new - 1)
        return torch.full_like(at, 0.5 * (axis.start + axis.end) * last)
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) * axis.step
    if mode == "pytorch_half_pixel" and axis.new <= 1:
        return torch.zeros_like(at)
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (at + 0.5) * axis.step - 0.5
    if mode == "half_pixel_symmetric":
        return axis.size / 2 * (1 - axis.new / axis.exact) + (at + 0.5) * axis.step - 0.5
    raise call.unsupported(f"coordinate_transformation_mode '{mode}'")


def _along(call: Call, x: Tensor, axis: int, found: _Axis, places: Tensor) -> Tensor:
    if call["mode"] == "nearest":
        return x.index_select(axis, _nearest(call, places).clamp(0, found.size - 1))
    shrunk = min(1 / found.step, 1.0) if call.get("antialias", 0) else 1.0
    reach = int(np.ceil((2 if call["mode"] == "cubic" else 1) / shrunk))
    first = places.floor().to(torch.int64)
    line = [1] * x.ndim
    line[axis] = -1
    terms, weights = [], []
    for k in range(-reach + 1, reach + 1):
        weight = _weight(call, shrunk * (first + k - places))
        if call["exclude_outside"]:
            weight = torch.where(
                (first + k < 0) | (first + k >= found.size), torch.zeros_like(weight), weight
            )
        weights.append(weight)
        terms.append((first + k).clamp(0, found.size - 1))
    if call.get("antialias", 0) or call["exclude_outside"]:
        total = sum(weights[1:], weights[0])
        weights = [weight / torch.where(total == 0, torch.ones_like(total), total) for weight in weights]
    made = torch.zeros((), dtype=x.dtype)
    for source, weight in zip(terms, weights, strict=True):
        if bool((weight != 0).any()):
            made = made + x.index_select(axis, source) * weight.to(x.dtype).reshape(line)
    return made


def _weight(call: Call, distance: Tensor) -> Tensor:
    far = distance.abs()
    if call["mode"] == "linear":
        return (1 - far).clamp(min=0)
    if call["mode"] != "cubic":
        raise call.unsupported(f"mode '{call['mode']}'")
    a = call["cubic_coeff_a"]
    near = ((a + 2) * far - (a + 3)) * far * far + 1
    beyond = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    return torch.where(far <= 1, near, torch.where(far < 2, beyond, torch.zeros_like(far)))


def _nearest(call: Call, places: Tensor) -> Tensor:
    mode = call["nearest_mode"]
    if mode == "round_prefer_floor":
        found = (places - 0.5).ceil()
    elif mode == "round_prefer_ceil":
        found = (places + 0.5).floor()
    elif mode == "floor":
        found = places.floor()
    else:
        found = places.ceil()
    return found.to(torch.int64)
