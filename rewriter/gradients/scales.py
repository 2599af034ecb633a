"""A point once more on other scales: some elements large, some small, the others as they are.

Drawn values are of one scale.  A limit that a backward forgot, or a branch that is taken far out, shows only beyond it.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import torch

from rewriter.gradients.forward import finite_count
from rewriter.gradients.sides import Raised, results

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rewriter.gradients.sides import Point, Side

#: Between which multiples of the typical magnitude elements lie: from the limits of clipped activations to far beyond,
#: without a gap.
_FAR = (4.0, 115.0)
#: The nearer ones, for what overflows far out.
_NEAR = (4.0, 16.0)
#: Of so many elements one is close to zero, and one stays; the others are far out.
_PERIOD, _SMALL = 8, 2.0**-10


def elsewhere(
    point: Point, sides: Sequence[Side], free: Sequence[str], generator: torch.Generator
) -> Point | None:
    """``point`` with the inputs ``free`` on other scales; None where no side, or no other number, stands it.

    All of them first, with either sign, then of the sign that they have, then nearer, then the first alone.  What was
    finite stays so on every side.
    """
    names = [name for name in free if name in point.moving and point.tensors[name].numel()]
    due = [finite_count(results(side, point)) for side in sides]
    for changed in _variants(point, names, generator):
        moved = point.moved(changed)
        try:
            if all(
                finite_count(results(side, moved)) >= count for side, count in zip(sides, due, strict=True)
            ):
                return moved
        except Raised:
            continue
    return None


def _variants(
    point: Point, names: Sequence[str], generator: torch.Generator
) -> Iterator[dict[str, torch.Tensor]]:
    if not names:
        return
    chosen_ones = dict.fromkeys((tuple(names), tuple(names[:1])))
    for chosen, ends in itertools.product(chosen_ones, (_FAR, _NEAR)):
        spread = {name: _spread(point.tensors[name], ends, generator) for name in chosen}
        yield spread
        yield {name: torch.copysign(value, point.tensors[name]) for name, value in spread.items()}


def _spread(value: torch.Tensor, ends: tuple[float, float], generator: torch.Generator) -> torch.Tensor:
    """Most elements large; none negative where none is, and what is not a finite number as it is.

    Magnitudes lie in strata, one to each element, so that few elements cover all of the range.
    """
    flat = value.reshape(-1)
    finite = torch.isfinite(flat)
    known = flat[finite]
    if not known.numel():
        return value
    # Limits are absolute numbers, so values that are all small say nothing of where one lies.
    typical = max(1.0, float(known.square().mean().sqrt()))
    count = flat.numel()
    order = torch.randperm(count, generator=generator)
    place = (order + torch.rand(flat.shape, generator=generator, dtype=torch.float64)) / count
    low, high = ends
    size = low * torch.exp(place * math.log(high / low))
    sign = 1.0 - 2.0 * (torch.randperm(count, generator=generator) % 2)
    turn = torch.randperm(count, generator=generator) % _PERIOD
    made = torch.where(finite, sign * size * typical, flat)
    made = torch.where(finite & (turn == _PERIOD - 2), flat * _SMALL, made)
    made = torch.where(turn == _PERIOD - 1, flat, made)
    if bool((known >= 0).all()):
        made = made.abs()  # a length, a deviation: what a caller never gives is not asked for
    return made.reshape(value.shape)
