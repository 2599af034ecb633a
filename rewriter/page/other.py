"""The sections on what was found in a file without changing it: its placeholders, its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.page.data import counted, dicts, mapping, own_judges, sizes_text, texts
from rewriter.page.markup import code, short, table, tag
from rewriter.page.parts import badge, bullets, facts, folded, section
from rewriter.page.run import opsets_text
from rewriter.verdict import listed

if TYPE_CHECKING:
    from rewriter.page.markup import Content, Markup

_LISTED = 200


def placeholders(data: dict[str, Any]) -> list[Markup | None]:
    """What an inspection found, by kind."""
    found = dicts(data.get("placeholders"))
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for item in found:
        keys = ("operator", "pass", "assumed", "kept", "nearest")
        groups.setdefault(tuple(str(item.get(key)) for key in keys), []).append(item)
    rows = [(code(key[0]), str(len(members)), *_fate(members[0])) for key, members in groups.items()]
    places = [
        (
            code(str(item.get("node")), 80),
            code(str(item.get("operator"))),
            short(str(item.get("scope")), 80),
            short(str(item.get("line") or "–"), 60),
        )
        for item in found[:_LISTED]
    ]
    owned = [
        f"{item.get('count')} × {item.get('domain')}::{item.get('name')}: it stays, and needs a runtime that has it"
        for item in dicts(data.get("runtime_operators"))
    ]
    notes = [f"pass '{name}' matches nothing" for name in texts(data.get("unmatched_passes"))]
    notes += [f"--bind '{rule}' matches nothing" for rule in texts(data.get("unmatched_rules"))]
    return [
        section(
            counted(len(found), "placeholder"),
            table(("operator", "times", "fate", "pass"), rows, caption="Kinds of placeholders")
            if rows
            else None,
            folded(
                "Where they stand",
                table(("node", "operator", "graph", "line"), places, caption="Places"),
                tag("p", f"and {len(found) - _LISTED} more") if len(found) > _LISTED else None,
            )
            if found
            else tag("p", "There is nothing to replace."),
            bullets([short(text, 300) for text in (*owned, *notes)]),
            id="placeholders",
        ),
        section(
            "The file",
            facts(
                [
                    ("opsets", opsets_text(data.get("opset_imports"))),
                    ("IR version", str(data.get("ir_version"))),
                ]
            ),
            id="file",
        ),
    ]


def _fate(item: dict[str, Any]) -> tuple[Content, Content]:
    if item.get("pass"):
        words = "taken by its name alone" if item.get("assumed") else "would be replaced"
        return badge(words, "warn" if item.get("assumed") else "good"), code(str(item["pass"]))
    if item.get("kept"):
        return badge("would stay", "plain"), "–"
    nearest = item.get("nearest")
    return badge("no pass takes it", "bad"), short(f"is it '{nearest}'?" if nearest else "–", 120)


def manifest(data: dict[str, Any]) -> Markup | None:
    """What the manifest of the file says; it comes from a file, and may say anything."""
    found = mapping(data.get("manifest"))
    if not found:
        return None
    proof = mapping(found.get("verification"))
    replaced = [
        (
            code(str(entry.get("operator"))),
            str(entry.get("count")),
            code(str(entry.get("pass"))),
            code(str(entry.get("decomposition"))),
            short(", ".join(texts(entry.get("into"))) or "nothing", 120),
            fate,
            short(
                ", ".join(f"{n} {verdict}" for verdict, n in mapping(entry.get("verdicts")).items()) or "–",
                120,
            ),
        )
        for key, fate in (("replaced", "replaced"), ("functions", "stays, as a call"))
        for entry in dicts(found.get(key))
    ]
    head = ("operator", "times", "pass", "decomposition", "into", "fate", "verdicts")
    fits = data.get("manifest_fits")
    whole = mapping(proof.get("whole_model"))
    return section(
        "What the file says of itself",
        tag("p", badge("the graph is as it was when this was written", "good"))
        if fits
        else tag("p", badge("the graph was edited since: what follows was true before", "warn"))
        if fits is not None
        else None,
        facts(
            [
                ("verdict", str(proof.get("verdict"))),
                ("reason", short(str(proof["reason"]), 300) if proof.get("reason") else None),
                ("against", listed(texts(proof.get("against")))),
                ("samples", _samples(proof)),
                (
                    "sizes",
                    bullets([sizes_text(s) or "all fixed" for s in dicts(proof.get("sizes"))], "plain"),
                ),
                (
                    "sizes of the whole model",
                    bullets([sizes_text(s) or "all fixed" for s in dicts(whole.get("sizes"))], "plain"),
                ),
                ("other runtimes that agree", listed(texts(proof.get("runtimes")))),
                ("replacements proved", str(proof["proved"]) if "proved" in proof else None),
                (
                    "input ranges, as asked",
                    bullets(
                        [
                            f"{name}: {' to '.join(texts(ends))}"
                            for name, ends in mapping(proof.get("input_ranges")).items()
                        ],
                        "plain",
                    ),
                ),
                (
                    "agreed without saying anything",
                    bullets([short(t, 300) for t in texts(proof.get("vacuous"))], "plain"),
                ),
                ("passes that judged themselves", bullets(own_judges(proof), "plain")),
                ("unproved", bullets([short(text, 300) for text in texts(proof.get("unproved"))], "plain")),
                ("cut out", bullets([short(text, 300) for text in texts(proof.get("cut_out"))], "plain")),
                (
                    "tolerances",
                    bullets(
                        [
                            short(f"{what}: {value}", 200)
                            for what, value in mapping(proof.get("tolerances")).items()
                        ],
                        "plain",
                    ),
                ),
                ("simplification", str(found.get("simplification_reason") or found.get("simplification"))),
                ("opsets", opsets_text(found.get("opset_imports"))),
                ("IR version", str(found.get("ir_version"))),
                ("written by", f"onnx-rewrite {mapping(found.get('tool')).get('version')}"),
                ("digest of the graph", code(str(found.get("digest")), 80)),
            ]
        ),
        table(head, replaced, caption="Replaced") if replaced else None,
        _needed(found),
        tag("p", "This covers the graph and small constants, not the values of weights.", class_="hint"),
        id="manifest",
    )


def _samples(proof: dict[str, Any]) -> str | None:
    if "samples" not in proof:
        return None
    seed = f", seed {proof.get('seed')}" if proof.get("inputs") == "drawn" else ""
    return f"{proof['samples']} {proof.get('inputs')}{seed}"


def _needed(found: dict[str, Any]) -> Content:
    rows = []
    for key in ("kept", "runtime_operators"):
        for entry in dicts(found.get(key)):
            library = mapping(entry.get("library"))
            rows.append(
                (
                    code(f"{entry.get('domain')}::{entry.get('name')}".removeprefix("::")),
                    str(entry.get("version")),
                    short(str(library.get("file") or "not named"), 60),
                    code(str(library.get("sha256") or "–"), 80),
                )
            )
    return table(("operator", "version", "library", "SHA-256"), rows, caption="Needed") if rows else None
