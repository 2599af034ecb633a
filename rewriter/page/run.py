"""The sections on what a run did to the model: failure, warnings, counts of operators, notes, interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.page.data import counted, dicts, integer, mapping, texts
from rewriter.page.markup import code, join, short, table, tag
from rewriter.page.parts import bullets, facts, folded, section
from rewriter.page.replaced import picture
from rewriter.report import size_text

if TYPE_CHECKING:
    from rewriter.page.markup import Content, Markup

_SHOWN_PLACES = 200
_SHOWN_WARNINGS = 3


def failure(data: dict[str, Any]) -> Markup | None:
    """What went wrong, first of all."""
    found = mapping(data.get("failure"))
    if not found:
        return None
    proof = mapping(data.get("verification"))
    blame = mapping(proof.get("blame"))
    culprit = mapping(mapping(data.get("details")).get("culprit"))
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
        _blame(blame, str(found.get("what"))) if blame else None,
        picture(culprit, "culprit") if culprit else None,
        id="failure",
    )


def _blame(blame: dict[str, Any], said: str) -> Content:
    """Which stage made the difference, and at which node it shows first; what was ``said`` is not said again."""
    detail = str(blame.get("detail") or "")
    node, operator_ = blame.get("node"), blame.get("operator")
    return [
        tag("h3", "Where it comes from"),
        facts(
            [
                ("stage", tag("strong", str(blame.get("stage")))),
                ("first at", join(code(str(operator_ or "")), " ", code(str(node), 120)) if node else None),
                ("line", code(str(blame["line"]), 120) if blame.get("line") else None),
                ("in", short(str(blame["scope"]), 120) if blame.get("scope") else None),
                ("what", short(detail, 1000) if detail not in said else None),
            ]
        ),
    ]


def warnings(data: dict[str, Any]) -> Markup | None:
    """Every warning of the run and of its verification, small: they are not the result."""
    found = [*texts(data.get("warnings")), *texts(mapping(data.get("verification")).get("warnings"))]
    found = list(dict.fromkeys(found))
    if not found:
        return None
    shown, rest = found[:_SHOWN_WARNINGS], found[_SHOWN_WARNINGS:]
    return tag(
        "div",
        [tag("p", tag("strong", "Warning:"), " ", short(text, 1000)) for text in shown],
        folded(
            f"{counted(len(rest), 'more warning')}",
            bullets([short(text, 1000) for text in rest]),
        )
        if rest
        else None,
        id="warnings",
        class_="warnings",
    )


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
    words = (
        f"{counted(len(same), 'operator')} as often as before"
        if len(stages) > 1
        else "Operators of the model"
    )
    return [
        table(head, rows(changed), caption=caption, numeric=len(stages)) if changed else tag("p", caption),
        folded(
            words,
            table(head, rows(same), caption=words, numeric=len(stages)),
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
    invented = texts(data.get("renamed_dims"))
    if not rows and not invented:
        return None
    changed: list[Content] = [
        join(code(name, 80), " ", short(", ".join(texts(dims)), 400))
        for name, dims in mapping(data.get("renamed_outputs")).items()
    ]
    kept = "unchanged by the rewriting" + (" but for the dims below" if changed else "")
    return section(
        "Interface",
        table(("name", "kind", "type"), rows[:_SHOWN_PLACES], caption=f"Inputs and outputs, {kept}")
        if rows
        else None,
        tag("p", f"and {len(rows) - _SHOWN_PLACES} more") if len(rows) > _SHOWN_PLACES else None,
        [tag("p", "Dims of outputs whose names the exporter had invented:"), bullets(changed)]
        if changed
        else None,
        folded(
            f"{counted(len(invented), 'dim')} that the exporter had invented, inner values included",
            bullets([short(dim, 200) for dim in invented[:_SHOWN_PLACES]]),
            tag("p", f"and {len(invented) - _SHOWN_PLACES} more") if len(invented) > _SHOWN_PLACES else None,
        )
        if invented
        else None,
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
