"""Operators that were to be kept and are not in the model: a slip, since what was meant would be replaced."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from rewriter.errors import UsageError
from rewriter.graph.opsets import all_nodes
from rewriter.graph.scopes import called_function, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onnx import ModelProto

    from rewriter.graph.survey import Keep, Survey

#: Operators that a message lists.
_SHOWN = 6

Operator = tuple[str, str]


def unmatched_keep(found: Survey, keep: Keep) -> list[Operator]:
    """What was asked to be kept and is no placeholder of the model; an earlier run's is not asked for."""
    kept = [item for item in found.found if item.kept]
    used = {(item.domain, name) for item in kept for name in (item.node.op_type, "*")}
    return sorted(keep.operators - keep.earlier - used)


def candidates(found: Survey) -> list[Operator]:
    """What could have been meant: the placeholders, and the operators that runtimes own."""
    operators = [(text(item.domain), text(item.node.op_type)) for item in found.found]
    operators += [(text(domain), text(name)) for root in found.roots for domain, name in root.runtime]
    return list(dict.fromkeys(operators))


def check_kept(model: ModelProto, unmatched: Sequence[Operator], known: Sequence[Operator]) -> None:
    """UsageError where one of ``unmatched`` is not in ``model`` either, as what a decomposition made would be."""
    if not unmatched:
        return
    held = {
        called_function(node)[:2] for graph in (model.graph, *model.functions) for node in all_nodes(graph)
    }
    held |= {(domain, "*") for domain, _ in held}
    missing = [operator for operator in unmatched if operator not in held]
    if missing:
        raise UsageError(
            f"the model holds no {' and no '.join(_text(item) for item in missing)} to keep",
            remedy=suggestion(missing[0], known),
        )


def suggestion(missing: Operator, known: Sequence[Operator]) -> str:
    """The operator of ``known`` that is most like ``missing``, as a question, else what there is."""
    domain, name = missing
    if name == "*":
        near = difflib.get_close_matches(domain, [item[0] for item in known], n=1)
        if near:
            return f"did you mean {near[0]}::*?"
    else:
        like = difflib.get_close_matches(name.lower(), [item[1].lower() for item in known], n=1)
        rivals = [item for item in known if like and item[1].lower() == like[0]]
        if rivals:
            best = max(rivals, key=lambda item: difflib.SequenceMatcher(None, item[0], domain).ratio())
            return f"did you mean {_text(best)}?"
    shown = ", ".join(_text(item) for item in known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
    return f"its placeholders are: {shown}" if known else "it holds no placeholders; leave out --keep"


def texts(operators: Iterable[Operator]) -> list[str]:
    """``com.example::Roll``; an operator of the default domain by its name alone."""
    return [_text(operator) for operator in operators]


def _text(operator: Operator) -> str:
    domain, name = operator
    return f"{domain}::{name}" if domain else name
