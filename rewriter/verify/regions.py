"""A replaced placeholder in the finished model: where its values are, and which nodes compute them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from rewriter.execution.cut import outer_names
from rewriter.graph.scopes import called_function, function_key

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from onnx import GraphProto

    from rewriter.decompose import Region
    from rewriter.graph.scopes import ScopeRef
    from rewriter.types import TensorType


def outputs_of(region: Region) -> list[str]:
    """Names of the results that are used, "" for the others, by position."""
    return [name for name, _ in region.outputs]


def tensors_of(region: Region) -> dict[str, TensorType | None]:
    """The tensor arguments that are computed: names in the finished model, with their types."""
    return {ref.name: ref.type for ref in region.bound.refs() if ref.constant is None}


@dataclass
class Slice:
    """The nodes between a region's inputs and outputs, and the constants that they read."""

    nodes: list[NodeProto] = field(default_factory=list)
    tensors: list[TensorProto] = field(default_factory=list)
    #: Values that are neither computed from the region's inputs nor constant.
    loose: list[str] = field(default_factory=list)


class Index:
    """What produces each value of one scope, and what it sees of the scopes around it."""

    def __init__(self, model: ModelProto, ref: ScopeRef) -> None:
        self.model = model
        self.chain = _chain(model, ref)
        #: Constants of the scopes around it, then the nodes of the scope itself.
        self.nodes: list[NodeProto] = []
        self.producers: dict[str, int] = {}
        self.tensors: dict[str, TensorProto] = {}
        for scope in reversed(self.chain):
            own = scope is self.chain[0]
            for node in scope.node:
                if own or node.op_type == "Constant":
                    self.producers |= {name: len(self.nodes) for name in node.output if name}
                    self.nodes.append(node)
            if not isinstance(scope, FunctionProto):
                self.tensors |= {tensor.name: tensor for tensor in scope.initializer}

    def slice(self, inputs: Iterable[str], outputs: Iterable[str]) -> Slice:
        """The part of the scope that computes ``outputs`` from ``inputs``."""
        found = Slice()
        positions: set[int] = set()
        seen = {"", *inputs}
        work = list(outputs)
        while work:
            name = work.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self.producers:
                at = self.producers[name]
                if at not in positions:
                    positions.add(at)
                    node = self.nodes[at]
                    work += [*node.input, *(n for n in outer_names(node) if self._is_known(n))]
            elif name in self.tensors:
                found.tensors.append(self.tensors[name])
            else:
                found.loose.append(name)
        found.nodes = [self.nodes[at] for at in sorted(positions)]
        return found

    def _is_known(self, name: str) -> bool:
        return name in self.producers or name in self.tensors

    @property
    def opsets(self) -> Mapping[str, int]:
        owner = self.chain[-1]
        imports = owner.opset_import if isinstance(owner, FunctionProto) else self.model.opset_import
        return {item.domain: item.version for item in imports}


def standalone(
    index: Index, inputs: Mapping[str, TensorType], outputs: Iterable[str], part: Slice
) -> ModelProto:
    """A model of the part alone, with the operators exactly as they stand in the finished model."""
    wanted = list(dict.fromkeys(name for name in outputs if name))
    nodes = list(part.nodes)
    final: list[str] = []
    for name in wanted:
        if name in inputs or any(t.name == name for t in part.tensors):
            # A region may be the identity; a graph output must be computed.
            nodes.append(helper.make_node("Identity", [name], [f"{name}:out"]))
            final.append(f"{name}:out")
        else:
            final.append(name)
    graph = helper.make_graph(
        nodes,
        "region",
        [helper.make_value_info(name, kind.to_proto()) for name, kind in inputs.items()],
        [ValueInfoProto(name=name) for name in final],
        part.tensors,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in index.opsets.items()],
        ir_version=index.model.ir_version,
    )
    called = {called_function(node) for node in nodes}
    if any(function_key(function) in called for function in index.model.functions):
        model.functions.extend(index.model.functions)
        known = {item.domain for item in model.opset_import}
        model.opset_import.extend(item for item in index.model.opset_import if item.domain not in known)
    return model


def identity(region: Region, types: Mapping[str, TensorType], model: ModelProto) -> Hashable:
    """What makes two regions the same, ``model`` being :func:`standalone`'s: names do not matter, all else does."""
    names = {name: f"in{i}" for i, name in enumerate(types)}

    def renamed(name: str) -> str:
        return names.setdefault(name, f"v{len(names)}") if name else ""

    nodes = []
    for node in model.graph.node:
        copy = NodeProto(op_type=node.op_type, domain=node.domain, overload=node.overload)
        copy.attribute.extend(node.attribute)
        copy.input.extend(renamed(name) for name in node.input)
        copy.output.extend(renamed(name) for name in node.output)
        nodes.append(copy.SerializeToString(deterministic=True))
    tensors = []
    for tensor in model.graph.initializer:
        anonymous = TensorProto()
        anonymous.CopyFrom(tensor)
        anonymous.name = renamed(tensor.name)
        tensors.append(anonymous.SerializeToString(deterministic=True))
    return (
        type(region.placeholder),
        region.placeholder.pass_name(),
        region.bound.describe(),
        tuple(types.values()),
        tuple(nodes),
        tuple(sorted(tensors)),
        tuple(renamed(name) for name in outputs_of(region)),
        tuple(sorted((item.domain, item.version) for item in model.opset_import)),
    )


def _chain(model: ModelProto, ref: ScopeRef) -> list[GraphProto | FunctionProto]:
    """The scope and those around it, inner ones first; KeyError where it is not there."""
    place: GraphProto | FunctionProto = type(ref)(ref.function).find(model)
    chain = [place]
    for step in ref.steps:
        place = type(ref)(None, (step,)).descend(place)
        chain.insert(0, place)
    return chain
