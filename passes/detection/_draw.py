"""Boxes and scores for cases: clusters around a few objects, as a detector's proposals are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


def boxes(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Corner boxes (…, 4) in an image of 100 × 100, about five to an object, in steps of 1/8."""
    centre, size = _objects(rng, shape)
    return np.concatenate([centre - size / 2, centre + size / 2], axis=-1)


def centred(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """The same boxes by centre and size."""
    return np.concatenate(_objects(rng, shape), axis=-1)


def _objects(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, Any]:
    *lead, count, _ = shape
    objects = max(1, count // 5)
    middle = rng.uniform(20, 80, (*lead, objects, 2))
    extent = rng.uniform(10, 40, (*lead, objects, 2))
    which = rng.integers(0, objects, (*lead, count, 1))
    centre = np.take_along_axis(middle, which, axis=-2) + rng.normal(0, 4, (*lead, count, 2))
    size = np.take_along_axis(extent, which, axis=-2) * rng.uniform(0.7, 1.3, (*lead, count, 2))
    # Eighths (and sizes in quarters) are exact in float16 too.
    return np.round(centre * 8) / 8, np.round(size * 4) / 4


def distinct(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Scores in (0, 1) without two that are equal, in float16 either (up to 1000 of them)."""
    count = int(np.prod(shape))
    return ((rng.permutation(count) + 1) / (count + 1)).reshape(shape)


def tied(levels: int) -> Callable[[np.random.Generator, tuple[int, ...]], Any]:
    """Scores of which many are equal."""
    return lambda rng, shape: rng.integers(1, levels + 1, shape) / (levels + 1)
