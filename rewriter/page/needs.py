"""The sections on what a file needs, and on how to make it again."""

from __future__ import annotations

import shlex
from datetime import date
from typing import TYPE_CHECKING, Any

from rewriter.page.data import dicts, integer, mapping, sizes_text, texts
from rewriter.page.markup import code, join, short, table, tag
from rewriter.page.parts import badge, bullets, facts, section
from rewriter.page.run import opsets_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.page.markup import Content, Markup


def needs(data: dict[str, Any]) -> Markup | None:
    """Of a run: opsets, IR version, operators outside the standard, runtimes."""
    if not data.get("opset_imports"):
        return None
    raised = data.get("ir_version_before")
    ir_version = str(data.get("ir_version"))
    runtimes = mapping(mapping(data.get("details")).get("runtimes"))
    return section(
        "What the file needs",
        facts(
            [
                (
                    "opsets",
                    opsets_text(data.get("opset_imports"))
                    + (f" (ai.onnx was {data['opset_before']})" if data.get("opset_before") else ""),
                ),
                (
                    "IR version",
                    _changed(ir_version, raised, data) if raised else ir_version,
                ),
                ("functions", _functions(runtimes.get("functions"))),
            ]
        ),
        _declared(data) or tag("p", "Every operator is one of ONNX's own, or a function in the file."),
        runtime_table(runtimes, dicts(mapping(data.get("verification")).get("runtimes"))),
        id="needs",
    )


def _changed(version: str, before: Any, data: dict[str, Any]) -> str:
    """An IR version, and the one that it was."""
    called = any(item.get("function") is not None for item in dicts(data.get("replaced")))
    return f"{version}, raised from {before}: functions need it" if called else f"{version}, was {before}"


def _functions(functions: Any) -> Content:
    return bullets([join(f"{count} × ", code(name)) for name, count in mapping(functions).items()], "plain")


def _declared(data: dict[str, Any]) -> Content:
    rows = [
        (
            code(f"{item.get('domain')}::{item.get('name')}".removeprefix("::")),
            str(item.get("version")),
            str(item.get("count")),
            short(str(item.get("library") or words), 60),
            code(str(item.get("sha256") or "–"), 20),
        )
        for key, words in (("kept", "no library named"), ("runtime_operators", "a runtime's own"))
        for item in dicts(data.get(key))
    ]
    head = ("operator", "version", "times", "library", "SHA-256")
    return table(head, rows, caption="Operators outside the standard") if rows else None


_STATES = {"has": ("has all", "good"), "lacks": ("lacks", "bad"), "not known": ("not known", "plain")}


_RUN = {"agrees": "good", "differs": "bad", "refuses": "bad", "crashed": "bad"}


def runtime_table(runtimes: dict[str, Any], ran: Sequence[dict[str, Any]] = ()) -> Content:
    """Which runtimes have every operator: first those that this run ran (``ran``), then the others of the table, by
    what was tried and when.
    """
    judged = dicts(runtimes.get("judged"))
    if not judged:
        return None
    rows = []
    seen = [item for item in ran if item.get("status") in _RUN]
    for item in seen:
        status, detail = str(item.get("status")), str(item.get("detail") or "")
        why = f"in this run: {detail}" if detail else "in this run"
        rows.append((_named(item), badge(status, _RUN[status]), short(why, 400)))
    for item in judged:
        if any(_is_of(str(item.get("runs_as")), run) for run in seen):
            continue
        words, state = _STATES.get(str(item.get("verdict")), (str(item.get("verdict")), "plain"))
        reasons = texts(item.get("reasons"))
        told = ", ".join(reasons[:12]) + (f" and {len(reasons) - 12} more" if len(reasons) > 12 else "")
        if item.get("verdict") == "not known" and told:
            told = f"not tried: {told}"
        rows.append((str(item.get("name")), badge(words, state), short(told, 400)))
    tried = runtimes.get("tried") or _month(runtimes.get("date"))
    return table(
        ("runtime", "verdict", "why"),
        rows,
        caption=f"Runtimes that have every operator, as tried in {tried}"
        + (", and in this run" if seen else ""),
    )


def _named(run: dict[str, Any]) -> str:
    return f"{run.get('name')} {run.get('version') or ''}".strip()


def _is_of(row: str, run: dict[str, Any]) -> bool:
    """Whether a row of the table, which runs here as ``"openvino 2026.4"``, is about the runtime that ran."""
    name, _, version = row.partition(" ")
    return name == run.get("name") and f"{run.get('version')}.".startswith(f"{version}.")


def _month(value: Any) -> str:
    try:
        return date.fromisoformat(f"{value}-01").strftime("%B %Y")
    except ValueError:
        return str(value)


def reproduce(data: dict[str, Any]) -> Markup | None:
    """The command, the seed, the sizes, and the versions of everything that took part."""
    proof = mapping(data.get("verification"))
    tool = mapping(data.get("tool"))
    sizes = dicts(proof.get("sizes"))
    arguments = texts(data.get("arguments"))
    libraries = mapping(tool.get("libraries")) | mapping(proof.get("versions"))
    versions = {"onnx-rewrite": tool.get("version"), **dict(sorted(libraries.items()))}
    if not arguments and not libraries:
        return None
    return section(
        "How to get this again",
        tag("pre", tag("code", shlex.join(["rewrite", *arguments]))) if arguments else None,
        facts(
            [
                ("seed", str(proof["seed"]) if proof.get("inputs") == "drawn" and "seed" in proof else None),
                ("inputs", "given" if proof.get("inputs") == "given" else None),
                (
                    "sizes",
                    bullets([sizes_text(sample) or "all fixed" for sample in sizes], "plain")
                    if sizes
                    else None,
                ),
            ]
        ),
        table(
            ("package", "version"),
            [(str(name), str(version)) for name, version in versions.items()],
            caption="Versions",
        ),
        id="again",
    )


# --- what --check found ---------------------------------------------------------------------------------------


def check(data: dict[str, Any]) -> list[Markup | None]:
    """What a file needs and whether it is here."""
    here = mapping(data.get("onnxruntime"))
    name = f"onnxruntime {here.get('version')}"
    ir_version = mapping(data.get("ir_version"))
    imports = [
        (
            f"opset {item.get('domain') or 'ai.onnx'}",
            str(item.get("version")),
            _taken(item.get("taken")),
            short(str(item.get("refusal") or ""), 300),
        )
        for item in dicts(data.get("opset_imports"))
    ]
    imports.append(
        (
            "IR",
            str(ir_version.get("version")),
            _taken(ir_version.get("taken")),
            short(str(ir_version.get("refusal") or ""), 300),
        )
    )
    operators = [
        (
            code(f"{item.get('domain')}::{item.get('name')}".removeprefix("::")),
            str(item.get("version")),
            str(integer(item.get("count"))),
            str(mapping(item.get("library")).get("state")),
            short(str(mapping(item.get("library")).get("file") or item.get("runtime") or "–"), 60),
            code(str(mapping(item.get("library")).get("sha256") or "–"), 20),
        )
        for item in dicts(data.get("operators"))
    ]
    head = ("operator", "version", "times", "library", "file", "SHA-256")
    return [
        section(
            "Here",
            tag("p", badge(f"{name} loads it", "good"))
            if here.get("loads")
            else [
                tag("p", badge(f"{name} does not load it", "bad")),
                tag("p", short(str(here.get("reason")), 2000), class_="what"),
            ],
            table(
                ("what", "version", f"taken by {name}", "why not"), imports, caption="Opsets and IR version"
            ),
            table(head, operators, caption="Operators outside the standard")
            if operators
            else tag("p", "Every operator is one of ONNX's own, or a function in the file."),
            _functions(data.get("functions")),
            id="here",
        ),
        section("Elsewhere", runtime_table(mapping(data.get("runtimes"))), id="elsewhere"),
    ]


def _taken(taken: Any) -> Content:
    if taken is None:
        return "a matter of its library"
    return badge("yes", "good") if taken else badge("no", "bad")
