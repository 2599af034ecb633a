"""Which passes there are, and which of them takes a node.

Passes are found by :mod:`rewriter.placeholder.discovery`.  There is no global registry: a :class:`Selection` is made
for one run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from rewriter.domains import is_runtime_domain
from rewriter.errors import (
    AmbiguousMatchError,
    RewriteError,
    UsageError,
    Where,
)
from rewriter.placeholder.binding import normal
from rewriter.placeholder.discovery import all_names, available, resolve
from rewriter.placeholder.judged import judged_by
from rewriter.placeholder.rules import BindRule, parse_bind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onnx import NodeProto

    from rewriter.placeholder.binding import Site
    from rewriter.placeholder.contract import Decomposition, Placeholder


#: The exporters write the same operators under either.
_ATEN = frozenset({"aten", "org.pytorch.aten"})


@dataclass(frozen=True)
class Match:
    """A pass that takes a node, and how it came to."""

    placeholder: Placeholder
    #: The operator's qualified name, with ``org.pytorch.aten`` and the ``ATen`` form written ``aten::name``.
    qualified: str
    rule: BindRule | None = None
    #: Attributes that name the operator and are no arguments.
    selectors: tuple[str, ...] = ()
    #: Whether the meaning was assumed: the pass was named, but does not list the node's domain.
    assumed: bool = False
    #: The decomposition to try where none of the pass's own serves.
    last_resort: Decomposition | None = None
    #: The operator that the node names, where it is known and the pass was only told to take it.
    original: Placeholder | None = None

    def at(self, site: Site) -> Match:
        """This match with the pass for ``site``, where that depends on the node's inputs."""
        exact = self.placeholder.at(site, self.selectors)
        if self.original is not None:
            exact = judged_by(exact, self.original, site, self)
        return self if exact is self.placeholder else replace(self, placeholder=exact)


def operator_of(node: NodeProto) -> tuple[str, str, tuple[str, ...]]:
    """Domain, name and selecting attributes of the operator that ``node`` stands for.

    ``org.pytorch.aten::ATen`` with ``operator="roll"`` is ``aten::roll``.
    """
    # A plain g.op("ATen", …) leaves it in the default domain.
    if node.op_type == "ATen" and node.domain in (*_ATEN, "", "ai.onnx"):
        for attribute in node.attribute:
            if attribute.name == "operator":
                name = attribute.s.decode("utf-8", "replace").removeprefix("aten::")
                return "aten", name, ("operator", "overload_name")
    domain, separator, name = node.op_type.rpartition("::")
    if separator and not node.domain:
        # A qualified name written into the type by mistake.
        return domain, name, ()
    return node.domain, node.op_type, ()


class StandardOperators(Protocol):
    """Takes nodes of the default domain that a target lacks."""

    @property
    def opset(self) -> int:
        """Version of the default domain that is delivered."""

    def match(self, node: NodeProto, version: int) -> Match | None:
        """What takes ``node``, of opset ``version``; None where the target has it."""


@dataclass
class Selection:
    """The passes of one run."""

    #: Every pass that may match, in order of name.
    passes: tuple[Placeholder, ...]
    #: Those that were named rather than found by ``auto``.
    named: frozenset[str] = frozenset()
    rules: tuple[BindRule, ...] = ()
    #: What was asked for, as the command takes it; "…" for what it cannot take.
    asked: tuple[str, ...] = ("…",)
    #: Makes the decomposition of a pass where none of its own serves.
    last_resort: Callable[[Placeholder], Decomposition] | None = None
    #: Finds a pass for an operator, by domain and name, that none of ``passes`` takes.
    unknown: Callable[[str, str], Placeholder | None] | None = None
    #: Takes standard operators as well, where a model is brought to a target.
    standard: StandardOperators | None = None
    _names: dict[str, list[Placeholder]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for placeholder in self.passes:
            for pattern in placeholder.matches:
                self._names.setdefault(normal(pattern.rpartition("::")[2]), []).append(placeholder)

    @classmethod
    def load(
        cls,
        passes: str | Iterable[str | type[Placeholder] | Placeholder] = "auto",
        bind: str | Iterable[str] | None = None,
    ) -> Selection:
        """``passes``: ``"auto"``, or names, files, import paths and passes, as a list or separated by commas.

        UnknownPassError with the nearest names, PassDefinitionError where a pass is not complete.
        """
        wanted = [part.strip() for part in passes.split(",")] if isinstance(passes, str) else list(passes)
        rules = tuple(parse_bind(text) for text in ([bind] if isinstance(bind, str) else bind or ()))
        found: dict[str, Placeholder] = {}
        named: set[str] = set()
        for item in wanted:
            if item == "":
                continue
            if item == "auto":
                for placeholder in available():
                    found.setdefault(placeholder.pass_name(), placeholder)
                continue
            for placeholder in resolve(item):
                known = found.get(placeholder.pass_name())
                if (
                    known is not None
                    and type(known) is not type(placeholder)
                    and placeholder.pass_name() in named
                ):
                    raise UsageError(
                        f"two passes are called '{placeholder.pass_name()}'",
                        remedy="give one of them another `name`",
                    )
                found[placeholder.pass_name()] = placeholder
                named.add(placeholder.pass_name())
        for rule in rules:
            if rule.pass_name not in found:
                for placeholder in resolve(rule.pass_name):
                    found[placeholder.pass_name()] = placeholder
        asked = tuple(item if isinstance(item, str) else "…" for item in wanted if item != "")
        selection = cls(tuple(found[name] for name in sorted(found)), frozenset(named), rules, asked)
        for rule in rules:
            rule.check(selection._bound_to(rule).signature.names)
        return selection

    def match(self, node: NodeProto, where: Where | None = None) -> Match | None:
        """The pass that takes ``node``, which is known to be a placeholder; AmbiguousMatchError where two do."""
        found = self._match(node, where)
        if found is None or self.last_resort is None:
            return found
        return replace(found, last_resort=self.last_resort(found.placeholder))

    def _match(self, node: NodeProto, where: Where | None) -> Match | None:
        domain, name, selectors = operator_of(node)
        for rule in self.rules:
            if rule.op_type == name and _same_domain(rule.domain, domain):
                chosen = self._bound_to(rule)
                original = self._original(chosen, domain, name)
                return Match(chosen, _qualified(domain, name), rule, selectors, original=original)
        if is_runtime_domain(node.domain):
            return None
        found: list[Match] = []
        for placeholder in self._names.get(normal(name), ()):
            listed = _lists(placeholder, domain, name)
            if listed is None or (not listed and placeholder.pass_name() not in self.named):
                continue
            if any(known.placeholder is placeholder for known in found):
                continue
            found.append(Match(placeholder, _qualified(domain, name), None, selectors, not listed))
        # A pass that lists the very domain knows better than one whose meaning would be assumed.
        certain = [match for match in found if not match.assumed] or found
        # One that was named was chosen over those that auto found.
        certain = [match for match in certain if match.placeholder.pass_name() in self.named] or certain
        if len(certain) > 1:
            rivals = " and ".join(f"'{match.placeholder.pass_name()}'" for match in certain)
            raise AmbiguousMatchError(
                f"passes {rivals} both take this operator",
                where=where,
                remedy="name one of them with --passes, or tell them apart with --bind",
            )
        if certain and certain[0].assumed:
            return replace(certain[0], original=self._original(certain[0].placeholder, domain, name))
        if certain or self.unknown is None:
            return certain[0] if certain else None
        other = self.unknown("aten" if domain in _ATEN else domain, name)
        return None if other is None else Match(other, _qualified(domain, name), None, selectors)

    def _original(self, placeholder: Placeholder, domain: str, name: str) -> Placeholder | None:
        """The known operator of that name, where ``placeholder`` does not itself say that it means it."""
        if self.unknown is None or _lists(placeholder, domain, name):
            return None
        try:
            return self.unknown("aten" if domain in _ATEN else domain, name)
        except RewriteError:
            return None  # PyTorch is not installed: nothing can be compared anyway

    def _bound_to(self, rule: BindRule) -> Placeholder:
        """The pass that ``rule`` names."""
        return next(
            p
            for p in self.passes
            if rule.pass_name == p.pass_name() or normal(rule.pass_name) in all_names(p)
        )


def _lists(placeholder: Placeholder, domain: str, name: str) -> bool | None:
    """Whether the pass takes ``name`` and lists its domain (True), only takes the name (False), or neither (None)."""
    takes = False
    for pattern in placeholder.matches:
        its_domain, separator, its_name = pattern.rpartition("::")
        if normal(its_name) != normal(name):
            continue
        if separator:
            if _same_domain(its_domain, domain):
                return True
            takes = True
        else:
            if any(_same_domain(known, domain) for known in placeholder.domains):
                return True
            takes = True
    return False if takes else None


def _same_domain(a: str, b: str) -> bool:
    return a == b or (a in _ATEN and b in _ATEN) or (a in ("", "ai.onnx") and b in ("", "ai.onnx"))


def _qualified(domain: str, name: str) -> str:
    return f"{'aten' if domain in _ATEN else domain}::{name}" if domain else name
