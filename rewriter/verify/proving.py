"""The order of a verification, and its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rewriter.errors import (
    CannotVerifyError,
    MismatchError,
    UnprovedError,
    VerificationError,
    Where,
)
from rewriter.execution.cut import cut_unknown, inlined, prune, same_cuts
from rewriter.execution.reference import require_torch
from rewriter.execution.session import NO_VERIFY, Session
from rewriter.execution.types import value_types
from rewriter.execution.weights import Weights
from rewriter.graph.constants import Constants
from rewriter.graph.expanding import needs_torch
from rewriter.graph.scopes import called_function, function_key, function_scope, main_scope
from rewriter.inputs.draw import inputs_of
from rewriter.inputs.examples import of_inputs
from rewriter.progress import Progress, Quiet
from rewriter.verify.alone import AloneProver
from rewriter.verify.arguments import disagreement
from rewriter.verify.as_came import AsCame
from rewriter.verify.blame import DECOMPOSITION, Blame
from rewriter.verify.delivered import Delivered, labelled
from rewriter.verify.inplace import InPlace, exposed_names
from rewriter.verify.options import VerifyOptions
from rewriter.verify.probes import Knowledge, Prober
from rewriter.verify.proof import Checked, Proof, RegionResult
from rewriter.worker.activity import doing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onnx import ModelProto

    from rewriter.decompose import Region
    from rewriter.execution.cut import CutModel
    from rewriter.execution.values import Data
    from rewriter.graph.scopes import FunctionKey
    from rewriter.inputs.draw import Sample
    from rewriter.progress import Stage
    from rewriter.storage import ModelFile
    from rewriter.verify.degenerate import Degenerate
    from rewriter.verify.origin import Origin


_DRAWN = "what it takes was drawn by its types, at sizes that --dim names"


def verify(
    file: ModelFile,
    rewritten: ModelProto,
    delivered: ModelProto,
    regions: Sequence[Region],
    options: VerifyOptions | None = None,
    progress: Progress | None = None,
    *,
    origin: Origin | None = None,
    deaths: Sequence[tuple[Mapping[str, int], str]] = (),
) -> Proof:
    """Prove ``delivered``, which simplification made of ``rewritten`` (or the same), both skeletons of ``file``.

    ``regions`` are the placeholders that were replaced in ``rewritten``, ``origin`` is the model before that: with it a
    fault of the export is told from one of a decomposition.  ``deaths`` are sizes that ended a worker before, with what
    it died of: where a size may be refused, they are passed over with a note.

    Raises MismatchError where something differs, UnprovedError where a region could not be proved (unless
    ``options.allow_unproved``), CannotVerifyError where nothing can be said here, UsageError where the options do not
    fit the model.
    """
    options = options or VerifyOptions()
    proof = Proof(seed=options.seed)
    proof.versions = _versions(with_torch=needs_torch(regions))
    proof.thresholds = options.judgement.thresholds
    proof.input_ranges = options.input_ranges
    options.judgement.check([output.name for output in rewritten.graph.output])
    proof.regions = [
        RegionResult(
            r.placeholder.pass_name(),
            r.decomposition,
            r.where,
            parameters=r.bound.describe(),
            standard=r.placeholder.is_standard,
        )
        for r in regions
    ]
    with (progress or Quiet()).stage("verify", total=len(regions) + max(1, options.samples)) as stage:
        try:
            run = _Run(Weights(file), rewritten, delivered, regions, options, proof, stage, origin, deaths)
            run.run()
        except VerificationError as error:
            if isinstance(error, MismatchError):
                place = error.where if isinstance(error.where, Where) else None
                # What is not said to be of another stage is a region that differs from its reference.
                proof.blame = error.blame = error.blame or Blame(DECOMPOSITION, place, error.what)
            proof.verdict = "failed"
            error.proof = proof
            raise
    return proof


@dataclass
class _Run:
    weights: Weights
    rewritten: ModelProto
    delivered: ModelProto
    regions: Sequence[Region]
    options: VerifyOptions
    proof: Proof
    stage: Stage
    origin: Origin | None = None
    deaths: Sequence[tuple[Mapping[str, int], str]] = ()
    degenerate: Degenerate | None = None

    #: The main graph with what was run in it.
    place: InPlace | None = None

    def run(self) -> None:
        pairs = list(zip(self.regions, self.proof.regions, strict=True))
        self._same_language()
        for region in self.regions:
            problem = disagreement(region)
            if problem is not None:
                raise MismatchError(
                    f"its arguments are not those of the node: {problem}",
                    where=region.where,
                    remedy=f"where pass '{region.placeholder.pass_name()}' has other defaults than its reference, "
                    "correct them; else report this as a fault",
                )
        self._alone([(region, result) for region, result in pairs if not region.scope.is_main])
        order = {name: at for at, node in enumerate(self.rewritten.graph.node) for name in node.output}
        in_place = [(region, result) for region, result in pairs if region.scope.is_main]
        in_place.sort(key=lambda pair: min((order.get(n, -1) for n, _ in pair[0].outputs if n), default=-1))
        self._whole(in_place)
        if self.options.check_gradients:
            with doing(engine="PyTorch", step="the comparison of gradients"):
                self._gradients()
        self._conclude()

    def _gradients(self) -> None:
        """What training uses against the nodes that stand in the model now."""
        from rewriter.gradients.regions import check_regions, notes_of, warnings_of

        self.proof.gradients = []
        check_regions(
            self.weights.file,
            self.rewritten,
            self.regions,
            self.options,
            self.stage,
            self.proof.gradients,
            None if self.place is None else self.place.again,
        )
        self.proof.notes += notes_of(self.proof.gradients)
        self.proof.warnings += warnings_of(self.proof.gradients)

    def _same_language(self) -> None:
        """MismatchError where the delivered model reads its operators by another opset than they were written in."""
        written, now = (
            {item.domain: item.version for item in model.opset_import}
            for model in (self.rewritten, self.delivered)
        )
        # Where nothing was simplified, the two are one model: what the regions were written in tells.
        for region in self.regions:
            if region.scope.is_main and region.site is not None:
                written[""] = region.site.opset
        for domain, version in now.items():
            if domain in written and written[domain] != version:
                raise MismatchError(
                    f"the model to be delivered imports version {version} of the domain '{domain or 'ai.onnx'}', and "
                    f"was written in version {written[domain]}",
                    remedy="report this as a fault",
                )

    def _alone(self, pairs: list[tuple[Region, RegionResult]]) -> None:
        prover = AloneProver(self.weights, self.rewritten, self.options)
        called = _called_functions(self.rewritten)
        for region, result in pairs:
            self.stage.note(str(region.where))
            with doing(where=str(region.where)):
                prover.prove(region, result)
            if (
                not result.is_proved
                and region.scope.function is not None
                and region.scope.function not in called
            ):
                result.how = "never runs"
                self.proof.notes.append(
                    f"{region.where} is not proved ({result.reason}): nothing calls the function"
                )
            self.stage.advance()

    def _whole(self, pairs: list[tuple[Region, RegionResult]]) -> None:
        """The main graph's regions on the model's own values, then the delivered model's outputs.

        Where placeholders stay as calls, the model as delivered is held against one with the bodies in their places:
        how a runtime reads the calls is proved with the rest.
        """
        has_calls = any(region.function is not None for region in self.regions)
        plain = inlined(self.rewritten) if has_calls else self.rewritten
        types = value_types(plain)
        cut = cut_unknown(plain, types, self.options.libraries)
        delivered = cut_unknown(self.delivered, types, self.options.libraries)
        self._note_cuts(cut, delivered)
        constants = Constants(self.weights.file, main_scope(cut.model))
        known = of_inputs(self.regions, cut.model) if self.options.inputs is None else []
        inputs = inputs_of(cut.model, types, constants.find, self.options, extra=cut.inputs, examples=known)
        self.proof.inputs = "drawn" if inputs.given is None else "given"
        libraries = tuple(self.options.libraries.values())
        place = InPlace(self.weights, cut.model, inputs, types, libraries)
        self.degenerate, self.place = place.degenerate, place
        outputs = [output.name for output in self.rewritten.graph.output]
        labels = labelled(cut)
        checked = {f"output '{name}'": Checked(name) for name in outputs}
        self.proof.outputs = list(checked.values())
        first, *others = place.batches(pairs)
        regions = [region for region, _ in pairs]
        names = list(dict.fromkeys([*labels.values(), *exposed_names(r for r, _ in first)]))
        session = place.session(names, regions)
        knowledge = Knowledge(place.degenerate.behind, list(inputs.sizes.names))
        prober = Prober(self.weights, cut.model, self.options, libraries, knowledge)
        held = Delivered(
            self.weights,
            delivered,
            cut.model,
            types,
            libraries,
            has_calls=has_calls,
            judgement=self.options.judgement,
        )
        came = self._as_came(place, held)
        expected: list[tuple[Sample, dict[str, Data]]] = []
        for index in range(inputs.count):
            self.stage.note(f"sample {index}")
            sample, values = place.accepted(session, index, regions, names)
            self.proof.sizes.append(dict(sample.open_sizes))
            place.compare(first, values, sample)
            if index == 0:
                self._probe(prober, first, values)
            if came is not None:
                came.compare(sample, {name: values[name] for name in outputs})
            with doing(sample=sample.describe()):
                held.compare(sample, {label: values[name] for label, name in labels.items()}, checked)
            place.samples.append(sample)
            if self.options.runtimes:
                expected.append((sample, {name: values[name] for name in outputs}))
            del values  # before the next sample's are computed
            self.stage.advance()
        self.proof.warnings += held.warnings
        if came is not None:
            self._note_as_came(came)
        del session
        self.stage.advance(len(first))
        for batch in others:
            self._batch(place, batch, libraries, prober)
        if self.options.against is not None:
            self._against(place, cut, held)
        del held
        if self.options.runtimes:
            self._elsewhere(expected)

    def _against(self, place: InPlace, cut: CutModel, held: Delivered) -> None:
        """The delivered model against the whole model that it was exported from."""
        from rewriter.against import load
        from rewriter.verify.culprit import Culprit
        from rewriter.verify.whole import Whole

        oracle = load(self.options.against, self.rewritten)
        self.stage.note(f"against {oracle.name}")
        culprit = Culprit(oracle, place, self.regions, held, self.origin)
        whole = Whole(oracle, place.inputs, cut, held, culprit, self.deaths)
        self.proof.whole = whole.result
        whole.run(place.samples)
        self.proof.notes += [str(item) for item in whole.result.skipped]
        if whole.result.left_out:
            self.proof.notes.append(
                f"not compared with {oracle.name}: {', '.join(whole.result.left_out)}, which depend on what was cut out"
            )

    def _elsewhere(self, expected: Sequence[tuple[Sample, dict[str, Data]]]) -> None:
        """The delivered file on other runtimes; what they make of it is told, and spoils no proof."""
        from rewriter.runtimes.driver import Expected, run

        if self.proof.cut:
            self.proof.warnings.append(
                f"no other runtime was tried: {', '.join(self.proof.cut)} is cut out, so that no result is known"
            )
            return
        self.stage.note(", ".join(self.options.runtimes))
        samples = [Expected(sample.feeds, values, sample.describe()) for sample, values in expected]
        self.proof.runtimes = run(
            self.options.runtimes, self.weights.file, self.delivered, samples, self.options
        )
        for result in self.proof.runtimes:
            if result.status != "agrees":
                self.proof.warnings.append(result.describe())

    def _as_came(self, place: InPlace, held: Delivered) -> AsCame | None:
        """The comparison with the model as it came; None where its regions and its outputs tell all.

        A region in a function is proved by itself; that each call reaches the right one, with its own attributes, is
        seen from outside only.  So is what a node that stays means at another opset.
        """
        if self.origin is None:
            return None
        calls = any(region.scope.function for region in self.regions)
        if not self.options.brought and (self.proof.cut or not calls):
            return None
        if self.options.brought and held.draws:
            self.proof.notes.append(
                "not compared with the model as it came, which draws other random numbers"
            )
            return None
        return AsCame(self.origin, place, self.options.judgement, calls=calls, each=self.options.brought)

    def _note_as_came(self, came: AsCame) -> None:
        self.proof.warnings += came.warnings
        self.proof.as_came = self.options.brought and not came.refusal
        if came.refusal:
            what = "the calls of functions" if came.calls else "the model as it came"
            self.proof.notes.append(f"not compared with {what}: {came.refusal}")

    def _probe(
        self, prober: Prober, batch: list[tuple[Region, RegionResult]], values: Mapping[str, Data]
    ) -> None:
        """The regions on other values than the model's; with inputs that were given, they are what counts."""
        if self.options.inputs is None:
            for region, result in batch:
                if result.is_proved:
                    with doing(where=str(region.where), sample="changed values of sample 0"):
                        prober.prove(region, values)

    def _batch(
        self,
        place: InPlace,
        batch: list[tuple[Region, RegionResult]],
        libraries: Sequence[object],
        prober: Prober,
    ) -> None:
        """Regions whose values did not fit into memory with the earlier ones: the model runs once more for them."""
        names = exposed_names(region for region, _ in batch)
        session = Session(
            self.weights,
            prune(place.model, names),
            optimise=False,
            libraries=tuple(str(item) for item in libraries),
        )
        for number, sample in enumerate(place.samples):
            values = session.run(sample.feeds, names)
            place.compare(batch, values, sample)
            if number == 0:
                self._probe(prober, batch, values)
        self.stage.advance(len(batch))

    def _note_cuts(self, cut: CutModel, delivered: CutModel) -> None:
        self.proof.cut = cut.operators
        if cut.operators:
            several = len(cut.operators) > 1
            cut_out = f"{', '.join(cut.operators)} {'were' if several else 'was'} cut out"
            it, gives = ("them", "they give") if several else ("it", "it gives")
            self.proof.notes.append(
                f"{cut_out}, since nothing here runs {it}: drawn values stand for what {gives}; "
                f"--library names a library that has {it}"
            )
        if not same_cuts(cut, delivered):
            raise CannotVerifyError(
                "simplification changed an operator that is kept, so the two models cannot be compared",
                remedy=f"pass --no-simplify, or {NO_VERIFY}",
            )

    def _conclude(self) -> None:
        """Warnings for what agreed without saying anything, and the verdict."""
        proof = self.proof
        if proof.inputs == "drawn":
            for name in dict.fromkeys(name for sizes in proof.sizes for name in sizes):
                if name not in self.options.dims and all(sizes.get(name) == 1 for sizes in proof.sizes):
                    proof.warnings.append(
                        f"the model refused every size of '{name}' but 1: declared open, it may be fixed by the export"
                    )
        for checked in proof.outputs if proof.whole is None else [*proof.outputs, *proof.whole.outputs]:
            if checked.is_vacuous:
                what = f"output '{checked.name}' is {checked.emptiness} in every sample"
                told = f"{what}: that it agrees says nothing; {self._remedy([checked.name], what)}"
                proof.warnings += [told] if told not in proof.warnings else []
                proof.vacuous += [name] if (name := f"output '{checked.name}'") not in proof.vacuous else []
        for region, result in zip(self.regions, proof.regions, strict=True):
            if result.says_little:
                proof.vacuous.append(str(region.where))
                what = "; ".join(result.says_little)
                told = f"{region.where}: {what}, in every sample: that it agrees says little"
                remedy = self._remedy(exposed_names([region]), what) if region.scope.is_main else _DRAWN
                proof.warnings.append(f"{told}; {remedy}")
        for name, accepted in proof.own_judges.items():
            if accepted:
                proof.warnings.append(
                    f"pass '{name}' judges its own results, and accepts {' and '.join(accepted)} ones as well: that it "
                    "agrees says nothing; correct its compare()"
                )
            else:
                proof.notes.append(f"pass '{name}' judged its own results, by its compare()")
        unproved = [
            (r, result) for r, result in zip(self.regions, proof.regions, strict=True) if not result.is_proved
        ]
        if not unproved:
            return
        proof.verdict = "unproved"
        proof.warnings += [f"{result.where} is unproved: {result.reason}" for _, result in unproved]
        if not self.options.allow_unproved:
            region, result = unproved[0]
            more = f" ({len(unproved) - 1} more are unproved)" if len(unproved) > 1 else ""
            raise UnprovedError(
                f"the replacement by '{result.decomposition}' could not be proved: {result.reason}{more}",
                where=region.where,
                remedy=result.remedy,
            )

    def _remedy(self, names: Iterable[str], what: str) -> str:
        """What to give so that values of the main graph become others."""
        if self.degenerate is None:
            return "give other inputs (--inputs, --input-range, --dim)"
        return self.degenerate.remedy(names, empty="empty" in what)


def _called_functions(model: ModelProto) -> set[FunctionKey]:
    """Functions that the main graph calls, directly or through others."""
    bodies = {function_key(function): function for function in model.functions}
    found: set[FunctionKey] = set()
    waiting = [main_scope(model)]
    while waiting:
        for scope in waiting.pop().walk():
            for node in scope.graph.node:
                key = called_function(node)
                if key in bodies and key not in found:
                    found.add(key)
                    waiting.append(function_scope(bodies[key]))
    return found


def _versions(*, with_torch: bool) -> dict[str, str]:
    import onnxruntime

    found = {"onnxruntime": str(onnxruntime.__version__)}
    return {"torch": require_torch(), **found} if with_torch else found
