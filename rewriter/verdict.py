"""The outcome of a verification in lines for people; the figures are those of ``rewriter.verify.Proof.to_dict``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rewriter.manifest import Manifest

    Figures = Mapping[str, Any]


def stamp_text(manifest: Figures | None, fits: bool, *, entries: int = 0) -> str:
    """What a file's manifest amounts to, in a clause; ``fits``: whether the graph is the one it was written for,
    ``entries``: how many entries of that name the file has.
    """
    if manifest is None and entries > 1:
        return f"{entries} of them, of which none counts; rewrite IN OUT writes a single new one"
    if manifest is None and entries:
        return "one that this version does not understand; rewrite IN OUT writes a new one"
    if manifest is None:
        return "none: not written by onnx-rewrite; rewrite IN OUT writes a file that has one"
    verification = manifest.get("verification")
    verdict = verification.get("verdict", "?") if isinstance(verification, dict) else "?"
    state = "unchanged since" if fits else "but edited since, so that it means nothing"
    return f"the file says: written by onnx-rewrite, {verdict}; {state}"


def inherited(earlier: Manifest) -> list[str]:
    """What a file says of operators that an earlier run replaced, as its own claim; a text for each entry."""
    return [
        f"the file says of {operator}: {claim}"
        for operator, verdicts in earlier.claims
        if (claim := ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    ]


def verification_lines(proof: Figures, *, verbose: bool = False) -> list[tuple[str, str]]:
    """(label, text): the verdict, then each group of regions, then each output of the model."""
    label = str(proof["verdict"])
    lines = [(label, _summary(proof))]
    groups: dict[tuple[str, str, str], list[Figures]] = {}
    for region in proof["regions"]:
        groups.setdefault((region["pass"], region["decomposition"], region["how"]), []).append(region)
    for (name, decomposition, how), regions in groups.items():
        outputs = [output for region in regions for output in region["outputs"]]
        lines.append((label, f"    {len(regions)} × {name} ({decomposition}), {how}{_errors(outputs)}"))
        if verbose or how == "unproved":
            lines += [(label, f"        {_place(region)}{_errors(region['outputs'])}") for region in regions]
    lines += [
        (label, f"    output '{output['name']}', before and after{_errors([output])}")
        for output in proof["outputs"]
    ]
    if proof.get("whole_model"):
        lines += [(label, f"    {text}") for text in _whole(proof["whole_model"])]
    lines += [
        (label, f"    {runtime['name']} {runtime['version']} agrees{_errors(runtime['outputs'])}")
        for runtime in proof.get("runtimes", ())
        if runtime["status"] == "agrees"
    ]
    lines += [(label, f"    {text}") for text in _gradients(proof.get("gradients") or ())]
    asked = [
        f"{name} {value:g}" for name, value in (proof.get("thresholds") or {}).items() if value is not None
    ]
    lines += [("thresholds", f"{', '.join(asked)}, as asked")] if asked else []
    lines += [("inherited", f"{text}; this run did not compare it") for text in proof.get("inherited", ())]
    lines += [("note", note) for note in proof["notes"]]
    lines += [("warning", warning) for warning in proof["warnings"]]
    return lines


def _gradients(results: Iterable[Figures]) -> list[str]:
    """A line for each pass, and each thing that can be said of its gradients."""
    groups: dict[tuple[str, str, str, str], list[Figures]] = {}
    for result in results:
        key = (result["pass"], result["status"], result["trained"], result["reason"])
        groups.setdefault(key, []).append(result)
    found: list[str] = []
    for (name, status, trained, reason), members in groups.items():
        text = f"gradients of {len(members)} × {name}: {status}"
        if status != "agrees":
            found.append(f"{text}: {reason}" if reason else text)
            continue
        inputs = [entry for member in members for entry in member["inputs"]]
        parts = [f"{text}, {trained} and the delivered nodes"]
        for figure, words in (("max_scaled", "max |a−b| / max |b|"), ("max_numeric", "numeric differences")):
            seen = [entry[figure] for entry in inputs if entry[figure] is not None]
            parts += [f"{words} {max(seen):.2g}"] if seen else []
        found.append(", ".join(parts))
    return found


def _summary(proof: Figures) -> str:
    text = (
        f"against {listed(proof['against'])}, on {_counted(len(proof['sizes']), proof['inputs'] + ' input')}"
    )
    return f"{text}{_sizes(proof['sizes'])}"


def listed(items: Iterable[object]) -> str:
    """``"a, b and c"``."""
    *first, last = [str(item) for item in items] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _whole(whole: Figures) -> list[str]:
    """What was compared with the whole model: how often, then each output."""
    agrees = f"{whole['name']} ({whole['kind']}) agrees on {_counted(whole['samples'], 'sample')}"
    outputs = [f"    output '{output['name']}'{_errors([output])}" for output in whole["outputs"]]
    return [f"{agrees}{_sizes(whole['sizes'])}", *outputs]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _sizes(samples: Iterable[Figures]) -> str:
    """``" (n=2, m=3; n=1, m=3)"``, or nothing where no size is open."""
    sizes = "; ".join(
        ", ".join(f"{name}={size}" for name, size in sample.items()) for sample in samples if sample
    )
    return f" ({sizes})" if sizes else ""


def _errors(outputs: Iterable[Figures]) -> str:
    """The largest differences among ``outputs``, and what agreement does not say."""
    outputs = list(outputs)
    parts = []
    for key, words in (("max_abs", "max |a−b|"), ("max_scaled", "max |a−b| / max |b|")):
        seen = [output[key] for output in outputs if output[key] is not None]
        if seen:
            parts.append(f"{words} {max(seen):.2g}")
    parts += sorted({str(output["vacuous"]) for output in outputs if output["vacuous"]})
    return f": {', '.join(parts)}" if parts else ""


def _place(region: Figures) -> str:
    place = f"'{region['node']}' in {region['scope']}"
    return f"{place} ({region['reason']})" if region["reason"] else place
