"""Derivatives along a direction by differences, and whether they can be believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rewriter.gradients.sides import results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.gradients.sides import Point, Side

#: Steps that are tried, in parts of the input's magnitude: long ones lose little to rounding, short ones cross no kink.
_STEPS = (1e-4, 1e-5, 1e-6, 1e-7)
#: A difference that two steps agree on to this part of its size is believed at once.
_GOOD = 1e-8


@dataclass(frozen=True)
class Slope:
    """A derivative along a direction, and how far it may be off; ``error`` is infinite at a kink."""

    value: float
    error: float


def weigh(
    outputs: Sequence[torch.Tensor | None],
    cotangents: Sequence[torch.Tensor | None],
) -> torch.Tensor:
    """Σ⟨cotangent, result⟩, a float64 scalar; elements of weight 0 (infinities among them) do not count."""
    total = torch.zeros((), dtype=torch.float64)
    for output, cotangent in zip(outputs, cotangents, strict=False):
        if output is not None and cotangent is not None:
            total = total + torch.where(cotangent == 0, 0.0, cotangent * output.double()).sum()
    return total


def slope(
    side: Side, point: Point, cotangents: Sequence[torch.Tensor | None], name: str, direction: torch.Tensor
) -> Slope:
    """The derivative of Σ⟨cotangent, result⟩ when input ``name`` moves along ``direction``.

    Central differences at steps ever shorter; the error is what two steps differ by, or, where the two one-sided
    differences stay apart (a kink), infinite.
    """
    here = point.tensors[name]
    finite = here[torch.isfinite(here)].abs()
    size = max(1.0, float(finite.mean())) if finite.numel() else 1.0

    def at(step: float) -> float:
        moved = point.moved({name: here + step * direction})
        return float(weigh(results(side, moved), cotangents))

    middle = at(0.0)
    best = Slope(0.0, float("inf"))
    last: float | None = None
    last_gap: float | None = None
    for part in _STEPS:
        step = part * size
        above, below = at(step), at(-step)
        value = (above - below) / (2 * step)
        # One-sided differences of a smooth function differ by step·f″: ten times less at each shorter step.
        gap = abs(above - 2 * middle + below) / step
        rounding = 4e-16 * max(abs(above), abs(below), abs(middle)) / step
        if last is not None and last_gap is not None:
            error = abs(value - last) + rounding
            kink = gap > 0.5 * last_gap and gap > 1e-6 * max(abs(value), abs(last)) + 8 * rounding
            if kink:
                error = float("inf")
            if error < best.error:
                best = Slope(value, error)
            if best.error <= _GOOD * max(abs(best.value), 1e-3):
                break
        last, last_gap = value, gap
    return best
