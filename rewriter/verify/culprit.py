"""Which stage made the delivered model differ from PyTorch: each is asked, in the order of the work."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.against.mapping import matched
from rewriter.errors import CannotVerifyError, MismatchError, RewriteError, Where
from rewriter.execution.cut import prune
from rewriter.execution.reference import ReferenceRefused
from rewriter.execution.session import Refused, Session
from rewriter.graph.scopes import first_output
from rewriter.verify.blame import DECOMPOSITION, EXPORT, OPTIMISER, SIMPLIFICATION, Blame, place_of, told
from rewriter.verify.causes import Evidence, explained
from rewriter.verify.compare import measure
from rewriter.verify.inplace import exposed_names
from rewriter.verify.parting import Parting, computed
from rewriter.verify.proof import RegionResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onnx import ModelProto

    from rewriter.against import Oracle
    from rewriter.decompose import Region
    from rewriter.execution.values import Data
    from rewriter.inputs.draw import Sample
    from rewriter.verify.delivered import Delivered
    from rewriter.verify.inplace import InPlace
    from rewriter.verify.origin import Origin
    from rewriter.verify.parting import Judge

    #: Named values of a model on one sample.
    Run = Callable[[Sequence[str]], Mapping[str, Data]]

#: How many values that agree a message lists.
_SHOWN = 3

_REMEDIES = {
    EXPORT: "the file differs from PyTorch before this tool touches it. Nothing at the node shows why: see whether the "
    "file was exported from this model, with these weights, in evaluation mode",
    DECOMPOSITION: "correct the pass",
    SIMPLIFICATION: "the file computes otherwise than the model as it was rewritten",
    OPTIMISER: "the file is right as it is written, and onnxruntime computes otherwise as it optimises it",
}


class Culprit:
    """The stages between PyTorch and the delivered file, on one sample."""

    def __init__(
        self,
        oracle: Oracle,
        place: InPlace,
        regions: Sequence[Region],
        held: Delivered,
        origin: Origin | None = None,
    ) -> None:
        self._oracle = oracle
        self._place = place
        self._regions = regions
        self._held = held
        self._origin = origin

    @property
    def _judge(self) -> Judge:
        return self._held.judgement.differs

    def _problems(
        self, found: Mapping[str, Data], expected: Mapping[str, Data], outputs: Sequence[str]
    ) -> dict[str, str]:
        """What is wrong with those of ``outputs`` that differ."""
        return self._held.judgement.outputs(found, {name: expected[name] for name in outputs}, {})

    def remedy(self, blame: Blame) -> str:
        text = blame.remedy or _REMEDIES[blame.stage]
        if blame.stage in (SIMPLIFICATION, OPTIMISER) and self._held.is_simplified:
            text += "; --no-simplify delivers the model as it was rewritten"
        return f"{text}; nothing was delivered"

    def find(self, sample: Sample, expected: Mapping[str, Data], outputs: Sequence[str]) -> Blame:
        """The first stage whose ``outputs`` differ from those of the one before.

        Where a stage cannot be asked here, the export is named: everything after it was proved on other samples.
        """
        try:
            return self._region(sample) or self._stage(sample, expected, outputs)
        except (Refused, CannotVerifyError) as error:
            return Blame(
                EXPORT, None, f"the later stages were right elsewhere, and cannot be asked here: {error.what}"
            )

    def _stage(self, sample: Sample, expected: Mapping[str, Data], outputs: Sequence[str]) -> Blame:
        rewritten = self._place.model
        run_plain = self._rewritten(sample)
        source: ModelProto = rewritten
        run_source: Run = run_plain
        values = None
        if self._origin is not None:
            stand_in = self._origin.run_on(sample)
            try:
                values = stand_in(outputs)
                source, run_source = self._origin.model, stand_in
            except (Refused, ReferenceRefused) as error:
                return self._because(Blame(EXPORT, place_of(error, self._origin.model), error.what), sample)
            except RewriteError:
                values = None  # it cannot run here: the regions agree with their references, so the rewritten one can
        if values is None:
            try:
                values = run_plain(outputs)
            except Refused as error:
                return self._because(Blame(EXPORT, place_of(error, rewritten), error.what), sample)
        problems = self._problems(values, expected, outputs)
        if problems:
            return self._export(sample, problems, source, run_source)
        return self._later(sample, outputs, values, run_plain, (source, run_source))

    def _rewritten(self, sample: Sample) -> Run:
        """Gives named values of the rewritten model as written; all are exposed once an inner one is asked for."""
        model = self._place.model
        outputs = {output.name for output in model.graph.output}
        sessions: dict[bool, Session] = {}

        def run(names: Sequence[str]) -> Mapping[str, Data]:
            inner = not outputs.issuperset(names)
            if inner not in sessions:
                sessions[inner] = Session(
                    self._place.weights,
                    model,
                    extra_outputs=computed(model) if inner else (),
                    optimise=False,
                    libraries=self._place.libraries,
                )
            return sessions[inner].run(sample.feeds, names)

        return run

    # --- the decompositions -------------------------------------------------------------------------------------

    def _region(self, sample: Sample) -> Blame | None:
        """A region of the main graph that differs from its reference, or refuses what that takes."""
        pairs = [
            (region, RegionResult(region.placeholder.pass_name(), region.decomposition, region.where))
            for region in self._regions
            if region.scope.is_main
        ]
        for batch in self._place.batches(pairs):
            names = exposed_names(region for region, _ in batch)
            try:
                session = Session(
                    self._place.weights,
                    prune(self._place.model, names),
                    optimise=False,
                    libraries=self._place.libraries,
                )
                self._place.compare(batch, session.run(sample.feeds, names), sample)
            except Refused as error:
                try:
                    self._place.blame_run(error, sample, [region for region, _ in batch])
                except MismatchError as found:
                    return Blame(DECOMPOSITION, _where(found), found.what)
            except MismatchError as error:
                return Blame(DECOMPOSITION, _where(error), error.what)
            except CannotVerifyError:
                continue
        return None

    # --- the export ---------------------------------------------------------------------------------------------

    def _export(self, sample: Sample, problems: Mapping[str, str], source: ModelProto, run: Run) -> Blame:
        """The first node of the model with placeholders whose value is not the PyTorch program's."""
        parting = Parting(source, self._judge, self._place.types, sample.sizes)
        output = next(iter(problems))
        detail = f"{told(output, problems[output])}; "
        # What had to be assumed may be the fault.
        note = f"; {self._oracle.assumed}" if self._oracle.assumed else ""
        inner = self._oracle.inner(sample)
        if inner is None:
            why = (
                "recorded values have no inner ones"
                if self._oracle.recorded
                else "torch.export does not take the module, so it shows no inner values"
            )
            blame = Blame(EXPORT, None, f"{detail}{why}{note}")
            return self._at_output(blame, sample, output, source, run)
        matches = matched(source, inner.steps)
        names = matches.names
        if not names:
            blame = Blame(EXPORT, None, f"{detail}no inner value could be matched by its name{note}")
            return self._at_output(blame, sample, output, source, run)
        try:
            verdicts = parting.compare(
                [name for name in parting.computed if name in names],
                run,
                lambda part: _renamed(names, inner.values([names[name] for name in part])),
                # Of several operators on one line one may be missing: then others are taken for one another.
                alike=not (matches.certain and any("has shape" in problem for problem in problems.values())),
            )
        except RewriteError as error:
            blame = Blame(EXPORT, None, f"{detail}inner values cannot be compared: {error.what}{note}")
            return self._at_output(blame, sample, output, source, run)
        first = parting.first({**verdicts, **problems}, list(problems)) or output
        problem = verdicts.get(first) or problems.get(first)
        before = [f"'{name}'" for name in parting.before(first, verdicts) if verdicts[name] is None][:_SHOWN]
        agrees = f"; {', '.join(before)} before it agree{'s' if len(before) == 1 else ''}" if before else ""
        if before and parting.unseen(first, verdicts):
            agrees += ", and what lies between could not be compared"
        blame = Blame(EXPORT, parting.where(first), f"{told(first, problem)}{agrees}{note}")
        values = inner.values([names[first]]) if first in names else {}
        theirs = self._expected(first, sample) if first in problems else values.get(names.get(first, ""))
        return explained(blame, _evidence(parting, first, run, theirs, sample))

    def _at_output(self, blame: Blame, sample: Sample, output: str, source: ModelProto, run: Run) -> Blame:
        """``blame``, which has no inner values, with the cause that the node of ``output`` shows."""
        parting = Parting(source, self._judge, self._place.types, sample.sizes)
        evidence = _evidence(parting, output, run, self._expected(output, sample), sample)
        node = parting.node(output)
        alone = node is not None and all(parting.node(name) is None for name in node.input)
        return explained(blame, replace(evidence, recorded=bool(self._oracle.recorded), certain=alone))

    def _expected(self, output: str, sample: Sample) -> Data | None:
        return self._oracle(sample).get(output)

    def _because(self, blame: Blame, sample: Sample) -> Blame:
        """``blame`` for a node that the runtime refuses, with the cause that it shows."""
        model = self._place.model if self._origin is None else self._origin.model
        node = None
        if blame.where is not None:
            node = next((n for n in model.graph.node if blame.where.node in (n.name, first_output(n))), None)
        sizes = sample.open_sizes
        return explained(blame, Evidence(model, node, sizes=sizes, refusal=blame.detail))

    # --- what comes after -----------------------------------------------------------------------------------------

    def _later(
        self,
        sample: Sample,
        outputs: Sequence[str],
        first: Mapping[str, Data],
        rewritten: Run,
        source: tuple[ModelProto, Run],
    ) -> Blame:
        """The exported model agrees: one of the later stages does not, or all of them together."""
        sizes = sample.sizes
        stages: list[tuple[str, Mapping[str, Data]]] = [("", first)]
        try:
            values = rewritten(outputs)
        except Refused as error:
            return Blame(DECOMPOSITION, place_of(error, self._place.model), error.what)
        problems = self._problems(values, first, outputs)
        if problems:
            return self._in_a_body(sample, problems, rewritten, source)
        stages.append((DECOMPOSITION, values))
        model = self._held.model
        try:
            delivered = self._held.run(sample.feeds, outputs, optimise=False)
        except Refused as error:
            return Blame(SIMPLIFICATION, place_of(error, model), error.what)
        problems = self._problems(delivered, values, outputs)
        if problems:
            return self._held.simplified(sample.feeds, next(iter(problems)), sizes)
        stages.append((SIMPLIFICATION, delivered))
        try:
            optimised = self._held.run(sample.feeds, outputs)
        except Refused as error:
            return Blame(OPTIMISER, place_of(error, model), error.what)
        problems = self._problems(optimised, delivered, outputs)
        if problems:
            return self._held.optimised(sample.feeds, next(iter(problems)), sizes)
        stages.append((OPTIMISER, optimised))
        return _together(stages, outputs)

    def _in_a_body(
        self,
        sample: Sample,
        problems: Mapping[str, str],
        rewritten: Run,
        source: tuple[ModelProto, Run],
    ) -> Blame:
        """A decomposition in a body or function differs from its reference: the node that holds it."""
        parting = Parting(self._place.model, self._judge, self._place.types, sample.sizes)
        try:
            verdicts = parting.compare(parting.shared(source[0]), rewritten, source[1])
        except RewriteError as error:
            return Blame(DECOMPOSITION, None, f"inner values cannot be compared: {error.what}")
        first = parting.first({**verdicts, **problems}, list(problems))
        if first is None:
            return Blame(DECOMPOSITION)
        where = Parting(source[0], self._judge).where(first) or parting.where(first)
        return Blame(DECOMPOSITION, where, told(first, verdicts.get(first) or problems.get(first)))


def _renamed(names: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the names of the graph; ``names`` are those of the program for them."""
    return {ours: values[theirs] for ours, theirs in names.items() if theirs in values}


def _evidence(parting: Parting, name: str, run: Run, expected: Data | None, sample: Sample) -> Evidence:
    """What is known of the node that computes ``name``."""
    node = parting.node(name)
    if node is None:
        return Evidence(parting.model, None, expected=expected, sizes=sample.open_sizes)
    computed_inputs = [value for value in node.input if value and parting.node(value) is not None]
    try:
        values = run(list(dict.fromkeys([name, *computed_inputs])))
    except RewriteError:
        values = {}
    inputs = {value: values[value] for value in computed_inputs if value in values}
    inputs |= {value: sample.feeds[value] for value in node.input if value in sample.feeds}
    return Evidence(parting.model, node, values.get(name), expected, inputs, sample.open_sizes)


def _where(error: RewriteError) -> Where | None:
    return error.where if isinstance(error.where, Where) else None


def _together(stages: Sequence[tuple[str, Mapping[str, Data]]], outputs: Sequence[str]) -> Blame:
    """No stage alone goes beyond what is allowed, but all of them together: the one that adds most."""
    steps: dict[str, float] = {}
    for (_, before), (stage, after) in itertools.pairwise(stages):
        for name in outputs:
            if isinstance(before[name], np.ndarray) and isinstance(after[name], np.ndarray):
                metrics = measure(after[name], before[name])
                steps[stage] = max(steps.get(stage, 0.0), metrics.max_scaled or 0.0)
    stage = max(steps, key=lambda key: steps[key], default=EXPORT)
    return Blame(stage, None, "each stage is within what is allowed, and all together are not")
