"""The steps of a plan: nodes that onnxruntime runs, and what is run for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from onnx import FunctionProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, ValueInfoProto, helper

from rewriter.domains import is_standard_domain, normal_domain
from rewriter.errors import BindingError, CannotVerifyError, RewriteError
from rewriter.execution.held import Held, Values, known_type
from rewriter.execution.reference import ReferenceRefused, evaluate, require_torch
from rewriter.graph.aliases import readable_names, with_real_names
from rewriter.graph.opsets import all_nodes
from rewriter.placeholder.orders import bind_site
from rewriter.standin.control import Body, Control
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import TypeProto

    from rewriter.execution.numbers import Array
    from rewriter.execution.session import Session
    from rewriter.graph.survey import Call, Found
    from rewriter.placeholder.binding import Bound, Ref, Site
    from rewriter.placeholder.registry import Match
    from rewriter.standin.parts import Part
    from rewriter.standin.plan import Plan

_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})


@dataclass
class Env:
    """The values of one run of a scope, and of the scopes around it."""

    own: dict[str, Held] = field(default_factory=dict)
    outer: Env | None = None

    def find(self, name: str) -> Held | None:
        place: Env | None = self
        while place is not None:
            if name in place.own:
                return place.own[name]
            place = place.outer
        return None


class SessionStep:
    """Nodes that onnxruntime runs, loaded when the types of what they take are known."""

    def __init__(self, plan: Plan, part: Part, given: frozenset[str]) -> None:
        self.plan = plan
        self.part = part
        self.given = given
        self._loaded: dict[tuple[bytes, ...], Session] = {}

    def run(self, env: Env) -> None:
        values = self.plan.engine.values
        held = {name: self.plan.value(env, name) for name in self.part.inputs}
        types = {name: values.type_of(item) for name, item in held.items()}
        key = tuple(kind.SerializeToString(deterministic=True) for kind in types.values())
        if key not in self._loaded:
            self._loaded[key] = self.plan.engine.session(self._model(types))
        session = self._loaded[key]
        kinds = {name: known_type(text) for name, text in session.output_types.items()}
        if None in kinds.values() or any(item.is_absent for item in held.values()):
            # Maps have no OrtValue that could be read, and one without a value none that could be passed.
            found = session.run({name: values.data(item) for name, item in held.items()})
            env.own |= {name: values.of(data, kinds[name]) for name, data in found.items()}
            return
        results = session.run_held({name: values.ort(item) for name, item in held.items()})
        for name, result in results.items():
            kind = kinds[name]
            assert kind is not None
            is_tensor = kind.WhichOneof("value") == "tensor_type"
            env.own[name] = values.of_ort(result, None if is_tensor else kind)

    def _model(self, types: Mapping[str, TypeProto]) -> ModelProto:
        plan, part = self.plan, self.part
        nodes = [_renamed(plan.nodes[index], self.given) for index in part.nodes]
        constants = list(part.constants.values())
        graph = helper.make_graph(
            [*(item for item in constants if isinstance(item, NodeProto)), *nodes],
            "part",
            [ValueInfoProto(name=name, type=kind) for name, kind in types.items()],
            [ValueInfoProto(name=name) for name in part.outputs],
            [item for item in constants if isinstance(item, TensorProto)],
            sparse_initializer=[item for item in constants if isinstance(item, SparseTensorProto)],
        )
        functions = plan.engine.callees(nodes)
        used = {normal_domain(node.domain) for node in all_nodes(graph)} | {""}
        versions = {domain: version for domain, version in plan.scope.opsets.items() if domain in used}
        for function in functions:
            for item in function.opset_import:
                versions.setdefault(normal_domain(item.domain), item.version)
            versions.setdefault(normal_domain(function.domain), 1)
        model: ModelProto = helper.make_model(
            graph,
            functions=functions,
            opset_imports=[helper.make_opsetid(domain, version) for domain, version in versions.items()],
            ir_version=plan.engine.file.model.ir_version,
        )
        return model


class ReferenceStep:
    """A placeholder, which its pass's reference stands in for."""

    def __init__(self, plan: Plan, node: NodeProto, found: Found) -> None:
        assert found.match is not None
        require_torch()
        self.plan = plan
        self.node = node
        self.found = found
        self.match = found.match

    def run(self, env: Env) -> None:
        plan = self.plan
        values = plan.engine.values
        held = {name: plan.value(env, name) for name in self.node.input if name}
        types: list[TypeProto | None] = []
        for name in self.node.input:
            kind = self._type(held[name]) if name else None
            types.append(None if kind is None else kind.to_proto())
        site = replace(plan.engine.frames.site(plan.frame, self.found, types), node=self.node)
        match, bound = self._bound(site, held)
        try:
            results = evaluate(match.placeholder, bound, lambda ref: _value(ref, held, values))
        except RewriteError as error:
            error.where = error.where or self.found.where
            raise
        except TypeError as error:
            raise CannotVerifyError(str(error), where=self.found.where) from error
        for index, name in enumerate(self.node.output):
            result = results[index] if index < len(results) else None
            if name and result is not None:
                env.own[name] = values.of(result)
            elif name and index < len(self.found.wanted) and self.found.wanted[index]:
                raise ReferenceRefused(
                    f"the reference gives nothing for output {index} ('{name}')", where=self.found.where
                )

    def _type(self, held: Held) -> TensorType | None:
        kind = self.plan.engine.values.type_of(held)
        if kind.WhichOneof("value") != "tensor_type":
            return None
        shape = held.ort.shape() if not held.has_data else np.shape(held.data)
        return TensorType(kind.tensor_type.elem_type, tuple(int(size) for size in shape))

    def _bound(self, site: Site, held: Mapping[str, Held]) -> tuple[Match, Bound]:
        try:
            return self._bind(site)
        except BindingError as error:
            # What decomposing must know before the model runs may be computed here.
            values = self.plan.engine.values
            known = {name: values.array(item) for name, item in held.items() if self._type(item) is not None}
            try:
                return self._bind(replace(site, constants=known))
            except BindingError:
                raise error from None

    def _bind(self, site: Site) -> tuple[Match, Bound]:
        plain, aliases = readable_names(site)
        match = self.match.at(plain)
        return match, with_real_names(bind_site(match.placeholder, plain, match), aliases)


class BodiesStep:
    """A node with bodies that hold placeholders."""

    def __init__(self, plan: Plan, node: NodeProto, index: int) -> None:
        self.plan = plan
        self.node = node
        self.where = plan.scope.where(plan.scope.graph.node[index])
        if node.op_type not in _CONTROL or not is_standard_domain(node.domain):
            raise CannotVerifyError(
                "a placeholder stands in a body of it, and only those of If, Loop, Scan and SequenceMap can be run "
                "from outside",
                where=self.where,
            )
        #: The plans of the bodies, with the names of what each gives, by attribute.
        self.bodies: dict[str, tuple[Plan, list[str]]] = {}
        for scope in plan.scope.bodies:
            step = scope.ref.steps[-1]
            if step.position == index:
                outputs = [value.name for value in scope.graph.output]
                inner = plan.inside(scope, outputs)
                self.bodies[step.attribute] = inner, outputs

    def run(self, env: Env) -> None:
        bodies = {name: self._body(plan, outputs, env) for name, (plan, outputs) in self.bodies.items()}
        control = Control(self.node, bodies, self.plan.engine.values, self.where)
        results = control.run([self.plan.value(env, name) if name else None for name in self.node.input])
        env.own |= {name: held for name, held in zip(self.node.output, results, strict=False) if name}

    def _body(self, plan: Plan, outputs: Sequence[str], outer: Env) -> Body:
        graph = plan.scope.graph
        assert not isinstance(graph, FunctionProto)

        def run(values: Mapping[str, Held]) -> list[Held]:
            env = Env(dict(values), outer)
            plan.run(env)
            return [plan.value(env, name) for name in outputs]

        def types() -> Sequence[TensorType | None]:
            return [plan.engine.frames.type_of(plan.frame, plan.scope, name) for name in outputs]

        kinds = [TensorType.from_proto(value.type) for value in graph.input]
        ranks = [None if kind is None or kind.shape is None else len(kind.shape) for kind in kinds]
        return Body([value.name for value in graph.input], ranks, run, types)


class FunctionStep:
    """A call of a function that holds placeholders."""

    def __init__(self, plan: Plan, node: NodeProto, call: Call) -> None:
        self.plan = plan
        self.node = node
        frame = plan.engine.frames.of_call(plan.frame, call)
        function = frame.root.scope.graph
        assert isinstance(function, FunctionProto)
        inputs = [*node.input, *[""] * len(function.input)]
        self.inputs = dict(zip(function.input, inputs, strict=False))
        #: The function's results by the names that they have at the call.
        self.outputs = {
            name: inner for name, inner in zip(node.output, function.output, strict=False) if name
        }
        absent = frozenset(formal for formal, actual in self.inputs.items() if not actual)
        self.inner = plan.engine.function(frame, absent, tuple(dict.fromkeys(self.outputs.values())))

    def run(self, env: Env) -> None:
        given = {formal: self.plan.value(env, actual) for formal, actual in self.inputs.items() if actual}
        own = Env(given)
        self.inner.run(own)
        env.own |= {name: self.inner.value(own, inner) for name, inner in self.outputs.items()}


def _value(ref: Ref, held: Mapping[str, Held], values: Values) -> Array:
    return np.asarray(ref.constant) if ref.constant is not None else values.array(held[ref.name])


def _renamed(node: NodeProto, given: frozenset[str]) -> NodeProto:
    """``node`` with other names for results that come from outside."""
    if not any(name in given for name in node.output):
        return node
    renamed = NodeProto()
    renamed.CopyFrom(node)
    for index, name in enumerate(node.output):
        if name in given:
            renamed.output[index] = f"{name}:computed"
    return renamed
