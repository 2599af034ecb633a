"""Parts of a model that can run: without operators that nobody here implements, or only as far as wanted.

An operator that is kept for another runtime is cut out: what it gives becomes an input of the model that is verified,
what it takes becomes a value to compare.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx
from onnx import ModelProto, NodeProto, ValueInfoProto, defs, inliner

from rewriter.domains import is_runtime_domain, is_standard_domain
from rewriter.errors import CannotVerifyError
from rewriter.graph.scopes import (
    called_function,
    first_output,
    function_key,
    graphs_of,
    main_scope,
    qualified,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from onnx import GraphProto

    from rewriter.graph.scopes import Scope
    from rewriter.types import TensorType

#: What the names of inputs begin with that stand for results of what was cut out.
CUT = "cut:"
#: Deepest nesting of calls that is put in place.
_MAX_DEPTH = 64


@dataclass
class CutModel:
    """A model without operators that cannot run here."""

    model: ModelProto
    #: Graph inputs that stand for the results of what was cut out.
    inputs: list[str] = field(default_factory=list)
    #: What the operators took, by a name that does not depend on names of values before them.
    probes: dict[str, str] = field(default_factory=dict)
    #: Their attributes, by the first result: what is not run must at least be the same.
    attributes: dict[str, bytes] = field(default_factory=dict)
    #: The operators, each once.
    operators: list[str] = field(default_factory=list)


def same_cuts(a: CutModel, b: CutModel) -> bool:
    """Whether the same operators were cut out of both, with the same attributes, inputs and results."""
    return set(a.inputs) == set(b.inputs) and set(a.probes) == set(b.probes) and a.attributes == b.attributes


def cut_unknown(
    model: ModelProto, types: Mapping[str, TensorType], libraries: Collection[str] = ()
) -> CutModel:
    """``model`` without the operators of domains that neither ONNX, onnxruntime nor a library in ``libraries`` serves.

    ``types`` are those of the values.  The model itself is returned where there is nothing to cut; CannotVerifyError
    where the type of a result is unknown, so that it cannot be drawn.
    """
    if not _holds_unknown(model, libraries):
        return CutModel(model)
    if any(_unknown_in_functions(model, libraries)):
        model = inlined(model)
    copy = ModelProto()
    copy.CopyFrom(model)
    result = CutModel(copy)
    functions = {function_key(f) for f in copy.functions}
    for scope in main_scope(copy).walk():
        for node in scope.graph.node:
            if _is_unknown(node, functions, scope, libraries):
                _cut_node(node, scope, types, result)
    return result


def inlined(model: ModelProto) -> ModelProto:
    """``model`` with the body of each model-local function in the place of every call.

    An attribute that a call omits has its default.  onnx's inliner drops it, so it is written into the call before; one
    level of calls after the other, since a reference to an attribute that is omitted there is an omission as well.
    """
    try:
        if not any(function.attribute_proto for function in model.functions):
            return inliner.inline_local_functions(model)
        current = ModelProto()
        current.CopyFrom(model)
        for _ in range(_MAX_DEPTH):
            called = _give_defaults(current)
            if not called:
                del current.functions[:]
                return current
            current = inliner.inline_selected_functions(current, called)
        raise ValueError(f"functions are nested more than {_MAX_DEPTH} deep")
    except Exception as error:
        raise CannotVerifyError(
            f"onnx cannot put the bodies of model-local functions in the places of their calls: {error}",
            remedy="name the libraries of what is kept (--library), or pass --no-verify",
        ) from error


def _give_defaults(model: ModelProto) -> list[tuple[str, str]]:
    """Write defaults of omitted attributes into the calls of the main graph; domain and name of what is called."""
    functions = {function_key(function): function for function in model.functions}
    called: dict[tuple[str, str], None] = {}
    for scope in main_scope(model).walk():
        for node in scope.graph.node:
            function = functions.get(called_function(node))
            if function is not None:
                given = {attribute.name for attribute in node.attribute}
                node.attribute.extend(a for a in function.attribute_proto if a.name not in given)
                called[function.domain, function.name] = None
    return list(called)


def _cut_node(node: NodeProto, scope: Scope, types: Mapping[str, TensorType], result: CutModel) -> None:
    name = qualified(node)
    label = first_output(node)
    if name not in result.operators:
        result.operators.append(name)
    bare = NodeProto(op_type=node.op_type, domain=node.domain)
    bare.attribute.extend(sorted(node.attribute, key=lambda a: a.name))
    result.attributes[label] = bare.SerializeToString(deterministic=True)
    results = [output for output in node.output if output]
    if scope.ref.is_main:
        for index, value in enumerate(node.input):
            if value:
                result.probes[f"input {index} of {name} '{label}'"] = value
    if len(results) != 1:
        # One Identity serves one result; further ones would have to be inserted, and no operator here needs it.
        _cut_many(node, scope, results, types, result)
        return
    source = _input_for(results[0], node, scope, types, result)
    node.Clear()
    node.op_type = "Identity"
    node.input.append(source)
    node.output.append(results[0])


def _cut_many(
    node: NodeProto, scope: Scope, results: list[str], types: Mapping[str, TensorType], result: CutModel
) -> None:
    """Several results come out of one If whose two branches give the same: a single node in the place of the other."""
    sources = [_input_for(output, node, scope, types, result) for output in results]
    node.Clear()
    node.op_type = "If"
    always = result.model.graph.initializer
    if not any(t.name == CUT + "true" for t in always):
        always.append(onnx.helper.make_tensor(CUT + "true", onnx.TensorProto.BOOL, [], [True]))
    node.input.append(CUT + "true")
    node.output.extend(results)
    for branch in ("then_branch", "else_branch"):
        nodes = [onnx.helper.make_node("Identity", [s], [f"{s}:{branch}"]) for s in sources]
        outputs = [ValueInfoProto(name=f"{s}:{branch}") for s in sources]
        node.attribute.append(
            onnx.helper.make_attribute(branch, onnx.helper.make_graph(nodes, branch, [], outputs))
        )


def _input_for(
    output: str, node: NodeProto, scope: Scope, types: Mapping[str, TensorType], result: CutModel
) -> str:
    kind = types.get(output)
    if kind is None or kind.shape is None:
        raise CannotVerifyError(
            f"'{output}', a result of an operator that is kept, has no known {'type' if kind is None else 'rank'}: "
            "nothing can stand in for it",
            where=scope.where(node),
            remedy="name a library that has the operator (--library), or pass --no-verify",
        )
    name = CUT + output
    if name not in result.inputs:
        result.inputs.append(name)
        value = result.model.graph.input.add()
        value.name = name
        value.type.CopyFrom(kind.to_proto())
    return name


def _holds_unknown(model: ModelProto, libraries: Collection[str]) -> bool:
    functions = {function_key(f) for f in model.functions}
    in_graphs = (
        _is_unknown(node, functions, scope, libraries)
        for scope in main_scope(model).walk()
        for node in scope.graph.node
    )
    return any(in_graphs) or any(_unknown_in_functions(model, libraries))


def _unknown_in_functions(model: ModelProto, libraries: Collection[str]) -> Iterable[bool]:
    from rewriter.graph.scopes import function_scope

    functions = {function_key(f) for f in model.functions}
    for function in model.functions:
        for scope in function_scope(function).walk():
            for node in scope.graph.node:
                yield _is_unknown(node, functions, scope, libraries)


def _is_unknown(
    node: NodeProto, functions: Collection[tuple[str, str, str]], scope: Scope, libraries: Collection[str]
) -> bool:
    key = called_function(node)
    if key in functions or key[0] in libraries or is_runtime_domain(key[0]):
        return False
    if not is_standard_domain(key[0]):
        return True
    version = scope.opsets.get(key[0])
    return version is not None and not _has_schema(key[1], key[0], version)


def _has_schema(op_type: str, domain: str, version: int) -> bool:
    try:
        defs.get_schema(op_type, version, domain)
    except defs.SchemaError:
        return False
    return True


def prune(model: ModelProto, wanted: Iterable[str]) -> ModelProto:
    """A copy that computes ``wanted`` (values of the main graph) and nothing that they do not need."""
    needed = set(wanted)
    outputs = list(needed)
    keep = []
    for node in reversed(model.graph.node):
        if any(name in needed for name in node.output if name):
            keep.append(node)
            needed.update(name for name in node.input if name)
            needed |= outer_names(node)
    result = ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in reversed(keep)]
    tensors = [t for t in model.graph.initializer if t.name in needed]
    sparse = [t for t in model.graph.sparse_initializer if t.values.name in needed]
    for part in (graph.node, graph.initializer, graph.sparse_initializer, graph.output):
        del part[:]
    graph.node.extend(nodes)
    graph.initializer.extend(tensors)
    graph.sparse_initializer.extend(sparse)
    produced = {name for node in nodes for name in node.output}
    graph.output.extend(ValueInfoProto(name=name) for name in sorted(outputs) if name in produced)
    return result


def outer_names(node: NodeProto) -> set[str]:
    """All names that the bodies of ``node`` read; those of their own among them do no harm."""
    found: set[str] = set()
    pending: list[GraphProto] = [body for _, _, body in graphs_of(node)]
    while pending:
        graph = pending.pop()
        found.update(value.name for value in graph.output)
        for inner in graph.node:
            found.update(name for name in inner.input if name)
            pending.extend(body for _, _, body in graphs_of(inner))
    return found
