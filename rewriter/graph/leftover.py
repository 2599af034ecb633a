"""The error that lists placeholders nobody takes, and says of each what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewriter.domains import is_standard_domain, since_opset
from rewriter.errors import LeftoverPlaceholderError, Where
from rewriter.graph.advice import advice, together, write_one
from rewriter.graph.operands import declared, described
from rewriter.graph.scopes import qualified, text
from rewriter.placeholder.registry import operator_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import NodeProto

    from rewriter.graph.survey import Found
    from rewriter.placeholder.registry import Selection

#: Places that are listed for one operator.
_SHOWN = 5


def describe(
    found: Sequence[Found], selection: Selection, *, where: Where | None = None, via: str | None = None
) -> LeftoverPlaceholderError:
    """One error for all of ``found``, grouped by operator; ``via`` is the placeholder whose decomposition made them."""
    groups: dict[str, list[Found]] = {}
    for item in found:
        groups.setdefault(meant(item.node), []).append(item)
    if len(groups) == 1:
        (name, members), *_ = groups.items()
        what = _what(name, members)
        if via is not None:
            what += f"; the decomposition of {via} made it"
        if len(members) > 1:
            what += f"; {len(members)} of them: {_places(members)}"
        what += _given(members[0])
        return LeftoverPlaceholderError(
            what, where=where or members[0].where, remedy=_remedy(members, selection)
        )
    lines = [
        f"{_what(name, members)}: {_places(members)}{_given(members[0])}" for name, members in groups.items()
    ]
    stay = dict.fromkeys(qualified(members[0].node) for members in groups.values())
    kept = " ".join(f"--keep {name}" for name in stay if not is_standard_domain(name.rpartition("::")[0]))
    outputs = [(output, item.scope) for item in found for output in item.node.output if output]
    kept += " --no-verify" if kept and not all(declared(*output) for output in outputs) else ""
    remedy = _remedy_of_many(groups, selection) + (f", or leave them with {kept}" if kept else "")
    error = LeftoverPlaceholderError(f"{len(found)} placeholders that no pass takes:", remedy=remedy)
    error.details = tuple(lines)
    return error


def meant(node: NodeProto) -> str:
    """The operator's name; of the exporter's ``ATen``, the name of what it stands for."""
    domain, name, selectors = operator_of(node)
    return f"{domain}::{text(name)}" if selectors else qualified(node)


def _what(name: str, members: Sequence[Found]) -> str:
    node = members[0].node
    if node.op_type == "PythonOp" and node.domain == "prim":
        return (
            f"{name} is a torch.autograd.Function without a `symbolic`{_function_name(node)}: "
            "the file does not say what it computes"
        )
    if is_standard_domain(text(node.domain)):
        since = since_opset(node.op_type, node.domain)
        version = members[0].scope.opsets.get(members[0].domain)
        if since is not None:
            return f"ONNX has {name} since opset {since}, the model has opset {version}, and no pass takes it"
        return f"ONNX has no operator {name}, and no pass takes it"
    return f"no pass takes {name}"


def _remedy(members: Sequence[Found], selection: Selection) -> str:
    node = members[0].node
    name = qualified(node)
    if node.op_type == "PythonOp" and node.domain == "prim":
        return "give the Function a `symbolic`, or make it with rewriter.torch.placeholder, and export again"
    hints: list[str] = []
    found = advice(node, selection)
    hints += [said] if (said := found.said(selection)) else []
    if not (found.taker or found.namesake):
        hints.append(write_one(selection))
    if is_standard_domain(text(node.domain)):
        since = since_opset(node.op_type, node.domain)
        if since is not None:
            hints.append(f"export at opset {since} or later")
    else:
        hints.append(_keep(name, members))
    return "; ".join(hints)


def _keep(name: str, members: Sequence[Found]) -> str:
    """How to leave the operator in place: in a way that works."""
    if all(declared(output, item.scope) for item in members for output in item.node.output if output):
        return f"--keep {name} leaves it in place"
    return (
        f"--keep {name} --no-verify leaves it in place (the file declares no type for its result, so nothing can be "
        "compared without the operator's library: --library)"
    )


def _given(item: Found) -> str:
    """What a pass for the operator must bind."""
    node = item.node
    if node.op_type == "PythonOp" and node.domain == "prim":
        return ""
    said = described(node, item.scope, operator_of(node)[2])
    return f" ({said})" if said else ""


def _remedy_of_many(groups: Mapping[str, Sequence[Found]], selection: Selection) -> str:
    found = {name: advice(members[0].node, selection) for name, members in groups.items()}
    takers = list(dict.fromkeys(item.taker for item in found.values() if item.taker))
    hints = [
        f"{name}: is it '{item.namesake}'? then name that too"
        if item.namesake
        else f"{name}: {item.said(selection)}"
        for name, item in found.items()
        if item.namesake or item.near
    ]
    if takers:
        which = "all" if len([item for item in found.values() if item.taker]) == len(found) else "some"
        hints.insert(0, f"installed passes take {which} of them: --passes {together(selection, *takers)}")
    if not all(item.taker or item.namesake for item in found.values()):
        hints.append(write_one(selection).replace("a pass for it", "passes that take them"))
    return "; ".join(hints)


def _function_name(node: NodeProto) -> str:
    found = {a.name: text(a.s) for a in node.attribute if a.name in ("name", "module") and a.s}
    said = ".".join(found[key] for key in ("module", "name") if key in found)
    return f" ({said})" if said else ""


def _places(members: Sequence[Found]) -> str:
    shown = []
    for item in members[:_SHOWN]:
        place = item.where
        words = f"'{place.node}' in {place.scope}" if place.scope != "main graph" else f"'{place.node}'"
        shown.append(words + (f" ({place.source})" if place.source else ""))
    more = len(members) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
