"""The delivered model against the whole model in PyTorch, or against what was recorded from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rewriter.against.oracle import OracleRefused
from rewriter.errors import CannotVerifyError, MismatchError
from rewriter.execution.session import Refused
from rewriter.graph.scopes import function_scope, main_scope
from rewriter.inputs.draw import Sample, sizes_in
from rewriter.verify.compare import accepting
from rewriter.verify.delivered import agree
from rewriter.verify.parting import Parting
from rewriter.verify.proof import Checked
from rewriter.worker.activity import doing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import ModelProto

    from rewriter.against import Oracle
    from rewriter.execution.cut import CutModel
    from rewriter.execution.values import Data
    from rewriter.inputs.draw import Inputs
    from rewriter.verify.culprit import Culprit
    from rewriter.verify.delivered import Delivered

#: Sizes that every open dim is tried at besides those drawn.
_EDGES = (1, 0)
#: onnxruntime's kernels of these end the process when a dim is 0.
_ABORT_WHEN_EMPTY = frozenset({"Einsum", "GRU", "LSTM", "RNN"})

_REMEDY = "nothing was delivered"


@dataclass(frozen=True)
class Skipped:
    """Sizes that one side does not take."""

    sizes: Mapping[str, int]
    #: ``"PyTorch"``, ``"onnxruntime"``, or "" where nobody was asked.
    by: str
    reason: str

    def __str__(self) -> str:
        sizes = _sizes_text(self.sizes) or "a sample"
        return f"not compared at {sizes}: {f'{self.by} refuses: ' if self.by else ''}{self.reason}"


@dataclass
class WholeResult:
    """The comparison with the whole model."""

    kind: str
    name: str
    #: Sizes of the symbolic dims, of each sample that was compared.
    sizes: list[dict[str, int]] = field(default_factory=list)
    outputs: list[Checked] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    #: Outputs that depend on an operator which nothing here runs.
    left_out: list[str] = field(default_factory=list)

    @property
    def samples(self) -> int:
        return len(self.sizes)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "samples": self.samples,
            "sizes": [dict(sizes) for sizes in self.sizes],
            "outputs": [checked.to_dict() for checked in self.outputs],
            "skipped": [
                {"sizes": dict(item.sizes), "by": item.by, "reason": item.reason} for item in self.skipped
            ],
            "left_out": list(self.left_out),
        }

    def to_manifest(self) -> dict[str, Any]:
        """What does not depend on the machine."""
        return {"samples": self.samples, "sizes": [dict(sorted(sizes.items())) for sizes in self.sizes]}


class Whole:
    """One delivered model and the oracle that it is held against."""

    def __init__(
        self,
        oracle: Oracle,
        inputs: Inputs,
        cut: CutModel,
        held: Delivered,
        culprit: Culprit,
        deaths: Sequence[tuple[Mapping[str, int], str]] = (),
    ) -> None:
        self._oracle = oracle
        self._deaths = deaths
        self._inputs = inputs
        self._held = held
        self._culprit = culprit
        self._models = (cut.model, held.model)
        self.result = WholeResult(oracle.kind, oracle.name)
        names = [output.name for output in cut.model.graph.output]
        graph = Parting(cut.model, agree)
        self.result.left_out = [name for name in names if graph.depends(name, cut.inputs)]
        self._checked = {name: Checked(name) for name in names if name not in self.result.left_out}
        self.result.outputs = list(self._checked.values())
        if not self._checked:
            raise CannotVerifyError(
                f"every output depends on {', '.join(cut.operators)}, which nothing here runs: nothing can be compared "
                "with the whole model",
                remedy="name a library that has it (--library), or leave out --against",
            )
        if held.draws:
            raise CannotVerifyError(
                "the model draws random numbers, and PyTorch draws others: --against can say nothing",
                remedy="export it in evaluation mode, or leave out --against",
            )

    def run(self, accepted: Sequence[Sample]) -> None:
        """Compare on the samples that the model ``accepted``, then at sizes 1 and 0 of every open dim.

        MismatchError where an output differs, or the file refuses what PyTorch takes; CannotVerifyError where PyTorch
        takes nothing, or not what the user named: sizes or inputs.
        """
        if self._oracle.recorded:
            for index, item in enumerate(self._oracle.recorded):
                sizes = sizes_in(self._inputs.types, item.feeds)
                self._one(Sample(item.feeds, sizes, index, 0, False, item.label))
            return
        compared = [sample for first in accepted if (sample := self._drawn(first)) is not None]
        for refusal in self.result.skipped:
            self._check_asked(refusal)
        if not compared:
            last = self.result.skipped[-1]
            raise CannotVerifyError(
                f"PyTorch refuses every input that the file takes: {last.reason}",
                remedy=self._inputs.remedy(),
            )
        if self._inputs.given is None:
            self._edges(compared[0], len(accepted))

    def _drawn(self, sample: Sample) -> Sample | None:
        """``sample``, or another in its place that PyTorch takes as well; None where it takes none."""
        before = len(self.result.skipped)
        if self._one(sample):
            return sample
        for attempt in range(self._inputs.attempts):
            other = None if attempt == sample.attempt else self._inputs.draw(sample.index, attempt)
            if other is not None and self._one(other, lenient=True):
                del self.result.skipped[before:]  # another was found in its place
                return other
        del self.result.skipped[before + 1 :]
        return None

    def _check_asked(self, refusal: Skipped) -> None:
        """CannotVerifyError where what was refused is what the user named (sizes or inputs), in vain."""
        named = {
            name: refusal.sizes[name] for name in self._inputs.sizes.fixed if name in refusal.sizes
        }.items()
        given = self._inputs.given is not None
        if not (named or given) or any(named <= sizes.items() for sizes in self.result.sizes):
            return
        asked = " ".join(f"--dim {name}={size}" for name, size in named) or "the inputs that were given"
        raise CannotVerifyError(
            f"{refusal.by} refuses {asked} ({_sizes_text(refusal.sizes) or 'no size is open'}): {refusal.reason}",
            remedy=f"give inputs that {self._oracle.name} takes"
            if given
            else f"name sizes that {self._oracle.name} takes, or give one that was exported for these",
        )

    def _edges(self, base: Sample, index: int) -> None:
        """Each open dim at 1 and at 0, the others as in ``base``."""
        deadly = sorted(set().union(*(_held_of(model, _ABORT_WHEN_EMPTY) for model in self._models)))
        for name in self._inputs.sizes.names:
            if name in self._inputs.sizes.fixed:
                continue
            for size in _EDGES:
                if any(sizes.get(name) == size for sizes in self.result.sizes):
                    continue
                if size == 0 and deadly:
                    why = f"onnxruntime's kernel of {', '.join(deadly)} ends the process"
                    self.result.skipped.append(Skipped({name: size}, "", why))
                    continue
                self._edge(base, index, {**base.sizes, name: size}, lenient=size == 0)
                index += 1

    def _edge(self, base: Sample, index: int, sizes: Mapping[str, int], *, lenient: bool) -> None:
        """One sample of these sizes; integers of unknown meaning, which may be too large for them, smaller then."""
        before = len(self.result.skipped)
        for attempt in dict.fromkeys((base.attempt, *self._inputs.milder)):
            try:
                sample = self._inputs.draw(index, attempt, sizes)
            except CannotVerifyError as error:
                self.result.skipped.append(Skipped(sizes, "", error.what))
                continue
            if sample is None:
                self.result.skipped.append(Skipped(sizes, "", "the sizes of the inputs do not fit together"))
                return
            if self._one(sample, lenient=lenient):
                del self.result.skipped[before:]
                return
        del self.result.skipped[before + 1 :]

    def _one(self, sample: Sample, *, lenient: bool = False) -> bool:
        """Whether both sides took ``sample`` and agree; MismatchError where they do not.

        ``lenient``: a refusal of the runtime is no fault.
        """
        known = next((why for sizes, why in self._deaths if lenient and sizes == sample.open_sizes), None)
        if known is not None:
            self.result.skipped.append(Skipped(sample.open_sizes, "", known))
            return False
        optional = tuple(sample.open_sizes.items()) if lenient else None
        with doing(sample=sample.describe(), optional_sizes=optional):
            return self._compared(sample, lenient)

    def _compared(self, sample: Sample, lenient: bool) -> bool:
        try:
            with doing(engine="PyTorch", step=self._oracle.name):
                expected = self._oracle(sample)
        except OracleRefused as error:
            self.result.skipped.append(Skipped(sample.open_sizes, "PyTorch", error.what))
            return False
        try:
            found = self._held.run(sample.feeds, list(self._checked))
        except Refused as error:
            if lenient:
                self.result.skipped.append(Skipped(sample.open_sizes, "onnxruntime", error.what))
                return False
            raise self._refused(sample, expected, error) from error
        problems = self._held.judgement.outputs(
            found, {name: expected[name] for name in self._checked}, self._checked
        )
        self.result.sizes.append(dict(sample.open_sizes))
        if problems:
            raise self._difference(sample, expected, problems)
        return True

    def _difference(
        self, sample: Sample, expected: Mapping[str, Data], problems: Mapping[str, str]
    ) -> MismatchError:
        name, problem = next(iter(problems.items()))
        others = len(problems) - 1
        more = f", as {others} more output{'s do' if others > 1 else ' does'}" if others else ""
        blame = self._culprit.find(sample, expected, list(self._checked))
        return MismatchError(
            f"output '{name}' differs from {self._oracle.name}{more}",
            figures=problem,
            sample=sample.describe(),
            blame=blame,
            where=blame.where,
            remedy=f"{self._culprit.remedy(blame)}{accepting(problems.values())}",
        )

    def _refused(self, sample: Sample, expected: Mapping[str, Data], refusal: Refused) -> MismatchError:
        blame = self._culprit.find(sample, expected, list(self._checked))
        accepts = "was recorded from PyTorch" if self._oracle.recorded else "PyTorch takes"
        return MismatchError(
            f"the file refuses what {accepts}",
            figures=refusal.what,
            sample=sample.describe(),
            blame=blame,
            where=blame.where,
            remedy=f"{self._culprit.remedy(blame)}; --dim says which sizes it is meant for",
        )


def _held_of(model: ModelProto, operators: frozenset[str]) -> set[str]:
    """Those of ``operators`` that the model holds, in bodies and functions too."""
    scopes = [main_scope(model), *map(function_scope, model.functions)]
    return {node.op_type for root in scopes for scope in root.walk() for node in scope.graph.node} & operators


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())
