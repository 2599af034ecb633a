"""Standard operators that a pass decomposes: its ``standard`` binds the operator to the pass's own parameters."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from rewriter.errors import NeedsRank, UnsupportedAtOpset, UnsupportedParameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rewriter.lower.writer import Writer
    from rewriter.placeholder.contract import Decomposition, Placeholder
    from rewriter.placeholder.standard import Call


def by_pass(g: Writer, call: Call) -> tuple[Any, ...] | None:
    """The operator by a decomposition of a pass that takes it; None where none serves."""
    refused: Exception | None = None
    for placeholder in g.passes.get(call.op_type, ()):
        bound = placeholder.standard[call.op_type](call)
        if bound is None:
            continue
        arguments = _complete(placeholder, bound)
        for item in _candidates(g, placeholder, arguments):
            mark = g.mark()
            try:
                made = item.build(placeholder, g, **arguments)
            except (NeedsRank, UnsupportedAtOpset, UnsupportedParameter) as error:
                refused = refused or error
                g.rewind(mark)
                continue
            return tuple(made) if isinstance(made, (tuple, list)) else (made,)
    if isinstance(refused, UnsupportedParameter):
        raise UnsupportedAtOpset(refused.what, where=refused.where or g.where)
    if refused is not None:
        raise refused
    return None


def _complete(placeholder: Placeholder, bound: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the pass's defaults."""
    found: dict[str, Any] = {}
    for parameter in placeholder.signature.parameters:
        if parameter.name in bound:
            found[parameter.name] = bound[parameter.name]
        elif parameter.default is not inspect.Parameter.empty:
            found[parameter.name] = parameter.default
    return found


def _candidates(g: Writer, placeholder: Placeholder, arguments: dict[str, Any]) -> list[Decomposition]:
    """Those that serve here, the preferred ones first."""

    def holds(condition: Any) -> bool:
        try:
            return condition is None or bool(condition(**arguments))
        except NeedsRank:
            return False

    found: list[tuple[tuple[int, int, int], Decomposition]] = []
    for order, item in enumerate(placeholder.decompositions):
        if not item.serves(g.opset) or not holds(item.requires):
            continue
        if item.when is not None and not holds(item.when):
            continue
        found.append(((0 if item.when is not None else 1, -item.opset, order), item))
    return [item for _, item in sorted(found, key=lambda pair: pair[0])]
