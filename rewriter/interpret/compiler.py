"""From protobuf to :class:`Plan`: attributes read, kernels found, functions bound."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

from rewriter.domains import normal_domain
from rewriter.errors import CannotInterpretError, InterpreterRefusedError, RewriteError, Where
from rewriter.graph.scopes import (
    called_function,
    first_output,
    function_key,
    opset_versions,
    qualified,
    source_line,
)
from rewriter.interpret import kernels
from rewriter.interpret.bodies import schema_body
from rewriter.interpret.call import Body, Call
from rewriter.interpret.constants import Reader, Unavailable, attribute_named
from rewriter.interpret.plan import Plan, Schedule, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rewriter.interpret.plan import Declared
    from rewriter.storage import ModelFile


@dataclass(frozen=True)
class Context:
    """What holds for a whole model."""

    file: ModelFile
    model: ModelProto
    floating: torch.dtype | None

    def functions(self) -> dict[tuple[str, str, str], FunctionProto]:
        return {function_key(function): function for function in self.model.functions}


@dataclass(frozen=True)
class Surroundings:
    """What holds for the nodes of one scope."""

    path: str
    opsets: Mapping[str, int]
    #: Attributes of the call that a function is made ready for.
    attributes: Mapping[str, AttributeProto] | None = None


class Compiler:
    """Makes plans of the graphs of one model."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.read = Reader(context.file, context.floating)
        self._functions = context.functions()
        self._made: dict[Any, Schedule] = {}
        self._active: set[Any] = set()

    def main(self) -> Plan:
        around = Surroundings("main graph", opset_versions(self.context.model.opset_import))
        return self.graph(self.context.model.graph, around)

    def graph(self, graph: GraphProto, around: Surroundings) -> Plan:
        initial = {tensor.name: self.read.available(tensor) for tensor in graph.initializer}
        for sparse in graph.sparse_initializer:
            initial[sparse.values.name] = self.read.sparse(sparse)
        steps = [self.step(node, around) for node in graph.node]
        return Plan(
            tuple(i.name for i in graph.input),
            tuple(o.name for o in graph.output),
            steps,
            initial,
            tuple(_declared(output) for output in graph.output),
        )

    def step(self, node: NodeProto, around: Surroundings) -> Step:
        where = Where(around.path, node.name or first_output(node), qualified(node), source_line(node))
        opset = around.opsets.get(normal_domain(node.domain), 1)
        schema = kernels.schema_of(node.domain, node.op_type, opset)
        attributes: dict[str, Any] = {}
        if schema is not None:
            for name, declared in schema.attributes.items():
                if declared.default_value.type:
                    attributes[name] = self.read.attribute(declared.default_value)
        plans: dict[str, Plan] = {}
        resolved: list[AttributeProto] = []
        for given in node.attribute:
            found = given
            if given.ref_attr_name:
                actual = (around.attributes or {}).get(given.ref_attr_name)
                if actual is None:
                    continue
                found = attribute_named(actual, given.name)
            resolved.append(found)
            if found.type == AttributeProto.GRAPH:
                label = f"{where.operator} '{where.node}' {found.name}"
                path = label if around.path == "main graph" else f"{around.path} / {label}"
                inner = replace(around, path=path)
                plans[found.name] = self.graph(found.g, inner)
            else:
                attributes[found.name] = self.read.attribute(found)
        captured = {name: plan.captured() for name, plan in plans.items()}
        outer = dict.fromkeys(name for names in captured.values() for name in names)
        reads = tuple(dict.fromkeys([*(n for n in node.input if n), *outer]))
        wanted = tuple(bool(name) for name in node.output)
        call = Call(node.op_type, opset, attributes, wanted, where, self.context.floating)
        run = self._run(node, call, plans, captured, around, resolved)
        return Step(call, run, reads, tuple(node.output))

    def _run(
        self,
        node: NodeProto,
        call: Call,
        plans: Mapping[str, Plan],
        captured: Mapping[str, Sequence[str]],
        around: Surroundings,
        resolved: Sequence[AttributeProto],
    ) -> Callable[[dict[str, Any]], Sequence[Any]]:
        """What computes the node; an operator that is missing is said when it runs, which it may never do."""
        names = tuple(node.input)
        needed = max((i + 1 for i, name in enumerate(node.output) if name), default=0)
        function = self._functions.get(called_function(node))
        schedules = {name: Schedule.of(plan, plan.outputs) for name, plan in plans.items()}

        if function is not None:
            body = self._called(function, resolved, around, node.output)

            def call_function(values: dict[str, Any]) -> Sequence[Any]:
                return _inside(body, _inputs(call, names, values))

            return call_function

        kernel = kernels.find(node.domain, node.op_type, call.opset)
        if kernel is None:
            return self._by_schema(node, call, around, resolved)

        def run(values: dict[str, Any]) -> Sequence[Any]:
            inputs = _inputs(call, names, values)
            made = call
            if schedules:
                made = replace(
                    call,
                    bodies={
                        name: Body(
                            functools.partial(_inside, schedule, around=values, captured=captured[name]),
                            schedule.plan.declared,
                        )
                        for name, schedule in schedules.items()
                    },
                )
            found = _guarded(made, kernel, inputs)
            results: tuple[Any, ...] = found if isinstance(found, tuple) else (found,)
            if len(results) < needed:
                raise call.unsupported(f"the interpreter gives {len(results)} of its {needed} results")
            return results

        return run

    def _called(
        self,
        function: FunctionProto,
        attributes: Sequence[AttributeProto],
        around: Surroundings,
        results: Sequence[str],
    ) -> Schedule:
        """A model-local function, the same one for all calls with equal attributes."""
        key = (
            function_key(function),
            tuple(a.SerializeToString(deterministic=True) for a in attributes),
            tuple(bool(name) for name in results),
        )
        if key in self._active:
            raise CannotInterpretError("the function calls itself", where=f"function {function.name}")
        if key not in self._made:
            self._active.add(key)
            self._made[key] = self._function(function, attributes, around, results)
            self._active.remove(key)
        return self._made[key]

    def _function(
        self,
        function: FunctionProto,
        attributes: Sequence[AttributeProto],
        around: Surroundings,
        results: Sequence[str],
        schema: kernels.Schema | None = None,
    ) -> Schedule:
        """The function with the attributes of one call of it, which names some of its results."""
        given = {default.name: default for default in function.attribute_proto}
        if schema is not None:
            given |= {n: a.default_value for n, a in schema.attributes.items() if a.default_value.type}
        given |= {attribute.name: attribute for attribute in attributes}
        path = (
            f"function {function.domain}::{function.name}"
            if schema is None
            else f"the body of {function.name}"
        )
        opsets = opset_versions(function.opset_import) or around.opsets
        inner = Surroundings(path, opsets, given)
        steps = [self.step(node, inner) for node in function.node]
        # A body may leave a result that is not asked for undefined.
        outputs = [name if read else "" for name, read in zip(function.output, results, strict=False)]
        plan = Plan(tuple(function.input), tuple(outputs), steps)
        return Schedule.of(plan, plan.outputs)

    def _by_schema(
        self, node: NodeProto, call: Call, around: Surroundings, resolved: Sequence[AttributeProto]
    ) -> Callable[[dict[str, Any]], Sequence[Any]]:
        """The node by the body that ONNX gives its operator, which may depend on the types of the inputs."""
        made: dict[Any, Schedule] = {}
        bare = NodeProto(op_type=node.op_type, domain=node.domain, input=node.input, output=node.output)
        bare.attribute.extend(resolved)

        def run(values: dict[str, Any]) -> Sequence[Any]:
            inputs = _inputs(call, node.input, values)
            key = tuple((i.dtype, i.ndim) if isinstance(i, torch.Tensor) else type(i) for i in inputs)
            if key not in made:
                function = schema_body(bare, call, inputs)
                schema = kernels.schema_of(node.domain, node.op_type, call.opset)
                made[key] = self._function(function, resolved, around, node.output, schema)
            return _inside(made[key], inputs)

        return run


def _inputs(call: Call, names: Sequence[str], values: Mapping[str, Any]) -> list[Any]:
    """None for an input that is left out."""
    try:
        return [values[name] if name else None for name in names]
    except KeyError as error:
        raise call.refused(f"nothing gives the value {error}") from None


def _inside(
    schedule: Schedule,
    inputs: Sequence[Any],
    *,
    around: Mapping[str, Any] | None = None,
    captured: Sequence[str] = (),
) -> list[Any]:
    """The outputs of a body or function."""
    plan = schedule.plan
    values: dict[str, Any] = {name: (around or {})[name] for name in captured}
    values |= plan.initial
    values |= dict.fromkeys(plan.inputs)
    values |= dict(zip(plan.inputs, inputs, strict=False))
    found = schedule.run(values)
    return [found[name] if name else None for name in plan.outputs]


def _declared(output: ValueInfoProto) -> Declared:
    kind = output.type.tensor_type
    if not kind.HasField("shape"):
        return kind.elem_type, None
    return kind.elem_type, tuple(max(dim.dim_value, 0) for dim in kind.shape.dim)


def _guarded(call: Call, kernel: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    for value in (*inputs, *call.attributes.values()):
        if isinstance(value, Unavailable):
            raise CannotInterpretError(value.error.what, where=call.where)
    try:
        return kernel(call, *inputs)
    except RewriteError as error:
        error.where = error.where or call.where
        raise
    except NotImplementedError as error:
        raise call.unsupported(_sentence(error)) from error
    except (RuntimeError, ValueError, IndexError, TypeError, AttributeError, ZeroDivisionError) as error:
        text = _sentence(error)
        if "not implemented for" in text:
            raise CannotInterpretError(
                f"PyTorch lacks a kernel: {text}", where=call.where, remedy="use another floating-point type"
            ) from error
        raise InterpreterRefusedError(text, where=call.where) from error


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
