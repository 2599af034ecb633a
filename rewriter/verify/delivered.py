"""The delivered model against the rewritten one, on the graph's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rewriter.errors import CannotVerifyError, MismatchError
from rewriter.execution.numbers import is_float
from rewriter.execution.session import Refused, Session
from rewriter.verify.blame import OPTIMISER, SIMPLIFICATION, Blame, place_of
from rewriter.verify.compare import accepting
from rewriter.verify.judgement import Judgement
from rewriter.verify.parting import between, computed, exposed, in_optimiser

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from onnx import ModelProto

    from rewriter.execution.cut import CutModel
    from rewriter.execution.values import Data
    from rewriter.execution.weights import Weights
    from rewriter.inputs.draw import Sample
    from rewriter.types import TensorType
    from rewriter.verify.proof import Checked

_REMEDY = "--no-simplify delivers the model as it was rewritten"
_OPTIMISER = "the file is right as it is written, and onnxruntime computes otherwise as it optimises it"


class Delivered:
    """The model as it will be used: simplified, and optimised by the runtime.

    ``before`` is the rewritten model that it was made of, ``types`` those of its values.  ``judgement`` says when
    outputs agree.
    """

    def __init__(
        self,
        weights: Weights,
        model: CutModel,
        before: ModelProto,
        types: Mapping[str, TensorType],
        libraries: Sequence[Path],
        *,
        has_calls: bool = False,
        judgement: Judgement | None = None,
    ) -> None:
        self.judgement = judgement or Judgement()
        self._weights = weights
        self.model = model.model
        self._before = before
        self._types = types
        #: What the outputs, and what operators that were cut out took, are called in this model.
        self._names = labelled(model)
        self._libraries = libraries
        #: What the file differs in from the one that it is compared with.
        self._difference = "simplification or a call to a function" if has_calls else "simplification"
        self._plain: Session | None = None
        self._session = self._load(optimise=True)
        self.warnings: list[str] = []

    def _load(self, *, optimise: bool) -> Session:
        try:
            return self._loaded(self.model, optimise=optimise)
        except Refused as error:
            raise self._refusal(error, optimise=optimise) from error

    def _loaded(self, model: ModelProto, *, optimise: bool) -> Session:
        return Session(
            self._weights,
            model,
            extra_outputs=self._names.values(),
            optimise=optimise,
            libraries=self._libraries,
        )

    def _refusal(self, error: Refused, *, optimise: bool) -> MismatchError:
        """Why the runtime does not load the model: as it is written, or only as it optimises it."""
        stage, what, remedy = SIMPLIFICATION, "the model to be delivered", _REMEDY
        if optimise and self._loads(self.model, optimise=False):
            stage, what = OPTIMISER, "onnxruntime's optimiser, on the model to be delivered"
            remedy = "the file loads as it is written, with graph_optimization_level at ORT_DISABLE_ALL"
            if self.is_simplified and self._loads(self._before, optimise=True):
                remedy += f"; {_REMEDY}, which onnxruntime loads"
            remedy += "; --no-verify delivers this one unverified"
        refusal = MismatchError(f"{what}: {error.what}", remedy=remedy)
        refusal.blame = Blame(stage, place_of(error, self.model), error.what)
        return refusal

    def _loads(self, model: ModelProto, *, optimise: bool) -> bool:
        try:
            self._loaded(model, optimise=optimise)
        except (Refused, CannotVerifyError):
            return False
        return True

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return self._session.draws

    def run(
        self, feeds: Mapping[str, Data], names: Sequence[str], *, optimise: bool = True
    ) -> dict[str, Data]:
        """Those of the graph's outputs that ``names`` lists; Refused where the runtime does not take ``feeds``."""
        if optimise:
            return self._session.run(feeds, names)
        if self._plain is None:
            self._plain = self._load(optimise=False)
        return self._plain.run(feeds, names)

    def compare(self, sample: Sample, expected: Mapping[str, Data], into: Mapping[str, Checked]) -> None:
        """Hold the values, by label, against those of the rewritten model, run as written.

        MismatchError names what differs.
        """
        try:
            found = self._session.run(sample.feeds, list(self._names.values()))
        except Refused as error:
            raise MismatchError(
                "the model to be delivered refuses what the rewritten one accepts",
                figures=error.what,
                sample=sample.describe(),
                blame=self._refusing(sample.feeds, error),
                remedy=_REMEDY,
            ) from error
        wanted = {self._names[label]: want for label, want in expected.items()}
        noted = {self._names[label]: checked for label, checked in into.items()}
        problems = self.judgement.outputs(found, wanted, noted)
        if not problems:
            return
        plain = self.judgement.outputs(self.run(sample.feeds, list(wanted), optimise=False), wanted, {})
        for label, want in expected.items():
            name = self._names[label]
            problem = problems.get(name)
            if problem is None:
                continue
            unoptimised = plain.get(name)
            if unoptimised is None and _is_discrete(want):
                # A number was rounded otherwise, and an index or a comparison tipped over: not the file's fault.
                self.warnings.append(
                    f"{label} {problem} when onnxruntime optimises the model, and agrees when it does not "
                    f"({sample.describe()}): a near tie"
                )
                continue
            cause = (
                self._difference
                if unoptimised is not None
                else "onnxruntime's optimiser, on the delivered graph,"
            )
            spoilt = self.optimised if unoptimised is None else self.simplified
            blame = spoilt(sample.feeds, name, sample.sizes)
            raise MismatchError(
                f"{cause} changed {label}",
                figures=problem,
                sample=sample.describe(),
                blame=blame,
                remedy=self._remedy(sample.feeds, wanted, problems, optimised=unoptimised is None),
            )

    def _remedy(
        self,
        feeds: Mapping[str, Data],
        wanted: Mapping[str, Data],
        problems: Mapping[str, str],
        *,
        optimised: bool,
    ) -> str:
        """What delivers the model where outputs differ; only what was not done already, and helps."""
        accepts = accepting(problems.values())
        if not optimised:
            return f"{_REMEDY if self.is_simplified else 'report this as a fault'}{accepts}"
        told = _OPTIMISER
        if self.is_simplified:
            told += (
                ", with simplification and without"
                if self._spoils_the_rewritten(feeds, wanted)
                else "; --no-simplify gives a graph of which it does not"
            )
        return f"{told}{accepts}; --no-verify delivers this one unverified"

    @property
    def is_simplified(self) -> bool:
        """Whether the model to be delivered has other nodes than the rewritten one."""
        before, after = self._before.graph.node, self.model.graph.node
        return len(before) != len(after) or any(a != b for a, b in zip(before, after, strict=True))

    def _spoils_the_rewritten(self, feeds: Mapping[str, Data], wanted: Mapping[str, Data]) -> bool:
        """Whether the rewritten model, optimised, differs as well from what it is as written."""
        try:
            session = Session(self._weights, self._before, libraries=self._libraries, extra_outputs=wanted)
            return bool(self.judgement.outputs(session.run(feeds, list(wanted)), wanted, {}))
        except (Refused, CannotVerifyError):
            return True

    # --- who is to blame --------------------------------------------------------------------------------------

    def simplified(self, feeds: Mapping[str, Data], output: str, sizes: Mapping[str, int]) -> Blame:
        """Where simplification made ``output`` differ: the first node, as it stands in the rewritten model."""
        try:
            before, after = (
                exposed(self._weights, model, computed(model), self._libraries, optimise=False)
                for model in (self._before, self.model)
            )
        except (Refused, CannotVerifyError) as error:
            return Blame(SIMPLIFICATION, detail=f"inner values cannot be compared: {error.what}")
        return between(
            SIMPLIFICATION,
            (self._before, before),
            (self.model, after),
            feeds,
            output,
            self.judgement.differs,
            self._types,
            sizes,
        )

    def optimised(self, feeds: Mapping[str, Data], output: str, sizes: Mapping[str, int]) -> Blame:
        """Where onnxruntime's optimiser made ``output`` differ."""
        return in_optimiser(
            self._weights,
            self.model,
            feeds,
            output,
            self.judgement.differs,
            self._libraries,
            self._types,
            sizes,
        )

    def _refusing(self, feeds: Mapping[str, Data], error: Refused) -> Blame:
        try:
            self.run(feeds, list(self._names.values()), optimise=False)
        except Refused as plain:
            return Blame(SIMPLIFICATION, place_of(plain, self.model), plain.what)
        except MismatchError:
            return Blame(SIMPLIFICATION, detail=error.what)
        return Blame(OPTIMISER, place_of(error, self.model), error.what)


def labelled(model: CutModel) -> dict[str, str]:
    """What is compared, by a label for people: the graph's outputs, and what the operators that were cut out took."""
    return {f"output '{output.name}'": output.name for output in model.model.graph.output} | model.probes


def differs(found: Data, expected: Data, into: Checked | None) -> str | None:
    """What is wrong with an output by the default thresholds; None where it agrees."""
    return Judgement().differs(found, expected, into)


def agree(found: Data, expected: Data) -> str | None:
    """What is wrong with a value, noted nowhere; None where it agrees."""
    return differs(found, expected, None)


def _is_discrete(value: Data) -> bool:
    return isinstance(value, np.ndarray) and not is_float(value.dtype)
