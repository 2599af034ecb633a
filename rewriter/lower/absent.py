"""Which operators may not be written: those that the target lacks, for all of their nodes or for some."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx import TensorProto

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rewriter.profiles.conditions import Use
    from rewriter.profiles.profile import Gap, Profile


@dataclass(frozen=True)
class Absent:
    """What is lacking at one opset.  ``always`` are operators without an exception."""

    always: frozenset[str] = frozenset()
    #: Gaps that concern some nodes only.
    sometimes: Mapping[str, tuple[Gap, ...]] = field(default_factory=dict)
    #: Why an operator is in ``always``, where a runtime lacks it.
    reasons: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, op_type: object) -> bool:
        return op_type in self.always

    def concerns(self, op_type: str) -> bool:
        """Whether some node of the operator may not be written."""
        return op_type in self.always or op_type in self.sometimes

    def reason(self, use: Use) -> str | None:
        """Why this node may not be written; None where it may."""
        if use.op_type in self.always:
            return self.reasons.get(use.op_type, f"{use.op_type} is to be expanded")
        for gap in self.sometimes.get(use.op_type, ()):
            if gap.concerns(use):
                return told(gap)
        return None

    def types_of(self, op_type: str) -> frozenset[int]:
        """Element types that some input of the operator may not have."""
        return frozenset(
            TensorProto.DataType.Value(name.upper())
            for gap in self.sometimes.get(op_type, ())
            if gap.when is not None
            for name in gap.when.dtypes or ()
        )


def told(gap: Gap) -> str:
    """A gap as the reason why a node goes; it starts with "type" where only the type is lacking."""
    if gap.when is not None and gap.when.dtypes is not None and gap.when.attribute is None:
        return f"type {', '.join(gap.when.dtypes)} of {gap.operator}: {gap.runtime} does not have it"
    where = (
        f"{gap.runtime} does not have it" if gap.how == "refused" else f"it {_HOW[gap.how]} on {gap.runtime}"
    )
    condition = f" with {gap.when}" if gap.when is not None else ""
    note = f" ({gap.note})" if gap.note else ""
    return f"{gap.operator}{condition}: {where}{note}"


_HOW = {"fails": "fails", "wrong": "computes something else", "inexact": "is inexact"}


def at(
    profiles: Iterable[Profile],
    opset: int,
    operators: Iterable[str],
    expand: frozenset[str],
    keep: frozenset[str],
) -> Absent:
    """What any of ``profiles`` lacks of ``operators`` at ``opset``, and ``expand``; never what is in ``keep``."""
    always = set(expand)
    reasons: dict[str, str] = {}
    sometimes: dict[str, tuple[Gap, ...]] = {}
    named = list(profiles)
    for op_type in operators if named else ():
        gaps = [
            g for profile in named for g in profile.gaps(op_type) if g.is_at(opset) and g.how != "inexact"
        ]
        if op_type in keep or not gaps:
            continue
        for gap in gaps:
            if gap.when is None:
                always.add(op_type)
                reasons.setdefault(op_type, told(gap))
            else:
                sometimes[op_type] = (*sometimes.get(op_type, ()), gap)
    return Absent(frozenset(always), sometimes, reasons)
