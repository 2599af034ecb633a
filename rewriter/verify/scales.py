"""How large the terms were that made an element: what it may be off by rounding, when they cancelled.

The largest magnitude of the tensor is a bound, and often much too wide: a mask filled with -1e4 or -1e9 stands among
scores of 3, boxes of 400 stand in the columns beside probabilities.  Terms of that size made none of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.execution.numbers import sentinel, to_float64

if TYPE_CHECKING:
    from rewriter.execution.numbers import Array

#: Magnitudes as far apart as this, with none between them, are of two kinds, ...
_GAP = 100.0
#: ... if the larger are at least this large, as what masks are filled with is, ...
_LARGE = 1e3
#: ... and so many are smaller: one or two may have cancelled by chance.
_FEW = 3
#: Smaller numbers are no kind of their own but what cancelling left, unless beyond this many roundings of the larger.
_NOISE = 100.0
#: A column (along the last dim) has a scale of its own where it is at least this long, ...
_ROWS = 8
#: ... and not below this part of the whole tensor's: columns may cancel in every row.
_PART = 0.01


def scales(actual: Array, expected: Array, places: Array) -> Array:
    """The scale of each element at the flat indices ``places``, in float64; dtypes and shapes are equal."""
    size = np.abs(to_float64(expected.reshape(-1)))
    size = np.where(np.isfinite(size) & (size < sentinel(expected.dtype)), size, 0.0)
    whole = float(size.max(initial=0.0))
    border = _border(size, actual.reshape(-1), expected.reshape(-1))
    low = np.where(size < border, size, 0.0)
    found = np.full(places.shape, float(low.max(initial=0.0)))
    columns = expected.shape[-1] if expected.ndim > 1 else 0
    if columns and expected.size >= _ROWS * columns:
        found = np.maximum(low.reshape(-1, columns).max(axis=0)[places % columns], _PART * found)
    return np.where(size[places] < border, found, whole)


def _border(size: Array, actual: Array, expected: Array) -> float:
    """The magnitude from which on elements are of another kind than the rest; inf where all are of one."""
    if size.max(initial=0.0) < _LARGE:
        return float("inf")
    known = np.sort(size[size > 0])
    gaps = np.flatnonzero((known[1:] >= _GAP * known[:-1]) & (known[1:] >= _LARGE))
    for gap in gaps[::-1]:
        below, above = known[gap], known[gap + 1]
        if gap + 1 < _FEW:
            break
        upper = size >= above
        filled = bool((actual[upper] == expected[upper]).all())
        if filled or below >= _NOISE * _epsilon(expected.dtype) * known[-1]:
            return float(above)
    return float("inf")


def _epsilon(dtype: np.dtype[Any]) -> float:
    if dtype.kind in "fc":
        return float(np.finfo(dtype).eps)
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).eps)
