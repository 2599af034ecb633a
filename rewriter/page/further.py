"""The sections on checks that are made where they are asked for: the whole model, gradients, other runtimes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.page.data import counted, dicts, figure, integer, largest, mapping, sizes_text, texts
from rewriter.page.markup import code, join, short, table, tag
from rewriter.page.parts import badge, bullets, folded, scroll, section
from rewriter.page.plot import plot
from rewriter.page.proof import legend, output_rows, output_table

if TYPE_CHECKING:
    from rewriter.page.markup import Content, Markup

Figures = dict[str, Any]

#: Most rows of a plot or a list.
_ROWS = 40

_STATES = {
    "agrees": "good",
    "differs": "bad",
    "crashed": "bad",
    "refuses": "warn",
    "not checked": "warn",
}


def whole_model(data: Figures) -> Markup | None:
    """Every output against PyTorch's whole model, or what was recorded of it."""
    found = mapping(mapping(data.get("verification")).get("whole_model"))
    if not found:
        return None
    title = "Against the whole model"
    sizes, outputs = dicts(found.get("sizes")), dicts(found.get("outputs"))
    rows = output_rows(outputs, sizes, "whole model")[:_ROWS]
    skipped = [
        short(f"not compared at {sizes_text(item.get('sizes'))}: {_refusal(item)}", 400)
        for item in dicts(found.get("skipped"))
    ]
    left_out = texts(found.get("left_out"))
    return section(
        title,
        tag(
            "p",
            "Compared with ",
            code(str(found.get("name")), 80),
            f" ({found.get('kind')}) on {counted(integer(found.get('samples')), 'sample')}.",
        ),
        legend(sizes),
        scroll(f"Errors: {title}", plot(rows, f"Errors: {title}", "whole")) if rows else None,
        output_table(outputs, "Outputs of the delivered file against the whole model"),
        bullets(skipped[:_ROWS]),
        tag("p", f"and {len(skipped) - _ROWS} more") if len(skipped) > _ROWS else None,
        tag("p", f"Left out, since they depend on an operator that nothing here runs: {', '.join(left_out)}.")
        if left_out
        else None,
        id="whole-model",
    )


def _refusal(item: Figures) -> str:
    by = item.get("by")
    return f"{by} refuses: {item.get('reason')}" if by else str(item.get("reason"))


def gradients(data: Figures) -> Markup | None:
    """The gradient that training uses against that of the delivered nodes."""
    found = dicts(mapping(data.get("verification")).get("gradients"))
    if not found:
        return None
    groups: dict[tuple[str, ...], list[Figures]] = {}
    for item in found:
        keys = ("pass", "decomposition", "status", "trained", "reason")
        groups.setdefault(tuple(str(item.get(key) or "") for key in keys), []).append(item)
    rows = [
        (
            code(name),
            code(decomposition),
            badge(status, _STATES.get(status, "plain")),
            short(", ".join(filter(None, (trained, reason))) or "–", 300),
            str(len(members)),
            *(_worst(members, key) for key in ("max_abs", "max_scaled", "max_numeric")),
        )
        for (name, decomposition, status, trained, reason), members in groups.items()
    ]
    problems = [
        join(
            code(str(item.get("node"))),
            ", with respect to ",
            code(str(entry.get("name"))),
            ": ",
            short(str(entry["problem"]), 400),
        )
        for item in found
        for entry in dicts(item.get("inputs"))
        if entry.get("problem")
    ]
    head = ("pass", "decomposition", "result", "trained by", "times", "max |a−b|", "/ max |b|", "numeric")
    return section(
        "Gradients",
        tag(
            "p",
            "The gradient that training uses, against the gradient of the nodes that were delivered; the latter "
            "against numeric differences as well.",
        ),
        bullets(problems[:_ROWS], "warnings"),
        table(head, rows, caption="Gradients in float64", numeric=4),
        id="gradients",
    )


def _worst(members: list[Figures], key: str) -> str:
    return figure(largest([entry.get(key) for item in members for entry in dicts(item.get("inputs"))]))


def runtimes(data: Figures) -> Markup | None:
    """The delivered file on other runtimes."""
    found = dicts(mapping(data.get("verification")).get("runtimes"))
    if not found:
        return None
    rows = [
        (
            f"{item.get('name')} {item.get('version') or ''}".strip(),
            badge(str(item.get("status")), _STATES.get(str(item.get("status")), "plain")),
            short(str(item.get("detail") or "–"), 400),
            figure(largest([output.get("max_scaled") for output in dicts(item.get("outputs"))])),
        )
        for item in found
    ]
    each: list[Content] = [
        folded(
            join("Outputs on ", str(item.get("name"))),
            output_table(dicts(item.get("outputs")), f"Outputs on {item.get('name')}"),
        )
        for item in found
        if item.get("outputs")
    ]
    return section(
        "Run elsewhere",
        table(
            ("runtime", "result", "detail", "max |a−b| / max |b|"),
            rows,
            caption="The delivered file on other runtimes",
            numeric=1,
        ),
        each,
        id="elsewhere",
    )
