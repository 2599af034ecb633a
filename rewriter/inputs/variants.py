"""Other values for what one operator takes: the kinds of values on which wrong decompositions are right by luck.

:data:`KINDS` lists them.  :func:`variants` makes them from values that the operator took, each a whole set.
The caller says what inputs may hold: those that are not free keep their values, and limits are kept.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.execution.numbers import is_float, to_float64
from rewriter.inputs.draw import generator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rewriter.execution.numbers import Array

#: What each kind of variant is, in the order in which they are tried; docs/verification.md has the same table.
KINDS: Mapping[str, str] = {
    "large": "magnitudes from 4 to 110 (float16: 400), of either sign, among zeros and values as they were",
    "small": "the values times 2^-10",
    "tiny": "the values times 2^-60 (not float16)",
    "zero": "0 throughout",
    "rows of zeros": "the first slice along the first axis, and along the last one, is 0",
    "ties": "-1, 0 and 1, so that extremes are tied",
    "halves": "multiples of 1/2 from -4 to 4",
    "constants": "the region's own constants, their negatives, their neighbours in the dtype, and 1/2 more and less",
    "equal": "equal to another input of the same shape",
    "NaN": "NaN in some places",
    "infinite": "infinities of either sign in some places",
    "rows of -infinity": "the first slice along the first axis is -infinity",
    "negative integers": "-9 to 9 without 0, or 1 to 9 where the dtype has no sign",
    "large integers": "odd numbers around 2^24 and 2^31, as far as the dtype goes",
    "ends of the integers": "numbers close to the ends of the dtype",
    "rows of False": "the first slice along the first axis, and along the last one, is False",
    "rows of True": "the first slice along the first axis, and along the last one, is True",
}
#: Kinds whose numbers are exact: a comparison or a rounding that they meet is decided by no rounding error.
EXACT = frozenset({"ties", "halves", "constants", "zero", "rows of zeros", "equal"})
#: Kinds with numbers that are not finite.
UNBOUNDED = frozenset({"NaN", "infinite", "rows of -infinity"})

#: Powers of two, so that scaling rounds nothing.
_SMALL, _TINY = 2.0**-10, 2.0**-60
#: Between which magnitudes large values lie: beyond the limits of clipped activations, and beyond what Exp takes.
_LARGE = (4.0, 110.0)
#: The same of float16: its square is no number of the format.
_LARGE_OF_FLOAT16 = 400.0
#: Integers that float32, int32 and products of either do not hold exactly.
_INTEGERS = (2**24 + 1, 2**31 - 5, 2**31 + 7, 2**33 + 3)
#: Distances from the ends of a dtype: its lowest number itself has no negative, and divides the process away.
_ENDS = (5, 6, 8, 11)
#: Constants of narrow formats from here on are limits of the format.
_MOST_NARROW = 1e4
#: Inputs that are changed one at a time, and rounds in which constants are tried where an input has few elements.
_INPUTS, _ROUNDS = 4, 4


@dataclass(frozen=True)
class Variant:
    """A set of inputs of one kind; ``changed`` are those that are not what they were."""

    kind: str
    feeds: Mapping[str, Array]
    changed: tuple[str, ...]

    def describe(self) -> str:
        """``NaN in 'x' (float32[2, 3])``."""
        shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in self.feeds.values())
        names = ", ".join(f"'{name}'" for name in self.changed)
        return f"{self.kind} in {names} ({shapes})"


@dataclass(frozen=True)
class Freedom:
    """What the inputs of one region may hold: those of ``fixed`` only what they hold, others within their limits."""

    fixed: frozenset[str] = frozenset()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    #: Integer inputs that decide how much memory or how many rounds there are: none of them becomes large.
    counts: frozenset[str] = frozenset()
    #: Whether NaN and infinities are no inputs of the operator.
    finite: bool = False

    def fit(self, name: str, made: Array) -> Array | None:
        """``made`` within the limits of the input; None where a number has no place there."""
        if name not in self.limits:
            return made
        low, high = self.limits[name]
        if is_float(made.dtype) and not np.isfinite(to_float64(made)).all():
            return None
        return np.clip(made, *np.asarray((low, high)).astype(made.dtype)) if made.dtype != bool else made


def variants(
    feeds: Mapping[str, Array], constants: Sequence[float], freedom: Freedom, seed: int
) -> Iterator[Variant]:
    """Every kind that the inputs ``feeds`` have room for; ``constants`` are the region's own."""
    free = {n: a for n, a in feeds.items() if a.size and n not in freedom.fixed and a.dtype.kind != "O"}
    floats = {n: a for n, a in free.items() if is_float(a.dtype) and a.dtype.kind != "c"}
    wholes = {n: a for n, a in free.items() if a.dtype.kind in "iu"}
    booleans = {n: a for n, a in free.items() if a.dtype == bool}
    make = _Maker(feeds, freedom, seed)
    yield from make.each(floats, ("large", "small", "tiny", "zero", "rows of zeros"))
    yield from make.joint(floats, ("ties", "halves"))
    yield from make.constants(floats, wholes, constants)
    yield from make.equal(free)
    if not freedom.finite:
        yield from make.each(floats, ("NaN", "infinite", "rows of -infinity"))
    yield from make.each(wholes, ("zero", "rows of zeros"))
    yield from make.joint(wholes, ("negative integers",))
    large = {n: a for n, a in wholes.items() if n not in freedom.counts}
    yield from make.each(large, ("large integers", "ends of the integers"))
    yield from make.each(booleans, ("rows of False", "rows of True"))


class _Maker:
    """Makes variants of one set of inputs; what would change nothing, or is not allowed, is left out."""

    def __init__(self, feeds: Mapping[str, Array], freedom: Freedom, seed: int) -> None:
        self.feeds, self.freedom, self.seed = feeds, freedom, seed
        self.order = {name: at for at, name in enumerate(feeds)}

    def each(self, inputs: Mapping[str, Array], kinds: Sequence[str]) -> Iterator[Variant]:
        """Each input in turn."""
        for kind in kinds:
            for name, array in itertools.islice(inputs.items(), _INPUTS):
                yield from self._variant(kind, {name: self._made(kind, name, array)})

    def joint(self, inputs: Mapping[str, Array], kinds: Sequence[str]) -> Iterator[Variant]:
        """All inputs at once."""
        for kind in kinds:
            yield from self._variant(kind, {n: self._made(kind, n, a) for n, a in inputs.items()})

    def constants(
        self, floats: Mapping[str, Array], wholes: Mapping[str, Array], constants: Sequence[float]
    ) -> Iterator[Variant]:
        """The constants in the places of elements, in as many rounds as few elements need."""
        if not constants:
            return
        for number in range(_ROUNDS):
            made: dict[str, Array | None] = {}
            rounds = 0
            for name, array in (*floats.items(), *wholes.items()):
                values = near(constants, array.dtype)
                rounds = max(rounds, -(-len(values) // array.size))
                if values.size:
                    turn = self._rng("constants", name).permutation(array.size) + number * array.size
                    made[name] = values[turn % len(values)].reshape(array.shape)
            if number < max(rounds, 1):
                yield from self._variant("constants", made)

    def equal(self, inputs: Mapping[str, Array]) -> Iterator[Variant]:
        for a, b in itertools.islice(itertools.combinations(inputs, 2), _INPUTS):
            one, other = inputs[a], inputs[b]
            if one.shape == other.shape and one.dtype == other.dtype:
                yield from self._variant("equal", {b: one})

    def _made(self, kind: str, name: str, array: Array) -> Array | None:
        with np.errstate(all="ignore"):
            return _MADE[kind](array, self._rng(kind, name))

    def _rng(self, kind: str, name: str) -> np.random.Generator:
        # The name of an inner value may change between versions; its position does not.
        return generator(self.seed, self.order[name], kind)

    def _variant(self, kind: str, made: Mapping[str, Array | None]) -> Iterator[Variant]:
        changed = {
            name: fitted
            for name, array in made.items()
            if array is not None and (fitted := self.freedom.fit(name, array)) is not None
        }
        if any(not np.array_equal(array, self.feeds[name]) for name, array in changed.items()):
            yield Variant(kind, {**self.feeds, **changed}, tuple(changed))


def near(constants: Sequence[float], dtype: np.dtype[Any]) -> Array:
    """Values of ``dtype`` at and beside the constants: these first, then their neighbours, then the others."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        whole = [int(c) for c in constants if float(c).is_integer()]
        numbers = [c + step for step in (0, 1, -1) for c in whole]
        numbers += [-c for c in whole]
        return np.array(list(dict.fromkeys(n for n in numbers if info.min < n < info.max)), dtype)
    with np.errstate(over="ignore"):
        exact = np.array(list(constants), np.float64).astype(dtype)
    most = np.inf if dtype.itemsize > 2 else _MOST_NARROW
    exact = exact[np.abs(to_float64(exact)) < most]
    if dtype.kind == "f":
        up, down = np.nextafter(exact, dtype.type(np.inf)), np.nextafter(exact, dtype.type(-np.inf))
    else:
        step = exact.astype(np.float64) * 2.0**-7
        up, down = (
            (exact.astype(np.float64) + step).astype(dtype),
            (exact.astype(np.float64) - step).astype(dtype),
        )
    half = np.asarray(0.5, dtype)
    found = np.concatenate([exact, up, down, -exact, exact + half, exact - half]).astype(dtype)
    _, first = np.unique(to_float64(found), return_index=True)
    return found[np.sort(first)]


# --- one input ----------------------------------------------------------------------------------------------------


def _large(array: Array, rng: np.random.Generator) -> Array:
    flat = to_float64(array).reshape(-1)
    finite = flat[np.isfinite(flat) & (np.abs(flat) < 1e9)]
    typical = max(1.0, float(np.sqrt(np.mean(finite**2)))) if finite.size else 1.0
    count = flat.size
    # Strata, so that few elements cover the whole range; the largest is always there.
    place = (np.arange(count) + rng.random(count)) / count
    place[-1] = 1.0
    high = _LARGE_OF_FLOAT16 if array.dtype.name == "float16" else _LARGE[1]
    size = np.exp(np.log(_LARGE[0]) + place * np.log(high / _LARGE[0]))
    sign = np.where(np.arange(count) % 2 == count % 2, -1.0, 1.0)
    turn = np.arange(count)[::-1] % 8
    made = np.where(turn < 4, sign * size * typical, flat)
    made = np.where(turn == 4, 0.0, made)
    made = np.where(turn == 5, np.round(flat / typical * 2) / 2 * typical, made)
    return made[rng.permutation(count)].reshape(array.shape).astype(array.dtype)


def _times(array: Array, factor: float) -> Array:
    return (to_float64(array) * factor).astype(array.dtype)


def _tiny(array: Array, rng: np.random.Generator) -> Array | None:  # noqa: ARG001
    return None if array.dtype.name == "float16" or array.dtype.itemsize < 2 else _times(array, _TINY)


def _rows(value: float, *, last: bool = True) -> Callable[[Array, np.random.Generator], Array | None]:
    def made(array: Array, rng: np.random.Generator) -> Array | None:  # noqa: ARG001
        if not array.ndim:
            return None
        found = array.copy()
        found[0] = value
        if last and array.shape[-1] > 1:
            found[..., 0] = value
        return found

    return made


def _some(values: Sequence[float]) -> Callable[[Array, np.random.Generator], Array]:
    """Each of ``values`` in about a tenth of the places, and at one at least where there are enough."""

    def made(array: Array, rng: np.random.Generator) -> Array:
        flat = array.reshape(-1).copy()
        places = rng.permutation(flat.size)
        each = max(1, flat.size // 10)
        for number, value in enumerate(values):
            flat[places[number * each : (number + 1) * each]] = value
        return flat.reshape(array.shape)

    return made


def _drawn_of(values: Sequence[float]) -> Callable[[Array, np.random.Generator], Array]:
    def made(array: Array, rng: np.random.Generator) -> Array:
        return rng.choice(np.asarray(values), array.shape).astype(array.dtype)

    return made


def _negative(array: Array, rng: np.random.Generator) -> Array:
    sign = 1 if array.dtype.kind == "u" else rng.choice((-1, 1), array.shape)
    # No 0, by which nothing is divided: other kinds have that.
    return (sign * rng.integers(1, 9, array.shape, endpoint=True)).astype(array.dtype)


def _integers(array: Array, rng: np.random.Generator) -> Array | None:
    info = np.iinfo(array.dtype)
    numbers = [sign * n for n in _INTEGERS for sign in (1, -1) if info.min < sign * n < info.max]
    return None if not numbers else rng.choice(np.array(numbers, array.dtype), array.shape)


def _ends(array: Array, rng: np.random.Generator) -> Array:
    info = np.iinfo(array.dtype)
    numbers = [info.max - n for n in _ENDS] + [info.min + n for n in _ENDS]
    return rng.choice(np.array(numbers, array.dtype), array.shape)


_MADE: Mapping[str, Callable[[Array, np.random.Generator], Array | None]] = {
    "large": _large,
    "small": lambda array, rng: _times(array, _SMALL),  # noqa: ARG005
    "tiny": _tiny,
    "zero": lambda array, rng: np.zeros_like(array),  # noqa: ARG005
    "rows of zeros": _rows(0),
    "ties": _drawn_of((-1.0, 0.0, 1.0)),
    "halves": _drawn_of([number / 2 for number in range(-8, 9)]),
    "NaN": _some((np.nan,)),
    "infinite": _some((np.inf, -np.inf)),
    "rows of -infinity": _rows(-np.inf, last=False),
    "negative integers": _negative,
    "large integers": _integers,
    "ends of the integers": _ends,
    "rows of False": _rows(False),
    "rows of True": _rows(True),
}
