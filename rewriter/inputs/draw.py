"""Inputs to verify with: drawn so that the model accepts them, or given by the user.

The same seed draws the same numbers on every machine: each input has a generator of its own, seeded by the seed, the
sample and the input's name.
"""

from __future__ import annotations

import re
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from rewriter.errors import CannotVerifyError, UsageError
from rewriter.execution.cut import CUT
from rewriter.graph.scopes import text
from rewriter.inputs.dims import ATTEMPTS, Sizes, did_you_mean, key_of
from rewriter.inputs.examples import drawn_as
from rewriter.inputs.given import check_given, load_given
from rewriter.inputs.ranges import Range, required_ranges
from rewriter.types import INTEGERS, TensorType, dtype_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from onnx import ModelProto

    from rewriter.execution.numbers import Array
    from rewriter.execution.values import Data
    from rewriter.inputs.examples import Example
    from rewriter.placeholder.case import Draw
    from rewriter.verify.options import VerifyOptions

GIVE_INPUTS = "give inputs that the model accepts (--inputs file.npz), or pass --no-verify"

#: Flags of one kind that a message lists.
_SHOWN = 6

#: Between which integers of unknown meaning lie, attempt by attempt: as by default, small, and what one divides by.
_MILDER = (None, (0, 1), (0, 0), (1, 7), (0, 1), (0, 0))
_MASK = re.compile(r"mask", re.IGNORECASE)
_LENGTH = re.compile(r"(^|[_.])(len|lens|length|lengths|num|count|size)($|[_.])", re.IGNORECASE)


@dataclass(frozen=True)
class Sample:
    """One set of inputs: values by name, and the sizes of the symbolic dims in them."""

    feeds: Mapping[str, Data]
    sizes: Mapping[str, int]
    index: int = 0
    attempt: int = 0
    drawn: bool = True
    #: For people, where it has a name of its own.
    label: str = ""

    @property
    def open_sizes(self) -> dict[str, int]:
        """The sizes that are the model's own, without those of what was cut out."""
        return {name: size for name, size in self.sizes.items() if not name.startswith(CUT)}

    def describe(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.open_sizes.items())
        return (self.label or f"sample {self.index}") + (f" ({sizes})" if sizes else "")


@dataclass
class Inputs:
    """The inputs of one model."""

    types: Mapping[str, TensorType]
    sizes: Sizes
    options: VerifyOptions
    ranges: Mapping[str, Range] = field(default_factory=dict)
    given: Mapping[str, Data] | None = None
    #: Ways to draw inputs that placeholders take as they are.
    examples: Sequence[Example] = ()
    #: Of the main graph's values, for sizes that bound a range.
    notes: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many samples there are: as many as asked for, and one for each size asked for."""
        if self.given is not None:
            return 1
        return max([self.options.samples, *(len(values) for values in self.sizes.fixed.values())])

    @property
    def can_redraw(self) -> bool:
        if self.given is not None:
            return False
        return any(name not in self.sizes.fixed for name in self.sizes.names) or bool(
            self._of_unknown_meaning() or self.examples
        )

    @property
    def attempts(self) -> int:
        """How many drawings of one sample are worth trying."""
        return self.sizes.attempts if self.can_redraw else 1

    def remedy(self) -> str:
        """What to say about sizes and values when the model takes none that was drawn."""
        dims = [f"--dim {name}=…" for name in self.sizes.names if not name.startswith(CUT)]
        whole = [
            name for name, kind in self.types.items() if kind.dtype in INTEGERS and not name.startswith(CUT)
        ]
        ranges = [
            f"--input-range {name}=LOW:HIGH" for name in dict.fromkeys([*whole, *self.options.input_ranges])
        ]
        said = [
            f"{what} ({', '.join(flags[:_SHOWN])}{', …' if len(flags) > _SHOWN else ''})"
            for what, flags in (("sizes", dims), ("values", ranges))
            if flags and self.given is None
        ]
        return f"say which {' and '.join(said)} it accepts, {GIVE_INPUTS}" if said else GIVE_INPUTS

    @property
    def milder(self) -> list[int]:
        """Attempts at the same sizes with smaller integers; none where the meaning of every integer is known."""
        return [1, 2] if self._of_unknown_meaning() else []

    def _of_unknown_meaning(self) -> list[str]:
        """Integers of which nothing is known: smaller ones are tried where the model refuses them."""
        return [
            name
            for name, kind in self.types.items()
            if kind.dtype in INTEGERS
            and not (name in self.options.input_ranges or name in self.ranges)
            and not (_LENGTH.search(name) or _MASK.search(name))
        ]

    def _example(self, name: str, index: int, attempt: int) -> Draw | None:
        """How the cases of a pass draw the input, in the first attempts; None where nothing is said of it, or more."""
        whole = self.types[name].dtype in INTEGERS
        if not self.examples or name in self.options.input_ranges or (whole and name in self.ranges):
            return None
        last = max(len(self.examples), ATTEMPTS - 2)
        return self.examples[(index + attempt) % len(self.examples)].get(name) if attempt < last else None

    def _as_example(
        self, name: str, dtype: int, shape: tuple[int, ...], index: int, attempt: int
    ) -> Array | None:
        draw = self._example(name, index, attempt)
        rng = generator(self.options.seed, index, name)
        return None if draw is None else drawn_as(draw, rng, dtype, shape)

    def draw(self, index: int, attempt: int = 0, sizes: Mapping[str, int] | None = None) -> Sample | None:
        """The ``index``-th sample; None where the sizes do not fit together: ``sizes``, or this ``attempt``'s."""
        sizes = self.sizes.draw(index, attempt) if sizes is None else dict(sizes)
        if self.given is not None:
            sizes |= sizes_in(self.types, self.given)
        feeds: dict[str, Data] = dict(self.given or {})
        for name, kind in self.types.items():
            if name in feeds:
                continue
            shape = self.sizes.shape(name, kind, sizes)
            if shape is None:
                return None
            with drawable(name, shape):
                made = self._as_example(name, kind.dtype, shape, index, attempt)
                feeds[name] = self._values(name, kind.dtype, shape, sizes, index) if made is None else made
        ends = _MILDER[attempt % len(_MILDER)]
        if ends is not None:
            for name in self._of_unknown_meaning():
                if name not in (self.given or {}) and not self._example(name, index, attempt):
                    rng = generator(self.options.seed, index, name)
                    feeds[name] = within(rng, self.types[name].dtype, feeds[name].shape, *ends)
        return Sample(feeds, sizes, index, attempt, self.given is None)

    def _values(
        self, name: str, dtype: int, shape: tuple[int, ...], sizes: Mapping[str, int], index: int
    ) -> Array:
        rng = generator(self.options.seed, index, name)
        if name in self.options.input_ranges:
            return within(rng, dtype, shape, *self.options.input_ranges[name])
        if name in self.ranges:
            target = helper.tensor_dtype_to_np_dtype(dtype)
            return self.ranges[name].draw(
                rng, target, shape, sizes, partial(default_values, rng, dtype, shape)
            )
        if dtype in INTEGERS and _LENGTH.search(name) and sizes:
            return within(rng, dtype, shape, 1, max(1, min(sizes.values())))
        if _MASK.search(name) and dtype not in (TensorProto.STRING,):
            return _mask(rng, dtype, shape)
        return default_values(rng, dtype, shape)


def sizes_in(types: Mapping[str, TensorType], given: Mapping[str, Data]) -> dict[str, int]:
    """The sizes of the open dims in values for some of the inputs."""
    found: dict[str, int] = {}
    for name, kind in types.items():
        if name in given and kind.shape is not None:
            for axis, dim in enumerate(kind.shape):
                key = key_of(name, axis, dim)
                if isinstance(key, str):
                    found.setdefault(key, given[name].shape[axis])
    return found


def inputs_of(
    model: ModelProto,
    types: Mapping[str, TensorType],
    constants: Callable[[str], Any],
    options: VerifyOptions,
    *,
    extra: Iterable[str] = (),
    examples: Sequence[Example] = (),
) -> Inputs:
    """The inputs of ``model``'s main graph.

    ``types`` are those of the main graph's values.  ``extra`` are inputs that were not the user's (the results of
    operators that were cut out): they are drawn even if inputs are given.  ``examples`` are ways to draw some of them.
    UsageError where flags name what is not there, CannotVerifyError where an input cannot be drawn.
    """
    own = set(extra)
    overridable = {t.name for t in model.graph.initializer} | {
        t.values.name for t in model.graph.sparse_initializer
    }
    wanted = [value for value in model.graph.input if value.name not in overridable]
    given = None if options.inputs is None else load_given(options.inputs)
    kinds: dict[str, TensorType] = {}
    for value in wanted:
        kind = TensorType.from_proto(value.type)
        if given is not None and value.name in given:
            if kind is not None:
                kinds[value.name] = kind
            continue
        if kind is None:
            form = (
                (value.type.WhichOneof("value") or "of unknown type").removesuffix("_type").replace("_", " ")
            )
            raise CannotVerifyError(
                f"input '{value.name}' is {form}, no tensor: it cannot be drawn",
                remedy="pass the values to rewriter.rewrite(inputs={…}), or pass --no-verify",
            )
        if kind.shape is None:
            raise CannotVerifyError(
                f"the rank of input '{value.name}' is unknown: it cannot be drawn", remedy=GIVE_INPUTS
            )
        kinds[value.name] = kind
    if given is not None:
        required = [value.name for value in wanted if value.name not in own]
        check_given(
            given, kinds, required, optional={v.name for v in model.graph.input} - set(required) - own
        )
    check_ranges(options.input_ranges, kinds)
    ranges = required_ranges(model, kinds, types, constants)
    return Inputs(kinds, Sizes(kinds, options.dims), options, ranges, given, examples)


def generator(seed: int, index: int, name: str | bytes) -> np.random.Generator:
    return np.random.Generator(
        np.random.PCG64(
            [
                seed,
                index,
                zlib.crc32(name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")),
            ]
        )
    )


@contextmanager
def drawable(name: str, shape: tuple[int, ...]) -> Iterator[None]:
    """CannotVerifyError where drawing input ``name`` of that ``shape`` fails, since it is too large."""
    try:
        yield
    except (MemoryError, OverflowError, ValueError) as error:  # numpy's, by how much too large it is
        raise CannotVerifyError(
            f"input '{text(name)}' of shape {list(shape)} cannot be drawn: {error}",
            remedy="ask for smaller sizes (--dim), or pass --no-verify",
        ) from error


def default_values(rng: np.random.Generator, dtype: int, shape: tuple[int, ...]) -> Array:
    """Values of ``dtype`` with nothing known of their meaning."""
    if dtype == TensorProto.STRING:
        return np.array(
            [f"text {n}" for n in rng.integers(0, 10, int(np.prod(shape)))], dtype=object
        ).reshape(shape)
    target = helper.tensor_dtype_to_np_dtype(dtype)
    if dtype == TensorProto.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        # 8-bit inputs are pixels or quantised numbers, for which every value is valid
        low, high = (
            (0, 256) if dtype == TensorProto.UINT8 else (-128, 128) if dtype == TensorProto.INT8 else (0, 8)
        )
        return np.asarray(rng.integers(low, high, shape)).astype(target)
    if target.kind == "c":
        return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(target)
    return np.asarray(rng.standard_normal(shape)).astype(target)


def within(rng: np.random.Generator, dtype: int, shape: tuple[int, ...], low: float, high: float) -> Array:
    """Values from ``low`` to ``high``, both included."""
    target = helper.tensor_dtype_to_np_dtype(dtype)
    if dtype in INTEGERS or dtype == TensorProto.BOOL:
        return np.asarray(rng.integers(int(np.ceil(low)), int(np.floor(high)), shape, endpoint=True)).astype(
            target
        )
    return np.asarray(rng.uniform(low, high, shape)).astype(target)


def _mask(rng: np.random.Generator, dtype: int, shape: tuple[int, ...]) -> Array:
    """Zeros and ones; the first of each row is one, since a row that masks everything has no defined result."""
    values = rng.integers(0, 2, shape)
    if shape and shape[-1]:
        values[..., 0] = 1
    return np.asarray(values).astype(helper.tensor_dtype_to_np_dtype(dtype))


def check_ranges(ranges: Mapping[str, tuple[float, float]], kinds: Mapping[str, TensorType]) -> None:
    """UsageError where a range is asked for what is no input of ``kinds``, or holds no value of its dtype."""
    for name, (low, high) in ranges.items():
        if name not in kinds:
            raise UsageError(
                f"--input-range {name}: the model has no input of that name",
                remedy=f"{did_you_mean(name, kinds)}its inputs are: {', '.join(kinds) or 'none'}",
            )
        dtype = kinds[name].dtype
        if dtype == TensorProto.STRING:
            raise UsageError(
                f"--input-range {name}: the input holds text, of which there is no range",
                remedy=f"give its values with --inputs FILE.npz (an array '{name}')",
            )
        if not np.isfinite(float(high) - float(low)):
            raise UsageError(
                f"--input-range {name}: {low} to {high} is no range to draw from",
                remedy=f"give two finite numbers, as in --input-range {name}=0:100",
            )
        if low > high or (dtype in INTEGERS and np.ceil(low) > np.floor(high)):
            raise UsageError(f"--input-range {name}: no {dtype_name(dtype)} lies between {low} and {high}")
        if dtype in INTEGERS:
            limits = (
                np.iinfo(helper.tensor_dtype_to_np_dtype(dtype))
                if dtype not in (TensorProto.INT4, TensorProto.UINT4)
                else None
            )
            if limits is not None and (low < limits.min or high > limits.max):
                raise UsageError(f"--input-range {name}: {low}:{high} does not fit into {dtype_name(dtype)}")
