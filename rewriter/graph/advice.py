"""What a user can do about an operator that no pass takes: only what would work."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rewriter.domains import is_standard_domain
from rewriter.errors import RewriteError
from rewriter.graph.scopes import text
from rewriter.placeholder.binding import normal
from rewriter.placeholder.registry import Selection, operator_of

if TYPE_CHECKING:
    from onnx import NodeProto

    from rewriter.placeholder.contract import Placeholder

#: Namespaces whose operators PyTorch and torchvision define.
_KNOWN = frozenset({"aten", "org.pytorch.aten", "prims", "torchvision", "torchaudio", "quantized"})
#: How alike two names must be, so that one may be meant by the other.
_ALIKE = 0.7


@dataclass(frozen=True)
class Advice:
    """The passes that come into question for one operator; each field is empty where there is none."""

    #: A pass that is installed, was not named, and takes the operator.
    taker: str = ""
    #: A pass that takes the operator once it is named: it has the name, but does not list the domain.
    namesake: str = ""
    #: A pass of a name that is alike.
    near: str = ""
    #: The rule that gives the operator to ``near``, if that is what it means.
    rule: str = ""

    @property
    def nearest(self) -> str:
        """The pass that might be meant."""
        return self.taker or self.namesake or self.near

    def said(self, selection: Selection) -> str:
        """The advice in words; ``""`` where no pass comes into question."""
        if self.taker:
            return f"pass '{self.taker}' takes it: --passes {together(selection, self.taker)}"
        if self.namesake:
            return (
                f"pass '{self.namesake}' has that name, in other domains; if it is the same operator: "
                f"--passes {together(selection, self.namesake)}"
            )
        return f"is it '{self.near}'? then --bind \"{self.rule}\"" if self.near else ""


def advice(node: NodeProto, selection: Selection) -> Advice:
    """What may be said of ``node``, which nothing in ``selection`` takes."""
    if not isinstance(node.op_type, str) or not isinstance(node.domain, str):
        return Advice()
    every = _every(selection)
    try:
        match = every.match(node)
    except RewriteError:
        return Advice()  # two passes would take it: naming one is no answer that works by itself
    if match is not None:
        return Advice(taker=match.placeholder.pass_name())
    domain, name, selectors = operator_of(node)
    names = {
        normal(p.rpartition("::")[2]): placeholder
        for placeholder in every.passes
        for p in placeholder.matches
    }
    if normal(name) in names:
        return Advice(namesake=names[normal(name)].pass_name())
    if is_standard_domain(domain) or domain in _KNOWN:
        return Advice()  # what these mean is known, and a name that is alike means something else
    for alike in difflib.get_close_matches(normal(name), list(names), n=3, cutoff=_ALIKE):
        arguments = _arguments(node, names[alike], selectors)
        if arguments is not None:
            near = names[alike].pass_name()
            qualified = f"{domain}::{name}" if domain else name
            return Advice(near=near, rule=f"{qualified}={near}{arguments}")
    return Advice()


def together(selection: Selection, *names: str) -> str:
    """The value of ``--passes`` that names the passes of this run, and ``names``."""
    return ",".join(dict.fromkeys([*selection.asked, *names]))


def write_one(selection: Selection) -> str:
    """How to write a pass for an operator that nobody knows."""
    if any(item.endswith(".py") for item in selection.asked):
        return "write a pass for it (docs/writing-a-pass.md)"
    return f"write a pass for it: --passes {together(selection, './my_ops.py')} (docs/writing-a-pass.md)"


def _every(selection: Selection) -> Selection:
    """The passes of this run and all that are installed; of two of one name, that of this run."""
    from rewriter.placeholder.discovery import available

    try:
        installed = available()
    except RewriteError:
        return selection  # one that does not load is no news to who asked for others
    passes = {p.pass_name(): p for p in (*installed, *selection.passes)}
    return Selection(tuple(passes[name] for name in sorted(passes)))


def _arguments(node: NodeProto, placeholder: Placeholder, selectors: tuple[str, ...]) -> str | None:
    """The arguments of a rule that gives ``node`` to ``placeholder``; None where they cannot fit."""
    parameters = placeholder.signature.parameters
    if len(node.input) > len(parameters) and not any(p.variadic for p in parameters):
        return None
    attributes = [text(a.name) for a in node.attribute if text(a.name) not in selectors]
    if sum(p.required for p in parameters) > len(node.input) + len(attributes):
        return None
    unknown = [name for name in attributes if name not in placeholder.signature.names]
    free = [p.name for p in parameters if p.is_constant and p.name not in attributes]
    if not unknown:
        return ""
    # Which of them means which parameter is for the user to say, unless there is one of each.
    if len(unknown) > len(free):
        return None
    if len(unknown) == len(free) == 1:
        return f"({free[0]}={unknown[0]})"
    likely = {name: difflib.get_close_matches(name, free, n=1, cutoff=0.6) for name in unknown}
    if not all(likely.values()):
        return None
    return "(" + ",".join(f"{found[0]}={name}" for name, found in likely.items()) + ")"
