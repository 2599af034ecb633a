"""Each region once more on values that a model's own seldom hold: small ones, and large ones among ties and zeros.

A model's activations are of one scale.  An epsilon that was forgotten, a limit that is never reached, a comparison
that lacks its equality, a sum that overflows: none of them shows there.  So what a region takes first is given on other
scales, and what the cases of its pass hold is tried as well.

At such values a result may depend on how its inputs were rounded.  A difference counts only if it is larger than what
rounding them otherwise makes of the reference.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.errors import CannotVerifyError, MismatchError
from rewriter.execution.numbers import is_float, to_float64
from rewriter.execution.reference import ReferenceRefused, evaluate, plain_arguments
from rewriter.execution.session import Refused, Session
from rewriter.execution.values import element_type
from rewriter.inputs.draw import generator
from rewriter.inputs.examples import examples
from rewriter.inputs.of_region import drawn
from rewriter.types import TensorType
from rewriter.verify.answer import check
from rewriter.verify.compare import accepting
from rewriter.verify.proof import Checked
from rewriter.verify.regions import Index, identity, outputs_of, standalone, tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from onnx import ModelProto

    from rewriter.decompose import Region
    from rewriter.execution.numbers import Array
    from rewriter.execution.weights import Weights
    from rewriter.graph.scopes import ScopeRef
    from rewriter.placeholder.binding import Ref
    from rewriter.verify.options import VerifyOptions

#: A power of two, so that scaling rounds nothing.
_SMALL = 2.0**-10
#: Multiples of the typical magnitude that take the place of some elements: beyond the limits of clipped activations,
#: and beyond what Exp takes in float32.
_LARGE = (6.0, -6.0, 96.0, -96.0)
#: By how many units in the last place inputs are moved, and how often what that makes of the reference is allowed.
_UNITS, _SLACK = 4.0, 16.0
#: Elements that a region may take in all; larger ones are proved on the model's values only.
_MOST = 1 << 24
#: Formats in which large values leave the range.
_NARROW = ("float16", "bfloat16")


class Prober:
    """Tries the regions of one model, equal ones once."""

    def __init__(
        self, weights: Weights, model: ModelProto, options: VerifyOptions, libraries: Sequence[Path] = ()
    ) -> None:
        self.weights = weights
        self.model = model
        self.options = options
        self.libraries = libraries
        self._indexes: dict[ScopeRef, Index] = {}
        self._tried: set[Any] = set()

    def prove(self, region: Region, values: Mapping[str, Any]) -> None:
        """Try a region of the main graph, ``values`` being what it took; MismatchError where it is wrong."""
        refs = tensors_of(region)
        feeds = {name: values[name] for name in refs if isinstance(values.get(name), np.ndarray)}
        if len(feeds) < len(refs) or sum(array.size for array in feeds.values()) > _MOST:
            return
        types = {
            name: kind if kind is not None and kind.shape is not None else _type_of(feeds[name])
            for name, kind in refs.items()
        }
        if region.scope not in self._indexes:
            self._indexes[region.scope] = Index(self.model, region.scope)
        index = self._indexes[region.scope]
        part = index.slice(types, outputs_of(region))
        if part.loose:
            return
        model = standalone(index, types, outputs_of(region), part)
        key = identity(region, types, model)
        if key in self._tried:
            return
        self._tried.add(key)
        try:
            session = Session(self.weights, model, optimise=False, libraries=self.libraries)
        except (Refused, CannotVerifyError):
            return  # what an operator that was cut out gives is not of the model
        self.vary(region, session, feeds)
        if examples(region):
            self._on_examples(region, session, types)

    def vary(self, region: Region, session: Session, feeds: Mapping[str, Array]) -> None:
        """Try values of other scales in the place of ``feeds``; ``session`` runs the region alone."""
        for what, given in _variants(region, feeds, self.options.seed):
            self._try(region, session, given, f"on values that are {what}")

    def _on_examples(self, region: Region, session: Session, types: Mapping[str, TensorType]) -> None:
        for number in range(self.options.samples):
            for made in drawn(region, types, self.options, number):
                if self._try(
                    region, session, made.feeds, f"on values as its pass's cases hold; {made.describe()}"
                ):
                    break

    def _try(self, region: Region, session: Session, feeds: Mapping[str, Array], what: str) -> bool:
        """Whether both took the values; MismatchError where the results differ by more than rounding accounts for."""
        names = outputs_of(region)
        try:
            expected = evaluate(region.placeholder, region.bound, lambda ref: _value(ref, feeds))
            found = session.run(feeds)
        except (ReferenceRefused, Refused, CannotVerifyError, TypeError):
            return False  # not legal values, then
        values = {n.removesuffix(":out") if n not in names else n: value for n, value in found.items()}
        actual = [values.get(name) if name else None for name in names]
        problem = self._check(region, actual, expected, feeds)
        if problem is not None and self._is_confirmed(region, feeds, actual, expected):
            raise MismatchError(
                "differs from PyTorch",
                figures=problem,
                sample=what,
                where=region.where,
                remedy=f"correct the decomposition '{region.decomposition}' of pass "
                f"'{region.placeholder.pass_name()}' or its reference; where the model never holds such values, verify "
                f"with its own (--inputs){accepting([problem])}",
            )
        return True

    def _is_confirmed(
        self,
        region: Region,
        feeds: Mapping[str, Array],
        actual: Sequence[Array | None],
        expected: Sequence[Array | None],
    ) -> bool:
        """Whether the difference is more than rounding the inputs otherwise makes."""
        moved = {name: _moved(array, self.options.seed) for name, array in feeds.items()}
        try:
            others = evaluate(region.placeholder, region.bound, lambda ref: _value(ref, moved))
        except (ReferenceRefused, CannotVerifyError, TypeError):
            return False
        if len(others) != len(expected):
            return False
        triples = list(zip(actual, expected, others, strict=False))
        if any(b is not None and (c is None or b.shape != c.shape) for _, b, c in triples):
            return False  # what there is depends on rounding
        if region.placeholder.compares:
            return self._check(region, actual, others, moved) is not None
        return any(
            self._differs(region, a, b, c, feeds)
            for a, b, c in triples
            if a is not None and b is not None and c is not None
        )

    def _differs(
        self, region: Region, actual: Array, expected: Array, other: Array, feeds: Mapping[str, Array]
    ) -> bool:
        if actual.dtype != expected.dtype or actual.shape != expected.shape:
            return True
        if not is_float(expected.dtype):
            return bool(((actual != expected) & (expected == other)).any())
        a, b, c = (to_float64(array) for array in (actual, expected, other))
        finite = np.isfinite(b) & np.isfinite(c)
        # Where rounding decides whether there is a number at all, nothing is said.
        settled = finite | (b == c) | (np.isnan(b) & np.isnan(c))
        with np.errstate(invalid="ignore"):
            own = float(np.abs(b - c)[finite].max()) if finite.any() else 0.0
            scale = float(np.abs(b[finite]).max()) if finite.any() else 0.0
            tolerance = self.options.judgement.region(region.placeholder, expected.dtype.name)
            given = partial(plain_arguments, region.bound, partial(_value, feeds=feeds))
            terms = self.options.judgement.terms(region.placeholder, given, expected)
            more = terms() if terms is not None else None
            allowed = tolerance.atol + tolerance.rtol * np.abs(b) + tolerance.scaled * scale + _SLACK * own
            allowed = allowed if more is None else allowed + more
            off = np.where(finite, ~(np.abs(a - b) <= allowed), ~((a == b) | (np.isnan(a) & np.isnan(b))))
        return bool((off & settled).any())

    def _check(
        self,
        region: Region,
        actual: Sequence[Array | None],
        expected: Sequence[Array | None],
        feeds: Mapping[str, Array],
    ) -> str | None:
        names = outputs_of(region)
        scratch = [Checked(name) for name in names]
        given = partial(plain_arguments, region.bound, partial(_value, feeds=feeds))
        return check(
            region.placeholder, names, actual, expected, scratch, self.options.judgement, given, feeds
        )


def _variants(
    region: Region, feeds: Mapping[str, Array], seed: int
) -> Iterator[tuple[str, dict[str, Array]]]:
    """What the region takes first, on other scales."""
    for ref in region.bound.refs():
        value = feeds.get(ref.name)
        if value is not None and value.size and is_float(value.dtype) and value.dtype.kind != "c":
            name = ref.name
            break
    else:
        return
    with np.errstate(all="ignore"):
        yield "small", {**feeds, name: (value.astype(np.float64) * _SMALL).astype(value.dtype)}
        if value.dtype.name not in _NARROW and value.dtype.itemsize > 2:
            yield "large, tied or zero", {**feeds, name: _spread(value, seed)}


def _spread(value: Array, seed: int) -> Array:
    """Half of the elements as they are; the others large, zero, or rounded so that some are equal."""
    rng = generator(seed, 0, f"spread {value.size}")
    flat = to_float64(value).reshape(-1)
    finite = flat[np.isfinite(flat) & (np.abs(flat) < 1e9)]
    typical = float(np.sqrt(np.mean(finite**2))) if finite.size else 1.0
    typical = typical or 1.0
    turn = rng.permutation(flat.size) % (2 * (len(_LARGE) + 2))
    for number, factor in enumerate(_LARGE):
        flat = np.where(turn == number, factor * typical, flat)
    flat = np.where(turn == len(_LARGE), 0.0, flat)
    flat = np.where(turn == len(_LARGE) + 1, np.round(flat / typical * 2) / 2 * typical, flat)
    return flat.reshape(value.shape).astype(value.dtype)


def _moved(array: Array, seed: int) -> Array:
    """Floating-point numbers, each moved up or down by a few units in the last place."""
    if not is_float(array.dtype) or array.dtype.kind == "c":
        return array
    rng = generator(seed, 0, f"moved {array.size}")
    step = _UNITS * (float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 2.0**-8)
    moved = to_float64(array) * (1 + step * rng.choice((-1.0, 1.0), array.shape))
    return moved.astype(array.dtype)


def _value(ref: Ref, feeds: Mapping[str, Array]) -> Array:
    if ref.constant is not None:
        return ref.constant
    if ref.name not in feeds:
        raise CannotVerifyError(f"the argument '{ref.name}' of a region has no value")
    return feeds[ref.name]


def _type_of(array: Array) -> TensorType:
    return TensorType(element_type(array), array.shape)
