"""The gradients of a model's own replaced placeholders: what training used, against the nodes that ship.

Each region's nodes are taken from the finished model as they stand, interpreted in float64 on drawn inputs of the
types that were inferred, and differentiated.  Constants that they read as they are (weights) count as inputs.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from onnx import TensorProto

from rewriter.errors import CannotInterpretError, GradientError, UsageError, Where
from rewriter.gradients.graphs import interpreted
from rewriter.gradients.judge import OF_THE_GRAPH, Comparison, Unlike, Wrong, agreement
from rewriter.gradients.operators import Operators
from rewriter.gradients.result import DIFFERS, NOT_CHECKED, SURROGATE, GradientResult
from rewriter.gradients.sides import Point, Raised, results
from rewriter.gradients.slack import slacks_for
from rewriter.gradients.trained import operator_side, reference_side, wide, written_by_hand
from rewriter.placeholder.binding import Ref
from rewriter.types import TensorType, dtype_name
from rewriter.verify.drawing import drawn
from rewriter.verify.regions import Index, identity, outputs_of, standalone, tensors_of
from rewriter.verify.values import element_type

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from onnx import ModelProto

    from rewriter.decompose import Region
    from rewriter.gradients.sides import Side
    from rewriter.gradients.slack import Slack
    from rewriter.graph.scopes import ScopeRef
    from rewriter.progress import Stage
    from rewriter.storage import ModelFile
    from rewriter.verify.drawing import Drawn
    from rewriter.verify.options import VerifyOptions

#: Element types of which a gradient is taken; narrower ones hold too few numbers to train in.
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})


@dataclass(frozen=True)
class _Part:
    """A region as a model of its own: what it takes, by name, and the values of the constants among that."""

    region: Region
    types: Mapping[str, TensorType]
    constants: Mapping[str, Any]
    model: ModelProto
    key: Hashable

    @property
    def slacks(self) -> tuple[Slack, ...]:
        return slacks_for(dtype_name(kind.dtype) for kind in self.types.values())


@dataclass
class RegionChecker:
    """Checks the regions of one model one by one, equal ones once."""

    file: ModelFile
    model: ModelProto
    options: VerifyOptions
    operators: Operators = field(default_factory=Operators)
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
        part = self._part(region, result)
        if part is None:
            return result, None
        if part.key in self._checked:
            earlier, error = self._checked[part.key]
            result.how = "as another"
            for name in ("status", "trained", "reason", "operator", "samples", "inputs", "notes", "warnings"):
                setattr(result, name, getattr(earlier, name))
            return result, error
        error = self._check(part, result)
        self._checked[part.key] = result, error
        return result, error

    def _part(self, region: Region, result: GradientResult) -> _Part | None:
        types = tensors_of(region)
        unknown = [name for name, kind in types.items() if kind is None or kind.shape is None]
        if unknown:
            result.leave(NOT_CHECKED, f"the type of its input '{unknown[0]}' is unknown")
            return None
        known = {name: kind for name, kind in types.items() if kind is not None}
        index = self._index(region.scope)
        constants = {
            ref.name: ref.constant
            for ref in region.bound.refs()
            if ref.constant is not None and ref.name and element_type(np.asarray(ref.constant)) in _FLOATS
        }
        for held in (constants, {}):
            kinds = known | {
                name: TensorType(element_type(np.asarray(value)), np.shape(value))
                for name, value in held.items()
            }
            part = index.slice(kinds, outputs_of(region))
            if part.loose:
                result.leave(NOT_CHECKED, f"it reads '{part.loose[0]}', whose type is unknown")
                return None
            made = standalone(index, kinds, outputs_of(region), part)
            found = _Part(
                region,
                kinds,
                held,
                made,
                (identity(region, kinds, made), region.where.operator, str(region.node.attribute)),
            )
            if not held or self._free(found):
                return found
        return None

    def _free(self, part: _Part) -> bool:
        """Whether the constants may vary: no decomposition computed something of their values."""
        moved = {
            name: np.asarray(value).astype(np.float64) * 1.25 + 0.125
            for name, value in part.constants.items()
        }
        try:
            trained, shipped = self._reference(part), self._shipped(part)
            for made in drawn(part.region, self._computed(part), self.options, 0):
                point = self._point(part, made, moved)
                agreement(results(shipped, point), results(trained, point), part.slacks)
                return True
        except (Raised, Unlike, CannotInterpretError):
            pass
        return False

    def _check(self, part: _Part, result: GradientResult) -> GradientError | None:
        region = part.region
        try:
            shipped = self._shipped(part)
            trained = self._trained(part)
            types = self._computed(part)
            is_open = any(not kind.is_static for kind in types.values())
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
        self, part: _Part, trained: Side, shipped: Side, number: int, result: GradientResult
    ) -> GradientError | None:
        """Check one sample, the first drawing that the reference accepts."""
        refusal = "no sizes fit its types"
        for made in drawn(part.region, self._computed(part), self.options, number):
            point = self._point(part, made, part.constants)
            try:
                names, surrogate = written_by_hand(trained, point)
            except Raised as error:
                if isinstance(error.error, UsageError):
                    raise error.error from error
                refusal = f"{trained.name} refused every drawn input: {error}"
                continue
            result.trained = trained.name
            if names and not trained.name.startswith("the backward"):
                result.trained = f"the backward of {', '.join(names)}, behind {trained.name}"
            seed = zlib.crc32(f"{self.options.seed} {number}".encode())
            return self._hold(
                part, trained, shipped, point, torch.Generator().manual_seed(seed), result, made, surrogate
            )
        result.leave(NOT_CHECKED, refusal)
        return None

    def _hold(
        self,
        part: _Part,
        trained: Side,
        shipped: Side,
        point: Point,
        generator: torch.Generator,
        result: GradientResult,
        made: Drawn,
        surrogate: str,
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
            comparison = Comparison(
                trained,
                shipped,
                generator,
                slacks=part.slacks,
                labels=_labels(region),
                names=region.placeholder.outputs,
            )
            wrong = comparison.hold(point, held)
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
        for item in wrong:
            if item.problem.kind in OF_THE_GRAPH and str(item) not in result.warnings:
                result.warnings.append(str(item))
        faults = [item for item in wrong if item.problem.kind not in OF_THE_GRAPH]
        if not faults:
            return None
        result.status = DIFFERS
        return _error(faults, region, result, what, made)

    def _trained(self, part: _Part) -> Side:
        region = part.region
        operator = self.operators.find(region.where.operator, region.placeholder)
        if operator is None:
            return self._reference(part)
        index = self._index(region.scope)
        constants = {name: wide(value) for name, value in part.constants.items()}
        for ref in region.bound.refs():
            if ref.constant is not None and ref.name:
                constants[ref.name] = wide(ref.constant)
        for name in region.node.input:
            if name and name not in constants and name in index.tensors:
                constants[name] = wide(self.file.array(index.tensors[name]))
        return operator_side(operator, region, constants, outputs_of(region))

    def _reference(self, part: _Part) -> Side:
        return reference_side(part.region.placeholder, part.region.bound.arguments, outputs_of(part.region))

    def _shipped(self, part: _Part) -> Side:
        # A region may be the identity; its copy is then called otherwise.
        outputs = {output.name.removesuffix(":out"): output.name for output in part.model.graph.output}
        names = [outputs.get(name, name) if name else "" for name in outputs_of(part.region)]
        return interpreted(part.model, names, self.file)

    def _computed(self, part: _Part) -> dict[str, TensorType]:
        return {name: kind for name, kind in part.types.items() if name not in part.constants}

    def _point(self, part: _Part, made: Drawn, constants: Mapping[str, Any]) -> Point:
        values = {**made.feeds, **constants}
        return Point(
            {name: wide(values[name]) for name in part.types},
            tuple(name for name, kind in part.types.items() if kind.dtype in _FLOATS),
        )

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
) -> list[GradientResult]:
    """Check every placeholder that stood in the model itself; GradientError names the first whose gradient is wrong.

    ``model`` is the rewritten, unsimplified model, a skeleton of ``file``.  Results go into ``into`` as they come.
    """
    found: list[GradientResult] = [] if into is None else into
    checker = RegionChecker(file, model, options, Operators(options.operators))
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
        more = f"; {len(errors) - 1} more of the model's placeholders are wrong" if len(errors) > 1 else ""
        raise GradientError(first.what + more, where=first.where, remedy=first.remedy)
    return found


def _error(
    faults: Sequence[Wrong], region: Region, result: GradientResult, what: str, made: Drawn
) -> GradientError:
    return GradientError(
        f"{result.trained} gives another gradient than {what}: {'; '.join(map(str, faults))} ({made.describe()})",
        where=region.where,
        remedy="correct the backward and train anew, or correct the pass; nothing was delivered",
    )


def _labels(region: Region) -> dict[str, str]:
    """The pass's own names of its tensor arguments, by value name."""
    found: dict[str, list[str]] = {}
    for parameter, argument in region.bound.arguments.items():
        if isinstance(argument, Ref):
            found.setdefault(argument.name, []).append(parameter)
        elif isinstance(argument, tuple):
            for number, item in enumerate(argument):
                if isinstance(item, Ref):
                    found.setdefault(item.name, []).append(f"{parameter}[{number}]")
    return {name: ", ".join(parameters) for name, parameters in found.items()}


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
