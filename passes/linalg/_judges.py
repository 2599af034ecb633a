"""What is wrong with factors of a matrix whose signs, order or last digits are free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

#: So many units in the last place, times the size of the matrix, may a backward stable result be off.
SLACK = 64


def slack(dtype: Any, *sizes: int) -> float:
    """The relative error allowed for matrices of these sizes."""
    return float(np.finfo(dtype).eps) * SLACK * max(1, *sizes)


def close(name: str, actual: Any, expected: Any, allowed: float) -> str | None:
    """What is wrong with ``actual``, where ``allowed`` is relative to the largest number of each matrix."""
    a, b = (np.asarray(v, np.float64) for v in (actual, expected))
    if not b.size:
        return None
    finite = np.isfinite(b)
    if not np.array_equal(np.where(finite, 0, b), np.where(finite, 0, a), equal_nan=True):
        return f"{name} is not finite in other places"
    axes = tuple(range(max(0, b.ndim - 2), b.ndim))
    scale = np.max(np.abs(np.where(finite, b, 0)), axis=axes, keepdims=True)
    off = np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)) - allowed * scale
    if (off > 0).any():
        return f"{name} is off by {float(off.max()):.3g} more than {allowed:.3g} of its largest element"
    return None


def orthonormal(name: str, columns: Any, allowed: float) -> str | None:
    """What is wrong with columns that should be orthonormal."""
    q = np.asarray(columns, np.float64)
    gram = np.swapaxes(q, -1, -2) @ q
    worst = np.max(np.abs(gram - np.eye(q.shape[-1])), initial=0)
    return None if worst <= allowed else f"the columns of {name} are orthonormal only up to {worst:.3g}"


def first(problems: Sequence[str | None]) -> str | None:
    """The first that is a problem."""
    return next((problem for problem in problems if problem is not None), None)
