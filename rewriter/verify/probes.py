"""Each region once more, alone, on values and at sizes that the model's own samples seldom have.

A model's activations are of one scale, without ties, zeros or NaN, and its sizes are those of the samples.  So the
nodes of each region are made into a model of their own, which is cheap to run, and tried

- on every kind of values of :data:`rewriter.inputs.variants.KINDS`,
- at every set of sizes of :meth:`rewriter.inputs.dims.Sizes.probes`, where dims are open,
- on what the cases of its pass draw,
- with constants drawn anew that are uniform in the file.

Probes keep to what is known of the inputs: what the cases draw in a way of their own stays so drawn, and what
``--input-range`` limits stays within what the model computed from it.  What the reference refuses says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.errors import CannotVerifyError, MismatchError, RewriteError
from rewriter.execution.reference import ReferenceRefused
from rewriter.execution.session import Refused, Session
from rewriter.execution.values import element_type
from rewriter.inputs.examples import constrained, examples
from rewriter.inputs.of_region import Drawer, drawn, sizes_of
from rewriter.inputs.variants import EXACT, UNBOUNDED, Freedom, variants
from rewriter.types import TensorType
from rewriter.verify.compare import accepting
from rewriter.verify.ingredients import counts_of, is_standard, numbers_of, redrawn, required_of
from rewriter.verify.regions import Index, identity, outputs_of, standalone, tensors_of
from rewriter.verify.trial import Trial, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from onnx import ModelProto

    from rewriter.decompose import Region
    from rewriter.execution.numbers import Array
    from rewriter.execution.weights import Weights
    from rewriter.graph.scopes import ScopeRef
    from rewriter.inputs.of_region import Drawn
    from rewriter.verify.options import VerifyOptions

#: Elements that a region may take in all; larger ones are proved on the model's values only.
_MOST = 1 << 24
#: Elements that all probes of one region may take together; the first ones are tried whatever they take.
_BUDGET, _ALWAYS = 1 << 22, 2
#: Elements of one set of sizes.
_MOST_OF_SIZES = 1 << 18


@dataclass
class Knowledge:
    """What the main graph says of values: nothing, for a region in a body."""

    #: The inputs of the graph whose numbers reach a value.
    behind: Callable[[Sequence[str]], Collection[str]] | None = None
    #: Names of the open dims of the graph's inputs.
    dims: Collection[str] = ()
    #: Extreme values of each tensor in the model's own samples.
    seen: dict[str, tuple[float, float]] = field(default_factory=dict)


class Prober:
    """Tries the regions of one model, equal ones once."""

    def __init__(
        self,
        weights: Weights,
        model: ModelProto,
        options: VerifyOptions,
        libraries: Sequence[Path] = (),
        knowledge: Knowledge | None = None,
    ) -> None:
        self.weights = weights
        self.model = model
        self.options = options
        self.libraries = libraries
        self.knowledge = knowledge or Knowledge()
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
        self.vary(region, model, session, feeds, types)
        if examples(region):
            self._on_examples(Trial(self.weights, region, model, session, self.options), types)

    def vary(
        self,
        region: Region,
        model: ModelProto,
        session: Session,
        feeds: Mapping[str, Array],
        types: Mapping[str, TensorType],
    ) -> None:
        """Try other values in the place of ``feeds`` and other sizes than theirs; ``session`` runs ``model``."""
        trial = Trial(self.weights, region, model, session, self.options)
        limits = self._limits(region, feeds)
        required = required_of(region.node)
        freedom = Freedom(
            constrained(region) | required,
            limits,
            counts_of(model, feeds),
            region.placeholder.finite or is_standard(region.node),
        )
        self._on_values(trial, feeds, freedom)
        self._at_sizes(trial, feeds, types, limits)
        self._on_constants(trial, feeds)

    def _limits(self, region: Region, feeds: Mapping[str, Array]) -> dict[str, tuple[float, float]]:
        """What the inputs behind which a range was asked for came to, in the model's own values."""
        asked = self.options.input_ranges
        found: dict[str, tuple[float, float]] = {}
        for name, array in feeds.items():
            if not asked or array.dtype.kind in "OSUc" or not array.size:
                continue
            behind = self.knowledge.behind
            if behind is None or not region.scope.is_main or set(behind([name])) & set(asked):
                numbers = array.astype(np.float64)
                finite = numbers[np.isfinite(numbers)]
                found[name] = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        return found

    # --- values ---------------------------------------------------------------------------------------------

    def _on_values(self, trial: Trial, feeds: Mapping[str, Array], freedom: Freedom) -> None:
        left = _BUDGET
        constants = numbers_of(trial.region, trial.model, trial.weights)
        for number, variant in enumerate(variants(feeds, constants, freedom, self.options.seed)):
            left -= sum(array.size for array in feeds.values())
            if left < 0 and number >= _ALWAYS:
                return
            self._try(
                trial,
                variant.feeds,
                f"probe '{variant.kind}': {variant.describe()}",
                exact=variant.kind in EXACT,
                wide=variant.kind != "constants",
                unbounded=variant.kind in UNBOUNDED,
            )

    def _on_examples(self, trial: Trial, types: Mapping[str, TensorType]) -> None:
        for number in range(self.options.samples):
            for made in drawn(trial.region, types, self.options, number):
                what = f"on values as its pass's cases hold; {made.describe()}"
                if self._try(trial, made.feeds, what):
                    break

    def _on_constants(self, trial: Trial, feeds: Mapping[str, Array]) -> None:
        """What the file has one number for throughout, drawn: a mean is not told from a weighted mean there."""
        made = redrawn(trial.region, feeds, self.options.seed)
        if made is None:
            return
        model, bound, given, names = made
        try:
            session = Session(self.weights, model, optimise=False, libraries=self.libraries)
        except (Refused, CannotVerifyError):
            return
        other = Trial(self.weights, trial.region, model, session, self.options)
        other.bound, other.names = bound, [output.name for output in model.graph.output]
        other.names = [name if name else "" for name in names]
        shown = ", ".join(
            f"'{name}'" for name, argument in trial.region.bound.arguments.items() if argument is not None
        )
        self._try(other, given, f"probe 'uniform constants drawn anew' (of {shown})")

    # --- sizes ----------------------------------------------------------------------------------------------

    def _at_sizes(
        self,
        trial: Trial,
        feeds: Mapping[str, Array],
        types: Mapping[str, TensorType],
        limits: Mapping[str, tuple[float, float]],
    ) -> None:
        tied = _tied(types, feeds, self.knowledge.dims)
        sizes = sizes_of(tied, self.options)
        if self.knowledge.dims and all(name in self.options.dims for name in self.knowledge.dims):
            return  # every size was asked for: there are no others
        # Integers that mean something are of the range that the model has them in.
        ranges = {
            name: (float(array.min()), float(array.max()))
            for name, array in feeds.items()
            if array.dtype.kind in "iu" and array.size
        } | dict(limits)
        drawer = Drawer(trial.region, tied, self.options, ranges)
        for what, chosen in sizes.probes():
            for attempt in (0, 1):
                made = drawer.at(sizes, chosen, 0, attempt)
                if made is None or sum(a.size for a in made.feeds.values()) > _MOST_OF_SIZES:
                    continue
                if self._try(trial, made.feeds, self._sized(what, made), refusal=made):
                    break

    def _sized(self, what: str, made: Drawn) -> str:
        named = {name: size for name, size in made.sizes.items() if name in self.knowledge.dims}
        flags = "".join(f" --dim {name}={size}" for name, size in named.items())
        again = f"; try{flags} for the model" if flags else ""
        return f"probe '{what}': {made.describe()}{again}"

    # --- one trial ------------------------------------------------------------------------------------------

    def _try(
        self,
        trial: Trial,
        feeds: Mapping[str, Array],
        what: str,
        *,
        exact: bool = False,
        unbounded: bool = False,
        wide: bool = True,
        refusal: Drawn | None = None,
    ) -> bool:
        """Whether both took the values; MismatchError where the results differ by more than rounding accounts for.

        With ``refusal``, values that only the decomposition refuses are such a difference.
        """
        narrow = any(array.dtype.name in ("float16", "bfloat16") for array in feeds.values())
        try:
            problem = trial.problem(feeds, Values(exact, unbounded, wide, narrow))
        except Refused as error:
            if refusal is None or self._runtime_alone(trial, feeds):
                return False  # not legal values, then
            problem = error.what
        except (ReferenceRefused, CannotVerifyError, TypeError):
            return False
        if problem is not None:
            region = trial.region
            raise MismatchError(
                "differs from PyTorch",
                figures=problem,
                sample=f"{what}; --seed {self.options.seed} repeats it",
                where=region.where,
                remedy=f"correct the decomposition '{region.decomposition}' of pass "
                f"'{region.placeholder.pass_name()}' or its reference; where the model never holds such values, let a "
                "case of the pass draw those that it holds (draw=), or verify with the model's own (--inputs, "
                f"--input-range, --dim){accepting([problem])}",
            )
        return True

    def _runtime_alone(self, trial: Trial, feeds: Mapping[str, Array]) -> bool:
        """Whether the nodes are right as PyTorch computes them: what refuses is a kernel of the runtime."""
        try:
            expected = trial.expected(feeds)
        except (ReferenceRefused, CannotVerifyError, TypeError, RewriteError):
            return True
        found = trial.interpreted(feeds)
        return found is not None and trial.agrees(found, expected, feeds)


def _tied(
    types: Mapping[str, TensorType], feeds: Mapping[str, Array], dims: Collection[str]
) -> dict[str, TensorType]:
    """``types`` with one name for unnamed dims that are of one size in the model: the samples' sizes all differ."""
    known: dict[int, str] = {}
    for name, kind in types.items():
        for size, dim in zip(feeds[name].shape, kind.shape or (), strict=False):
            if isinstance(dim, str) and (dim in dims or not dims):
                known.setdefault(size, dim)
    found: dict[str, TensorType] = {}
    for name, kind in types.items():
        shape: list[int | str | None] = []
        for axis, (size, dim) in enumerate(zip(feeds[name].shape, kind.shape or (), strict=False)):
            loose = dim is None or (isinstance(dim, str) and dims and dim not in dims and dim.isidentifier())
            shape.append(known.setdefault(size, str(dim or f"{name}.{axis}")) if loose else dim)
        found[name] = TensorType(kind.dtype, tuple(shape))
    return found


def _type_of(array: Array) -> TensorType:
    return TensorType(element_type(array), array.shape)
