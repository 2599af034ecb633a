"""What is drawn of a run: equal replacements together, and of each kind a few pictures of before and after."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnx import FunctionProto, ModelProto

from rewriter.execution.types import value_types
from rewriter.graph.scopes import ScopeRef, function_scope, main_scope
from rewriter.graph.types import without_made_up
from rewriter.page.drawing import draw
from rewriter.page.neighbourhood import Neighbourhood
from rewriter.placeholder.binding import Ref
from rewriter.report import function_name
from rewriter.verify.regions import Index, standalone, tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnx import GraphProto, NodeProto

    from rewriter.errors import Where
    from rewriter.graph.expanding import Region
    from rewriter.graph.scopes import Scope
    from rewriter.page.drawing import Picture
    from rewriter.types import TensorType
    from rewriter.verify.regions import Slice

#: Pictures of each kind of replacement, and of all of them together.
PER_KIND, IN_ALL = 2, 30

#: Between the parameters in a description; a tuple has commas of its own.
_PARAMETER = re.compile(r", (?=\w+=)")

#: Scope, node, operator.
_Place = tuple[str, str, str]
_Kind = tuple[str, str, str, tuple[str, ...], bool]


class Sketchbook:
    """Takes a copy of a model before it is changed; draws it beside what became of it."""

    def __init__(self, model: ModelProto) -> None:
        """``model`` is a skeleton, so that its copy holds no weights."""
        before = ModelProto()
        before.CopyFrom(model)
        self._artist = _Artist(before)
        self._regions: list[Region] = []

    def turn(self, model: ModelProto, regions: Iterable[Region]) -> None:
        """From now on ``model``, which holds the nodes of ``regions``, is what became of it."""
        self._artist.after = model
        self._regions = list(regions)

    def drawings(self) -> list[dict[str, Any]]:
        """Each kind of replacement with its pictures, as plain data."""
        kinds: dict[_Kind, dict[str, list[Region]]] = {}
        for region in self._regions:
            if not region.via:
                kinds.setdefault(_kind(region), {}).setdefault(_variant(region), []).append(region)
        room = IN_ALL
        chosen: list[tuple[_Kind, dict[str, list[Region]], list[list[Region]]]] = []
        for kind, variants in kinds.items():
            shown = list(variants.values())[: min(PER_KIND, room)]
            room -= len(shown)
            chosen.append((kind, variants, shown))
        self._artist.find(members[0].where for _, _, shown in chosen for members in shown)
        return [
            {
                "operator": kind[0],
                "pass": kind[1],
                "decomposition": kind[2],
                "into": list(kind[3]),
                "count": sum(map(len, variants.values())),
                "variants": len(variants),
                "pictures": [self._artist.picture(members) for members in shown],
            }
            for kind, variants, shown in chosen
        ]

    def at(self, where: Where) -> dict[str, Any] | None:
        """The picture of one place: a replaced placeholder, else any node; None where there is no such node."""
        self._artist.find([where])
        for region in self._regions:
            if _place(region.where) == _place(where):
                return self._artist.picture([region])
        return self._artist.node(where)


def _place(where: Where) -> _Place:
    return where.scope, where.node, where.operator


def _kind(region: Region) -> _Kind:
    return (
        region.where.operator,
        region.placeholder.pass_name(),
        region.decomposition,
        tuple(region.into),
        region.function is not None,
    )


def _variant(region: Region) -> str:
    """Replacements of one kind differ in their arguments and in the types of what they read and give."""
    types = [str(kind) for _, kind in (*region.inputs, *region.outputs)]
    return repr((region.bound.describe(), types))


@dataclass
class _Artist:
    before: ModelProto
    after: ModelProto | None = None
    _hoods: dict[int, Neighbourhood] = field(default_factory=dict)
    _indices: dict[ScopeRef, Index] = field(default_factory=dict)
    _found: dict[_Place, tuple[Scope, NodeProto]] = field(default_factory=dict)

    def find(self, places: Iterable[Where]) -> None:
        """Look up the nodes of the model as it was, at which ``places`` were."""
        self._found |= _nodes_at(self.before, {_place(where) for where in places})

    def node(self, where: Where) -> dict[str, Any] | None:
        """A node that is no replaced placeholder, with its neighbours as they stand now, or else as they stood."""
        now = {} if self.after is None else _nodes_at(self.after, {_place(where)})
        found = now or {place: item for place, item in self._found.items() if place == _place(where)}
        if not found:
            return None
        scope, node = found[_place(where)]
        model = self.after if now and self.after is not None else self.before
        side = "after" if now else "before"
        sides = {"before": None, "after": None} | {
            side: draw(self._hood(model, scope.graph), [node], "placeholder")
        }
        return _caption(where) | sides

    def picture(self, members: list[Region]) -> dict[str, Any]:
        region = members[0]
        return _caption(region.where) | {
            "parameters": region.bound.describe(),
            "count": len(members),
            "before": self._draw_before(region),
            "after": self._draw_after(region),
            "function": None if region.function is None else function_name(region.function),
        }

    def _draw_before(self, region: Region) -> Picture | None:
        found = self._found.get(_place(region.where))
        if found is None:
            return None
        scope, node = found
        around = self._hood(self.before, scope.graph)
        around.correct([*_named(node.input, region.inputs), *_named(node.output, region.outputs)])
        lines = [line for line in _PARAMETER.split(region.bound.describe()) if line]
        parameters = {
            value.name: name for name, value in region.bound.arguments.items() if isinstance(value, Ref)
        }
        return draw(around, [node], "placeholder", lines, parameters)

    def _draw_after(self, region: Region) -> Picture | None:
        ref = region.scope if region.function is None else ScopeRef(region.function)
        try:
            index = self._index(ref)
        except KeyError:
            return None
        place = index.chain[0]
        around = self._hood(index.model, place)
        inputs = dict(region.inputs) | tensors_of(region)
        outputs = [name for name, _ in region.outputs if name]
        if isinstance(place, FunctionProto) and region.function is not None:
            inputs = dict(_named(place.input, region.inputs))
            outputs = list(place.output)
        part = index.slice(inputs, outputs)
        around.learn(inputs.items())
        around.learn(region.outputs)
        around.learn(_inferred(index, inputs, outputs, part))
        return draw(around, [node for node in part.nodes if around.holds(node)], "new")

    def _index(self, ref: ScopeRef) -> Index:
        assert self.after is not None
        if ref not in self._indices:
            self._indices[ref] = Index(self.after, ref)
        return self._indices[ref]

    def _hood(self, model: ModelProto, graph: GraphProto | FunctionProto) -> Neighbourhood:
        if id(graph) not in self._hoods:
            self._hoods[id(graph)] = Neighbourhood(model, graph)
        return self._hoods[id(graph)]


def _caption(where: Where) -> dict[str, Any]:
    return {
        "node": where.node,
        "scope": where.scope,
        "line": where.source,
        "parameters": "",
        "count": 1,
        "function": None,
    }


def _nodes_at(model: ModelProto, places: set[_Place]) -> dict[_Place, tuple[Scope, NodeProto]]:
    """The first node at each of ``places``, as far as there is one."""
    found: dict[_Place, tuple[Scope, NodeProto]] = {}
    scopes = {scope for scope, _, _ in places}
    for root in (main_scope(model), *map(function_scope, model.functions)):
        for scope in root.walk():
            for node in scope.graph.node if scope.path in scopes else ():
                place = _place(scope.where(node))
                if place in places:
                    found.setdefault(place, (scope, node))
    return found


def _named(
    names: Iterable[str], known: Iterable[tuple[str, TensorType | None]]
) -> list[tuple[str, TensorType | None]]:
    return [(name, kind) for name, (_, kind) in zip(names, known, strict=False) if name]


def _inferred(
    index: Index, inputs: dict[str, TensorType | None], outputs: list[str], part: Slice
) -> Iterable[tuple[str, TensorType | None]]:
    """Types of the values between: ONNX's own inference on the part alone."""
    known = {name: kind for name, kind in inputs.items() if name and kind is not None}
    if any(isinstance(name, bytes) for name in (*known, *outputs)):
        return ()  # names that are not UTF-8, which no new model can be given
    symbols = frozenset(dim for kind in known.values() for dim in kind.shape or () if isinstance(dim, str))
    found = value_types(standalone(index, known, outputs, part))
    return [(name, without_made_up(kind, symbols)) for name, kind in found.items()]
