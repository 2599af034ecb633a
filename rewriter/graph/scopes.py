"""Every place in a model that holds nodes: the main graph, bodies of If/Loop/Scan, model-local functions.

Training graphs (``ModelProto.training_info``) are no scopes: they run only in a trainer, and are left as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from onnx import AttributeProto, FunctionProto, GraphProto

from rewriter.domains import normal_domain
from rewriter.errors import Where

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onnx import ModelProto, NodeProto, OperatorSetIdProto

#: Domain, name and overload of a model-local function.
FunctionKey = tuple[str, str, str]

_GRAPH, _GRAPHS = AttributeProto.GRAPH, AttributeProto.GRAPHS
_WITH_BODIES = frozenset({_GRAPH, _GRAPHS})


class Step(NamedTuple):
    """From a scope into a body of one of its nodes."""

    #: The first named output of the node that holds the body: unique in its scope, and kept by rewriting.
    output: str
    #: Position of the node when the model was read; finds a node without outputs.
    position: int
    attribute: str
    #: Which of the attribute's graphs.
    graph: int = 0


@dataclass(frozen=True)
class ScopeRef:
    """How to find a scope again, also after its nodes have moved or in a copy of the model."""

    function: FunctionKey | None = None
    steps: tuple[Step, ...] = ()

    def find(self, model: ModelProto) -> GraphProto | FunctionProto:
        """The scope in ``model``; KeyError when it is not there."""
        place: GraphProto | FunctionProto = model.graph
        if self.function is not None:
            for function in model.functions:
                if function_key(function) == self.function:
                    place = function
                    break
            else:
                raise KeyError(self.function)
        return self.descend(place)

    def descend(self, place: GraphProto | FunctionProto) -> GraphProto | FunctionProto:
        """The body that the steps lead to from ``place``; KeyError when it is not there."""
        for step in self.steps:
            place = _body(place, step)
        return place

    @property
    def is_main(self) -> bool:
        return self.function is None and not self.steps


@dataclass(frozen=True, eq=False)
class Scope:
    """One graph or function, with what holds for the nodes in it."""

    graph: GraphProto | FunctionProto
    ref: ScopeRef
    #: For people: ``"main graph"``, ``"If 'n3' then_branch"``, ``"function local::Block"``.
    path: str
    #: Versions by domain (the default domain as ``""``); a function has its own.
    opsets: Mapping[str, int]
    parent: Scope | None = None
    #: Bodies of the nodes of this scope, in their order.
    bodies: list[Scope] = field(default_factory=list)

    @property
    def opset(self) -> int | None:
        """Version of the default domain; None where it is not imported."""
        return self.opsets.get("")

    @property
    def is_function(self) -> bool:
        """Whether the scope is a function itself (a body inside one is a graph)."""
        return isinstance(self.graph, FunctionProto)

    def walk(self) -> Iterator[Scope]:
        """This scope and all bodies below it, outer ones first."""
        waiting = [self]
        while waiting:
            scope = waiting.pop()
            yield scope
            waiting.extend(reversed(scope.bodies))

    def where(self, node: NodeProto) -> Where:
        """The place of ``node`` for an error message."""
        return Where(self.path, text(node.name) or first_output(node), qualified(node), source_line(node))


def main_scope(model: ModelProto) -> Scope:
    """The main graph with all its bodies."""
    return _with_bodies(Scope(model.graph, ScopeRef(), "main graph", opset_versions(model.opset_import)))


def function_scope(function: FunctionProto, opsets: Mapping[str, int] | None = None) -> Scope:
    """A function with all its bodies; ``opsets`` overrides the versions that it imports."""
    key = function_key(function)
    path = f"function {text(key[0])}::{text(key[1])}" + (f":{text(key[2])}" if key[2] else "")
    versions = opset_versions(function.opset_import) if opsets is None else opsets
    return _with_bodies(Scope(function, ScopeRef(key), path, versions))


def training_scopes(model: ModelProto) -> list[Scope]:
    """The training graphs with their bodies.  Only their data is looked at: nothing in them is rewritten."""
    return [
        _with_bodies(Scope(graph, ScopeRef(), f"training {name}", opset_versions(model.opset_import)))
        for training in model.training_info
        for name, graph in (("initialization", training.initialization), ("algorithm", training.algorithm))
    ]


def function_key(function: FunctionProto) -> FunctionKey:
    return normal_domain(function.domain), function.name, function.overload


def called_function(node: NodeProto) -> FunctionKey:
    """The key that a function called by ``node`` would have."""
    return normal_domain(node.domain), node.op_type, node.overload


def opset_versions(imports: Sequence[OperatorSetIdProto]) -> dict[str, int]:
    return {normal_domain(item.domain): item.version for item in imports}


def has_bodies(node: NodeProto) -> bool:
    """Whether ``node`` has a body; quicker than asking :func:`graphs_of`, since most nodes have none."""
    return any(attribute.type in _WITH_BODIES for attribute in node.attribute)


def graphs_of(node: NodeProto) -> Iterator[tuple[AttributeProto, int, GraphProto]]:
    """The bodies of ``node``: attribute, position in it, graph.

    An attribute that refers to one of the function's holds none.
    """
    for attribute in node.attribute:
        kind = attribute.type
        if kind == _GRAPH and not attribute.ref_attr_name:
            yield attribute, 0, attribute.g
        elif kind == _GRAPHS and not attribute.ref_attr_name:
            for position, graph in enumerate(attribute.graphs):
                yield attribute, position, graph


def _with_bodies(root: Scope) -> Scope:
    waiting = [root]
    while waiting:
        scope = waiting.pop()
        for index, node in enumerate(scope.graph.node):
            if not has_bodies(node):
                continue
            for attribute, position, graph in graphs_of(node):
                step = Step(first_output(node), index, attribute.name, position)
                ref = ScopeRef(scope.ref.function, (*scope.ref.steps, step))
                label = (
                    f"{text(node.op_type)} '{text(node.name) or first_output(node)}' {text(attribute.name)}"
                )
                if position:
                    label += f"[{position}]"
                path = label if scope.ref.is_main else f"{scope.path} / {label}"
                body = Scope(graph, ref, path, scope.opsets, scope)
                scope.bodies.append(body)
                waiting.append(body)
    return root


def _body(place: GraphProto | FunctionProto, step: Step) -> GraphProto:
    def holds(node: NodeProto) -> bool:
        return first_output(node) == step.output

    candidates: Iterator[NodeProto] | list[NodeProto]
    if step.position < len(place.node) and holds(place.node[step.position]):
        candidates = [place.node[step.position]]
    else:
        candidates = (node for node in place.node if holds(node))
    for node in candidates:
        for attribute, position, graph in graphs_of(node):
            if attribute.name == step.attribute and position == step.graph:
                return graph
    raise KeyError(step)


# --- words for people -----------------------------------------------------------------------------------------


def text(name: str | bytes) -> str:
    """A protobuf string for people; protobuf gives one that is not UTF-8 as bytes."""
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name


def first_output(node: NodeProto) -> str:
    return next((text(name) for name in node.output if name), "")


def qualified(node: NodeProto) -> str:
    """``com.example::Roll``; a default-domain operator by its name alone."""
    domain = normal_domain(text(node.domain))
    return f"{domain}::{text(node.op_type)}" if domain else text(node.op_type)


_PYTHON_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_LEGACY_FRAME = re.compile(r"^\s*(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): ", re.MULTILINE)
#: Frames in installed packages are not the user's own code.
_LIBRARY = re.compile(r"[/\\](site-packages|dist-packages|torch|lib[/\\]python3\.\d+)[/\\]")


def source_line(node: NodeProto) -> str | None:
    """The line of the user's own code that the exporter recorded for ``node``: ``"net.py:12"``, with its folder.

    The dynamo exporter leaves a traceback in the node's metadata, innermost frame last; the TorchScript exporter one in
    its doc string, innermost frame first.
    """
    frames: list[tuple[str, str]] = []
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.stack_trace":
            frames = [(m["file"], m["line"]) for m in _PYTHON_FRAME.finditer(text(entry.value))][::-1]
    if not frames and node.doc_string:
        frames = [(m["file"], m["line"]) for m in _LEGACY_FRAME.finditer(text(node.doc_string))]
    if not frames:
        return None
    file, line = next((frame for frame in frames if not _LIBRARY.search(frame[0])), frames[0])
    return f"{file}:{line}"
