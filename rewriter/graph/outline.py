"""A placeholder that stays: a call to a model-local function of its own name, whose body is the decomposition.

A runtime with a kernel of that name runs its kernel; one that knows functions and lacks it runs the body.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnx import FunctionProto, NodeProto

from rewriter.domains import is_standard_domain, normal_domain
from rewriter.errors import DecompositionError
from rewriter.graph.aliases import with_real_names
from rewriter.graph.opsets import import_default
from rewriter.graph.scopes import FunctionKey, ScopeRef, function_key, graphs_of
from rewriter.graph.splice import Replacement, constant_node, with_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onnx import GraphProto

    from rewriter.graph.expanding import Region, Surroundings
    from rewriter.graph.names import Names
    from rewriter.graph.scopes import Scope
    from rewriter.placeholder.binding import Site

#: The IR version that brought model-local functions.
FUNCTIONS_IR = 8
#: Overloads, several functions of one name, came with IR version 10.  But onnxruntime up to 1.25, which takes version
#: 13, runs the last of them for all, without a word; this one it refuses.
OVERLOADS_IR = 14


def whole(site: Site, names: Names) -> Site:
    """``site`` with every output named and wanted: a function gives all of them, used or not.

    DecompositionError for an operator of ONNX's own domains, in which runtimes take no function.
    """
    if is_standard_domain(normal_domain(site.node.domain)):
        raise DecompositionError(
            "runtimes take no function in a domain of ONNX's own, so it cannot stay as a call to one",
            where=site.where,
            remedy="export it in a domain of its own, or leave out --as-function",
        )
    node = NodeProto()
    node.CopyFrom(site.node)
    outputs = [name or names.fresh(f"{node.op_type}/unused") for name in node.output]
    return replace(site, node=with_names(node, list(node.input), outputs), wanted=(True,) * len(outputs))


class Outliner:
    """Makes the functions of one model, equal ones once."""

    def __init__(self, taken: Iterable[FunctionKey]) -> None:
        self.functions: list[FunctionProto] = []
        self._keys = set(taken)
        self._by_body: dict[tuple[str, str, bytes], FunctionKey] = {}

    @property
    def ir_version(self) -> int:
        """The oldest IR version at which what was made is not misread; 0 where nothing was."""
        if any(function.overload for function in self.functions):
            return OVERLOADS_IR
        return FUNCTIONS_IR if self.functions else 0

    def outline(
        self, here: Surroundings, site: Site, original: NodeProto, made: Replacement, regions: list[Region]
    ) -> tuple[Replacement, list[Region]] | None:
        """The call that stands for ``made``, the expansion of ``site``, and the regions as they are then.

        ``original`` has the outputs as the model has them.  None where no call can stand: onnxruntime (1.32) passes
        over the overload of a call that is itself in a function, and would run the body of another.
        """
        scope = here.scope
        function, mapping = _function(scope, site, made)
        body = function.SerializeToString(deterministic=True)
        domain, name = normal_domain(site.node.domain), site.node.op_type
        known = self._by_body.get((domain, name, body))
        self._choose_overload(function)
        key = known or function_key(function)
        if key[2] and here.ref.function is not None:
            return None
        if known is None:
            self._keys.add(key)
            self._by_body[domain, name, body] = key
            self.functions.append(function)
        call = NodeProto()
        call.CopyFrom(site.node)
        with_names(call, list(site.node.input), list(original.output))
        if key[2]:
            call.overload = key[2]
        outputs = {output for output in call.output if output}
        top, *inner = regions
        top.outputs = [item if item[0] in outputs else ("", None) for item in top.outputs]
        top.function = key
        if known is not None:
            inner = []  # the function was proved with the call that made it
        for region in inner:
            region.scope = ScopeRef(key)
            region.bound = with_real_names(region.bound, mapping)
            region.inputs = [(mapping.get(value, value), kind) for value, kind in region.inputs]
            region.outputs = [(mapping.get(value, value), kind) for value, kind in region.outputs]
            region.node = _renamed(region.node, mapping)
            region.site = None if region.site is None else _renamed_site(region.site, mapping)
        types = {value: kind for value, kind in made.types.items() if value in outputs}
        domains = {**made.domains, domain: scope.opsets.get(domain, 1)}
        return Replacement([call], [], types, domains), [top, *inner]

    def _choose_overload(self, function: FunctionProto) -> None:
        """An overload of its own where another function has the name already."""
        count = 2
        while function_key(function) in self._keys:
            function.overload = str(count)
            count += 1


def _renamed(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return with_names(
        copy, [names.get(value, value) for value in node.input], [names.get(v, v) for v in node.output]
    )


def _renamed_site(site: Site, names: Mapping[str, str]) -> Site:
    """The site as it stands in a function."""
    constants = {
        names.get(value, value): site.constants[value] for value in site.node.input if value in site.constants
    }
    return replace(site, node=_renamed(site.node, names), constants=constants)


def _function(scope: Scope, site: Site, made: Replacement) -> tuple[FunctionProto, dict[str, str]]:
    """The function, and what the values of ``made`` are called in it.

    All names are made anew, in order, so that equal decompositions give equal functions wherever they stand.
    """
    node = site.node
    function = FunctionProto(domain=node.domain, name=node.op_type)
    if node.overload:
        function.overload = node.overload
    mapping: dict[str, str] = {}
    for index, value in enumerate(node.input):
        function.input.append(f"input_{index}")
        if value:
            mapping.setdefault(value, f"input_{index}")
    for index, value in enumerate(node.output):
        function.output.append(f"output_{index}")
        mapping[value] = f"output_{index}"
    function.attribute.extend(sorted(attribute.name for attribute in node.attribute))
    for index, tensor in enumerate(made.initializers):
        mapping[tensor.name] = f"constant_{index}"
        new = function.node.add()
        new.CopyFrom(constant_node(tensor, ()))
        _rename(new, mapping)
    for new in made.nodes:
        function.node.add().CopyFrom(new)
        _rename(function.node[-1], mapping)
    for index, new in enumerate(function.node):
        new.name = f"{new.op_type}_{index}"
    import_default(function, scope)
    used = {normal_domain(item.domain) for item in _nodes(function)} - {""}
    for domain, version in sorted({**scope.opsets, **made.domains}.items()):
        if domain in used:
            function.opset_import.add(domain=domain, version=version)
    return function, mapping


def _rename(node: NodeProto, mapping: dict[str, str]) -> None:
    """Rename everything in ``node``; what the call site left on it (doc string, metadata) stays with the call."""

    def renamed(name: str) -> str:
        return mapping.setdefault(name, f"value_{len(mapping)}") if name else name

    node.ClearField("doc_string")
    del node.metadata_props[:]
    with_names(node, [renamed(name) for name in node.input], [renamed(name) for name in node.output])
    for _, _, graph in graphs_of(node):
        _rename_body(graph, mapping)


def _rename_body(graph: GraphProto, mapping: dict[str, str]) -> None:
    def renamed(name: str) -> str:
        return mapping.setdefault(name, f"value_{len(mapping)}")

    for part in (graph.input, graph.initializer):
        for item in part:
            item.name = renamed(item.name)
    for index, node in enumerate(graph.node):
        _rename(node, mapping)
        node.name = f"{node.op_type}_{index}"
    for part in (graph.output, graph.value_info):
        for item in part:
            item.name = renamed(item.name)


def _nodes(function: FunctionProto) -> Iterable[NodeProto]:
    waiting: list[FunctionProto | GraphProto] = [function]
    while waiting:
        for node in waiting.pop().node:
            yield node
            waiting.extend(graph for _, _, graph in graphs_of(node))
