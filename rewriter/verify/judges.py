"""Results that mean the same in another order: detections as sets, and the indices of a top-k with ties.

Each judge takes two tuples of numpy arrays and says in a clause what is wrong, or None: what a pass's ``compare``
returns.  A pass uses them there; for whole outputs the user names one (``--compare``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from rewriter.execution.numbers import finite_max, is_float, to_float64
from rewriter.verify.compare import REGION, Tolerance, beyond, tolerance_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rewriter.execution.numbers import Array

#: The tolerance for numpy's name of a dtype.
Allowed = Callable[[str], Tolerance]


def region_tolerance(dtype: str) -> Tolerance:
    """What a single operator is allowed."""
    return tolerance_for(dtype, REGION)


class Misfit(str):
    """What is wrong with the question rather than with the answer: tensors that cannot be judged in this way."""


def matched_detections(
    actual: Sequence[Array], expected: Sequence[Array], allowed: Allowed = region_tolerance
) -> str | None:
    """What is wrong with detections that may come in another order; None where they pair up.

    The arrays are columns of one table: boxes ``(…, N, 4)``, scores ``(…, N)``, labels ``(…, N)``, or one array
    ``(…, N, columns)``.  Every row of ``expected`` needs one of ``actual`` of its own whose floating-point columns are
    within the tolerance and whose other columns are equal.  Leading dims are batches, each with a set of its own.
    """
    problem = _same_heads(actual, expected)
    return problem if problem is not None else pair_rows(actual, expected, allowed)[1]


def pair_rows(
    actual: Sequence[Array], expected: Sequence[Array], allowed: Allowed = region_tolerance
) -> tuple[list[Array], str | None]:
    """``actual`` in the order of ``expected``, and what is wrong; of equal dtypes and shapes."""
    depth = _depth(expected)
    lead = expected[0].shape[:depth]
    if any(array.shape[:depth] != lead for array in expected):
        shapes = ", ".join(str(list(array.shape)) for array in expected)
        return list(actual), Misfit(f"detections of shapes {shapes} are not the columns of one table")
    count = lead[-1] if lead else 1
    sets = int(np.prod(lead[:-1], dtype=np.int64)) if lead else 1
    tables = [
        [array.reshape(sets, count, int(np.prod(array.shape[depth:], dtype=np.int64))) for array in side]
        for side in (actual, expected)
    ]
    tolerances = [allowed(str(array.dtype)) for array in expected]
    scales = [_scale(array) for array in expected]
    ordered = [table.copy() for table in tables[0]]
    missing = 0
    example = ""
    for index in range(sets):
        a, b = ([table[index] for table in side] for side in tables)
        pairs = _pairs(a, b, tolerances, scales)
        lost = np.flatnonzero(pairs < 0)
        if lost.size:
            missing += lost.size
            if not example:
                place = f"in set {index}, " if sets > 1 else ""
                row = ", ".join(str(column[lost[0]].tolist()) for column in b)
                example = f"; {place}row {lost[0]} [{row}]"
            continue
        for table, column in zip(ordered, a, strict=True):
            table[index] = column[pairs]
    if missing:
        return list(actual), f"{missing} of {sets * count} detections have no counterpart{example}"
    return [table.reshape(array.shape) for table, array in zip(ordered, actual, strict=True)], None


def topk_ties(
    actual: Sequence[Array],
    expected: Sequence[Array],
    *,
    axis: int = -1,
    data: Array | None = None,
    allowed: Allowed = region_tolerance,
) -> str | None:
    """What is wrong with the values and indices of a top-k, both ``(values, indices)``; None where they agree.

    Along ``axis``, values must be the same whatever their order.  Among equal ones (within the tolerance) indices may
    be exchanged.  Where several elements are equal and only some of them were taken, an index may also be that of
    another one: given ``data``, which was picked from, it must hold the value there; without it this is no agreement.
    """
    problem = _same_heads(actual, expected)
    return problem if problem is not None else settle_ties(actual, expected, axis, data, allowed)[1]


def settle_ties(
    actual: Sequence[Array],
    expected: Sequence[Array],
    axis: int = -1,
    data: Array | None = None,
    allowed: Allowed = region_tolerance,
) -> tuple[list[Array], str | None]:
    """``actual`` with the order and the indices of ties of ``expected``, and what is wrong; equal dtypes and shapes."""
    values, indices = expected
    if values.shape != indices.shape:
        return list(actual), Misfit(
            f"values of shape {list(values.shape)} and indices of shape {list(indices.shape)} are not of one top-k"
        )
    if values.ndim == 0 or not -values.ndim <= axis < values.ndim:
        return list(actual), Misfit(f"values of shape {list(values.shape)} have no axis {axis}")
    if not values.size:
        return list(actual), None
    rows = [np.moveaxis(array, axis, -1) for array in (*actual, *expected)]
    shape = rows[0].shape
    av, ai, bv, bi = (row.reshape(-1, shape[-1]) for row in rows)
    picked = None if data is None else np.moveaxis(data, axis, -1)
    if picked is not None and picked.shape[:-1] != shape[:-1]:
        return list(actual), Misfit(
            f"values of shape {list(values.shape)} were not picked along axis {axis} of {list(picked.shape)}"
        )
    picked = None if picked is None else picked.reshape(av.shape[0], -1)
    tolerance, scale = allowed(str(values.dtype)), _scale(values)
    settled = [av.copy(), ai.copy()]
    for row in range(av.shape[0]):
        problem = _row_of_ties(
            (av[row], ai[row]), (bv[row], bi[row]), None if picked is None else picked[row], tolerance, scale
        )
        if problem is not None:
            place = list(np.unravel_index(row, shape[:-1])) if len(shape) > 1 else []
            return list(actual), problem + (f" (at {[int(i) for i in place]})" if place else "")
        settled[0][row], settled[1][row] = _sorted_like(av[row], bv[row]), bi[row]
    return [np.moveaxis(array.reshape(shape), -1, axis) for array in settled], None


def picked_from(values: Array, taken: Iterable[object]) -> Array | None:
    """The one array among ``taken`` that ``values`` may have been picked from along the last axis; None if unclear."""
    found = [
        array
        for array in taken
        if isinstance(array, np.ndarray)
        and array.dtype == values.dtype
        and array.ndim == values.ndim > 0
        and array.shape[:-1] == values.shape[:-1]
        and array.shape[-1] >= values.shape[-1]
    ]
    return found[0] if len(found) == 1 else None


# --- detections -----------------------------------------------------------------------------------------------


def _same_heads(actual: Sequence[Array], expected: Sequence[Array]) -> str | None:
    if len(actual) != len(expected):
        return f"{len(actual)} arrays, expected {len(expected)}"
    for a, b in zip(actual, expected, strict=True):
        if a.dtype != b.dtype:
            return f"is {a.dtype}, expected {b.dtype}"
        if a.shape != b.shape:
            return f"has shape {list(a.shape)}, expected {list(b.shape)}"
    return None


def _depth(arrays: Sequence[Array]) -> int:
    """How many leading dims a row's place has: all of the flattest array's, or all but the columns of a table."""
    ranks = {array.ndim for array in arrays}
    lowest = min(ranks)
    return lowest - 1 if len(ranks) == 1 and lowest >= 2 else lowest


def _pairs(
    actual: Sequence[Array],
    expected: Sequence[Array],
    tolerances: Sequence[Tolerance],
    scales: Sequence[float],
) -> Array:
    """For each row of ``expected`` its own row of ``actual``, or -1: a largest matching."""
    count = expected[0].shape[0]
    partner = np.full(count, -1)
    owner = np.full(count, -1)
    same = _alike(actual, expected, tolerances, scales)
    partner[same] = owner[same] = np.flatnonzero(same)
    known: dict[int, Array] = {}

    def candidates(row: int) -> Array:
        if row not in known:
            wanted = [np.broadcast_to(column[row], column.shape) for column in expected]
            known[row] = np.flatnonzero(_alike(actual, wanted, tolerances, scales))
        return known[row]

    for start in np.flatnonzero(~same):
        # A path that alternates between pairs and candidates, breadth first, to a row that nobody has.
        came: dict[int, int] = {}
        waiting = [int(start)]
        end = -1
        while waiting and end < 0:
            row = waiting.pop(0)
            for other in candidates(row):
                if int(other) in came:
                    continue
                came[int(other)] = row
                if owner[other] < 0:
                    end = int(other)
                    break
                waiting.append(int(owner[other]))
        while end >= 0:
            row = came[end]
            before = int(partner[row])
            partner[row], owner[end] = end, row
            end = before if row != start else -1
    return partner


def _alike(
    actual: Sequence[Array],
    expected: Sequence[Array],
    tolerances: Sequence[Tolerance],
    scales: Sequence[float],
) -> Array:
    """Of each row, whether the two are the same detection."""
    result = np.ones(expected[0].shape[0], bool)
    for a, b, tolerance, scale in zip(actual, expected, tolerances, scales, strict=True):
        result &= _close(a, b, tolerance, scale).all(axis=1)
    return result


def _close(a: Array, b: Array, tolerance: Tolerance, scale: float) -> Array:
    """Of each element, whether the two agree."""
    if not is_float(b.dtype):
        return np.asarray(a == b)
    equal = np.asarray(a == b)
    fa, fb = to_float64(a), to_float64(b)
    finite = np.isfinite(fa) & np.isfinite(fb)
    return np.asarray(equal | (np.isnan(fa) & np.isnan(fb)) | (finite & ~beyond(a, b, tolerance, scale)))


def _scale(array: Array) -> float:
    if not is_float(array.dtype) or not array.size:
        return 0.0
    values = to_float64(array)
    return finite_max(np.where(np.isfinite(values), values, 0), array.dtype)


# --- ties -----------------------------------------------------------------------------------------------------


def _row_of_ties(
    actual: tuple[Array, Array],
    expected: tuple[Array, Array],
    data: Array | None,
    tolerance: Tolerance,
    scale: float,
) -> str | None:
    (av, ai), (bv, bi) = actual, expected
    order_a, order_b = _order(av), _order(bv)
    av, ai, bv, bi = av[order_a], ai[order_a], bv[order_b], bi[order_b]
    close = _close(av, bv, tolerance, scale)
    if not close.all():
        at = int(np.flatnonzero(~close)[0])
        return f"{int((~close).sum())} of {close.size} values differ: {av[at]}, expected {bv[at]}"
    if len(set(ai.tolist())) < ai.size:
        return "an index is given twice"
    # Neighbours that are equal stand in one group; a chain of near ones is one, too.
    breaks = np.flatnonzero(~_close(bv[1:], bv[:-1], tolerance, scale)) + 1
    for start, end in zip([0, *breaks], [*breaks, bv.size], strict=True):
        mine, theirs = set(ai[start:end].tolist()), set(bi[start:end].tolist())
        odd = sorted(mine - theirs)
        if not odd:
            continue
        if data is None:
            return (
                f"index {odd[0]} of value {bv[start]} is not among those expected, {sorted(theirs)[:4]}; without what "
                "they were picked from, it cannot be told whether that is a tie"
            )
        for index in odd:
            place = int(index) + data.size if index < 0 else int(index)
            if not 0 <= place < data.size:
                return f"index {index} lies outside the {data.size} elements that were picked from"
            if not _close(data[place : place + 1], bv[start : start + 1], tolerance, scale).all():
                return f"index {index} is given for {bv[start]}, and {data[place]} stands there"
    return None


def _order(values: Array) -> Array:
    """From the smallest on, NaN last; equal ones as they stand."""
    return np.argsort(to_float64(values) if is_float(values.dtype) else values, kind="stable")


def _sorted_like(values: Array, model: Array) -> Array:
    """``values`` in the order that ``model`` stands in."""
    result = np.empty_like(values)
    result[_order(model)] = values[_order(values)]
    return result
