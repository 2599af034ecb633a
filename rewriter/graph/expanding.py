"""One placeholder to the plain nodes that stand for it, through however many decompositions that takes."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onnx import NodeProto, numpy_helper

from rewriter.errors import CyclicDecompositionError, DecompositionFault
from rewriter.graph.aliases import readable_names, with_real_names
from rewriter.graph.leftover import describe
from rewriter.graph.scopes import Scope, qualified, text
from rewriter.graph.splice import Replacement, place
from rewriter.graph.survey import Found, Keep, survey_root
from rewriter.graph.templates import Table, Template, likeness
from rewriter.placeholder.binding import Bound, Site
from rewriter.placeholder.contract import Known
from rewriter.placeholder.expand import Expansion, expand

if TYPE_CHECKING:
    from onnx import FunctionProto

    from rewriter.errors import Where
    from rewriter.graph.names import Names
    from rewriter.graph.scopes import FunctionKey, ScopeRef
    from rewriter.placeholder.contract import Placeholder
    from rewriter.placeholder.registry import Match, Selection, StandardOperators
    from rewriter.types import TensorType

#: Longest chain of placeholders that decompose into one another.
_MAX_CHAIN = 32


@dataclass
class Region:
    """A replaced placeholder in the finished, unsimplified model."""

    placeholder: Placeholder
    #: Name of the decomposition, and why it was chosen.
    decomposition: str
    reason: str
    #: The arguments; names of tensors are those in the finished model.
    bound: Bound
    #: Where the placeholder was.
    where: Where
    #: The scope of its nodes in the finished model.
    scope: ScopeRef
    #: Tensors that the nodes read, as given to the placeholder, by position ("" where omitted).
    inputs: list[tuple[str, TensorType | None]]
    #: The placeholder's own outputs, by position ("" where unused).
    outputs: list[tuple[str, TensorType | None]]
    #: The operators that stand there now, in order.
    into: list[str] = field(default_factory=list)
    #: Whether the pass was named and does not list the operator's domain: its meaning was assumed.
    assumed: bool = False
    #: What must hold of sizes that the model does not know, for the decomposition to be right.
    conditions: tuple[str, ...] = ()
    #: The placeholders that this one came from, outermost first; empty where it stood in the model itself.
    via: tuple[str, ...] = ()
    #: The model-local function that holds its nodes where the placeholder stays as a call.
    function: FunctionKey | None = None
    #: The placeholder itself, as the exporter wrote it.
    node: NodeProto = field(default_factory=NodeProto, repr=False)
    #: The placeholder with the attributes of the function that it stands in, and what took it: what its arguments are
    #: checked against.
    site: Site | None = field(default=None, repr=False, compare=False)
    match: Match | None = field(default=None, repr=False, compare=False)


def needs_torch(regions: Iterable[Region]) -> bool:
    """Whether a region is compared with PyTorch."""
    return any(not region.placeholder.is_standard for region in regions)


@dataclass(frozen=True)
class Surroundings:
    """What expanding needs to know of the place."""

    scope: Scope
    #: The scope in the finished model, where a function may have another name.
    ref: ScopeRef
    names: Names
    selection: Selection
    keep: Keep
    functions: Mapping[FunctionKey, FunctionProto]
    portable: bool = False
    templates: Table[Template] = field(default_factory=Table)


def expand_fully(here: Surroundings, found: Found, site: Site) -> tuple[Replacement, list[Region]]:
    """``found`` down to operators that are no placeholders, with its own region first.

    Raises a DecompositionError of the pass, or CyclicDecompositionError naming the chain.
    """
    assert found.match is not None
    return _expand(here, found.match, site, ())


_Link = tuple[str, bytes]


def _expand(
    here: Surroundings, match: Match, site: Site, chain: tuple[_Link, ...]
) -> tuple[Replacement, list[Region]]:
    if chain:
        _refuse_cycle(site, chain)
    key = likeness(match, site)
    key = None if key is None else (key, here.portable, tuple(here.scope.opsets.items()))
    template = here.templates.get(key)
    if template is None:
        template = _template(here, match, site)
        if template.is_small:
            here.templates.keep(key, template)
    given = list(site.node.input)
    inputs = {local: name for local, name in zip(template.inputs, given, strict=True) if name}
    replacement = place(template, site.node, here.names, site.where, inputs, site.wanted)
    region = _region(here, template, site, inputs, replacement, chain)
    if template.plain is not None:
        replacement.domains = _used(replacement.nodes, replacement.domains)
        region.into = list(template.plain)
        return replacement, [region]
    whole, inner = _nested(here, site, replacement, (*chain, _link(site)))
    region.into = [qualified(node) for node in whole.nodes]
    if not inner:
        template.plain = list(region.into)
    return whole, [region, *inner]


def _refuse_cycle(site: Site, chain: tuple[_Link, ...]) -> None:
    """CyclicDecompositionError where ``site`` comes from itself."""
    link = _link(site)
    if link in chain or len(chain) >= _MAX_CHAIN:
        names = [name for name, _ in (*chain, link)]
        shown = names if len(names) <= 8 else [*names[:4], "…", *names[-3:]]
        raise CyclicDecompositionError(
            f"these placeholders decompose into one another without end: {' → '.join(shown)}",
            where=site.where,
            remedy="one of their passes must decompose into standard operators",
        )


def _template(here: Surroundings, match: Match, site: Site) -> Template:
    match = match.at(site)
    plain, _ = readable_names(site)
    standard = here.selection.standard
    lacks = None if standard is None else functools.partial(_lacks, standard, plain)
    expansion = expand(match.placeholder, plain, match=match, portable=here.portable, lacks=lacks)
    return Template.of(expansion, match, plain.node.input)


def _nested(
    here: Surroundings, site: Site, made: Replacement, chain: tuple[_Link, ...]
) -> tuple[Replacement, list[Region]]:
    """Expand the placeholders among the nodes that a decomposition made."""
    nodes: list[NodeProto] = []
    initializers = list(made.initializers)
    types = dict(made.types)
    domains = dict(made.domains)
    for name, known in zip(site.node.input, site.inputs, strict=False):
        if name and known is not None:
            types.setdefault(name, known)
    regions: list[Region] = []
    for node in made.nodes:
        found = _placeholder(here, node, domains, types, made)
        if found is None or found.kept:
            nodes.append(node)
            continue
        if found.scope.parent is not None:
            raise DecompositionFault(
                f"the decomposition of {chain[-1][0]} puts another placeholder, {qualified(found.node)}, into a body",
                where=site.where,
                remedy="decompose it there, or move it out of the body",
            )
        where = replace(site.where, operator=qualified(node), node=text(node.name))
        inner = Site(
            node,
            tuple(types.get(name) for name in node.input),
            _Constants(site.constants, {tensor.name: tensor for tensor in initializers}),
            opset=site.opset,
            ir_version=site.ir_version,
            where=where,
        )
        if found.match is None:
            raise describe([Found(here.scope, 0, node, None)], here.selection, where=where, via=chain[-1][0])
        replacement, below = _expand(here, found.match, inner, chain)
        nodes += replacement.nodes
        initializers += replacement.initializers
        types |= replacement.types
        domains |= replacement.domains
        regions += below
    return Replacement(nodes, initializers, types, _used(nodes, domains)), regions


def _used(nodes: Sequence[NodeProto], domains: dict[str, int]) -> dict[str, int]:
    """Those of ``domains`` that a node is in."""
    used = {node.domain for node in nodes} if domains else ()
    return {domain: version for domain, version in domains.items() if domain in used}


def _lacks(standard: StandardOperators, site: Site, expansion: Expansion) -> bool:
    """Whether a target lacks a node that a decomposition of ``site`` made."""
    types = {**dict(zip(site.node.input, site.inputs, strict=False)), **expansion.types}
    known = Known(types.get, {tensor.name for tensor in expansion.initializers}.__contains__)
    return any(
        not node.domain and _lacking(standard, node, site.opset, known) is not None
        for node in expansion.nodes
    )


def _lacking(standard: StandardOperators, node: NodeProto, opset: int, known: Known) -> Match | None:
    """What takes a node that a decomposition made, where the target lacks it."""
    match = standard.match(node, opset)

    def dtype_of(name: str) -> int | None:
        found = known.type_of(name)
        return None if found is None else found.dtype

    return None if match is None or match.placeholder.stays(node, dtype_of, known) else match


def _placeholder(
    here: Surroundings,
    node: NodeProto,
    domains: Mapping[str, int],
    types: Mapping[str, TensorType],
    made: Replacement,
) -> Found | None:
    one = type(here.scope.graph)()
    one.node.add().CopyFrom(node)
    opsets = {**domains, **here.scope.opsets}
    if here.selection.standard is not None:
        opsets[""] = here.selection.standard.opset
    scope = Scope(one, here.ref, here.scope.path, opsets)
    root = survey_root(scope, here.functions, here.selection, here.keep)
    standard = here.selection.standard
    if root.suspects and standard is not None and not node.domain:
        known = Known(types.get, {tensor.name for tensor in made.initializers}.__contains__)
        match = _lacking(standard, node, standard.opset, known)
        if match is not None:
            return Found(scope, 0, node, match, standard=True)
    return root.found[0] if root.found else None


def _region(
    here: Surroundings,
    template: Template,
    site: Site,
    inputs: Mapping[str, str],
    replacement: Replacement,
    chain: tuple[_Link, ...],
) -> Region:
    match, expansion = template.match, template.expansion
    made = {name for node in replacement.nodes for name in node.output}
    types = dict(zip(site.node.output, expansion.output_types, strict=False))
    return Region(
        match.placeholder,
        expansion.decomposition,
        expansion.reason,
        with_real_names(expansion.bound, inputs),
        site.where,
        here.ref,
        list(zip(site.node.input, site.inputs, strict=False)),
        [(name, types.get(name)) if name in made and name else ("", None) for name in site.node.output],
        [],
        match.assumed,
        expansion.conditions,
        tuple(name for name, _ in chain),
        node=site.node,
        site=site,
        match=match,
    )


def _link(site: Site) -> _Link:
    """What makes two placeholders of a chain the same: operator, attributes and types of inputs."""
    node = NodeProto(op_type=site.node.op_type, domain=site.node.domain)
    node.attribute.extend(sorted(site.node.attribute, key=lambda a: a.name))
    identity = node.SerializeToString(deterministic=True) + repr(site.inputs).encode()
    return qualified(site.node), identity


class _Constants(Mapping[str, Any]):
    """The constants of the scope, and those that an expansion made."""

    def __init__(self, outer: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        self._outer, self._made = outer, made

    def __getitem__(self, name: str) -> Any:
        if name in self._made:
            return numpy_helper.to_array(self._made[name])
        return self._outer[name]

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._outer

    def __iter__(self) -> Iterator[str]:
        return iter([*self._made, *self._outer])

    def __len__(self) -> int:
        return len(self._made) + len(self._outer)
