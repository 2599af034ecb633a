"""What a model is brought to: an opset, an IR version, and the operators that must go or may stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx import defs

from rewriter import profiles
from rewriter.domains import standard_operators
from rewriter.errors import UsageError
from rewriter.profiles import Aim

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Oldest opset that a model can be asked for.  Below 11 nodes must stay as they are.
OLDEST = 7


@dataclass(frozen=True)
class Target:
    """Where a model must run.

    ``opset`` is the version of the default domain, or None for the model's own.  ``ir_version`` likewise.  ``expand``
    are operators of the default domain that the target has not, whatever the opset says; ``no_expand`` are operators
    that stay as they are.  ``aim`` are the runtimes that must run it.
    """

    opset: int | None = None
    ir_version: int | None = None
    expand: frozenset[str] = frozenset()
    no_expand: frozenset[str] = frozenset()
    aim: Aim = field(default_factory=Aim)

    @classmethod
    def parse(
        cls,
        opset: int | None = None,
        ir_version: int | None = None,
        expand: str | Iterable[str] = (),
        no_expand: str | Iterable[str] = (),
        runtimes: str | Iterable[str] = (),
    ) -> Target | None:
        """The target that was asked for, or None where nothing was.  UsageError where it cannot be."""
        newest = defs.onnx_opset_version()
        if opset is not None and not OLDEST <= opset <= newest:
            raise UsageError(
                f"opset {opset} cannot be a target",
                remedy=f"give one from {OLDEST} to {newest}, the newest known",
            )
        if ir_version is not None and not 3 <= ir_version <= _newest_ir():
            raise UsageError(
                f"IR version {ir_version} cannot be a target", remedy=f"give one from 3 to {_newest_ir()}"
            )
        wanted, staying = _operators("--expand", expand), _operators("--no-expand", no_expand)
        both = sorted(wanted & staying)
        if both:
            raise UsageError(f"{', '.join(both)}: --expand and --no-expand contradict each other")
        aim = profiles.wanted(runtimes)
        if opset is None and ir_version is None and not wanted and not staying and aim is None:
            return None
        if aim is not None:
            _check_aim(aim, opset, ir_version)
        return cls(opset, ir_version, wanted, staying, aim or Aim())


def _operators(flag: str, items: str | Iterable[str]) -> frozenset[str]:
    """The operators that ``flag`` names; UsageError where ONNX has no such operator."""
    parts = items.split(",") if isinstance(items, str) else list(items)
    found = frozenset(part.strip().removeprefix("ai.onnx::") for part in parts if part.strip())
    for name in sorted(found):
        if name not in standard_operators():
            raise UsageError(
                f"{flag} names '{name}', which is not an operator of ONNX",
                remedy="write the operator as ONNX does, LayerNormalization for instance",
            )
    return found


def _check_aim(aim: Aim, opset: int | None, ir_version: int | None) -> None:
    """UsageError where a version that was asked for is above what a runtime takes, or none is known."""
    unknown = aim.unknown()
    if opset is None and unknown:
        raise UsageError(
            f"it is not known which opsets {' and '.join(unknown)} takes", remedy="give --opset N besides"
        )
    for profile in aim.profiles:
        for flag, asked, most in (
            ("--opset", opset, profile.max_opset),
            ("--ir-version", ir_version, profile.max_ir),
        ):
            if asked is not None and most is not None and asked > most:
                raise UsageError(
                    f"{flag} {asked}: the newest that {profile.title} takes is {most}",
                    remedy=f"leave out {flag}, or give {most} or less",
                )


def _newest_ir() -> int:
    from onnx import IR_VERSION

    return int(IR_VERSION)
