"""The opset that a model is delivered at, where it is not its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewriter.domains import normal_domain
from rewriter.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import FunctionProto, ModelProto

    from rewriter.errors import DecompositionError, Where
    from rewriter.placeholder.registry import Selection


def moves(model: ModelProto, selection: Selection) -> bool:
    """Whether an import of the model or of a function is of another opset than the target's."""
    standard = selection.standard
    if standard is None:
        return False
    return any(
        not normal_domain(item.domain) and item.version != standard.opset
        for owner in (model, *model.functions)
        for item in owner.opset_import
    )


def bring(model: ModelProto, selection: Selection) -> None:
    """Let the model and its functions import the target's opset."""
    standard = selection.standard
    if standard is None:
        return
    owners: list[ModelProto | FunctionProto] = [model, *model.functions]
    for owner in owners:
        for item in owner.opset_import:
            if not normal_domain(item.domain):
                item.version = standard.opset


def refusal(refused: Sequence[tuple[Where, DecompositionError]], selection: Selection) -> TargetError:
    """One error that names every node that has no form at the target, by reason."""
    opset = "" if selection.standard is None else f" at opset {selection.standard.opset}"
    groups: dict[str, list[Where]] = {}
    for where, error in refused:
        groups.setdefault(error.what, []).append(where)
    if len(refused) == 1:
        where, error = refused[0]
        return TargetError(f"no form{opset}: {error.what}", where=where, remedy=_REMEDY)
    lines = []
    for what, places in groups.items():
        lines.append(f"{what}: {', '.join(str(place) for place in places)}")
    error = TargetError(f"{len(refused)} nodes have no form{opset}:", remedy=_REMEDY)
    error.details = tuple(lines)
    return error


_REMEDY = "choose a newer opset, or write a pass for the operator"
