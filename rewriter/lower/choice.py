"""The opset that a model is brought to for the runtimes that must run it.

1. An opset that was asked for is the one.
2. Otherwise it is the model's own, or the newest that every runtime takes where that is older.
3. Where a runtime lacks operators of the model from some opset on, an older opset is taken if fewer nodes must be
   written by other operators there.  Nodes with bodies count most: nothing else can be written for them.  Operators
   that forms are made of count as one node, where the model does not stay at its own opset.
4. A model of an opset below 11 is brought to 11 where a runtime lacks one of its operators: forms are written from 11
   on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from onnx import defs

from rewriter.domains import MINIMUM_OPSET, normal_domain
from rewriter.graph.opsets import all_nodes

if TYPE_CHECKING:
    from onnx import ModelProto

    from rewriter.lower.target import Target

#: Operators that hold bodies.
_BODIES: Final = frozenset({"If", "Loop", "Scan"})
#: Operators that most forms are made of.
_PARTS: Final = Counter(
    dict.fromkeys(("Cast", "Concat", "Expand", "Gather", "Pad", "Reshape", "Shape", "Slice"), 1)
)
#: What a node with bodies counts, in nodes.
_WEIGHT: Final = 1_000_000


def settled(target: Target, model: ModelProto) -> Target:
    """``target`` with the opset that ``model`` is brought to."""
    own = next((item.version for item in model.opset_import if not normal_domain(item.domain)), None)
    if target.opset is not None or own is None or not target.aim.profiles:
        return target
    most = target.aim.max_opset
    assert most is not None  # the target asks for an opset where it is not known
    owners = (model.graph, *model.functions)
    counts = Counter(
        node.op_type for owner in owners for node in all_nodes(owner) if not normal_domain(node.domain)
    )
    highest = min(own, most)
    if highest < MINIMUM_OPSET <= most and _lacking(target, counts, highest):
        highest = MINIMUM_OPSET
    candidates = {highest} | {
        gap.since - 1
        for profile in target.aim.profiles
        for operator in counts.keys() | _PARTS.keys()
        for gap in profile.gaps(operator)
        if MINIMUM_OPSET < gap.since <= highest
    }

    def cost(opset: int) -> tuple[int, int]:
        parts = _PARTS if opset != own else Counter()
        return _lacking(target, counts | parts, opset), -opset

    return replace(target, opset=min(candidates, key=cost))


def _lacking(target: Target, counts: Counter[str], opset: int) -> int:
    """How many nodes the runtimes do not have at ``opset``, as far as their operators alone tell."""
    total = 0
    for operator, count in counts.items():
        gone = not defs.has(operator, opset, "") or any(
            gap.when is None and gap.how != "inexact" and gap.is_at(opset)
            for profile in target.aim.profiles
            for gap in profile.gaps(operator)
        )
        if gone and operator not in target.no_expand:
            total += count * (_WEIGHT if operator in _BODIES else 1)
    return total
