"""The gradient of a function that autograd may not know how to differentiate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from rewriter.gradients.numeric import Slope, slope
from rewriter.gradients.sides import Products, Raised, products, results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.gradients.sides import Point, Side

#: Inputs of more elements are not differentiated element by element.
MOST = 2048


def believed(
    side: Side, point: Point, cotangents: Sequence[torch.Tensor | None], generator: torch.Generator
) -> Products:
    """Autograd's products where differences bear them out, else differences element by element.

    Where neither is to be had (a kink, or too many elements), autograd's stand.
    """
    try:
        found = products(side, point, cotangents)
    except Raised:
        outputs = results(side, point)
        found = Products(outputs, dict.fromkeys(point.moving), (True,) * len(outputs))
    gradients = dict(found.gradients)
    for name in point.moving:
        here, gradient = point.tensors[name], gradients[name]
        direction = torch.randn(here.shape, generator=generator, dtype=torch.float64)
        measured = slope(side, point, cotangents, name, direction)
        if _fits(gradient, direction, measured) or here.numel() > MOST:
            continue
        element = by_differences(side, point, cotangents, name)
        gradients[name] = gradient if element is None else element
    return replace(found, gradients=gradients)


def by_differences(
    side: Side, point: Point, cotangents: Sequence[torch.Tensor | None], name: str
) -> torch.Tensor | None:
    """The gradient of Σ⟨cotangent, result⟩ with respect to one input; None where it has a kink."""
    here = point.tensors[name]
    found = torch.zeros(here.numel(), dtype=torch.float64)
    for index in range(here.numel()):
        direction = torch.zeros(here.numel(), dtype=torch.float64)
        direction[index] = 1.0
        measured = slope(side, point, cotangents, name, direction.reshape(here.shape))
        if measured.error > 1e-4 * max(1.0, abs(measured.value)):
            return None
        found[index] = measured.value
    return found.reshape(here.shape)


def _fits(gradient: torch.Tensor | None, direction: torch.Tensor, measured: Slope) -> bool:
    along = 0.0 if gradient is None else float((gradient * direction).sum())
    norm = 0.0 if gradient is None else float(gradient.norm())
    return abs(along - measured.value) <= 1e-5 * norm + 10 * measured.error + 1e-9
