"""Regions of the main graph, proved on the model's own activations.

The rewritten model runs as it is written, with what each region takes and gives exposed; the reference is evaluated
on what the region took.  The first pass over a sample also gives the graph's outputs, against which the delivered
model is held, as the runtime optimises it: together the two cover the delivered file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

from rewriter.errors import CannotVerifyError, MismatchError
from rewriter.execution.cut import prune
from rewriter.execution.reference import ReferenceRefused, evaluate, plain_arguments
from rewriter.execution.session import Refused, Session
from rewriter.inputs.dims import evaluate as size_of
from rewriter.verify.alone import mismatch
from rewriter.verify.answer import check, own_remark
from rewriter.verify.blame import place_of
from rewriter.verify.degenerate import Degenerate
from rewriter.verify.proof import NO_REFERENCE, Checked, RegionResult
from rewriter.verify.regions import Index, outputs_of, tensors_of
from rewriter.worker.activity import doing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from onnx import ModelProto

    from rewriter.decompose import Region
    from rewriter.execution.numbers import Array
    from rewriter.execution.values import Data
    from rewriter.execution.weights import Weights
    from rewriter.inputs.draw import Inputs, Sample
    from rewriter.placeholder.binding import Ref
    from rewriter.types import TensorType

#: Bytes of exposed activations that may be held at a time; the model is run once more for every further part.
BUDGET = 512 << 20
#: What a value of unknown size is taken for, and a dim of unknown size.
_UNKNOWN_BYTES = 1 << 20
_UNKNOWN_SIZE = 64


@dataclass
class InPlace:
    """The main-graph proof of one model."""

    weights: Weights
    model: ModelProto
    inputs: Inputs
    types: Mapping[str, TensorType]
    libraries: Sequence[Path] = ()
    #: Samples that the model accepted.
    samples: list[Sample] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.degenerate = Degenerate(self.model, self.inputs)

    def batches(
        self, regions: Sequence[tuple[Region, RegionResult]]
    ) -> list[list[tuple[Region, RegionResult]]]:
        """The regions in parts whose exposed values fit the budget, in the graph's order."""
        sizes = self.inputs.sizes.draw(0, 4)
        found: list[list[tuple[Region, RegionResult]]] = [[]]
        held = 0
        for item in regions:
            need = sum(self._nbytes(name, sizes) for name in exposed_names([item[0]]))
            if found[-1] and held + need > BUDGET:
                found.append([])
                held = 0
            found[-1].append(item)
            held += need
        return found

    def _nbytes(self, name: str, sizes: Mapping[str, int]) -> int:
        kind = self.types.get(name)
        if kind is None or kind.shape is None:
            return _UNKNOWN_BYTES
        count = 1
        for dim in kind.shape:
            count *= dim if isinstance(dim, int) else (size_of(dim, sizes) if dim else None) or _UNKNOWN_SIZE
        return count * max(1, helper.tensor_dtype_to_np_dtype(kind.dtype).itemsize)

    def session(self, names: Iterable[str], regions: Sequence[Region]) -> Session:
        """The whole model with ``names`` exposed; an error that names the region the runtime does not load."""
        try:
            return Session(
                self.weights, self.model, extra_outputs=names, optimise=False, libraries=self.libraries
            )
        except Refused as error:
            self._blame_load(regions)
            # Every replaced operator loads by itself: what does not load came with the file.
            raise CannotVerifyError(
                f"the file as it came does not load, whatever is replaced in it: {error.what}",
                where=place_of(error, self.model),
                remedy="correct what the exporter wrote there; --no-verify delivers the file unverified, and "
                "onnxruntime will not load that either",
            ) from error

    def accepted(
        self, session: Session, index: int, regions: Sequence[Region], names: Sequence[str]
    ) -> tuple[Sample, dict[str, Data]]:
        """A sample that the model takes, and the values of ``names`` for it.

        Sizes that it refuses are drawn again.  CannotVerifyError when none is found, with what the runtime said.
        """
        refusal: Refused | None = None
        attempts = self.inputs.attempts
        for attempt in range(attempts):
            sample = self.inputs.draw(index, attempt)
            if sample is None:
                continue
            try:
                with doing(sample=sample.describe()):
                    return sample, session.run(sample.feeds, names)
            except Refused as error:
                refusal = refusal or error
                self.blame_run(error, sample, regions)
        if refusal is None:
            raise CannotVerifyError(
                "no sizes fit the types of the model's inputs", remedy=self.inputs.remedy()
            )
        raise CannotVerifyError(
            f"no valid input was found in {attempts} {'try' if attempts == 1 else 'tries'}: {refusal.what}",
            remedy=self.inputs.remedy(),
        ) from refusal

    def compare(
        self, batch: Iterable[tuple[Region, RegionResult]], values: Mapping[str, Data], sample: Sample
    ) -> None:
        """Hold each region's results against its reference; MismatchError names the first that differs."""
        wrong: list[MismatchError] = []
        for region, result in batch:
            if not result.is_proved:
                continue
            names = outputs_of(region)
            if not result.outputs:
                result.outputs = [Checked(name) for name in names]
            try:
                with doing(where=str(region.where), sample=sample.describe()):
                    expected = evaluate(region.placeholder, region.bound, lambda ref: _value(ref, values))
            except ReferenceRefused as error:
                wrong.append(
                    mismatch(
                        region,
                        f"its reference refuses what the model computes ({error.what})",
                        sample.describe(),
                    )
                )
                continue
            except TypeError as error:
                result.leave_unproved(str(error), NO_REFERENCE)
                continue
            actual = [values[name] if name else None for name in names]
            judgement = self.inputs.options.judgement
            given = partial(plain_arguments, region.bound, partial(_value, values=values))
            problem = check(
                region.placeholder, names, actual, expected, result.outputs, judgement, given, values
            )
            if problem is not None:
                wrong.append(mismatch(region, problem, sample.describe()))
            own = own_remark(region.placeholder, given, expected)
            result.remarks.append([*self.degenerate.remarks(region, values), *own])
        if wrong:
            first = wrong[0]
            if len(wrong) > 1:
                others = len(wrong) - 1
                first = MismatchError(
                    f"{first.headline}, as {others} more replaced operator{'s do' if others > 1 else ' does'}",
                    figures=first.figures,
                    sample=first.sample,
                    where=first.where,
                    remedy=first.remedy,
                )
            raise first

    def again(self, names: Sequence[str]) -> Mapping[str, Data] | None:
        """The values of ``names`` in the first sample, computed once more; None where there is none."""
        if not self.samples:
            return None
        try:
            session = Session(
                self.weights, prune(self.model, names), optimise=False, libraries=self.libraries
            )
            return session.run(self.samples[0].feeds, names)
        except (Refused, CannotVerifyError):
            return None

    # --- who is to blame when the runtime refuses -----------------------------------------------------------

    def _blame_load(self, regions: Sequence[Region]) -> None:
        for region in regions:
            try:
                Session(
                    self.weights,
                    prune(self.model, tensors_of(region)),
                    optimise=False,
                    libraries=self.libraries,
                )
            except (Refused, CannotVerifyError):
                return  # what comes before the region is refused already
            try:
                Session(
                    self.weights,
                    prune(self.model, outputs_of(region)),
                    optimise=False,
                    libraries=self.libraries,
                )
            except Refused as error:
                raise MismatchError(
                    f"the decomposition '{region.decomposition}' is no valid ONNX here: {error.what}",
                    where=region.where,
                    remedy=f"correct pass '{region.placeholder.pass_name()}'; nothing was delivered",
                ) from error
        self._blame_types(regions)

    def _blame_types(self, regions: Sequence[Region]) -> None:
        """Each region loads, but the whole does not: one may give a type that its readers do not take."""
        names = exposed_names(regions)
        sample = self.inputs.draw(0)
        if not names or sample is None:
            return
        try:
            session = Session(
                self.weights, prune(self.model, names), optimise=False, libraries=self.libraries
            )
            values = session.run(sample.feeds, names)
        except (Refused, CannotVerifyError):
            return
        self.compare(
            [(r, RegionResult(r.placeholder.pass_name(), r.decomposition, r.where)) for r in regions],
            values,
            sample,
        )

    def blame_run(self, error: Refused, sample: Sample, regions: Sequence[Region]) -> None:
        """MismatchError if a region refuses what its reference accepts."""
        if not regions or not error.operator:
            return
        index = Index(self.model, regions[0].scope)
        for region in regions:
            nodes = index.slice(tensors_of(region), outputs_of(region)).nodes
            if not any(n.op_type == error.operator and n.name == error.node for n in nodes):
                continue
            names = list(tensors_of(region))
            try:
                before = Session(
                    self.weights, prune(self.model, names), optimise=False, libraries=self.libraries
                )
                values = before.run(sample.feeds, names)
                evaluate(region.placeholder, region.bound, lambda ref, v=values: _value(ref, v))  # type: ignore[misc]
            except (Refused, CannotVerifyError, ReferenceRefused, TypeError):
                continue
            wanted = [name for name in outputs_of(region) if name]
            after = Session(self.weights, prune(self.model, wanted), optimise=False, libraries=self.libraries)
            try:
                after.run(sample.feeds, wanted)
            except Refused as found:
                raise MismatchError(
                    "the decomposition refuses what PyTorch accepts",
                    figures=found.what,
                    sample=sample.describe(),
                    where=region.where,
                    remedy=f"correct the decomposition '{region.decomposition}' of pass "
                    f"'{region.placeholder.pass_name()}'; nothing was delivered",
                ) from found


def exposed_names(regions: Iterable[Region]) -> list[str]:
    """What regions take and give, each name once."""
    return list(
        dict.fromkeys(
            name for region in regions for name in (*tensors_of(region), *outputs_of(region)) if name
        )
    )


def _value(ref: Ref, values: Mapping[str, Data]) -> Array:
    return np.asarray(ref.constant if ref.constant is not None else values[ref.name])
