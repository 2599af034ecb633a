"""The sections on what a run did to the model: failure, replacements, counts of operators, notes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rewriter.page.data import counted, dicts, integer, mapping, texts
from rewriter.page.graph import graph_svg
from rewriter.page.markup import code, join, short, table, tag
from rewriter.page.parts import bullets, facts, folded, operator, scroll, section
from rewriter.report import size_text

if TYPE_CHECKING:
    from rewriter.page.markup import Content, Markup

_SHOWN_PLACES = 200


def failure(data: dict[str, Any]) -> Markup | None:
    """What went wrong, first of all."""
    found = mapping(data.get("failure"))
    if not found:
        return None
    proof = mapping(data.get("verification"))
    blame = mapping(proof.get("blame"))
    return section(
        "What went wrong",
        tag("p", short(str(found.get("what", "")), 4000), class_="what"),
        facts(
            [
                ("where", short(str(found["where"]), 400) if found.get("where") else None),
                ("what to do", short(str(found["remedy"]), 1000) if found.get("remedy") else None),
                ("code", code(str(found.get("code", "")))),
                ("exit code", str(found.get("exit_code", ""))),
            ]
        ),
        _blame(blame) if blame else None,
        id="failure",
    )


def _blame(blame: dict[str, Any]) -> Content:
    """Which stage made the difference, and at which node it shows first."""
    node, operator_ = blame.get("node"), blame.get("operator")
    return [
        tag("h3", "Where it comes from"),
        facts(
            [
                ("stage", tag("strong", str(blame.get("stage")))),
                ("first at", join(code(str(operator_ or "")), " ", code(str(node), 120)) if node else None),
                ("line", code(str(blame["line"]), 120) if blame.get("line") else None),
                ("in", short(str(blame["scope"]), 120) if blame.get("scope") else None),
                ("what", short(str(blame["detail"]), 1000) if blame.get("detail") else None),
            ]
        ),
    ]


def warnings(data: dict[str, Any]) -> Markup | None:
    """Every warning of the run and of its verification."""
    found = [*texts(data.get("warnings")), *texts(mapping(data.get("verification")).get("warnings"))]
    found = list(dict.fromkeys(found))
    if not found:
        return None
    shown, rest = found[:20], found[20:]
    return section(
        counted(len(found), "warning"),
        bullets([short(text, 1000) for text in shown], "warnings"),
        folded(f"{len(rest)} more", bullets([short(text, 1000) for text in rest])) if rest else None,
        id="warnings",
    )


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
    for at, (key, members) in enumerate(groups.items()):
        content.append(_group(key, members, drawn.get(key), f"drawing-{at}"))
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
            [_picture(picture, f"{number}-{at}") for at, picture in enumerate(pictures)],
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


def _picture(picture: dict[str, Any], number: str) -> Markup:
    count = integer(picture.get("count"))
    parameters = str(picture.get("parameters") or "")
    alike = f", and {counted(count - 1, 'more like it', 'more like it')}" if count > 1 else ""
    function = picture.get("function")
    titles = {
        "before": "before",
        "after": f"after: the function {function}" if function else "after",
    }
    sides: list[Content] = []
    for side, title in titles.items():
        graph = mapping(picture.get(side))
        drawn: Content = tag("p", "not drawn", class_="hint")
        if dicts(graph.get("nodes")):
            label = f"{title} around {picture.get('node')}"
            drawn = scroll(label, graph_svg(graph, label, f"{number}-{side}"))
        sides.append(tag("div", tag("h4", short(title, 120)), drawn, class_=f"side {side}"))
    return tag(
        "figure",
        tag(
            "figcaption",
            code(str(picture.get("node"))),
            f" in {picture.get('scope')}" if picture.get("scope") != "main graph" else None,
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


def operators(data: dict[str, Any]) -> Markup | None:
    """What was simplified, and the operators before and after."""
    counts = mapping(mapping(data.get("details")).get("operators"))
    simplification = mapping(data.get("simplification"))
    stages: list[tuple[str, dict[str, Any]]] = [
        (key, mapping(counts[key])) for key in ("source", "rewritten", "delivered") if key in counts
    ]
    if not stages and not simplification:
        return None
    content: list[Content] = []
    if simplification:
        before, after = (
            integer(simplification.get("nodes_before")),
            integer(simplification.get("nodes_after")),
        )
        if not simplification.get("accepted"):
            words = f"The simplifier's proposal was refused: {simplification.get('reason')}."
        else:
            words = f"Simplification: {before} → {counted(after, 'node')} ({simplification.get('reason')})."
        content.append(tag("p", short(words, 600)))
        content.append(bullets([short(note, 400) for note in texts(simplification.get("notes"))]))
    elif data.get("outcome") not in ("failed", "copied"):
        content.append(tag("p", "Simplification was not asked for."))
    if stages:
        content += _operator_tables(stages)
    return section("Operators", content, id="operators")


_HEADS = {"source": "as exported", "rewritten": "after replacing", "delivered": "delivered"}


def _operator_tables(stages: list[tuple[str, dict[str, Any]]]) -> list[Content]:
    names = sorted({name for _, stage in stages for name in stage}, key=lambda name: ("::" not in name, name))
    counts = {name: [integer(stage.get(name)) for _, stage in stages] for name in names}
    changed = [name for name in names if len(set(counts[name])) > 1]
    same = [name for name in names if len(set(counts[name])) == 1]
    top = max((count for row in counts.values() for count in row), default=1) or 1
    head = ["operator", *(_HEADS[key] for key, _ in stages)]

    def rows(chosen: list[str]) -> list[list[Content]]:
        return [[code(name, 60), *(_bar(count, top) for count in counts[name])] for name in chosen]

    totals = [sum(integer(count) for count in stage.values()) for _, stage in stages]
    caption = "Nodes: " + ", ".join(f"{n} {_HEADS[key]}" for (key, _), n in zip(stages, totals, strict=True))
    return [
        table(head, rows(changed), caption=caption, numeric=len(stages)) if changed else tag("p", caption),
        folded(
            f"{counted(len(same), 'operator')} as often as before",
            table(head, rows(same), caption="Unchanged", numeric=len(stages)),
        )
        if same
        else None,
    ]


def _bar(count: int, top: int) -> Markup:
    """A number, with a bar of its length before it."""
    width = 100 * count / top
    bar = tag(
        "svg",
        tag("rect", x=100 - width, y=0, width=width, height=6, rx=2),
        width=100,
        height=6,
        aria_hidden="true",
    )
    return tag("span", bar, tag("span", str(count)), class_="bar")


def notes(data: dict[str, Any]) -> Markup | None:
    """What else is worth telling."""
    found: list[Content] = [f"pass '{name}' matched nothing" for name in texts(data.get("unmatched_passes"))]
    found += [f"--bind '{rule}' matched nothing" for rule in texts(data.get("unmatched_rules"))]
    found += [f"the exporter had invented a dim: {dim}" for dim in texts(data.get("renamed_dims"))]
    found += [
        f"the import of domain '{domain}' is gone: nothing uses it"
        for domain in texts(data.get("dropped_opset_imports"))
    ]
    if isinstance(data.get("stripped_bytes"), int):
        found.append(
            f"{size_text(integer(data['stripped_bytes']))} of the exporter's debugging information went"
        )
    found += texts(mapping(data.get("verification")).get("notes"))
    return section("Notes", bullets([short(str(text), 600) for text in found]), id="notes") if found else None


def interface(data: dict[str, Any]) -> Markup | None:
    found = mapping(mapping(data.get("details")).get("interface"))
    rows = [
        (code(str(value.get("name")), 80), direction, code(str(value.get("type")), 80))
        for key, direction in (("inputs", "input"), ("outputs", "output"))
        for value in dicts(found.get(key))
    ]
    if not rows:
        return None
    return section(
        "Interface",
        table(
            ("name", "kind", "type"),
            rows[:_SHOWN_PLACES],
            caption="Inputs and outputs, unchanged by the rewriting",
        ),
        tag("p", f"and {len(rows) - _SHOWN_PLACES} more") if len(rows) > _SHOWN_PLACES else None,
        id="interface",
    )


def written(data: dict[str, Any]) -> str | None:
    """The delivered file in words."""
    found = mapping(data.get("written"))
    if not found:
        return None
    text = f"{found.get('file')}, {size_text(integer(found.get('size')))}"
    if found.get("data"):
        text += f", with {found['data']}, {size_text(integer(found.get('data_size')))}"
    return text


def opsets_text(imports: Any) -> str:
    return ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in mapping(imports).items())
