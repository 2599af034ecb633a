"""The delivered model against the model as it came, run by onnxruntime.

Regions are proved one by one.  What lies between them is seen here only: a node that stays means something else at the
target's opset, or a call reaches the wrong body.  No PyTorch is needed, unless placeholders of other domains stand in
the model: their references stand in for them.

1. Models that are brought to a target are compared in every sample, those whose functions hold a region in the first.
2. Where an output differs, the first inner value that differs is looked for.  The node that gives it, or what replaced
   the node, is then run on the original's own values.
3. Where that gives the original's value, and the value is discrete (an index, a comparison), the node is right and
   rounding before it tipped it over: a warning.  Everything else is an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rewriter.errors import MismatchError, RewriteError
from rewriter.execution.cut import CUT, inlined
from rewriter.execution.numbers import is_float
from rewriter.execution.session import Session
from rewriter.standin.model import StandIn
from rewriter.verify.blame import DECOMPOSITION, Blame, told
from rewriter.verify.compare import accepting
from rewriter.verify.parting import Parting, computed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import ModelProto

    from rewriter.execution.values import Data
    from rewriter.inputs.draw import Sample
    from rewriter.verify.inplace import InPlace
    from rewriter.verify.judgement import Judgement
    from rewriter.verify.origin import Origin


@dataclass
class AsCame:
    """The model of ``origin``, held against what was made of it: ``place`` is the rewritten model.

    ``calls``: the bodies of functions are put in the places of their calls.  ``each``: every sample is compared, else
    the first.
    """

    origin: Origin
    place: InPlace
    judgement: Judgement
    calls: bool = False
    each: bool = True
    #: Samples that were compared.
    samples: int = 0
    #: Why nothing was compared, if so.
    refusal: str = ""
    warnings: list[str] = field(default_factory=list)
    _model: ModelProto | None = field(default=None, repr=False)
    _original: StandIn | None = field(default=None, repr=False)

    def compare(self, sample: Sample, found: Mapping[str, Data]) -> None:
        """Hold the outputs ``found`` against the original's; MismatchError names the first node that differs."""
        if self.refusal or (self.samples and not self.each):
            return
        feeds = {name.removeprefix(CUT): data for name, data in sample.feeds.items()}
        try:
            expected = self._run(feeds, list(found))
        except RewriteError as error:
            self.refusal = error.what
            return
        self.samples += 1
        problems = self.judgement.outputs(found, expected, {})
        if problems:
            self._explain(sample, feeds, problems)

    def _explain(self, sample: Sample, feeds: Mapping[str, Data], problems: Mapping[str, str]) -> None:
        """Near ties become warnings; MismatchError for the first output that is not one."""
        verdicts = self._verdicts(sample, feeds)
        for name, problem in problems.items():
            first = self._parting(sample).first({**verdicts, name: problem}, [name]) or name
            where = self._parting(sample).where(first)
            if self._tipped(feeds, first):
                self.warnings.append(
                    f"output '{name}' {problem}, compared with the model as it came ({sample.describe()}): "
                    f"rounding decides the result of {where or first}, a near tie"
                )
                continue
            through = " with the bodies of its functions in the places of their calls" if self.calls else ""
            raise MismatchError(
                f"output '{name}' is not what the model computes as it came{through}",
                figures=problem,
                sample=sample.describe(),
                where=where,
                blame=Blame(DECOMPOSITION, where, told(first, verdicts.get(first) or problem)),
                remedy=f"report this as a fault{accepting([problem])}; nothing was delivered",
            )

    def _run(self, feeds: Mapping[str, Data], names: Sequence[str]) -> dict[str, Data]:
        if self._original is None:
            origin = self.origin
            self._model = inlined(origin.model) if self.calls else origin.model
            self._original = StandIn(
                origin.file, self._model, origin.selection, keep=origin.keep, libraries=origin.libraries
            )
        return self._original.run(feeds, names)

    # --- where it differs -----------------------------------------------------------------------------------

    def _parting(self, sample: Sample) -> Parting:
        assert self._model is not None
        return Parting(self._model, self.judgement.differs, self.place.types, sample.sizes)

    def _verdicts(self, sample: Sample, feeds: Mapping[str, Data]) -> dict[str, str | None]:
        """What is wrong with each value that both models have; empty where that cannot be asked."""
        rewritten, parting = self.place.model, self._parting(sample)
        try:
            session = Session(
                self.place.weights,
                rewritten,
                extra_outputs=computed(rewritten),
                optimise=False,
                libraries=self.place.libraries,
            )
            return parting.compare(
                parting.shared(rewritten),
                lambda part: session.run(sample.feeds, part),
                lambda part: self._run(feeds, part),
            )
        except RewriteError:
            return {}

    def _tipped(self, feeds: Mapping[str, Data], name: str) -> bool:
        """Whether the discrete value ``name`` is the original's where everything before it is the original's."""
        assert self._model is not None
        parting = Parting(self._model, self.judgement.differs)
        before = parting.before(name, dict.fromkeys(parting.shared(self.place.model)))
        origin = self.origin
        try:
            values = self._run(feeds, [*before, name])
            expected = values.pop(name)
            if not isinstance(expected, np.ndarray) or is_float(expected.dtype):
                return False
            rewritten = StandIn(
                origin.file,
                self.place.model,
                origin.selection,
                keep=origin.keep,
                libraries=origin.libraries,
            )
            found = rewritten.run({**feeds, **values}, [name])[name]
        except RewriteError:
            return False
        return self.judgement.differs(found, expected) is None
