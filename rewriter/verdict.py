"""The outcome of a verification in lines for people; the figures are those of ``rewriter.verify.Proof.to_dict``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Figures = Mapping[str, Any]


def stamp_text(manifest: Figures | None, fits: bool) -> str:
    """What a file's manifest amounts to, in a clause; ``fits``: whether the graph is the one it was written for."""
    if manifest is None:
        return "none that this version understands"
    verification = manifest.get("verification")
    verdict = verification.get("verdict", "?") if isinstance(verification, dict) else "?"
    state = "unchanged since" if fits else "but edited since, so that it means nothing"
    return f"written by onnx-rewrite, {verdict}, {state}"


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
    lines += [
        (label, f"    {runtime['name']} {runtime['version']} agrees{_errors(runtime['outputs'])}")
        for runtime in proof.get("runtimes", ())
        if runtime["status"] == "agrees"
    ]
    lines += [
        ("note", f"{operator} was cut out, since nothing here runs it") for operator in proof["cut_out"]
    ]
    lines += [("note", note) for note in proof["notes"]]
    lines += [("warning", warning) for warning in proof["warnings"]]
    return lines


def _summary(proof: Figures) -> str:
    sizes = "; ".join(
        ", ".join(f"{name}={size}" for name, size in sample.items()) for sample in proof["sizes"] if sample
    )
    count = len(proof["sizes"])
    text = f"against {' and '.join(proof['against'])}, on {count} {proof['inputs']} input{'' if count == 1 else 's'}"
    return f"{text} ({sizes})" if sizes else text


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
