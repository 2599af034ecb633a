"""Which stage made a difference, and where it shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rewriter.errors import RewriteError, Where
from rewriter.execution.session import Refused
from rewriter.graph.scopes import main_scope

if TYPE_CHECKING:
    from onnx import ModelProto

EXPORT, DECOMPOSITION, SIMPLIFICATION, OPTIMISER = (
    "export",
    "decomposition",
    "simplification",
    "runtime optimiser",
)

#: Stages that are a cause by themselves.
_OF_STAGE = {SIMPLIFICATION: "the simplifier", OPTIMISER: "an optimiser"}


@dataclass(frozen=True)
class Blame:
    """The stage that made the difference, and the first node whose value shows it (None where that is not known)."""

    stage: str
    where: Where | None = None
    detail: str = ""
    #: The cause, where the node or its values show one, and what to do about it.
    cause: str = ""
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        place = self.where or Where(scope="")
        return {
            "stage": self.stage,
            "node": place.node,
            "operator": place.operator,
            "line": place.source,
            "scope": place.scope,
            "detail": self.detail,
            "cause": self.cause or _OF_STAGE.get(self.stage, ""),
        }

    def __str__(self) -> str:
        """``"the export, at Mul 'node_mul' (net.py:12): …"``."""
        text = f"the {self.stage}"
        if self.where is not None:
            text += f", first at {self.where}"
        return f"{text}: {_without_figures(self.detail)}" if self.detail else text


def _without_figures(detail: str) -> str:
    """``detail`` with how many elements differ, and not how far: the report has it, and a message its own figures."""
    return re.sub(r"(beyond tolerance): max\|a-b\|[^;]*", r"\1", detail)


def told(name: str, problem: str | None) -> str:
    """What is wrong with the value ``name``, without what was allowed."""
    return f"'{name}' {(problem or 'differs').partition(' (allowed')[0]}"


def place_of(error: RewriteError, model: ModelProto) -> Where | None:
    """The node that the runtime or a reference was at when it refused; None where it does not say."""
    if isinstance(error.where, Where):
        return error.where
    if not isinstance(error, Refused) or not error.operator:
        return None
    found = [
        scope.where(node)
        for scope in main_scope(model).walk()
        for node in scope.graph.node
        if node.name == error.node and node.op_type == error.operator
    ]
    # Nodes need no names, and then one operator may stand for many.
    return found[0] if len(found) == 1 else Where(node=error.node, operator=error.operator)
