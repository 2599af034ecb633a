"""Regions in bodies and functions, each proved as a model of its own on drawn inputs.

What happens in a body cannot be looked at from outside, and a branch may not even run.  The region's nodes are taken
from the finished model as they stand, run on inputs of the types that were inferred, at several sizes, and compared
with the reference.  Regions that are the same need one proof.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rewriter.errors import CannotVerifyError, MismatchError
from rewriter.execution.reference import ReferenceRefused, evaluate, plain_arguments
from rewriter.execution.session import Refused, Session
from rewriter.inputs.of_region import drawn
from rewriter.verify.answer import check, own_remark
from rewriter.verify.compare import accepting
from rewriter.verify.probes import Prober
from rewriter.verify.proof import ALLOW, NO_REFERENCE, Checked, RegionResult
from rewriter.verify.regions import Index, identity, outputs_of, standalone, tensors_of
from rewriter.verify.trial import value_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import ModelProto

    from rewriter.decompose import Region
    from rewriter.execution.numbers import Array
    from rewriter.execution.weights import Weights
    from rewriter.graph.scopes import ScopeRef
    from rewriter.inputs.of_region import Drawn
    from rewriter.types import TensorType
    from rewriter.verify.options import VerifyOptions


class AloneProver:
    """Proves regions of one model one by one, and remembers what it proved."""

    def __init__(self, weights: Weights, model: ModelProto, options: VerifyOptions) -> None:
        self.weights = weights
        self.model = model
        self.options = options
        self._indexes: dict[ScopeRef, Index] = {}
        self._proved: dict[Any, RegionResult] = {}
        self._prober = Prober(weights, model, options)

    def prove(self, region: Region, result: RegionResult) -> None:
        """Fill in ``result``; MismatchError where the region is wrong."""
        types = tensors_of(region)
        unknown = [name for name, kind in types.items() if kind is None or kind.shape is None]
        if unknown:
            result.leave_unproved(f"the type of its input '{unknown[0]}' is unknown")
            return
        known = {name: kind for name, kind in types.items() if kind is not None}
        index = self._index(region.scope)
        part = index.slice(known, outputs_of(region))
        if part.loose:
            result.leave_unproved(f"it reads '{part.loose[0]}', whose type is unknown")
            return
        model = standalone(index, known, outputs_of(region), part)
        key = identity(region, known, model)
        if key in self._proved:
            earlier = self._proved[key]
            result.how = "as another" if earlier.is_proved else "unproved"
            result.outputs, result.reason, result.remedy = earlier.outputs, earlier.reason, earlier.remedy
            return
        result.how = "alone"
        self._run(region, known, model, result)
        self._proved[key] = result

    def _index(self, ref: ScopeRef) -> Index:
        if ref not in self._indexes:
            self._indexes[ref] = Index(self.model, ref)
        return self._indexes[ref]

    def _run(
        self, region: Region, types: Mapping[str, TensorType], model: ModelProto, result: RegionResult
    ) -> None:
        names = outputs_of(region)
        result.outputs = [Checked(name) for name in names]
        try:
            session = Session(
                self.weights, model, optimise=False, libraries=tuple(self.options.libraries.values())
            )
        except Refused as error:
            raise MismatchError(
                f"the decomposition '{region.decomposition}' is no valid ONNX: {error.what}",
                where=region.where,
                remedy=f"correct pass '{region.placeholder.pass_name()}'",
            ) from error
        except CannotVerifyError as error:
            error.where = error.where or region.where
            raise
        samples = self.options.samples if types else 1
        for number in range(samples):
            if not self._sample(region, types, model, session, number, result):
                return

    def _sample(
        self,
        region: Region,
        types: Mapping[str, TensorType],
        model: ModelProto,
        session: Session,
        number: int,
        result: RegionResult,
    ) -> bool:
        """Prove one sample; False where ``result`` says why it stays unproved."""
        refusal = ""
        for made in drawn(region, types, self.options, number):
            try:
                expected = evaluate(region.placeholder, region.bound, partial(value_of, feeds=made.feeds))
            except ReferenceRefused as error:
                refusal = error.what
                continue
            except TypeError as error:
                result.leave_unproved(str(error), NO_REFERENCE)
                return False
            self._compare(region, session, made, expected, result)
            if number == 0 and self.options.inputs is None:
                self._prober.vary(region, model, session, made.feeds, types)
            return True
        if refusal:
            result.leave_unproved(f"its reference refused every drawn input: {refusal}", ALLOW)
        else:
            result.leave_unproved("no sizes fit its types", ALLOW)
        return False

    def _compare(
        self,
        region: Region,
        session: Session,
        made: Drawn,
        expected: list[Array | None],
        result: RegionResult,
    ) -> None:
        names = outputs_of(region)
        pass_name = region.placeholder.pass_name()
        try:
            found = session.run(made.feeds)
        except Refused as error:
            raise MismatchError(
                "the decomposition refuses what PyTorch accepts",
                figures=error.what,
                sample=made.describe(),
                where=region.where,
                remedy=f"correct the decomposition '{region.decomposition}' of pass '{pass_name}'",
            ) from error
        values = {
            name.removesuffix(":out") if name not in names else name: value for name, value in found.items()
        }
        actual = [values.get(name) if name else None for name in names]
        judgement = self.options.judgement
        given = partial(plain_arguments, region.bound, partial(value_of, feeds=made.feeds))
        problem = check(
            region.placeholder, names, actual, expected, result.outputs, judgement, given, made.feeds
        )
        if problem is not None:
            raise mismatch(region, problem, made.describe())
        result.remarks.append(own_remark(region.placeholder, given, expected))


def mismatch(region: Region, problem: str, sample: str) -> MismatchError:
    return MismatchError(
        "differs from PyTorch",
        figures=problem,
        sample=sample,
        where=region.where,
        remedy=f"correct the decomposition '{region.decomposition}' of pass '{region.placeholder.pass_name()}' or its "
        f"reference{accepting([problem])}; nothing was delivered",
    )
