"""The gradients of a model's own replaced placeholders: what training used, against the nodes that ship.

Each region's nodes are taken from the finished model as they stand, interpreted in float64 on drawn inputs of the
types that were inferred, and differentiated.  Constants that they read as they are (weights) count as inputs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rewriter.errors import CannotInterpretError, GradientError, UsageError, Where
from rewriter.gradients.forward import Unlike, agreement
from rewriter.gradients.judge import NOT_FAR_OUT, OF_THE_GRAPH, Wrong
from rewriter.gradients.operators import Operators
from rewriter.gradients.part import part_of
from rewriter.gradients.result import AGREES, DIFFERS, NOT_CHECKED, SURROGATE, GradientResult
from rewriter.gradients.scales import elsewhere
from rewriter.gradients.sides import Point, Raised, results
from rewriter.gradients.trained import operator_side, wide, written_by_hand
from rewriter.inputs.examples import examples
from rewriter.inputs.of_region import Drawn, drawn
from rewriter.verify.regions import Index, outputs_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from onnx import ModelProto

    from rewriter.decompose import Region
    from rewriter.gradients.part import Part
    from rewriter.gradients.sides import Side
    from rewriter.graph.scopes import ScopeRef
    from rewriter.progress import Stage
    from rewriter.storage import ModelFile
    from rewriter.verify.options import VerifyOptions

#: Gives the values of a model's main graph by name; None where it has not run.
Activations = Callable[[Sequence[str]], Mapping[str, Any] | None]


@dataclass
class RegionChecker:
    """Checks the regions of one model one by one, equal ones once."""

    file: ModelFile
    model: ModelProto
    options: VerifyOptions
    operators: Operators = field(default_factory=Operators)
    #: Values of the main graph by name, of a run of the whole model; None where there are none.
    activations: Activations | None = None
    _indexes: dict[ScopeRef, Index] = field(default_factory=dict)
    _checked: dict[Hashable, tuple[GradientResult, GradientError | None]] = field(default_factory=dict)

    def check(self, region: Region) -> tuple[GradientResult, GradientError | None]:
        """What became of one region, and the error where its gradient is wrong."""
        result = GradientResult(
            region.placeholder.pass_name(),
            region.decomposition,
            region.where,
            parameters=region.bound.describe(),
        )
        part = part_of(region, self._index(region.scope), self.file, self.options)
        if isinstance(part, str):
            result.leave(NOT_CHECKED, part)
            return result, None
        key = part.key
        if key in self._checked:
            earlier, error = self._checked[key]
            result.how = "as another"
            for name in ("status", "trained", "reason", "operator", "samples", "inputs", "notes", "warnings"):
                setattr(result, name, getattr(earlier, name))
            return result, error
        error = self._check(part, result)
        self._checked[key] = result, error
        return result, error

    def _check(self, part: Part, result: GradientResult) -> GradientError | None:
        region = part.region
        try:
            shipped, trained = part.shipped(), self._trained(part)
            is_open = any(not kind.is_static for kind in part.computed.values())
            for number in range(self.options.samples if is_open else 1):
                error = self._sample(part, trained, shipped, number, result)
                if error is not None or result.status != "agrees":
                    return error
        except CannotInterpretError as error:
            where = error.where.operator if isinstance(error.where, Where) else str(error.where or "")
            result.leave(NOT_CHECKED, f"{where or 'a node'} cannot be interpreted: {error.what}", where)
        except UsageError as error:
            error.where = error.where or region.where
            raise
        return None

    def _sample(
        self, part: Part, trained: Side, shipped: Side, number: int, result: GradientResult
    ) -> GradientError | None:
        """Check one sample, the first that both sides accept."""
        refusals: list[str] = []
        for made in self._candidates(part, number):
            point = part.point(made.feeds)
            try:
                names, surrogate = written_by_hand(trained, point)
                results(shipped, point)
            except Raised as error:
                if isinstance(error.error, (UsageError, CannotInterpretError)):
                    raise error.error from error
                refusals.append(str(error))
                continue
            result.trained = trained.name
            if names and not trained.name.startswith("the backward"):
                result.trained = f"the backward of {', '.join(names)}, behind {trained.name}"
            seed = zlib.crc32(f"{self.options.seed} {number}".encode())
            generator = torch.Generator().manual_seed(seed)
            wrong = self._hold(part, trained, shipped, point, generator, result, made, surrogate, bool(names))
            if wrong is None and result.status == AGREES and number == 0:
                return self._hold_elsewhere(
                    part, trained, shipped, point, generator, result, made, bool(names)
                )
            return wrong
        reason = "no sizes fit its types"
        if refusals:
            reason = f"{trained.name}, or the nodes, refused every input that was tried: {refusals[0]}"
        result.leave(NOT_CHECKED, reason)
        return None

    def _candidates(self, part: Part, number: int) -> Iterator[Drawn]:
        """Drawn inputs, then the model's own: where integers mean something, drawn ones may not be accepted."""
        types = part.computed
        yield from drawn(part.region, types, self.options, number)
        if self.activations is not None and part.region.scope.is_main:
            values = self.activations(list(types))
            if values is not None:
                yield Drawn({name: np.asarray(values[name]) for name in types}, {}, number)

    def _hold_elsewhere(
        self,
        part: Part,
        trained: Side,
        shipped: Side,
        point: Point,
        generator: torch.Generator,
        result: GradientResult,
        made: Drawn,
        by_hand: bool,
    ) -> GradientError | None:
        """The same on other scales, where both sides take that; what its pass draws in a way of its own stays."""
        region = part.region
        constrained = {name for example in examples(region) for name in example}
        free = [name for name in part.computed if name not in constrained]
        moved = elsewhere(point, (trained, shipped), free, generator)
        if moved is None:
            return None
        held = GradientResult(result.pass_name, result.decomposition, region.where)
        try:
            # Large elements hide in the results how far constants are rounded: allow all that there may be.
            comparison = part.comparison(trained, shipped, generator, slacks=part.slacks[-1:])
            wrong = comparison.hold(moved, held)
        except (Unlike, Raised):
            return None  # whether results agree there is for the proof of the results to say
        ignored = (
            NOT_FAR_OUT if by_hand else NOT_FAR_OUT | {"none", "raised"}
        )  # PyTorch's own is None everywhere
        faults = [item for item in wrong if item.problem.kind not in ignored]
        if not faults:
            return None
        result.absorb(held)
        result.status = DIFFERS
        what = f"the nodes of decomposition '{region.decomposition}' of pass '{result.pass_name}'"
        return _error(faults, region, result, what, f"{made.describe()}, on other scales")

    def _hold(
        self,
        part: Part,
        trained: Side,
        shipped: Side,
        point: Point,
        generator: torch.Generator,
        result: GradientResult,
        made: Drawn,
        surrogate: str,
        by_hand: bool,
    ) -> GradientError | None:
        region = part.region
        what = f"the nodes of decomposition '{region.decomposition}' of pass '{result.pass_name}'"
        result.samples += 1
        surrogate = surrogate or region.placeholder.surrogate_gradient
        try:
            if surrogate:
                agreement(results(shipped, point), results(trained, point), part.slacks)
                result.leave(SURROGATE, surrogate)
                return None
            held = GradientResult(result.pass_name, result.decomposition, region.where)
            wrong = part.comparison(trained, shipped, generator).hold(point, held)
            result.absorb(held)
        except Unlike as error:
            result.leave(DIFFERS, str(error))
            return GradientError(
                f"{trained.name} computes something else in float64 than {what}: {error} ({made.describe()})",
                where=region.where,
                remedy="name the operator that the model was trained with, or correct the pass; nothing was delivered",
            )
        except Raised as error:
            if isinstance(error.error, CannotInterpretError):
                raise error.error from error
            result.leave(NOT_CHECKED, str(error))
            return None
        if not by_hand:
            for item in wrong:
                if item.problem.kind == "raised":  # in PyTorch, whose backward it is
                    result.leave(NOT_CHECKED, f"PyTorch does not differentiate {trained.name}: {item}")
                    return None
            # PyTorch itself has none: running statistics, most often, which no training moves.
            for item in wrong:
                if item.problem.kind == "none":
                    entry = result.input(item.input)
                    entry.kind = entry.problem = ""
                    note = f"{trained.name} has no gradient by '{item.input}'"
                    result.notes += [] if note in result.notes else [note]
            wrong = [item for item in wrong if item.problem.kind != "none"]
        for item in wrong:
            if item.problem.kind in OF_THE_GRAPH and str(item) not in result.warnings:
                result.warnings.append(str(item))
        faults = [item for item in wrong if item.problem.kind not in OF_THE_GRAPH]
        if not faults:
            return None
        result.status = DIFFERS
        return _error(faults, region, result, what, made.describe())

    def _trained(self, part: Part) -> Side:
        region = part.region
        operator = self.operators.find(region.where.operator, region.placeholder)
        if operator is None:
            return part.reference()
        index = self._index(region.scope)
        constants = {name: wide(value) for name, value in part.constants.items()}
        for ref in region.bound.refs():
            if ref.constant is not None and ref.name:
                constants[ref.name] = wide(ref.constant)
        for name in region.node.input:
            if name and name not in constants and name in index.tensors:
                constants[name] = wide(self.file.array(index.tensors[name]))
        return operator_side(operator, region, constants, outputs_of(region))

    def _index(self, ref: ScopeRef) -> Index:
        if ref not in self._indexes:
            self._indexes[ref] = Index(self.model, ref)
        return self._indexes[ref]


def check_regions(
    file: ModelFile,
    model: ModelProto,
    regions: Sequence[Region],
    options: VerifyOptions,
    stage: Stage | None = None,
    into: list[GradientResult] | None = None,
    activations: Activations | None = None,
) -> list[GradientResult]:
    """Check every placeholder that stood in the model itself; GradientError names the first whose gradient is wrong.

    ``model`` is the rewritten, unsimplified model, a skeleton of ``file``.  Results go into ``into`` as they come.
    ``activations`` gives the model's own values, for regions that refuse what is drawn.
    """
    found: list[GradientResult] = [] if into is None else into
    checker = RegionChecker(file, model, options, Operators(options.operators), activations)
    errors: list[GradientError] = []
    for region in regions:
        if region.via:
            continue  # another's decomposition made it: nothing was trained with it
        if stage is not None:
            stage.note(f"gradients of {region.where}")
        result, error = checker.check(region)
        found.append(result)
        if error is not None:
            errors.append(error)
    if errors:
        first = errors[0]
        others = len(errors) - 1
        more = (
            f"; {others} more of the model's placeholders {'are' if others > 1 else 'is'} wrong"
            if others
            else ""
        )
        raise GradientError(first.what + more, where=first.where, remedy=first.remedy)
    return found


def _error(
    faults: Sequence[Wrong], region: Region, result: GradientResult, what: str, given: str
) -> GradientError:
    return GradientError(
        f"{result.trained} gives another gradient than {what}: {'; '.join(map(str, faults))} ({given})",
        where=region.where,
        remedy="correct the backward and train anew, or correct the pass; nothing was delivered",
    )


def warnings_of(results: Sequence[GradientResult]) -> list[str]:
    """What is to be said where little was checked, or where the delivered graph could not be trained on."""
    found: list[str] = []
    if not results:
        found.append("no placeholder was replaced, so there were no gradients to check")
    left = [result for result in results if result.status == NOT_CHECKED]
    if left and len(left) == len(results):
        found.append("no gradient was checked")
    found += [f"{result.where}: its gradient was not checked: {result.reason}" for result in left]
    found += [
        f"{result.where}: {text}" for result in results if result.how == "alone" for text in result.warnings
    ]
    return found


def notes_of(results: Sequence[GradientResult]) -> list[str]:
    """What is known of placeholders that were checked."""
    return [f"{result.where}: {note}" for result in results if result.how == "alone" for note in result.notes]
