"""What a caller may ask of a verification."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rewriter.errors import UsageError
from rewriter.verify.compare import Thresholds
from rewriter.verify.judgement import Judgement, comparisons

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class VerifyOptions:
    """How inputs are drawn, and what is accepted.

    ``inputs`` (a ``.npz`` file, or arrays by input name) takes the place of drawn ones.  ``input_ranges`` are the
    lowest and highest value of an input, ``dims`` sizes of a symbolic dim, used in turn.  ``libraries`` are the
    custom-operator libraries that may be loaded, by domain; no others are.
    """

    samples: int = 2
    seed: int = 0
    inputs: Path | str | Mapping[str, Any] | None = None
    input_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    dims: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: Deliver although a region could not be proved; a difference is never accepted.
    allow_unproved: bool = False
    libraries: Mapping[str, Path] = field(default_factory=dict)
    #: The whole model to compare with, in a form that :func:`rewriter.against.load` takes.
    against: Any = None
    #: Thresholds in the place of those by dtype: floating-point numbers may be off by ``atol + rtol·|b|``.
    atol: float | None = None
    rtol: float | None = None
    #: Outputs that are judged together: ``"boxes,scores,labels=detections"``, ``"indices=topk:values"``, or a mapping
    #: from outputs to such a judge or to a function ``(actual, expected) -> str | None`` of two tuples of arrays.
    compare: Any = None
    #: Runtimes that the delivered file is run on besides.
    runtimes: tuple[str, ...] = ()
    #: Whether the gradients of replaced placeholders are checked, and the operators, made by
    #: ``rewriter.torch.placeholder``, that the model was trained with.
    check_gradients: bool = False
    operators: tuple[Any, ...] = ()
    #: Whether the model was brought to a target, and is compared with itself as it came.
    brought: bool = False
    #: Bytes of memory that a worker may have to itself; None for no limit.
    memory: int | None = None

    def __post_init__(self) -> None:
        """UsageError where a number makes no sense: without samples, nothing would be compared."""
        if self.samples < 1:
            raise UsageError(f"samples is {self.samples}, and at least 1 is needed", remedy="give 1 or more")
        if self.seed < 0:
            raise UsageError(f"seed is {self.seed}, and must not be negative", remedy="give 0 or more")
        for name in ("atol", "rtol"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise UsageError(
                    f"{name} is {value}, and must be a number from 0 on", remedy="give 0 or more"
                )
        judgement = Judgement(Thresholds(self.atol, self.rtol), comparisons(self.compare))
        object.__setattr__(self, "_judgement", judgement)

    @property
    def judgement(self) -> Judgement:
        """When values agree."""
        return self._judgement  # type: ignore[attr-defined,no-any-return]


def check_verified(asked: Mapping[str, bool]) -> None:
    """UsageError where a flag of ``asked`` was given, and nothing is verified: it would say nothing."""
    flags = [flag for flag, given in asked.items() if given]
    if flags:
        named = " and ".join([", ".join(flags[:-1]), flags[-1]]) if len(flags) > 1 else flags[0]
        raise UsageError(
            f"{named}: {'they say' if len(flags) > 1 else 'it says'} how to verify, and --no-verify compares nothing",
            remedy="leave out either",
        )
