"""What a caller may ask of a verification."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rewriter.errors import UsageError

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
    #: Runtimes that the delivered file is run on besides.
    runtimes: tuple[str, ...] = ()
    #: Whether the gradients of replaced placeholders are checked, and the operators, made by
    #: ``rewriter.torch.placeholder``, that the model was trained with.
    check_gradients: bool = False
    operators: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        """UsageError where a number makes no sense: without samples, nothing would be compared."""
        if self.samples < 1:
            raise UsageError(f"samples is {self.samples}, and at least 1 is needed", remedy="give 1 or more")
        if self.seed < 0:
            raise UsageError(f"seed is {self.seed}, and must not be negative", remedy="give 0 or more")
