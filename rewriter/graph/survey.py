"""What a model holds that is not plain ONNX: its placeholders, and which pass takes each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from rewriter.domains import is_standard_domain, is_standard_operator, normal_domain, runtime_of
from rewriter.errors import UsageError
from rewriter.graph.attributes import check_attributes, has_list
from rewriter.graph.opsets import version_for
from rewriter.graph.scopes import (
    FunctionKey,
    Scope,
    called_function,
    function_key,
    function_scope,
    graphs_of,
    main_scope,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

    from rewriter.errors import Where
    from rewriter.placeholder.registry import Match, Selection


@dataclass(frozen=True)
class Keep:
    """Placeholders that stay in the model: ``domain::Operator``, ``domain::*``, or a default-domain operator's name."""

    operators: frozenset[tuple[str, str]] = frozenset()
    #: Those that an earlier run kept, and that were not asked for now.
    earlier: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def parse(cls, items: str | Iterable[str] = ()) -> Keep:
        """UsageError where an item names no operator."""
        found: set[tuple[str, str]] = set()
        for item in [items] if isinstance(items, str) else items:
            domain, _, op_type = item.strip().rpartition("::")
            if not op_type:
                raise UsageError(
                    f"'{item}' names no operator to keep", remedy="write domain::Operator, or domain::*"
                )
            found.add((normal_domain(domain), op_type))
        return cls(frozenset(found))

    def entry(self, domain: str, op_type: str) -> tuple[str, str] | None:
        """The item that keeps the operator, or None."""
        for item in ((normal_domain(domain), op_type), (normal_domain(domain), "*")):
            if item in self.operators:
                return item
        return None


@dataclass(eq=False)
class Found:
    """A placeholder in the model."""

    scope: Scope
    #: Position among the scope's nodes.
    index: int
    node: NodeProto
    #: The pass that takes it; None for one that is kept or left over.
    match: Match | None
    kept: bool = False
    #: Which outputs are used; none for a node that does nothing.
    wanted: tuple[bool, ...] = ()
    #: Unused, and no pass takes it: it goes.
    dead: bool = False
    #: An operator of ONNX itself, which the target lacks.
    standard: bool = False

    @cached_property
    def where(self) -> Where:
        return self.scope.where(self.node)

    @property
    def domain(self) -> str:
        return normal_domain(self.node.domain)

    @property
    def stays(self) -> bool:
        return self.kept

    @property
    def is_leftover(self) -> bool:
        return self.match is None and not self.kept and not self.dead


@dataclass(eq=False)
class Call:
    """A node that calls a model-local function."""

    scope: Scope
    index: int
    node: NodeProto
    callee: FunctionKey


@dataclass(eq=False)
class Root:
    """The main graph or one function, with all its bodies."""

    scope: Scope
    found: list[Found] = field(default_factory=list)
    #: Operators of ONNX itself that the target may lack, by scope: position, node, what takes it.  Types decide.
    suspects: dict[Scope, list[tuple[int, NodeProto, Match]]] = field(default_factory=dict)
    #: Standard operators that stay in any case: domain, name, version.
    plain: set[tuple[str, str, int | None]] = field(default_factory=set)
    calls: list[Call] = field(default_factory=list)
    #: Operators in domains that runtimes own, with how often they occur.
    runtime: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Every domain that a node here uses.
    domains: set[str] = field(default_factory=set)

    @property
    def placeholders(self) -> list[Found]:
        """Those that must be replaced or removed."""
        return [found for found in self.found if not found.kept]


@dataclass(eq=False)
class Survey:
    """The whole model."""

    main: Root
    functions: dict[FunctionKey, Root]
    #: Functions that hold a placeholder, directly or through a call.
    holding: frozenset[FunctionKey]
    #: Functions that the main graph calls, directly or through others.
    used: frozenset[FunctionKey]
    #: Functions that only a training graph calls.
    training: frozenset[FunctionKey]

    @property
    def roots(self) -> list[Root]:
        return [self.main, *self.functions.values()]

    @property
    def live(self) -> list[Root]:
        """The roots that run when the model runs."""
        return [self.main, *(root for key, root in self.functions.items() if key in self.used)]

    @property
    def found(self) -> list[Found]:
        return [found for root in self.roots for found in root.found]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to replace or remove anywhere."""
        return not any(root.placeholders or root.suspects for root in self.roots)


def survey(model: ModelProto, selection: Selection, keep: Keep | None = None) -> Survey:
    """All placeholders of ``model`` with the passes that take them.

    A placeholder is a node for which the scope's opset has no schema and the model no function, outside the domains
    that runtimes own (those are taken only where ``--bind`` says so).  Raises AmbiguousMatchError where two passes
    take one.
    """
    keep = keep or Keep()
    functions = {function_key(function): function for function in model.functions}
    training = _names_in_training(model)
    main = survey_root(main_scope(model), functions, selection, keep, training)
    roots: dict[FunctionKey, Root] = {}
    for key, function in functions.items():
        roots[key] = survey_root(
            function_scope(function, _imports(function, main.scope)), functions, selection, keep
        )
    calls = {key: {call.callee for call in root.calls} for key, root in roots.items()}
    holding = {key for key, root in roots.items() if root.placeholders or root.suspects}
    callers: dict[FunctionKey, set[FunctionKey]] = {}
    for key, callees in calls.items():
        for callee in callees:
            callers.setdefault(callee, set()).add(key)
    holding |= _reachable(holding, callers)
    used = _reachable({call.callee for call in main.calls}, calls)
    trained = _reachable(_calls_in_training(model, functions), calls)
    return Survey(main, roots, frozenset(holding), frozenset(used), frozenset(trained - used))


def survey_root(
    root: Scope,
    functions: Mapping[FunctionKey, FunctionProto],
    selection: Selection,
    keep: Keep,
    used_outside: Iterable[str] = (),
) -> Root:
    """The placeholders and calls in one graph or function and its bodies."""
    result = Root(root)
    plain = result.plain
    names = {(domain, op_type) for domain, op_type, _ in functions}
    for scope in root.walk():
        opsets = scope.opsets
        for index, node in enumerate(scope.graph.node):
            domain, op_type = normal_domain(node.domain), node.op_type
            version = opsets.get(domain)
            known = (domain, op_type, version)
            if known in plain:
                if not domain and has_list(op_type):
                    check_attributes(scope, node)
                continue
            if (domain, op_type) in names and called_function(node) in functions:
                result.domains.add(domain)
                result.calls.append(Call(scope, index, node, called_function(node)))
                continue
            if is_standard_domain(domain) and is_standard_operator(op_type, version or 1, domain):
                result.domains.add(domain)
                if not domain and has_list(op_type):
                    check_attributes(scope, node)
                lacking = None if domain else _lacking(node, version or 1, selection)
                if lacking is None:
                    plain.add(known)
                else:
                    result.suspects.setdefault(scope, []).append((index, node, lacking))
                continue
            result.domains.add(domain)
            found = _classify(scope, index, node, domain, selection, keep)
            if found is None:
                result.runtime[(domain, op_type)] += 1
            else:
                result.found.append(found)
    if result.found:
        _mark_used(result, used_outside)
    return result


def _lacking(node: NodeProto, version: int, selection: Selection) -> Match | None:
    """What takes a standard node that the target may lack; the same for all nodes of its operator."""
    return None if selection.standard is None else selection.standard.match(node, version)


def _classify(
    scope: Scope, index: int, node: NodeProto, domain: str, selection: Selection, keep: Keep
) -> Found | None:
    if keep.entry(domain, node.op_type) is not None:
        return Found(scope, index, node, None, kept=True)
    match = selection.match(node, scope.where(node))
    if match is None and runtime_of(domain) is not None:
        return None
    return Found(scope, index, node, match)


def unmatched_rules(found: Iterable[Found], selection: Selection) -> list[str]:
    """The ``--bind`` rules, as written, that gave a pass nothing."""
    used = [item.match.rule for item in found if item.match is not None and item.match.rule is not None]
    return [rule.text for rule in selection.rules if rule not in used]


def _imports(function: FunctionProto, main: Scope) -> dict[str, int]:
    """What a function imports; the default domain at the version that it is decomposed at."""
    versions = {normal_domain(item.domain): item.version for item in function.opset_import}
    version = version_for(function, main.opset)
    return versions if version is None else {**versions, "": version}


# --- what is used ---------------------------------------------------------------------------------------------


def _mark_used(root: Root, used_outside: Iterable[str]) -> None:
    """Fill in ``wanted`` and ``dead``.

    A name that is read anywhere below the root counts as used: a body may shadow an outer name, and taking that for
    a use errs on the safe side.
    """
    candidates = {name for found in root.found for name in found.node.output if name}
    uses: Counter[str] = Counter(name for name in used_outside if name in candidates)
    for scope in root.scope.walk():
        for node in scope.graph.node:
            for name in node.input:
                if name in candidates:
                    uses[name] += 1
        uses.update(name for name in _outputs(scope) if name in candidates)
    for found in reversed(root.found):
        found.wanted = tuple(uses[name] > 0 for name in found.node.output)
        if any(found.wanted) or found.kept:
            continue
        if found.match is not None:
            # Decomposed all the same, as a whole: nothing is skipped in silence.
            found.wanted = tuple(bool(name) for name in found.node.output)
            continue
        found.dead = True
        for name in found.node.input:
            if name in candidates:
                uses[name] -= 1


def _outputs(scope: Scope) -> Sequence[str]:
    graph = scope.graph
    return [item if isinstance(item, str) else getattr(item, "name", item) for item in graph.output]


def _names_in_training(model: ModelProto) -> set[str]:
    names: set[str] = set()
    for training in model.training_info:
        for graph in (training.initialization, training.algorithm):
            names |= {name for node in graph.node for name in node.input}
            names |= {value.name for value in graph.output}
    return names


def _calls_in_training(model: ModelProto, functions: Mapping[FunctionKey, FunctionProto]) -> set[FunctionKey]:
    found: set[FunctionKey] = set()
    waiting: list[GraphProto] = []
    for training in model.training_info:
        waiting += [training.initialization, training.algorithm]
    while waiting:
        for node in waiting.pop().node:
            if called_function(node) in functions:
                found.add(called_function(node))
            waiting.extend(graph for _, _, graph in graphs_of(node))
    return found


def _reachable(start: set[FunctionKey], calls: Mapping[FunctionKey, set[FunctionKey]]) -> set[FunctionKey]:
    seen: set[FunctionKey] = set()
    waiting = list(start)
    while waiting:
        key = waiting.pop()
        if key not in seen:
            seen.add(key)
            waiting.extend(calls.get(key, ()))
    return seen
