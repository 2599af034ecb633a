"""What a check of gradients found, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rewriter.gradients.slack import ROUNDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.errors import Where

#: What can become of a check.  ``not differentiable``: PyTorch has no gradient of it; ``surrogate``: training uses
#: another gradient on purpose; ``not checked``: its nodes or its inputs are beyond what can be done here.
AGREES, DIFFERS, NO_GRADIENT, SURROGATE, NOT_CHECKED = (
    "agrees",
    "differs",
    "not differentiable",
    "surrogate",
    "not checked",
)


@dataclass
class InputGradient:
    """The gradient with respect to one input, over all samples.

    ``max_abs`` and ``max_scaled`` hold what training uses against autograd through the graph's operators,
    ``max_numeric`` holds the latter against numeric differences, in parts of the gradient's norm.
    """

    name: str
    max_abs: float | None = None
    max_scaled: float | None = None
    max_numeric: float | None = None
    #: Kind of the error (``"sign"``, ``"factor"``, …) and a clause that says what is wrong; "" where nothing is.
    kind: str = ""
    problem: str = ""

    def see(self, **figures: float | None) -> None:
        """Keep the largest of each figure."""
        for name, value in figures.items():
            had = getattr(self, name)
            if value is not None and (had is None or not value <= had):
                setattr(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass
class GradientResult:
    """The gradients of one replaced placeholder.

    ``trained`` says whose gradient training uses (``"the reference of pass 'swish'"``).  ``how`` is ``"alone"`` (the
    region as a model of its own, on drawn inputs) or ``"as another"`` (equal to one checked before).
    """

    pass_name: str
    decomposition: str
    where: Where
    parameters: str = ""
    trained: str = ""
    status: str = AGREES
    how: str = "alone"
    #: Why it is not checked, or has no gradient; the operator that could not be interpreted, where that is why.
    reason: str = ""
    operator: str = ""
    samples: int = 0
    inputs: list[InputGradient] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: What is wrong with the delivered graph, though not with the gradient that training used.
    warnings: list[str] = field(default_factory=list)

    def input(self, name: str) -> InputGradient:
        """The entry of an input, made where there is none."""
        for entry in self.inputs:
            if entry.name == name:
                return entry
        self.inputs.append(InputGradient(name))
        return self.inputs[-1]

    def absorb(self, other: GradientResult) -> None:
        """Take over what another sample found."""
        for entry in other.inputs:
            own = self.input(entry.name)
            own.see(max_abs=entry.max_abs, max_scaled=entry.max_scaled, max_numeric=entry.max_numeric)
            own.kind, own.problem = entry.kind or own.kind, entry.problem or own.problem
        self.notes += [note for note in other.notes if note not in self.notes]
        if other.status != AGREES:
            self.leave(other.status, other.reason, other.operator)

    def leave(self, status: str, reason: str, operator: str = "") -> None:
        self.status, self.reason, self.operator = status, reason, operator

    def to_dict(self) -> dict[str, Any]:
        return {
            "pass": self.pass_name,
            "decomposition": self.decomposition,
            "parameters": self.parameters,
            "operator": self.where.operator,
            "node": self.where.node,
            "scope": self.where.scope,
            "line": self.where.source,
            "trained": self.trained,
            "status": self.status,
            "how": self.how,
            "reason": self.reason,
            "not_interpreted": self.operator,
            "samples": self.samples,
            "inputs": [entry.to_dict() for entry in self.inputs],
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }


def summary(results: Sequence[GradientResult]) -> dict[str, Any]:
    """For the manifest: nothing that was measured."""
    count = {
        status: sum(result.status == status for result in results)
        for status in (AGREES, NO_GRADIENT, SURROGATE)
    }
    return {
        "agree": count[AGREES],
        "not_differentiable": count[NO_GRADIENT],
        "surrogate": count[SURROGATE],
        "not_checked": [str(result.where) for result in results if result.status == NOT_CHECKED],
        "tolerance": f"float64, {ROUNDED}",
    }
