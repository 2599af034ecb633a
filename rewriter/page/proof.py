"""The section on the verification: what was compared with what, and how far it was off."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rewriter.page.data import (
    counted,
    dicts,
    figure,
    integer,
    largest,
    listed,
    mapping,
    number,
    own_judges,
    sizes_text,
    texts,
)
from rewriter.page.markup import Markup, code, join, short, table, tag
from rewriter.page.parts import badge, folded, paragraphs, scroll, section
from rewriter.page.plot import Mark, Row, plot, shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rewriter.page.markup import Content

Figures = dict[str, Any]

#: Most rows of the plot, and of a table.
_ROWS, _LISTED = 40, 200


def verification(data: dict[str, Any]) -> Markup | None:
    """The local proof: each region against PyTorch, outputs before and after."""
    proof = mapping(data.get("verification"))
    if not proof:
        return None
    outputs, regions = dicts(proof.get("outputs")), dicts(proof.get("regions"))
    sizes = dicts(proof.get("sizes"))
    rows = [*output_rows(outputs, sizes), *_region_rows(regions, sizes)]
    shown = rows[:_ROWS]
    return section(
        "Verification",
        paragraphs(_words(proof, regions)),
        legend(sizes),
        scroll("Errors of each comparison", plot(shown, "Errors of each comparison", "errors"))
        if shown
        else None,
        tag("p", f"… and {len(rows) - _ROWS} more rows", class_="hint") if len(rows) > _ROWS else None,
        tag(
            "p",
            "Dark green: every element may be off by that much. Light green: the larger an element, the more of this "
            "it may be off by. Red line: the threshold of the largest element. Left: no difference at all.",
            class_="hint",
        )
        if any(row.limit is not None for row in shown)
        else None,
        output_table(outputs, "Outputs of the graph: before and after simplification and optimisation"),
        _region_table(regions),
        id="verification",
    )


def _words(proof: Figures, regions: list[Figures]) -> Iterable[Content]:
    samples = len(listed(proof.get("sizes")))
    seed = f", seed {proof['seed']}" if proof.get("inputs") == "drawn" and "seed" in proof else ""
    against = " and ".join(texts(proof.get("against")))
    done = "Compared until something differed" if proof.get("verdict") == "failed" else "Compared"
    inputs = counted(samples, f"{proof.get('inputs', '')} input".strip())
    yield f"{done} with {against or 'nothing'}, on {inputs}{seed}."
    ranges = mapping(proof.get("input_ranges"))
    if ranges:
        drawn = ", ".join(f"{name} from {' to '.join(texts(ends))}" for name, ends in ranges.items())
        yield f"Inputs were drawn in the ranges asked for: {short(drawn, 300)}."
    for text in own_judges(proof):
        yield f"A pass judged its own results: {short(text, 200)}."
    vacuous = texts(proof.get("vacuous"))
    if vacuous:
        yield join(badge("says nothing", "warn"), f" {short('; '.join(vacuous), 600)}")
    for text in texts(proof.get("inherited")):
        yield join(badge("not compared", "warn"), f" {short(text, 300)}; this run did not compare it")
    unproved = [region for region in regions if region.get("how") == "unproved"]
    if unproved:
        yield join(badge(f"{counted(len(unproved), 'replacement')} unproved", "warn"))


def legend(sizes: list[Figures]) -> Markup | None:
    """The mark and the sizes of each sample."""
    if not sizes:
        return None
    items = []
    for at, sample in enumerate(sizes[:12]):
        mark = tag("svg", shape(at, 7, 7, "mark"), width=14, height=14, aria_hidden="true")
        items.append(tag("li", mark, f" sample {at}", f": {short_sizes(sample)}" if sample else None))
    if len(sizes) > 12:
        items.append(tag("li", f"… {len(sizes) - 12} more"))
    return tag("ul", items, class_="legend")


def short_sizes(sample: Figures) -> str:
    text = sizes_text(sample)
    return text if len(text) <= 160 else text[:159] + "…"


# --- rows of the plot -----------------------------------------------------------------------------------------


def output_rows(outputs: list[Figures], sizes: list[Figures], words: str = "before and after") -> list[Row]:
    """A row of the plot for each output that was compared."""
    return [
        Row(f"output {item.get('name')}", f"{words}, {item.get('dtype')}", _marks(item, sizes))
        for item in outputs
        if _marks(item, sizes)
    ]


def _region_rows(regions: list[Figures], sizes: list[Figures]) -> list[Row]:
    """One row for each pass, decomposition, and dtype."""
    rows: dict[tuple[str, ...], Row] = {}
    members: dict[tuple[str, ...], int] = {}
    for region in regions:
        in_place = region.get("how") == "in place"
        for item in dicts(region.get("outputs")):
            marks = _marks(item, sizes if in_place else [], str(region.get("node")))
            if not marks:
                continue
            key = (
                str(region.get("pass")),
                str(region.get("decomposition")),
                str(item.get("dtype")),
                str(item.get("tolerance")),
            )
            row = rows.setdefault(key, Row(f"{key[0]} · {key[1]}"))
            row.marks += marks
            members[key] = members.get(key, 0) + 1
            row.note = f"{members[key]} × against PyTorch, {key[2]}"
    return list(rows.values())


def _marks(item: Figures, sizes: list[Figures], place: str = "") -> list[Mark]:
    """Of each sample where figures of each are known, else of the worst."""
    each = mapping(item.get("per_sample"))
    seen = listed(each.get("max_scaled"))
    absolute = listed(each.get("max_abs"))
    shapes = listed(each.get("shape"))
    if not seen:
        seen, absolute, shapes = [item.get("max_scaled")], [item.get("max_abs")], []
    marks = []
    for at, value in enumerate(seen):
        found = number(value)
        off = absolute[at] if at < len(absolute) else None
        sure, limit = _allowance(mapping(item.get("tolerance")), number(off), found)
        if found is None:
            found, sure, limit = number(off), None, None  # nothing to scale by: all expected numbers are zero
        if found is None:
            continue
        told = [
            place,
            f"sample {at}" + (f": {sizes_text(sizes[at])}" if at < len(sizes) and sizes[at] else ""),
        ]
        told += [f"shape {shapes[at] or 'scalar'}"] if at < len(shapes) else []
        told.append(f"max |a−b| / max |b| {figure(found)}, max |a−b| {figure(off)}")
        marks.append(Mark(found, at, "\n".join(line for line in told if line), sure, limit))
    return marks


def _allowance(
    tolerance: Figures, off: float | None, share: float | None
) -> tuple[float | None, float | None]:
    """What any element may be off by, and what the largest may, as shares of the largest; None where no such figure is
    the rule.
    """
    rtol, atol, scaled = (number(tolerance.get(name)) or 0.0 for name in ("rtol", "atol", "scaled"))
    if not tolerance or (not rtol + atol + scaled and number(tolerance.get("ulp"))):
        return None, None
    # atol is in the tensor's own unit, max|b|, which the two figures tell where there is a difference.
    if atol and off and share and math.isfinite(off) and math.isfinite(share):
        scaled += atol * share / off
    return scaled, scaled + rtol


# --- tables ---------------------------------------------------------------------------------------------------

_COLUMNS = (
    ("max |a−b|", "max_abs"),
    ("/ max |b|", "max_scaled"),
    ("relative", "max_rel"),
    ("ULP", "max_ulp"),
    ("cosine", "cosine"),
)


def _columns(items: list[Figures]) -> list[tuple[str, str]]:
    return [
        (title, key) for title, key in _COLUMNS if any(number(item.get(key)) is not None for item in items)
    ]


def output_table(outputs: list[Figures], caption: str) -> Content:
    """Outputs with their largest differences, and what was allowed."""
    missing = [item for item in outputs if not integer(item.get("samples"))]
    outputs = [item for item in outputs if integer(item.get("samples"))]
    not_compared = (
        tag("p", f"Not compared: {counted(len(missing), 'output')}.", class_="hint") if missing else None
    )
    if not outputs:
        return not_compared
    columns = _columns(outputs)
    rows = [
        (
            code(str(item.get("name")), 60),
            str(item.get("dtype") or "–"),
            _shapes(item.get("shapes")),
            tag("span", _allowed(item), class_="wide"),
            *(figure(item.get(key)) if key != "cosine" else _cosine(item.get(key)) for _, key in columns),
        )
        for item in outputs[:_LISTED]
    ]
    return [
        table(
            ("output", "dtype", "shapes", "allowed", *(title for title, _ in columns)),
            rows,
            caption=caption,
            numeric=len(columns),
        ),
        tag("p", f"and {len(outputs) - _LISTED} more") if len(outputs) > _LISTED else None,
        not_compared,
    ]


def _cosine(value: Any) -> str:
    seen = number(value)
    return "–" if seen is None else f"{seen:.7f}".rstrip("0").rstrip(".")


def _shapes(shapes: Any) -> str:
    return ", ".join("×".join(map(str, listed(shape))) or "scalar" for shape in listed(shapes)[:6]) or "–"


def _allowed(item: Figures) -> str:
    tolerance = mapping(item.get("tolerance"))
    if item.get("tolerance") is None:
        return "the pass compares by itself" if integer(item.get("samples")) else "–"
    allowed = [(name, number(tolerance.get(name))) for name in ("rtol", "atol", "scaled", "ulp")]
    parts = [f"{name} {value:g}" for name, value in allowed if value]
    text = ", ".join(parts) or "exact"
    return f"{text}; {item['vacuous']}, so agreement says nothing" if item.get("vacuous") else text


def _region_table(regions: list[Figures]) -> Content:
    if not regions:
        return None
    groups: dict[tuple[str, str, str], list[Figures]] = {}
    for region in regions:
        key = str(region.get("pass")), str(region.get("decomposition")), str(region.get("how"))
        groups.setdefault(key, []).append(region)
    every = [item for region in regions for item in dicts(region.get("outputs"))]
    columns = _columns(every)

    def worst(members: list[Figures]) -> list[str]:
        items = [item for region in members for item in dicts(region.get("outputs"))]
        return [figure(largest([item.get(key) for item in items])) for _, key in columns if key != "cosine"]

    plain = [title for title, key in columns if key != "cosine"]
    rows = [
        (code(name), code(decomposition), how, str(len(members)), *worst(members))
        for (name, decomposition, how), members in groups.items()
    ]
    places = sorted(regions, key=_worst, reverse=True)
    each = [
        (
            code(str(region.get("node")), 60),
            code(str(region.get("operator")), 40),
            str(region.get("how")) + (f": {region['reason']}" if region.get("reason") else ""),
            short(str(region.get("line") or "–"), 40),
            *worst([region]),
        )
        for region in places[:_LISTED]
    ]
    rest = len(places) - len(each)
    return [
        table(
            ("pass", "decomposition", "how", "times", *plain),
            rows,
            caption="Replaced operators against PyTorch: the largest differences",
            numeric=len(plain) + 1,
        ),
        folded(
            "Each of them, the largest difference first",
            table(("node", "operator", "how", "line", *plain), each, caption="Each", numeric=len(plain)),
            tag("p", f"and {rest} more") if rest else None,
        ),
    ]


def _worst(region: Figures) -> float:
    found = largest([item.get("max_scaled") for item in dicts(region.get("outputs"))])
    return -1.0 if found is None else found if found == found else float("inf")
