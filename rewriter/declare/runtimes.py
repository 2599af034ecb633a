"""Which runtimes have every operator of a model, by a table of what was tried (``data/runtimes.json``).

The table is data with a date.  It knows the operators of the models that were run for it; of others it says nothing,
but for onnxruntime, which promises all operators of the opsets that it takes.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onnx import NodeProto

    from rewriter.declare.contents import Contents

Row = dict[str, Any]


@dataclass(frozen=True)
class Judged:
    """One runtime of the table; ``verdict`` is ``"has"``, ``"lacks"`` or ``"not known"``."""

    name: str
    verdict: str
    #: What it lacks or refuses, or what was not tried on it.
    reasons: tuple[str, ...] = ()


@functools.cache
def table() -> Mapping[str, Any]:
    """The table as it stands in the file."""
    text = resources.files("rewriter").joinpath("data/runtimes.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def judge(contents: Contents, ir_version: int, opsets: Mapping[str, int]) -> list[Judged]:
    """Every runtime of the table, in its order."""
    tried = frozenset(table()["tried"])
    return [_judge(row, tried, contents, ir_version, opsets) for row in table()["runtimes"]]


def _judge(
    row: Row, tried: frozenset[str], contents: Contents, ir_version: int, opsets: Mapping[str, int]
) -> Judged:
    name = " ".join(part for part in (row["name"], row.get("version")) if part)
    lacks = list(dict.fromkeys(_lacking(row, contents, ir_version, opsets)))
    if lacks:
        return Judged(name, "lacks", tuple(lacks))
    unknown = list(dict.fromkeys(_untried(row, tried, contents)))
    return Judged(name, "not known" if unknown else "has", tuple(unknown))


def _lacking(row: Row, contents: Contents, ir_version: int, opsets: Mapping[str, int]) -> Iterator[str]:
    opset = opsets.get("", 0)
    if opset > row.get("max_opset", opset):
        yield f"opset {opset} (its newest is {row['max_opset']})"
    if ir_version > row.get("max_ir", ir_version):
        yield f"IR version {ir_version} (its newest is {row['max_ir']})"
    yield from (feature for feature in row.get("refuses", ()) if feature in contents.features)
    if contents.functions and not row["functions"]:
        yield "model-local functions"
    for domain, operator, _ in contents.custom:
        qualified = f"{domain}::{operator}" if domain else operator
        # A library of operators is built for one runtime; that of onnxruntime takes one.
        yield f"{qualified} (without its library)" if row.get("custom") else qualified
    for domain, operator, _ in contents.owned:
        if not (domain.startswith("com.microsoft") and row["name"].startswith("onnxruntime")):
            yield f"{domain}::{operator}"
    for (domain, operator, version), nodes in contents.standard.items():
        for gap in row["lacks"]:
            inside = gap.get("since", 1) <= version <= gap.get("until", version)
            if domain == "" and gap["operator"] == operator and inside:
                condition = CONDITIONS[gap["when"]] if "when" in gap else None
                if condition is None or any(map(condition, nodes)):
                    yield _gap(gap)


def _gap(gap: Row) -> str:
    notes = [] if gap["how"] == "refused" else [gap["how"]]
    notes += [f"with {gap['when']}"] if "when" in gap else []
    notes += [gap["note"]] if "note" in gap else []
    return f"{gap['operator']} ({': '.join(notes)})" if notes else str(gap["operator"])


def _untried(row: Row, tried: frozenset[str], contents: Contents) -> Iterator[str]:
    for domain, operator, _ in contents.owned:
        yield f"{domain}::{operator}"  # which versions have it, the table does not say
    if row["covers"] == "opset":
        return
    known = tried - set(row.get("not_tried", ()))
    for domain, operator, _ in contents.standard:
        if domain or operator not in known:
            yield f"{domain}::{operator}" if domain else operator


def _attribute(node: NodeProto, name: str) -> Any:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def _is_grouped(node: NodeProto) -> bool:
    group = _attribute(node, "group")
    return group is not None and group.i != 1


def _reduces(node: NodeProto) -> bool:
    reduction = _attribute(node, "reduction")
    return reduction is not None and reduction.s != b"none"


def _scans(node: NodeProto) -> bool:
    """Whether a Loop gives more than what it carries: it takes a trip count and a condition besides."""
    return len(node.output) > max(0, len(node.input) - 2)


#: What the table's ``when`` means, of one node.
CONDITIONS: Final[Mapping[str, Callable[[NodeProto], bool]]] = {
    "group": _is_grouped,
    "reduction": _reduces,
    "scan outputs": _scans,
}
