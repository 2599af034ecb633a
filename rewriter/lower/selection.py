"""A selection that also takes the standard operators that a target lacks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rewriter.domains import standard_operators
from rewriter.lower import schemas
from rewriter.lower.absent import at as absent_at
from rewriter.lower.operator import StandardOperator
from rewriter.placeholder.registry import Match

if TYPE_CHECKING:
    from onnx import NodeProto

    from rewriter.lower.absent import Absent
    from rewriter.lower.target import Target
    from rewriter.placeholder.contract import Placeholder
    from rewriter.placeholder.registry import Selection


@dataclass
class Standard:
    """Which standard nodes may be lacking at ``target``, for a model of opset ``opset``."""

    target: Target
    #: The opset of the delivered model.
    opset: int
    #: What may not be written there.
    absent: Absent
    #: Passes that take standard operators, by operator.
    passes: dict[str, list[Placeholder]] = field(default_factory=dict, repr=False)
    _known: dict[tuple[str, int], Match | None] = field(default_factory=dict, repr=False)

    def match(self, node: NodeProto, version: int) -> Match | None:
        """What takes ``node`` unless its types show that it may stay; None where it stays in any case."""
        key = (node.op_type, version)
        if key not in self._known:
            self._known[key] = self._match(*key)
        return self._known[key]

    def _match(self, op_type: str, version: int) -> Match | None:
        if op_type in self.target.no_expand:
            return None
        if not self.absent.concerns(op_type) and not schemas.changed(op_type, version, self.opset):
            return None
        return Match(StandardOperator(op_type, version, self.opset, self.absent, None, self.passes), op_type)


def at_target(selection: Selection, target: Target, opset: int) -> Selection:
    """``selection`` for a model of opset ``opset`` that goes to ``target``."""
    passes: dict[str, list[Placeholder]] = {}
    for placeholder in selection.passes:
        for op_type in placeholder.standard:
            passes.setdefault(op_type, []).append(placeholder)
    goal = target.opset or opset
    absent = absent_at(target.aim.profiles, goal, standard_operators(), target.expand, target.no_expand)
    return replace(selection, standard=Standard(target, goal, absent, passes))
