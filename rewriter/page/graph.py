"""A picture's data (``rewriter.page.drawing``) as SVG."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rewriter.page.data import dicts, listed, texts
from rewriter.page.layout import lay_out
from rewriter.page.markup import cut, tag, visible

if TYPE_CHECKING:
    from rewriter.page.layout import Layout, Point
    from rewriter.page.markup import Markup

#: Pixels: a line of text, a character of the narrow and of the bold font (both monospaced), the inner margin.
_LINE, _CHARACTER, _BOLD, _MARGIN = 16.0, 6.7, 7.6, 9.0
_MAX_CHARACTERS = 38
_WORDS = {
    "placeholder": "placeholder",
    "new": "new node",
    "neighbour": "neighbour",
    "input": "input of the graph",
    "output": "output of the graph",
    "outer": "value of an enclosing graph",
    "more": "left out",
}


@dataclass(frozen=True)
class _Node:
    kind: str
    #: (class, text) of each line, and what pointing at the node shows.
    lines: list[tuple[str, str]]
    title: str

    @property
    def size(self) -> Point:
        width = max((_width(kind, line) for kind, line in self.lines), default=0.0)
        return max(48.0, width + 2 * _MARGIN), len(self.lines) * _LINE + 10.0


def graph_svg(picture: dict[str, Any], title: str, number: str) -> Markup:
    """One picture; ``number`` tells its ids from those of others on the page."""
    data = dicts(picture.get("nodes"))
    links = [
        (edge[0], edge[2])
        for edge in listed(picture.get("edges"))
        if isinstance(edge, list) and len(edge) == 3 and all(isinstance(end, int) for end in edge)
    ]
    links = [(a, b) for a, b in dict.fromkeys(links) if 0 <= a < b < len(data)]
    leads = {a for a, _ in links}
    nodes = [_node(item, leads_on=at in leads) for at, item in enumerate(data)]
    layout = lay_out([node.size for node in nodes], links)
    width, height = layout.width + 4, layout.height + 4
    return tag(
        "svg",
        tag("title", title, id=f"{number}-title"),
        tag("desc", _description(nodes, links), id=f"{number}-desc"),
        tag(
            "g",
            [_edge(route) for route in layout.routes],
            [_box(node, layout, at) for at, node in enumerate(nodes)],
            transform="translate(2 2)",
        ),
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        role="img",
        class_="graph",
        aria_labelledby=f"{number}-title {number}-desc",
    )


def _node(item: dict[str, Any], *, leads_on: bool) -> _Node:
    kind = str(item.get("kind"))
    kind = kind if kind in _WORDS else "neighbour"
    op, name = visible(str(item.get("op", ""))), visible(str(item.get("name", "")))
    domain, _, plain = op.rpartition("::")
    outputs = [
        (visible(str(output[0])), visible(str(output[1])))
        for output in listed(item.get("outputs"))
        if isinstance(output, list) and len(output) == 2
    ]
    lines = [("op", cut(plain or op, _MAX_CHARACTERS))]
    if domain and kind in ("placeholder", "new"):
        lines.append(("faint", cut(domain, _MAX_CHARACTERS)))
    if kind == "placeholder" and name:
        lines.append(("faint", cut(name, _MAX_CHARACTERS)))
    lines += [("line", cut(visible(line), _MAX_CHARACTERS)) for line in texts(item.get("lines"))]
    types = [kind_ for _, kind_ in outputs if kind_]
    if leads_on and len(types) <= 4:
        lines += [("type", cut(kind_, _MAX_CHARACTERS)) for kind_ in types]
    elif leads_on:
        lines.append(("type", f"{len(types)} outputs"))
    told = [f"{_WORDS[kind]}: {op}", name, *texts(item.get("lines"))]
    told += [f"{value}: {type_ or 'type not known'}" for value, type_ in outputs if value]
    return _Node(kind, lines, "\n".join(cut(line, 200) for line in told if line))


def _description(nodes: list[_Node], links: list[tuple[int, int]]) -> str:
    """The picture in words, for whoever does not see it."""
    names = [node.lines[0][1] for node in nodes]
    arrows = "; ".join(f"{names[a]} to {names[b]}" for a, b in links[:40])
    return f"{len(nodes)} boxes; edges: {arrows or 'none'}" + ("; …" if len(links) > 40 else "")


def _edge(points: list[Point]) -> Markup:
    (x, y), *others = points
    path = [f"M{x:.0f} {y:.0f}"]
    for at, (to_x, to_y) in enumerate(others):
        last = at == len(others) - 1
        end_y = to_y - 5 if last else to_y  # the arrow's head is 5 pixels long
        middle = (y + end_y) / 2
        path.append(f"C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {end_y:.0f}")
        x, y = to_x, to_y
    head = f"{x - 3.5:.1f},{y - 6:.1f} {x + 3.5:.1f},{y - 6:.1f} {x:.1f},{y:.1f}"
    return tag("g", tag("path", d="".join(path)), tag("polygon", points=head), class_="edge")


def _box(node: _Node, layout: Layout, at: int) -> Markup:
    x, y = layout.tops[at]
    width, height = node.size
    is_rounded = node.kind in ("input", "output", "outer")
    texts_ = [
        tag("text", line, x=x, y=y + 17 + row * _LINE, class_=kind)
        for row, (kind, line) in enumerate(node.lines)
    ]
    return tag(
        "g",
        tag("title", node.title),
        tag("rect", x=x - width / 2, y=y, width=width, height=height, rx=height / 2 if is_rounded else 5.0),
        texts_,
        class_=f"node {node.kind}",
    )


def _width(kind: str, line: str) -> float:
    cells = sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in line)
    return cells * (_BOLD if kind == "op" else _CHARACTER)
