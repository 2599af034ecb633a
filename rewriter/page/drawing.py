"""Some nodes of a scope and what stands next to them, as the plain data of a picture.

A picture is ``{"nodes": […], "edges": […]}``.  A node has a ``kind``: ``"placeholder"`` or ``"new"`` (what it is
about), ``"neighbour"``, ``"input"``, ``"output"``, ``"outer"`` (a value of an enclosing scope), or ``"more"`` (left
out); its ``op``, its ``name``, ``lines`` of text (attributes, constants that it reads), and ``outputs``, each
``[name, type]``.  An edge is ``[from, output, to]`` with positions in ``nodes``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from onnx import defs

from rewriter.domains import normal_domain
from rewriter.graph.scopes import first_output, qualified, text
from rewriter.page.neighbourhood import attribute_lines, is_constant, reads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import NodeProto

    from rewriter.page.neighbourhood import Neighbourhood

Picture = dict[str, Any]

#: Most nodes that stand for themselves; of more, these many at either end do, and one stands for the rest.
_MAX_NODES, _ENDS = 26, 12
#: Most neighbours on either side, most lines of text in a node, and characters in a line.
_MAX_NEIGHBOURS, _MAX_LINES, _MAX_LINE = 6, 5, 200


def draw(
    around: Neighbourhood,
    nodes: Sequence[NodeProto],
    kind: str,
    lines: Sequence[str] = (),
    parameters: Mapping[str, str] = MappingProxyType({}),
) -> Picture:
    """``nodes``, in their order in the scope; ``lines`` are put in the place of the first one's attributes, and
    ``parameters`` says what the values are to an operator that has no schema.
    """
    computed = [node for node in nodes if not is_constant(node)]
    return _Pen(around, kind, parameters).draw(computed or list(nodes), lines)


@dataclass
class _Pen:
    around: Neighbourhood
    kind: str
    parameters: Mapping[str, str]
    nodes: list[dict[str, Any]] = field(default_factory=list)
    edges: dict[tuple[int, int, int], None] = field(default_factory=dict)

    def draw(self, members: list[NodeProto], lines: Sequence[str]) -> Picture:
        self._members = members
        inside = {name for node in members for name in node.output if name}
        before = self._before(members, inside)
        drawn = self._inside(members, lines)
        made: dict[str, tuple[int, int]] = dict(before)
        for node, at in zip(members, drawn, strict=True):
            is_whole = self.nodes[at]["kind"] != "more"
            for index, name in enumerate(node.output):
                if name:
                    made[name] = at, index if is_whole else 0
        for node, at in zip(members, drawn, strict=True):
            for name in reads(node):
                if name in made and made[name][0] != at:
                    self._edge(*made[name], at)
        self._after(members, made, {id(node) for node in members})
        return {"nodes": self.nodes, "edges": [list(edge) for edge in self.edges]}

    # --- nodes ------------------------------------------------------------------------------------------------

    def _add(
        self,
        kind: str,
        op: str,
        name: str = "",
        lines: Sequence[str] = (),
        outputs: Sequence[tuple[str, str]] = (),
    ) -> int:
        self.nodes.append(
            {
                "kind": kind,
                "op": op,
                "name": name,
                "lines": [_cut(line) for line in lines],
                "outputs": [list(output) for output in outputs],
            }
        )
        return len(self.nodes) - 1

    def _edge(self, start: int, output: int, end: int) -> None:
        self.edges[start, output, end] = None

    def _outputs(self, node: NodeProto) -> list[tuple[str, str]]:
        types = self.around.types
        return [(text(name), types.get(name, "") if name else "") for name in node.output]

    def _before(self, members: Sequence[NodeProto], inside: set[str]) -> dict[str, tuple[int, int]]:
        """The makers of what the members read from outside, by value."""
        found: dict[str, tuple[int, int]] = {}
        by_maker: dict[int, int] = {}
        around = self.around
        names = [name for node in members for name in dict.fromkeys(reads(node))]
        outside = [
            name for name in dict.fromkeys(names) if name not in inside and around.constant(name) is None
        ]
        known = [
            name
            for name in outside
            if name in around.makers or name in around.inputs or self._is_plain_input(name, members)
        ]
        for name in known[:_MAX_NEIGHBOURS]:
            if name in around.makers:
                node, index = around.makers[name]
                if id(node) not in by_maker:
                    by_maker[id(node)] = self._add(
                        "neighbour", qualified(node), _name(node), outputs=self._outputs(node)
                    )
                found[name] = by_maker[id(node)], index
            else:
                kind = "input" if name in around.inputs else "outer"
                at = self._add(kind, text(name), outputs=[(text(name), around.types.get(name, ""))])
                found[name] = at, 0
        rest = known[_MAX_NEIGHBOURS:]
        if rest:
            at = self._add("more", f"{len(rest)} more values")
            found |= dict.fromkeys(rest, (at, 0))
        return found

    @staticmethod
    def _is_plain_input(name: str, members: Sequence[NodeProto]) -> bool:
        """What only bodies read may be a name of their own."""
        return any(name in node.input for node in members)

    def _inside(self, members: Sequence[NodeProto], lines: Sequence[str]) -> list[int]:
        """The members' places among the nodes; those left out share one."""
        left_out = range(0) if len(members) <= _MAX_NODES else range(_ENDS, len(members) - _ENDS)
        drawn: list[int] = []
        stand_in = -1
        for position, node in enumerate(members):
            if position in left_out:
                if stand_in < 0:
                    counts = Counter(qualified(members[at]) for at in left_out)
                    stand_in = self._add(
                        "more",
                        f"{len(left_out)} more nodes",
                        lines=[f"{count} × {op}" for op, count in counts.most_common(_MAX_LINES)],
                    )
                drawn.append(stand_in)
                continue
            own = list(lines) if lines and not position else attribute_lines(node)
            drawn.append(
                self._add(
                    self.kind,
                    qualified(node),
                    _name(node),
                    [*own, *self._constants(node)][:_MAX_LINES],
                    self._outputs(node),
                )
            )
        return drawn

    def _constants(self, node: NodeProto) -> list[str]:
        """``"axes: [1]"`` for each constant that ``node`` reads, under the operator's own name for it."""
        formal = _formal_inputs(node, self.around.opsets.get(normal_domain(text(node.domain)), 1))
        lines = []
        for index, name in enumerate(node.input):
            value = self.around.constant(name) if name else None
            if value is not None:
                title = formal[index] if index < len(formal) else self.parameters.get(name, f"input {index}")
                lines.append(f"{title}: {value}")
        return lines

    def _after(self, members: Sequence[NodeProto], made: dict[str, tuple[int, int]], own: set[int]) -> None:
        """The readers of what the members make."""
        readers: dict[int, int] = {}
        for node in members:
            for name in (name for name in node.output if name):
                passed_over = 0
                if name in self.around.outputs:
                    at = self._add("output", text(name), outputs=[])
                    self._edge(*made[name], at)
                for reader in self.around.readers.get(name, ()):
                    if id(reader) in own or self.around.leads_nowhere(reader):
                        continue
                    if id(reader) not in readers:
                        if len(readers) >= _MAX_NEIGHBOURS:
                            passed_over += 1
                            continue
                        readers[id(reader)] = self._add(
                            "neighbour", qualified(reader), _name(reader), outputs=self._outputs(reader)
                        )
                    self._edge(*made[name], readers[id(reader)])
                if passed_over:
                    self._edge(*made[name], self._add("more", f"{passed_over} more readers"))


def _name(node: NodeProto) -> str:
    return text(node.name) or first_output(node)


def _formal_inputs(node: NodeProto, version: int) -> list[str]:
    try:
        schema = defs.get_schema(node.op_type, version, normal_domain(node.domain))
    except (defs.SchemaError, TypeError):
        return []
    return [formal.name for formal in schema.inputs]


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 1] + "…"
