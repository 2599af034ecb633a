"""A point once more on other scales: some elements large, some small, the others as they are.

Drawn values are of one scale.  A limit that a backward forgot, or a branch that is taken far out, shows only beyond it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

from rewriter.gradients.forward import finite_count
from rewriter.gradients.sides import Raised, results

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rewriter.gradients.sides import Point, Side

#: Multiples of the typical magnitude that take the place of elements: beyond the limits of clipped activations, far
#: beyond, and close to zero.  What a tensor of few elements holds is the first ones.
_FACTORS = (8.0, -8.0, 96.0, -96.0, 2.0**-10)
#: The nearer ones, for what overflows far out.
_NEAR = (8.0, -8.0, 2.0**-10)
#: One element in so many runs through all factors; the others stay.
_PERIOD = 8
#: Between which an element of 1 is drawn, so that no two are tied.
_AROUND = (0.8, 1.2)


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
    for chosen, factors in itertools.product(chosen_ones, (_FACTORS, _NEAR)):
        spread = {name: _spread(point.tensors[name], factors, generator) for name in chosen}
        yield spread
        yield {name: torch.copysign(value, point.tensors[name]) for name, value in spread.items()}


def _spread(value: torch.Tensor, factors: Sequence[float], generator: torch.Generator) -> torch.Tensor:
    """Some elements large or small; none negative where none is, and what is no finite number as it is."""
    flat = value.reshape(-1)
    finite = torch.isfinite(flat)
    known = flat[finite]
    if not known.numel():
        return value
    # Limits are absolute numbers, so values that are all small say nothing of where one lies.
    typical = max(1.0, float(known.square().mean().sqrt()))
    turn = torch.randperm(flat.numel(), generator=generator) % _PERIOD
    low, high = _AROUND
    around = low + (high - low) * torch.rand(flat.shape, generator=generator, dtype=torch.float64)
    made = flat.clone()
    for number, factor in enumerate(factors):
        made = torch.where(finite & (turn == number), factor * typical * around, made)
    if bool((known >= 0).all()):
        made = made.abs()  # a length, a deviation: what a caller never gives is not asked for
    return made.reshape(value.shape)
