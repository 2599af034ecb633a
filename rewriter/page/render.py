"""A whole page from the data of a report; the same data give the same bytes.

It holds no script, asks for nothing on the network, and forbids both to itself.
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from rewriter.page import further, needs, other, proof, replaced, run
from rewriter.page.data import dicts, figure, integer, largest, mapping
from rewriter.page.markup import Markup, code, escape, join, short, tag
from rewriter.page.parts import badge
from rewriter.report import to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rewriter.page.markup import Content

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

#: What each outcome is called, and whether that is good.
_OUTCOMES = {
    "verified": ("Verified", "good", "Every comparison agrees within its threshold."),
    "unverified": ("Not verified", "warn", "The model was delivered without a full proof."),
    "copied": ("Nothing to do", "plain", "The model holds nothing to replace; it was delivered as it came."),
    "failed": ("Not delivered", "bad", "Nothing was written."),
    "runs": ("Runs here", "good", "onnxruntime loads the model, with the libraries given."),
    "cannot run": ("Cannot run here", "bad", "onnxruntime does not load the model."),
    "explained": ("Stamped", "plain", "The manifest in the file fits its graph."),
    "changed": ("Edited since it was stamped", "warn", "What its manifest says was true of another graph."),
    "no manifest": (
        "No manifest",
        "warn",
        "The file carries no manifest that this version of onnx-rewrite understands.",
    ),
    "inspected": ("Inspected", "plain", "Nothing was changed."),
}


def render(data: dict[str, Any]) -> str:
    """The page for a report, an inspection, or what ``--check`` or ``--explain`` found, as ``to_dict()`` gives it or as
    read from its JSON.
    """
    data = json.loads(
        to_json(data)
    )  # with its keys in the order of the JSON, so that both give the same page
    outcome = str(data.get("outcome"))
    words, state, meaning = _OUTCOMES.get(outcome, (outcome, "plain", ""))
    source = str(data.get("source") or "")
    sections = [found for found in _sections(data) if found]
    body = join(
        tag(
            "header",
            tag("p", "onnx-rewrite", class_="tool"),
            tag("h1", badge(words, state), " ", tag("span", short(source, 80), class_="source")),
            tag("p", _lead(data, meaning)),
            _tiles(data),
            run.warnings(data),
        ),
        tag("main", sections),
        tag(
            "footer",
            tag(
                "p",
                f"Written by onnx-rewrite {mapping(data.get('tool')).get('version')}. The same facts stand in ",
                "the JSON report.",
            ),
        ),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="generator", content="onnx-rewrite"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}" />'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{words}: {source}"[:200]),
        Markup(f"<style>{_style()}</style>"),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', body), lang='en')}\n"


@functools.cache
def _style() -> str:
    return resources.files("rewriter").joinpath("page/style.css").read_text(encoding="utf-8")


def _sections(data: dict[str, Any]) -> Iterator[Markup | None]:
    outcome = data.get("outcome")
    yield run.failure(data)
    if outcome in ("runs", "cannot run"):
        yield from needs.check(data)
        yield other.manifest(data)
    elif outcome in ("explained", "changed", "no manifest"):
        yield other.manifest(data)
    elif outcome == "inspected":
        yield from other.placeholders(data)
        yield other.manifest(data)
    else:
        # Where it failed, what was compared says more than what was replaced, and what differed most of all.
        compared = [
            proof.verification(data),
            further.whole_model(data),
            further.gradients(data),
            further.runtimes(data),
        ]
        if outcome == "failed":
            yield from sorted(compared, key=lambda part: not _differs(part))
            yield replaced.replaced(data)
        else:
            yield replaced.replaced(data)
            yield from compared
        yield run.operators(data)
        yield needs.needs(data)
        yield run.interface(data)
        yield run.notes(data)
        if outcome == "copied":
            yield other.manifest(data)
    yield needs.reproduce(data)


def _differs(part: Markup | None) -> bool:
    """Whether a section shows something that differs."""
    return part is not None and ('class="row failed"' in part or 'class="badge bad"' in part)


def _lead(data: dict[str, Any], meaning: str) -> Content:
    if data.get("outcome") == "failed":
        return meaning
    found = [meaning]
    if data.get("outcome") == "unverified" and not data.get("verification"):
        found = ["Not compared with PyTorch, as asked."]
    file = run.written(data)
    return [" ".join(found), [" Delivered: ", code(file, 120), "."] if file else None]


def _tiles(data: dict[str, Any]) -> Markup | None:
    """The few figures that matter most."""
    tiles: list[tuple[str, str]] = []
    verification = mapping(data.get("verification"))
    gone = [entry for entry in dicts(data.get("replaced")) if not entry.get("via")]
    if gone or ("replaced" in data and data.get("outcome") != "failed"):
        kinds = len({str(entry.get("operator")) for entry in gone})
        noun = "placeholder" if len(gone) == 1 else "placeholders"
        tiles.append((str(len(gone)), f"{noun} replaced" + (f", of {kinds} kinds" if kinds > 1 else "")))
    counts = mapping(mapping(data.get("details")).get("operators"))
    if "source" in counts and "delivered" in counts:
        before, after = (sum(map(integer, mapping(counts[key]).values())) for key in ("source", "delivered"))
        tiles.append((f"{before} → {after}", "nodes"))
    regions = [item for region in dicts(verification.get("regions")) for item in dicts(region.get("outputs"))]
    whole = mapping(verification.get("whole_model"))
    for items, label in (
        (
            dicts(whole.get("outputs")),
            "largest difference from the whole model, relative to the largest value",
        ),
        (regions, "largest difference of a replacement from PyTorch, relative to the largest value"),
        (dicts(verification.get("outputs")), "largest difference of an output, before and after, likewise"),
    ):
        worst = largest([item.get("max_scaled") for item in items])
        if worst is not None:
            tiles.append((figure(worst), label))
    kept = [*dicts(data.get("kept")), *dicts(data.get("runtime_operators"))]
    if kept:
        tiles.append((str(len(kept)), "operators that need more than ONNX"))
    return _tile_list(tiles) if tiles else None


def _tile_list(tiles: Sequence[tuple[str, str]]) -> Markup:
    return tag(
        "ul",
        [tag("li", tag("strong", value), " ", tag("span", label)) for value, label in tiles],
        class_="tiles",
    )
