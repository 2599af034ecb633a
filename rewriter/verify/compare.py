"""How two tensors differ (metrics), and how much they may (tolerances): two things that are kept apart.

:func:`measure` only observes.  :func:`judge` holds the observation against a :class:`Tolerance` and says in words
what is wrong.  Dtype and shape must be equal, NaN and infinities must stand in the same places, integers, booleans
and strings must be equal; floating-point numbers may differ by rounding.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rewriter.execution.numbers import Array, Cosine, finite_max, is_float, to_float64, ulp_steps
from rewriter.verify.scales import scales

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Differences that may be rounding: at most this part of the largest element, ...
_GROSS = 0.05
#: ... or so small, where all elements are.
_SMALL = 1e-3
#: Elements looked at in one go, so that comparing large tensors needs little memory beyond theirs.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Metrics:
    """What was observed.  Figures are of the finite elements; None where there are none, or no such figure exists."""

    dtype: str
    shape: tuple[int, ...]
    expected_dtype: str
    expected_shape: tuple[int, ...]
    count: int = 0
    #: Elements that are not equal (NaN equals NaN).
    differing: int = 0
    max_abs: float | None = None
    #: max|a − b| / max|b|.
    max_scaled: float | None = None
    #: max(|a − b| / |b|) where b is not zero.
    max_rel: float | None = None
    #: Representable numbers between the two, at most.
    max_ulp: float | None = None
    #: Cosine of the angle between the two as vectors, without sentinels; 1 between two that are all zero.
    cosine: float | None = None
    #: max|b|, without sentinels such as the dtype's lowest number.
    scale: float | None = None
    #: Places where only one of the two is NaN, or infinite (or infinite with the other sign).
    nan_differs: int = 0
    inf_differs: int = 0
    #: NaN and infinities in the expected tensor.
    nans: int = 0
    infs: int = 0
    #: Why agreement would say nothing: ``"empty"``, ``"all NaN"``, ``"without a finite number"``, ``"all equal"``; ""
    #: where it says something.
    vacuous: str = ""
    #: The expected tensor's only element, as text, where it has one: it may be the same in every sample.
    only: str | None = None
    #: Where |a − b| is largest, and the two numbers there.
    worst_index: tuple[int, ...] | None = None
    worst_actual: str | None = None
    worst_expected: str | None = None

    @property
    def comparable(self) -> bool:
        return self.dtype == self.expected_dtype and self.shape == self.expected_shape

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Tolerance:
    """How far an element may be off: ``|a − b| ≤ atol + rtol·|b| + scaled·scale``, or within ``ulp`` numbers.

    ``scale`` is how large other elements are (see :mod:`rewriter.verify.scales`): an element that is small because
    large terms cancelled carries the rounding of those terms.
    """

    rtol: float = 0.0
    atol: float = 0.0
    scaled: float = 0.0
    ulp: int = 0
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        parts = [f"{name} {value:g}" for name, value in self.to_dict().items() if name != "reason" and value]
        return ", ".join(parts) or "exact"


EXACT = Tolerance(reason="integers, booleans and strings are not rounded")

#: One region against PyTorch, on the very same inputs: a handful of operators' worth of rounding.
REGION: dict[str, Tolerance] = {
    "float64": Tolerance(1e-10, 1e-12, 1e-11, 4, "2^-52 times the few hundred roundings of one operator"),
    "float32": Tolerance(
        1e-5, 1e-7, 1e-5, 4, "2^-23 times the few dozen roundings of one operator; Exp, Erf: 2-4 ULP"
    ),
    "float16": Tolerance(
        4e-3, 1e-5, 4e-3, 4, "2^-10, each step of a decomposition rounds where torch rounds once"
    ),
    "bfloat16": Tolerance(
        3e-2, 1e-5, 3e-2, 4, "2^-7, each step of a decomposition rounds where torch rounds once"
    ),
    "complex64": Tolerance(1e-5, 1e-7, 1e-5, 0, "as float32"),
    "complex128": Tolerance(1e-10, 1e-12, 1e-11, 0, "as float64"),
    "float8": Tolerance(ulp=1, reason="one step of a format with two or three bits of mantissa"),
}

#: Whole outputs of the same model, before and after simplification and optimisation: rounding accumulates over layers.
WHOLE: dict[str, Tolerance] = {
    "float64": Tolerance(
        1e-8, 1e-10, 1e-8, 4, "fused and reordered operators round otherwise, over many layers"
    ),
    "float32": Tolerance(
        1e-3, 1e-6, 1e-4, 4, "fused and reordered operators round otherwise, over many layers"
    ),
    "float16": Tolerance(
        2e-2, 1e-4, 2e-2, 4, "the optimiser keeps float32 between operators that lack a float16 kernel"
    ),
    "bfloat16": Tolerance(
        1e-1, 1e-4, 1e-1, 4, "the optimiser keeps float32 between operators that lack a bfloat16 kernel"
    ),
    "complex64": Tolerance(1e-3, 1e-6, 1e-4, 0, "as float32"),
    "complex128": Tolerance(1e-8, 1e-10, 1e-8, 0, "as float64"),
    "float8": Tolerance(
        ulp=2, reason="one step on either side of a format with two or three bits of mantissa"
    ),
}


def tolerance_for(dtype: str, table: dict[str, Tolerance]) -> Tolerance:
    """The entry for numpy's name of a dtype; everything that is no floating-point number is exact."""
    if dtype in table:
        return table[dtype]
    return table["float8"] if dtype.startswith(("float8", "float4", "float6")) else EXACT


def measure(actual: Array, expected: Array) -> Metrics:
    """The difference of two tensors; only dtypes and shapes where those differ already."""
    heads = (str(actual.dtype), actual.shape, str(expected.dtype), expected.shape)
    if heads[:2] != heads[2:]:
        return Metrics(*heads, count=expected.size)
    if expected.size == 0:
        return Metrics(*heads, vacuous="empty")
    seen = _Seen(expected.dtype)
    first = expected.reshape(-1)[0]
    constant = True
    for at, a, b in _chunks(actual, expected):
        constant = constant and bool((b == first).all())
        if expected.dtype.kind in "OSU":
            seen.differing += int((a != b).sum())
        else:
            seen.add(at, a, b)
    vacuous = (
        "all NaN"
        if seen.nans == expected.size
        else "without a finite number"
        if seen.nans + seen.infs == expected.size
        else "all equal"
        if constant and expected.size > 1
        else ""
    )
    worst, scale = seen.worst, seen.scale
    index = None if worst < 0 else tuple(int(i) for i in np.unravel_index(seen.worst_at, expected.shape))
    return Metrics(
        *heads,
        count=expected.size,
        differing=seen.differing,
        max_abs=worst if worst >= 0 else None,
        max_scaled=None if worst < 0 else worst / scale if scale > 0 else (0.0 if worst == 0 else None),
        max_rel=seen.rel if seen.rel >= 0 else None,
        max_ulp=seen.ulp if seen.ulp >= 0 else None,
        cosine=seen.cosine.value if worst >= 0 else None,
        scale=scale if scale >= 0 else None,
        nan_differs=seen.nan_differs,
        inf_differs=seen.inf_differs,
        nans=seen.nans,
        infs=seen.infs,
        vacuous=vacuous,
        only=str(first) if expected.size == 1 else None,
        worst_index=index,
        worst_actual=None if index is None else str(actual[index]),
        worst_expected=None if index is None else str(expected[index]),
    )


class _Seen:
    """What a tensor's chunks have shown so far; -1 stands for nothing yet."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._rounded = is_float(dtype)
        self.differing = self.nan_differs = self.inf_differs = self.nans = self.infs = 0
        self.worst, self.worst_at = -1.0, -1
        self.rel = self.ulp = self.scale = -1.0
        self.cosine = Cosine(dtype)

    def add(self, at: int, a: Array, b: Array) -> None:
        """Numbers that begin at flat index ``at``."""
        fa, fb = to_float64(a), to_float64(b)
        finite_a, finite_b = np.isfinite(fa), np.isfinite(fb)
        # Most tensors hold nothing else, and what only moves data is equal: neither is looked at twice.
        if finite_a.all() and finite_b.all():
            self._add_finite(at, a, b, fa, fb)
            return
        nan_a, nan_b = np.isnan(fa), np.isnan(fb)
        inf_a, inf_b = ~(finite_a | nan_a), ~(finite_b | nan_b)
        self.nans, self.infs = self.nans + int(nan_b.sum()), self.infs + int(inf_b.sum())
        self.nan_differs += int((nan_a != nan_b).sum())
        self.inf_differs += int((((inf_a != inf_b) | (inf_a & inf_b & (fa != fb))) & ~nan_a & ~nan_b).sum())
        finite = finite_a & finite_b
        self.differing += int(((a != b) & ~(nan_a & nan_b) & ~finite).sum())
        if finite.any():
            self._add_finite(at, a[finite], b[finite], fa[finite], fb[finite], places=np.flatnonzero(finite))

    def _add_finite(
        self, at: int, a: Array, b: Array, fa: Array, fb: Array, *, places: Array | None = None
    ) -> None:
        """``places`` are the flat indices within the chunk, where these are not all of it."""
        size = np.abs(fb)
        self.scale = max(self.scale, finite_max(size, self._dtype))
        unequal = int((a != b).sum())
        self.differing += unequal
        if not unequal:
            if self.worst < 0:
                self.worst, self.worst_at = 0.0, at + (0 if places is None else int(places[0]))
            self.rel = max(self.rel, 0.0 if size.any() else -1.0)
            self.ulp = max(self.ulp, 0.0 if self._rounded else -1.0)
            self.cosine.add(fb, fb)
            return
        error = np.abs(fa - fb)
        place = int(error.argmax())
        if error[place] > self.worst:
            self.worst, self.worst_at = (
                float(error[place]),
                at + (place if places is None else int(places[place])),
            )
        if size.any():
            ratio = np.divide(error, size, out=np.zeros_like(error), where=size > 0)
            self.rel = max(self.rel, float(ratio.max()))
        if self._rounded:
            self.ulp = max(self.ulp, float(ulp_steps(a, b).max()))
        self.cosine.add(fa, fb)


@dataclass(frozen=True)
class Thresholds:
    """What the user asked for in the place of the tables and of the passes' own tolerances; None: they hold."""

    atol: float | None = None
    rtol: float | None = None

    def __bool__(self) -> bool:
        return self.atol is not None or self.rtol is not None

    def override(self, tolerance: Tolerance, dtype: str) -> Tolerance:
        """``|a − b| ≤ atol + rtol·|b|`` for floating point, nothing besides; the one not given stays as it was."""
        if not self or not is_float_name(dtype):
            return tolerance
        return Tolerance(
            tolerance.rtol if self.rtol is None else self.rtol,
            tolerance.atol if self.atol is None else self.atol,
            reason="asked for",
        )


def is_float_name(dtype: str) -> bool:
    """Whether numpy's name of a dtype is one of numbers that are rounded."""
    return dtype.startswith(("float", "bfloat", "complex"))


class Accepted(str):
    """What is wrong that ``flag`` accepts, where it means nothing."""

    flag: str

    def __new__(cls, text: str, flag: str) -> Self:
        made = super().__new__(cls, text)
        made.flag = flag
        return made


class Beyond(str):
    """What is wrong with numbers that are only farther apart than allowed; the threshold ``atol`` accepts them."""

    atol: float

    def __new__(cls, text: str, atol: float) -> Self:
        made = super().__new__(cls, text)
        made.atol = atol
        return made


def accepting(problems: Iterable[str | None]) -> str:
    """The flag that accepts what is wrong, as the end of a remedy; "" where more than rounding or order is wrong."""
    wrong = [problem for problem in problems if problem]
    limits = [problem.atol for problem in wrong if isinstance(problem, Beyond)]
    if limits and len(limits) == len(wrong):
        return f"; where the difference is rounding, --atol {max(limits):g} accepts it"
    flags = [problem.flag for problem in wrong if isinstance(problem, Accepted)]
    if flags and len(flags) == len(wrong):
        return (
            f"; where equal values may come in any order, {' '.join(flags)} accepts it (of outputs of the model), or "
            "compare() of the pass"
        )
    return ""


def judge(
    actual: Array,
    expected: Array,
    metrics: Metrics,
    tolerance: Tolerance,
    terms: Callable[[], Array | None] | None = None,
) -> str | None:
    """What is wrong, in a clause; None where the two agree within the tolerance.

    ``terms`` gives what each element is allowed besides (see :mod:`rewriter.verify.kernels`); it is asked where the
    tolerance alone does not do.  The element that is shown is the one farthest beyond what it is allowed.
    """
    if metrics.dtype != metrics.expected_dtype:
        return f"is {metrics.dtype}, expected {metrics.expected_dtype}"
    if metrics.shape != metrics.expected_shape:
        return f"has shape {list(metrics.shape)}, expected {list(metrics.expected_shape)}"
    if metrics.nan_differs:
        place = _first(actual, expected, lambda a, b: np.isnan(a) != np.isnan(b))
        return (
            f"NaN in {metrics.nan_differs} of {metrics.count} places where only one of the two has it{place}"
        )
    if metrics.inf_differs:
        place = _first(actual, expected, lambda a, b: (a != b) & (np.isinf(a) | np.isinf(b)))
        return f"infinities differ in {metrics.inf_differs} of {metrics.count} places{place}"
    if not metrics.differing:
        return None
    if not is_float(expected.dtype):
        place = _first(actual, expected, lambda a, b: np.asarray(a != b), widen=False)
        return f"{metrics.differing} of {metrics.count} elements differ{place}"
    count, worst = _beyond(actual, expected, tolerance, terms)
    if not count:
        return None
    text = (
        f"{count} of {metrics.count} elements beyond tolerance: max|a-b| {metrics.max_abs:.3g}"
        f"{f', max|a-b|/max|b| {metrics.max_scaled:.3g}' if metrics.max_scaled is not None else ''}"
        f"{f', {metrics.max_ulp:.3g} ULP' if metrics.max_ulp is not None else ''}"
        f"{f', cosine {metrics.cosine:.6f}' if metrics.cosine is not None else ''}"
        f" (allowed: {tolerance}{', and the error of its kernels' if terms is not None else ''})"
        f"{_shown(actual, expected, worst)}"
    )
    largest = metrics.max_abs or 0.0
    small = (metrics.max_scaled or 0.0) <= _GROSS or largest <= _SMALL
    rounded = bool(tolerance.rtol or tolerance.atol)
    return Beyond(text, _rounded_up(2 * largest)) if small and rounded else text


def _rounded_up(value: float) -> float:
    """To one digit."""
    unit = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return float(f"{math.ceil(value / unit) * unit:.0e}")


def _beyond(
    actual: Array, expected: Array, tolerance: Tolerance, terms: Callable[[], Array | None] | None
) -> tuple[int, int]:
    """How many elements are farther apart than allowed, each by its own scale, and the flat index of the worst."""
    own = replace(tolerance, scaled=0.0)
    found = [at + np.flatnonzero(beyond(a, b, own, 0.0)) for at, a, b in _chunks(actual, expected)]
    places = np.concatenate(found) if found else np.zeros(0, np.int64)
    if not places.size:
        return 0, -1
    scale = scales(actual, expected, places) if tolerance.scaled else np.zeros(places.shape)
    more = terms() if terms is not None else None
    extra = (
        np.zeros(places.shape) if more is None else np.broadcast_to(more, expected.shape).reshape(-1)[places]
    )
    a, b = actual.reshape(-1)[places], expected.reshape(-1)[places]
    left = np.flatnonzero(beyond(a, b, tolerance, scale, extra))
    if not left.size:
        return 0, -1
    fa, fb = to_float64(a[left]), to_float64(b[left])
    allowed = _allowed(fb, tolerance, scale[left], extra[left])
    with np.errstate(over="ignore"):
        excess = np.abs(fa - fb) / np.maximum(allowed, np.finfo(np.float64).tiny)
    return int(left.size), int(places[left[int(excess.argmax())]])


def beyond(
    a: Array, b: Array, tolerance: Tolerance, scale: float | Array, more: float | Array = 0.0
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Of each element, whether the two are farther apart than allowed; finite ones only.

    ``more`` is what an element is allowed besides the tolerance.
    """
    fa, fb = to_float64(a), to_float64(b)
    with np.errstate(invalid="ignore"):
        allowed = _allowed(fb, tolerance, scale, more)
        beyond = (np.abs(fa - fb) > allowed) & np.isfinite(fa) & np.isfinite(fb)
    if tolerance.ulp and beyond.any():
        beyond &= ulp_steps(a, b) > tolerance.ulp
    return np.asarray(beyond)


def _allowed(expected: Array, tolerance: Tolerance, scale: float | Array, more: float | Array) -> Array:
    return np.asarray(tolerance.atol + tolerance.rtol * np.abs(expected) + tolerance.scaled * scale + more)


def _first(
    actual: Array, expected: Array, differ: Callable[[Array, Array], Array], *, widen: bool = True
) -> str:
    """The first element where ``differ`` holds, as the end of a clause."""
    for at, a, b in _chunks(actual, expected):
        found = np.flatnonzero(differ(to_float64(a), to_float64(b)) if widen else differ(a, b))
        if found.size:
            return _shown(actual, expected, at + int(found[0]))
    return ""


def _shown(actual: Array, expected: Array, place: int) -> str:
    """The two numbers at a flat index, as the end of a clause."""
    index = tuple(int(i) for i in np.unravel_index(place, expected.shape))
    return f"; at {list(index)} {actual[index]}, expected {expected[index]}"


def _chunks(actual: Array, expected: Array) -> Iterator[tuple[int, Array, Array]]:
    a, b = actual.reshape(-1), expected.reshape(-1)
    for at in range(0, b.size, _CHUNK):
        yield at, a[at : at + _CHUNK], b[at : at + _CHUNK]
