"""The section on what was replaced: kinds of replacements, with pictures of the graph before and after."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rewriter.page.data import counted, dicts, integer, mapping, texts
from rewriter.page.graph import graph_svg
from rewriter.page.markup import code, short, table, tag
from rewriter.page.parts import folded, operator, scroll, section

if TYPE_CHECKING:
    from rewriter.page.markup import Content, Markup

#: Most kinds of replacements, and most places of one.
_KINDS, _SHOWN_PLACES = 60, 200


def replaced(data: dict[str, Any]) -> Markup | None:
    """Each kind of replacement, with pictures where the report has them."""
    entries = [entry for entry in dicts(data.get("replaced")) if not entry.get("via")]
    drawings = dicts(mapping(data.get("details")).get("drawings"))
    if not entries:
        return None
    content: list[Content] = []
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault(_kind(entry, bool(entry.get("function"))), []).append(entry)
    drawn = {
        _kind(drawing, any(p.get("function") for p in dicts(drawing.get("pictures")))): drawing
        for drawing in drawings
    }
    for at, (key, members) in enumerate(list(groups.items())[:_KINDS]):
        content.append(_group(key, members, drawn.get(key), f"drawing-{at}"))
    if len(groups) > _KINDS:
        content.append(tag("p", f"… and {len(groups) - _KINDS} more kinds", class_="hint"))
    if drawings:
        content.insert(
            0,
            tag(
                "p",
                "Left: the placeholder with its neighbours as exported. Right: what stands there now, before "
                "simplification. Point at a box for its name and values.",
                class_="hint",
            ),
        )
    return section(f"{counted(len(entries), 'placeholder')} replaced", content, id="replaced")


def _kind(entry: dict[str, Any], stays: bool) -> tuple[str, ...]:
    keys = (entry.get("operator"), entry.get("pass"), entry.get("decomposition"))
    return (*map(str, keys), " ".join(texts(entry.get("into"))), str(stays))


def _group(
    key: tuple[str, ...], members: list[dict[str, Any]], drawing: dict[str, Any] | None, number: str
) -> Markup:
    name, by, decomposition, into, stays = key
    counts = ", ".join(f"{n} {op}" if n > 1 else op for op, n in sorted(Counter(into.split()).items()))
    becomes = f"stays, as a call to a function of {counts}" if stays == "True" else counts or "nothing"
    first = members[0]
    reason = str(first.get("reason") or "")
    assumed = "taken by its name alone: its meaning is assumed" if first.get("assumed") else ""
    pictures = dicts((drawing or {}).get("pictures"))
    return tag(
        "article",
        tag(
            "h3",
            tag("span", f"{len(members)} × ", class_="count"),
            operator(name),
            " → ",
            short(becomes, 160),
        ),
        tag(
            "p", "pass ", code(by), ", decomposition ", code(decomposition), f": {reason}" if reason else None
        ),
        tag("p", assumed, class_="warnings") if assumed else None,
        tag(
            "div",
            [picture(item, f"{number}-{at}") for at, item in enumerate(pictures)],
            class_="figures",
        )
        if pictures
        else None,
        _not_drawn(drawing, len(pictures)),
        folded(f"{'Where it stood' if len(members) == 1 else 'Where they stood'}", _places(members)),
    )


def _not_drawn(drawing: dict[str, Any] | None, shown: int) -> Markup | None:
    rest = integer((drawing or {}).get("variants")) - shown
    if rest <= 0:
        return None
    words = "with other parameters or types" if shown else "not drawn, for the page's sake"
    return tag("p", f"… and {rest} more {'kind' if rest == 1 else 'kinds'} {words}", class_="hint")


def picture(found: dict[str, Any], number: str) -> Markup:
    """One place before and after, or as far as there are pictures of it."""
    count = integer(found.get("count"))
    parameters = str(found.get("parameters") or "")
    alike = f", and {counted(count - 1, 'more like it', 'more like it')}" if count > 1 else ""
    function = found.get("function")
    titles = {
        "before": "before",
        "after": f"after: the function {function}" if function else "after",
    }
    if not mapping(found.get("before")):
        titles["after"] = "before simplification"
    sides: list[Content] = []
    for side, title in titles.items():
        graph = mapping(found.get(side))
        if not dicts(graph.get("nodes")):
            continue
        label = f"{title} around {found.get('node')}"
        drawn = scroll(label, graph_svg(graph, label, f"{number}-{side}"))
        sides.append(tag("div", tag("h4", short(title, 120)), drawn, class_=f"side {side}"))
    return tag(
        "figure",
        tag(
            "figcaption",
            code(str(found.get("node"))),
            f" in {found.get('scope')}" if found.get("scope") != "main graph" else None,
            [" with ", code(parameters, 160)] if parameters else None,
            alike,
        ),
        tag("div", sides, class_="sides"),
    )


def _places(members: list[dict[str, Any]]) -> Content:
    rows = [
        (code(str(m.get("node")), 80), short(str(m.get("scope")), 80), short(str(m.get("line") or "–"), 60))
        for m in members[:_SHOWN_PLACES]
    ]
    more = len(members) - _SHOWN_PLACES
    return [
        table(("node", "graph", "line"), rows, caption="Places"),
        tag("p", f"and {more} more") if more > 0 else None,
    ]
