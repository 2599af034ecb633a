"""Every exception of the rewriter.

Each one says *what* went wrong, *where* (scope, node, operator and, where the exporter left it, the source
line) and *what to do* about it; the command prints the three and nothing else.  ``code`` is the stable,
finer-grained name that the JSON report carries; ``exit_code`` is what the command returns: 1 for a model that
was not delivered, 2 for bad usage or unreadable input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from rewriter.report import Report
    from rewriter.verify.blame import Blame
    from rewriter.verify.proof import Proof


@dataclass(frozen=True)
class Where:
    """A place in a model, for people.

    ``scope`` is the path of the graph that holds the node (``"main graph"``, ``"If 'n3' then_branch"``,
    ``"function local::Block"``), ``node`` its name or, unnamed, its first output, ``operator`` the qualified
    operator type (``"com.example::Roll"``), ``source`` the line of the user's own code that the exporter recorded.
    """

    scope: str = "main graph"
    node: str = ""
    operator: str = ""
    source: str | None = None

    def __str__(self) -> str:
        parts = [self.operator or "node"]
        if self.node:
            parts.append(f"'{self.node}'")
        text = " ".join(parts)
        if self.scope and self.scope != "main graph":
            text += f" in {self.scope}"
        if self.source:
            text += f" ({self.source})"
        return text


class RewriteError(Exception):
    """Base of all errors that a user can cause or mend.  Never raised itself."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    #: What ``what`` announces with a colon: the command prints each on a line of its own.
    details: tuple[str, ...] = ()

    def __init__(self, what: str, *, where: Where | str | None = None, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy
        #: What the run had done before; set by :func:`rewriter.rewrite`.
        self.report: Report | None = None

    def __str__(self) -> str:
        text = " ".join((self.what, "; ".join(self.details))) if self.details else self.what
        text = text if self.where is None else f"{self.where}: {text}"
        return text if self.remedy is None else f"{text} ({self.remedy})"


# --- reading and writing -------------------------------------------------------------------------------------


class UsageError(RewriteError):
    """A flag, argument or combination of them makes no sense, by itself or for this model."""

    code = "usage"
    exit_code = 2


class UnknownPassError(UsageError):
    """A pass was named that no entry point, file or import path provides; the remedy lists the nearest names."""

    code = "unknown-pass"


class PassDefinitionError(UsageError):
    """A pass does not load: no reference, no cases, no decomposition, contradictory signatures, a broken file."""

    code = "pass-definition"


class ModelReadError(RewriteError):
    """The input is missing, unreadable, or not an ONNX model (empty, truncated, another format)."""

    code = "unreadable-model"
    exit_code = 2


class ExternalDataError(ModelReadError):
    """External data is missing, too short, or its location leaves the model's folder (absolute, ``..``, link)."""

    code = "external-data"


class OpsetError(ModelReadError):
    """The model's opset is missing, below 11, or newer than the installed onnx knows."""

    code = "opset"


class AttributeValueError(RewriteError):
    """A standard operator has an attribute, or a value of one, that ONNX does not define."""

    code = "undefined-attribute"


class ModelWriteError(RewriteError):
    """The output could not be written (permissions, full disk); an existing output is untouched."""

    code = "unwritable-output"


# --- decomposing ---------------------------------------------------------------------------------------------


class DecompositionError(RewriteError):
    """Base of what stops a placeholder from being replaced."""

    code = "not-decomposed"


class LeftoverPlaceholderError(DecompositionError):
    """A placeholder that no selected pass takes is left, and ``--keep`` does not name it."""

    code = "leftover-placeholder"


class UnmatchedError(DecompositionError):
    """With ``strict``: a pass was named or a rule given that nothing in the model fits."""

    code = "unmatched"


class AmbiguousMatchError(DecompositionError):
    """Two selected passes want the same node."""

    code = "ambiguous-match"


class BindingError(DecompositionError):
    """A placeholder's attributes and inputs do not fit the pass's signature: missing, misspelt, left over,
    of the wrong type, or computed where a constant is needed."""

    code = "binding"


class NeedsRank(DecompositionError):  # noqa: N818  (a name that decompositions raise, and that reads as a need)
    """A decomposition must know the rank, dtype or a size of a value, and shape inference could not tell."""

    code = "needs-rank"


class UnsupportedAtOpset(DecompositionError):  # noqa: N818
    """No decomposition serves the model's opset, or one emitted an operator or attribute that it does not have."""

    code = "unsupported-at-opset"


class TargetError(DecompositionError):
    """Nodes have no form at the opset or with the operators that were asked for."""

    code = "not-at-target"


class UnsupportedParameter(DecompositionError):  # noqa: N818
    """The placeholder is well-formed, but no decomposition serves this combination of parameters or types."""

    code = "unsupported-parameter"


class ExportError(RewriteError):
    """No exporter of PyTorch takes the model."""

    code = "not-exported"


class DerivationError(DecompositionError):
    """No decomposition could be derived from an operator's definition in PyTorch."""

    code = "not-derived"


class CyclicDecompositionError(DecompositionError):
    """Placeholders decompose into one another without end."""

    code = "cyclic-decomposition"


class DecompositionFault(DecompositionError):  # noqa: N818
    """A pass's own fault: it raised, returned the wrong number of outputs, or values of the wrong type."""

    code = "pass-fault"


class InterfaceChangedError(RewriteError):
    """Rewriting changed a graph input or output (name, order, dtype or declared dims): a fault of ours or a pass's."""

    code = "interface-changed"


# --- verifying -----------------------------------------------------------------------------------------------


class VerificationError(RewriteError):
    """Base of what stops a model from being delivered as verified.

    ``proof`` is what had been compared until then, with the figures that failed.
    """

    code = "not-verified"
    proof: Proof | None = None
    #: The stage that made the difference, and the first node that shows it, where that is known.
    blame: Blame | None = None


class MismatchError(VerificationError):
    """The rewritten model differs from PyTorch, or from itself before simplification or optimisation.

    ``headline`` says what differs, ``figures`` how far or in which words something refused, ``sample`` on which inputs;
    ``what`` says all of it in one line, and the command each on a line of its own.
    """

    code = "mismatch"

    def __init__(
        self,
        headline: str,
        *,
        figures: str = "",
        sample: str = "",
        blame: Blame | None = None,
        where: Where | str | None = None,
        remedy: str | None = None,
    ) -> None:
        text = f"{headline}: {figures}" if figures else headline
        text += f" ({sample})" if sample else ""
        if blame is not None:
            text += f"; {_told_once(blame, figures)}"
        super().__init__(text, where=where, remedy=remedy)
        self.headline = headline
        self.figures = figures
        self.sample = sample
        self.blame = blame

    def lines(self) -> list[str]:
        """What, how far, whose fault, and what to do, each once."""
        # Where the difference is its own explanation, there is nothing more to say.
        blame = None if self.blame is None or self.blame.detail == self.what else self.blame
        named = self.where is None or (blame is not None and blame.where == self.where)
        head = self.headline if named else f"{self.where}: {self.headline}"
        found = [f"{head} ({self.sample})" if self.sample else head, self.figures]
        found += [] if blame is None else [f"at fault: {_told_once(blame, self.figures)}"]
        return [line for line in (*found, self.remedy or "") if line]


def _told_once(blame: Blame, figures: str) -> Blame:
    """``blame`` without its detail where ``figures`` say the same."""
    return replace(blame, detail="") if blame.detail == figures else blame


class GradientError(VerificationError):
    """The gradient that training uses is not that of the graph that ships, or of the operator's own function."""

    code = "gradient"


class CannotVerifyError(VerificationError):
    """Verification could not run: torch is not installed, a kernel is missing, no valid input was found."""

    code = "cannot-verify"


class CannotInterpretError(CannotVerifyError):
    """The interpreter in PyTorch has no such operator, or PyTorch has no kernel for the type."""

    code = "cannot-interpret"


class InterpreterRefusedError(VerificationError):
    """An operator raised in the interpreter: these inputs do not fit the model."""

    code = "interpreter-refused"


class WorkerDiedError(VerificationError):
    """PyTorch or onnxruntime ended the process that they ran in (a crash, an abort, an exit)."""

    code = "worker-died"


class LimitError(VerificationError):
    """Verification took more time or memory than it may have (``--verify-timeout``, ``--verify-memory``)."""

    code = "verify-limit"


class UnprovedError(VerificationError):
    """A replaced region could not be checked (its types stay unknown) and ``--allow-unproved`` was not given."""

    code = "unproved"
