"""What a verification found, as data: for people, for the report, and (without figures) for the manifest."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from rewriter.errors import UnprovedError
from rewriter.gradients.result import summary
from rewriter.verify.compare import Thresholds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rewriter.errors import Where
    from rewriter.gradients.result import GradientResult
    from rewriter.runtimes.driver import RuntimeResult
    from rewriter.verify.blame import Blame
    from rewriter.verify.compare import Metrics, Tolerance
    from rewriter.verify.whole import WholeResult


#: What would help with a region that is unproved.
TYPES = "declare the types of its inputs when exporting, or pass --allow-unproved"
ALLOW = "give sizes (--dim) that it accepts, or pass --allow-unproved"
NO_REFERENCE = (
    "--allow-unproved compares the rest of the model and delivers it, --no-verify compares nothing; or export it with "
    "an element type that PyTorch has"
)


@dataclass
class Checked:
    """One tensor over all samples: the largest difference that was seen, and what was allowed."""

    name: str
    dtype: str = ""
    #: Element type it was compared in, and how far it may be off; None where the pass compares by itself.
    tolerance: Tolerance | None = None
    samples: int = 0
    max_abs: float | None = None
    max_scaled: float | None = None
    max_rel: float | None = None
    max_ulp: float | None = None
    #: The smallest of the samples.
    cosine: float | None = None
    #: What decided instead of comparing element by element: ``"detections"``, ``"topk:values"``, ``"by the pass"``.
    judged: str = ""
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    #: Of each sample, why agreement says nothing; "" where it says something.
    vacuous: list[str] = field(default_factory=list)
    #: Of each sample, its shape, max_abs, max_scaled and max_ulp.
    each: list[tuple[tuple[int, ...], float | None, float | None, float | None]] = field(default_factory=list)
    #: Of a pass that judges itself from outside the installed ones: the wrong answers that its judge was shown
    #: (``"shuffled"``, ``"constant"``), and those of them that it refused at least once.
    shown: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    #: Of each sample that has a single element, that; None of the others.
    only: list[str | None] = field(default_factory=list)

    def add(self, metrics: Metrics) -> None:
        self.samples += 1
        self.dtype = metrics.expected_dtype
        if metrics.expected_shape not in self.shapes:
            self.shapes.append(metrics.expected_shape)
        self.vacuous.append(metrics.vacuous)
        self.only.append(metrics.only)
        if metrics.cosine is not None:
            self.cosine = metrics.cosine if self.cosine is None else min(self.cosine, metrics.cosine)
        self.each.append((metrics.expected_shape, metrics.max_abs, metrics.max_scaled, metrics.max_ulp))
        for name in ("max_abs", "max_scaled", "max_rel", "max_ulp"):
            seen, had = getattr(metrics, name), getattr(self, name)
            if seen is not None:
                setattr(self, name, seen if had is None else max(had, seen))

    def note(self, vacuous: str) -> None:
        """A sample without a tensor: an empty sequence, an optional without a value."""
        self.vacuous.append(vacuous)
        self.only.append(None)

    @property
    def emptiness(self) -> str:
        """Why no sample said anything; "" where one did."""
        if self.vacuous and all(self.vacuous):
            return " or ".join(dict.fromkeys(self.vacuous))
        if len(self.only) > 1 and self.only[0] is not None and len(set(self.only)) == 1:
            return f"the one value {self.only[0]}"
        return ""

    @property
    def is_vacuous(self) -> bool:
        """Whether no sample said anything."""
        return bool(self.emptiness)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dtype": self.dtype,
            "samples": self.samples,
            "shapes": [list(shape) for shape in self.shapes],
            "max_abs": self.max_abs,
            "max_scaled": self.max_scaled,
            "max_rel": self.max_rel,
            "max_ulp": self.max_ulp,
            "cosine": self.cosine,
            "vacuous": self.emptiness,
            "judged": self.judged,
            "judge_accepts": sorted(self.shown - self.refused),
            # Sizes as text: in JSON a list of them would take as many lines.
            "per_sample": {
                "shape": ["×".join(map(str, shape)) for shape, *_ in self.each],
                "max_abs": [seen for _, seen, _, _ in self.each],
                "max_scaled": [seen for _, _, seen, _ in self.each],
                "max_ulp": [seen for _, _, _, seen in self.each],
            },
            "tolerance": None if self.tolerance is None else self.tolerance.to_dict(),
        }


@dataclass
class RegionResult:
    """One replaced placeholder against its reference: PyTorch's, or the node itself where ONNX defines it.

    ``how`` is ``"in place"`` (on the model's own activations), ``"alone"`` (a model of its own, on drawn inputs),
    ``"as another"`` (equal to a region proved alone), ``"never runs"`` (of unknown types, in a function that nothing
    calls) or ``"unproved"``.
    """

    pass_name: str
    decomposition: str
    where: Where
    how: str = "in place"
    parameters: str = ""
    outputs: list[Checked] = field(default_factory=list)
    #: Of each sample, why agreement says little: what the region took is constant, saturated, without an area.
    remarks: list[list[str]] = field(default_factory=list)
    #: Why it is unproved, and what would help.
    reason: str = ""
    remedy: str = ""
    #: Whether it was an operator of ONNX itself, and its reference the node.
    standard: bool = False

    def leave_unproved(self, reason: str, remedy: str = TYPES) -> None:
        self.how, self.reason, self.remedy = "unproved", reason, remedy

    @property
    def says_little(self) -> list[str]:
        """The remarks that hold for every sample, and the results that are empty or constant in all of them."""
        common = [text for text in (self.remarks or [[]])[0] if all(text in other for other in self.remarks)]
        return common + [
            f"its result '{checked.name}' is {checked.emptiness}"
            for checked in self.outputs
            if checked.samples and checked.is_vacuous
        ]

    @property
    def samples(self) -> int:
        return max((checked.samples for checked in self.outputs), default=0)

    @property
    def is_proved(self) -> bool:
        return self.how != "unproved"

    def to_dict(self) -> dict[str, Any]:
        return {
            "pass": self.pass_name,
            "decomposition": self.decomposition,
            "parameters": self.parameters,
            "operator": self.where.operator,
            "node": self.where.node,
            "scope": self.where.scope,
            "line": self.where.source,
            "how": self.how,
            "reason": self.reason,
            "says_little": self.says_little,
            "samples": self.samples,
            "outputs": [checked.to_dict() for checked in self.outputs],
        }


@dataclass
class Proof:
    """The outcome of a verification.

    ``verdict`` is ``"verified"``, ``"unproved"`` where a region could not be proved and that was allowed, or
    ``"failed"``: then it holds what was compared until something differed.
    """

    verdict: str = "verified"
    seed: int = 0
    regions: list[RegionResult] = field(default_factory=list)
    #: The graph's outputs: the delivered model as the runtime optimises it, against the rewritten one as it is written.
    outputs: list[Checked] = field(default_factory=list)
    #: Sizes of the symbolic dims, of each sample.
    sizes: list[dict[str, int]] = field(default_factory=list)
    #: ``"drawn"`` or ``"given"``.
    inputs: str = "drawn"
    #: Operators that were cut out, since nothing here runs them.
    cut: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    #: The comparison with the whole model, where one was asked for.
    whole: WholeResult | None = None
    #: Whether the outputs were compared with those of the model as it came, with ONNX's own operators in it.
    as_came: bool = False
    #: The stage that made the difference, of a verification that failed.
    blame: Blame | None = None
    #: What other runtimes make of the delivered file, of those that were asked for.
    runtimes: list[RuntimeResult] = field(default_factory=list)
    #: The gradients of the placeholders that stood in the model; None where they were not asked for.
    gradients: list[GradientResult] | None = None
    #: Why PyTorch and onnxruntime ran in the caller's process, without limits; "" where they ran in a worker.
    process: str = ""
    #: Thresholds that were asked for in the place of those by dtype.
    thresholds: Thresholds = field(default_factory=Thresholds)
    #: The lowest and highest value of an input, of those that were asked for.
    input_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    #: What agreed without saying anything: ``"output 'y'"``, the places of regions.
    vacuous: list[str] = field(default_factory=list)

    @property
    def own_judges(self) -> dict[str, list[str]]:
        """By pass that judges itself: the wrong answers (``"shuffled"``, ``"constant"``) that its judge accepts.

        Only passes from outside the installed ones are put to the test.  A judge accepts what it never refused.
        """
        shown: dict[str, set[str]] = {}
        refused: dict[str, set[str]] = {}
        for result in self.regions:
            for checked in result.outputs:
                if checked.judged == "by the pass":
                    shown.setdefault(result.pass_name, set()).update(checked.shown)
                    refused.setdefault(result.pass_name, set()).update(checked.refused)
        return {name: sorted(seen - refused[name]) for name, seen in sorted(shown.items())}

    @property
    def covers_all(self) -> bool:
        """Whether every output was compared with the whole model: then operators replaced earlier are covered too."""
        return self.whole is not None and self.whole.samples > 0 and not self.whole.left_out and not self.cut

    def verdict_of(self, result: RegionResult) -> str:
        """Of one replaced operator."""
        if result.how == "never runs":
            return "never runs"
        return "verified" if result.is_proved else "unproved"

    @property
    def max_scaled(self) -> float | None:
        """The largest max|a − b| / max|b| against PyTorch, of all regions."""
        seen = [c.max_scaled for r in self.regions for c in r.outputs if c.max_scaled is not None]
        return max(seen, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            "verdict": self.verdict,
            "against": self._against(),
            "seed": self.seed,
            "inputs": self.inputs,
            "sizes": [dict(sizes) for sizes in self.sizes],
            "regions": [result.to_dict() for result in self.regions],
            "outputs": [checked.to_dict() for checked in self.outputs],
            "cut_out": list(self.cut),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "versions": dict(self.versions),
            "whole_model": None if self.whole is None else self.whole.to_dict(),
            "blame": None if self.blame is None else self.blame.to_dict(),
            "runtimes": [result.to_dict() for result in self.runtimes],
            "gradients": [result.to_dict() for result in self.gradients or ()],
            "thresholds": asdict(self.thresholds),
            "input_ranges": {name: list(ends) for name, ends in self.input_ranges.items()},
            "vacuous": list(self.vacuous),
            "own_judges": self.own_judges,
            "process": self.process,
        }

    def to_manifest(self) -> dict[str, Any]:
        """What does not depend on the machine: no measured figures, no versions."""
        tolerances: dict[str, str] = {}
        for result in self.regions:
            for checked in result.outputs:
                if checked.tolerance is not None:
                    tolerances.setdefault(f"{result.pass_name} {checked.dtype}", str(checked.tolerance))
        for checked in self.outputs:
            if checked.tolerance is not None:
                tolerances.setdefault(f"outputs {checked.dtype}", str(checked.tolerance))
        judged = {checked.name: checked.judged for checked in self.outputs if checked.judged}
        judged |= {r.pass_name: c.judged for r in self.regions for c in r.outputs if c.judged}
        # What JSON has no numbers for is text.
        ranges = {
            name: [end if isfinite(end) else str(end) for end in ends]
            for name, ends in sorted(self.input_ranges.items())
        }
        agreeing = sorted(result.name for result in self.runtimes if result.status == "agrees")
        return {
            "verdict": self.verdict,
            "against": self._against(),
            "samples": len(self.sizes),
            "seed": self.seed,
            "inputs": self.inputs,
            "sizes": [dict(sorted(sizes.items())) for sizes in self.sizes],
            "tolerances": dict(sorted(tolerances.items())),
            **({"input_ranges": ranges} if ranges else {}),
            **({"vacuous": sorted(self.vacuous)} if self.vacuous else {}),
            **({"own_judges": self.own_judges} if self.own_judges else {}),
            **({} if self.whole is None else {"whole_model": self.whole.to_manifest()}),
            **({"judged": dict(sorted(judged.items()))} if judged else {}),
            "proved": sum(result.is_proved and result.how != "never runs" for result in self.regions),
            "unproved": [str(result.where) for result in self.regions if not result.is_proved],
            "cut_out": sorted(self.cut),
            **({"runtimes": agreeing} if agreeing else {}),
            **({} if self.gradients is None else {"gradients": summary(self.gradients)}),
        }

    def _against(self) -> list[str]:
        found = []
        if any(not region.standard for region in self.regions):
            found.append("the PyTorch reference of each pass")
        if any(region.standard for region in self.regions):
            found.append("the operators of ONNX that were replaced")
        if self.as_came:
            found.append("the model as it came")
        found.append("the model before simplification and optimisation")
        return found if self.whole is None else [*found, f"the whole model: {self.whole.kind}"]


def require_substance(proof: Proof) -> None:
    """UnprovedError where something agreed without saying anything, or by a judge that accepts what is wrong."""
    judges = [f"pass '{name}' ({' and '.join(kinds)})" for name, kinds in proof.own_judges.items() if kinds]
    error: UnprovedError | None = None
    if judges:
        error = UnprovedError(
            f"wrong answers are accepted as well by the own judge of {', '.join(judges)}",
            remedy="correct its compare(), or leave out --strict",
        )
    elif proof.vacuous:
        error = UnprovedError(
            f"in every sample, values are empty, constant or saturated: {'; '.join(proof.vacuous)}; that they agree "
            "says nothing",
            remedy="give other inputs (--inputs, --input-range, --dim), or leave out --strict",
        )
    if error is not None:
        error.proof = proof
        raise error
