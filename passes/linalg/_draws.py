"""Matrices for the cases of passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

#: Of a case that shows nothing new at another opset or in another dtype.
ONCE: dict[str, Any] = {"opsets": (18, 18), "dtypes": ("float32",)}


def regular(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Matrices that are far from singular, and whose rows must be exchanged."""
    noise = rng.standard_normal(shape)
    return noise + 3 * np.roll(np.eye(shape[-2], shape[-1]), 1, axis=-2)


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Symmetric positive definite matrices."""
    noise = rng.standard_normal(shape)
    return noise @ np.swapaxes(noise, -1, -2) + np.eye(shape[-1])


def lower(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Matrices whose triangles are far from singular; the upper one is not zero."""
    return rng.standard_normal(shape) / 2 + 2 * np.eye(shape[-2], shape[-1])


def exchanges(rows: int) -> Callable[[np.random.Generator, tuple[int, ...]], Any]:
    """Pivots as LAPACK makes them: each row's own number from 1 on, or a later one."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        own = np.arange(1, shape[-1] + 1)
        return rng.integers(own, rows + 1, shape)

    return draw
