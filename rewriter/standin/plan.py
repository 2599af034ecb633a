"""How a scope with placeholders in it, or below it, is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import FunctionProto, ModelProto, NodeProto, SparseTensorProto

from rewriter.errors import CannotVerifyError, UsageError
from rewriter.execution.held import Held, Values
from rewriter.execution.session import Session
from rewriter.graph.constants import literal
from rewriter.graph.leftover import describe
from rewriter.graph.opsets import all_nodes
from rewriter.graph.scopes import called_function, function_key, graphs_of
from rewriter.graph.survey import Call
from rewriter.standin.parts import arrange, names_of
from rewriter.standin.steps import BodiesStep, FunctionStep, ReferenceStep, SessionStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rewriter.execution.numbers import Array
    from rewriter.execution.weights import Weights
    from rewriter.graph.frames import Frame
    from rewriter.graph.functions import Frames
    from rewriter.graph.scopes import FunctionKey, Scope
    from rewriter.graph.survey import Found
    from rewriter.placeholder.registry import Selection
    from rewriter.standin.parts import Constant, Names
    from rewriter.standin.steps import Env
    from rewriter.storage import ModelFile


@dataclass
class Engine:
    """What the plans of one model share."""

    file: ModelFile
    frames: Frames
    selection: Selection
    weights: Weights
    libraries: Mapping[str, Path]
    optimise: bool
    values: Values = field(default_factory=Values)
    _sessions: list[Session] = field(default_factory=list)
    _functions: dict[tuple[int, frozenset[str], tuple[str, ...]], Plan] = field(default_factory=dict)
    #: Frames whose identity is a key above: alive as long as this.
    _frames: list[Frame] = field(default_factory=list)
    _sites: dict[int, Sites] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.file.model.graph
        inputs = {value.name for value in graph.input}
        #: Initializers that feeds may override; onnxruntime lets them from IR version 4 on.
        self.defaults: frozenset[str] = frozenset(
            name
            for name in (
                *(t.name for t in graph.initializer),
                *(t.values.name for t in graph.sparse_initializer),
            )
            if name in inputs
        )
        self.functions = {function_key(function): function for function in self.file.model.functions}

    def session(self, model: ModelProto) -> Session:
        made = Session(self.weights, model, optimise=self.optimise, libraries=tuple(self.libraries.values()))
        self._sessions.append(made)
        return made

    def restart(self) -> None:
        """Before a run: what draws random numbers draws the same ones in every run."""
        for session in self._sessions:
            session.restart()

    def sites(self, frame: Frame) -> Sites:
        if id(frame) not in self._sites:
            self._frames.append(frame)
            self._sites[id(frame)] = Sites(frame, self)
        return self._sites[id(frame)]

    def function(self, frame: Frame, absent: frozenset[str], wanted: tuple[str, ...]) -> Plan:
        """How the specialisation ``frame`` of a function is run without the inputs ``absent``."""
        key = id(frame), absent, wanted
        if key not in self._functions:
            self._frames.append(frame)
            self._functions[key] = Plan(self, frame, frame.root.scope, wanted, absent=absent)
        return self._functions[key]

    def callees(self, nodes: Iterable[NodeProto]) -> list[FunctionProto]:
        """The model-local functions that ``nodes`` call, directly or through others."""
        found: dict[FunctionKey, FunctionProto] = {}
        waiting = [called_function(node) for top in nodes for node in with_inner(top)]
        while waiting:
            key = waiting.pop()
            function = self.functions.get(key)
            if function is not None and key not in found:
                found[key] = function
                waiting += [called_function(node) for node in all_nodes(function)]
        return list(found.values())


class Sites:
    """The nodes of one frame that onnxruntime cannot run, by scope and position."""

    def __init__(self, frame: Frame, engine: Engine) -> None:
        holding = engine.frames.survey.holding
        self.found: dict[tuple[Scope, int], Found | Call] = {}
        for item in frame.root.found:
            if item.match is not None or item.domain not in engine.libraries:
                self.found[item.scope, item.index] = item
        for call in frame.root.calls:
            if call.callee in holding:
                self.found[call.scope, call.index] = call
        #: The bodies that hold one, directly or below.
        self.bodies: set[Scope] = set()
        for scope, _ in self.found:
            place: Scope | None = scope
            while place is not None and place not in self.bodies:
                self.bodies.add(place)
                place = place.parent


class Plan:
    """One scope, made ready to be run.

    ``wanted`` are the values that somebody will ask for, ``given`` those that come from outside although the scope
    has them, ``absent`` inputs of a function that its call leaves out.
    """

    def __init__(
        self,
        engine: Engine,
        frame: Frame,
        scope: Scope,
        wanted: Iterable[str],
        *,
        outer: Plan | None = None,
        given: frozenset[str] = frozenset(),
        absent: frozenset[str] = frozenset(),
    ) -> None:
        self.engine = engine
        self.frame = frame
        self.scope = scope
        self.absent = absent
        self.nodes = [
            node if frame.is_main else _without(frame.resolved(node), absent) for node in scope.graph.node
        ]
        sites = engine.sites(frame)
        special = {index for place, index in sites.found if place is scope}
        bodies = {body.ref.steps[-1].position for body in scope.bodies if body in sites.bodies}
        self.names: Names = names_of(scope.graph, self.nodes, given, None if outer is None else outer.names)
        self._steps: list[Any] = []
        for step in arrange(self.nodes, special | bodies, self.names, wanted, given):
            if step.part is not None:
                runs: Any = SessionStep(self, step.part, given)
            else:
                site = sites.found.get((scope, step.node))
                runs = self._special(step.node, site)
            self._steps.append((runs, step.done))

    def _special(self, index: int, site: Found | Call | None) -> Any:
        node = self.nodes[index]
        if site is None:
            return BodiesStep(self, node, index)
        if isinstance(site, Call):
            return FunctionStep(self, node, site)
        if site.match is None:
            if site.kept:
                raise CannotVerifyError(
                    "it is kept, and nothing here runs it",
                    where=site.where,
                    remedy=f"give a library (--library {site.domain}=FILE)",
                )
            raise describe([site], self.engine.selection)
        return ReferenceStep(self, node, site)

    def inside(self, body: Scope, wanted: Sequence[str]) -> Plan:
        """How a body of one of its nodes is run."""
        return Plan(self.engine, self.frame, body, wanted, outer=self, absent=self.absent)

    def run(self, env: Env) -> None:
        """Compute what is wanted into ``env``."""
        for step, done in self._steps:
            step.run(env)
            for name in done:
                env.own.pop(name, None)

    def value(self, env: Env, name: str) -> Held:
        """The value of ``name`` as seen from here."""
        constant = self.names.constant(name)
        if constant is not None:
            return self.engine.values.of(self.array(constant))
        found = env.find(name)
        if found is None:
            raise UsageError(
                f"'{name}' has no value: it is neither given nor computed", where=self.scope.path
            )
        return found

    def array(self, constant: Constant) -> Array:
        if isinstance(constant, NodeProto):
            for attribute in constant.attribute:
                if attribute.name == "value":
                    return self.engine.file.array(attribute.t)
                if attribute.name == "sparse_value":
                    return self._dense(attribute.sparse_tensor)
                found = literal(attribute)
                if found is not None:
                    return found
            raise CannotVerifyError("a Constant without a value", where=self.scope.where(constant))
        return (
            self._dense(constant)
            if isinstance(constant, SparseTensorProto)
            else self.engine.file.array(constant)
        )

    def _dense(self, tensor: SparseTensorProto) -> Array:
        values, indices = (np.asarray(self.engine.file.array(t)) for t in (tensor.values, tensor.indices))
        result = np.zeros(list(tensor.dims), values.dtype)
        result[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, result.shape)] = values
        return result


def with_inner(node: NodeProto) -> Iterable[NodeProto]:
    yield node
    for _, _, graph in graphs_of(node):
        yield from all_nodes(graph)


def _without(node: NodeProto, absent: frozenset[str]) -> NodeProto:
    """``node``, a copy, without the inputs that a call leaves out; those of its bodies too."""
    if absent:
        for inner in with_inner(node):
            for index, name in enumerate(inner.input):
                if name in absent:
                    inner.input[index] = ""
    return node
