"""The manifest of a file, for people: what was done to it, what it needs, how it was verified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rewriter import manifest as manifests
from rewriter.report import as_text, to_json
from rewriter.source import Source, name_of, open_source
from rewriter.verdict import listed, stamp_text
from rewriter.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Explanation:
    """What :func:`explain` found."""

    source: str
    #: The manifest, None where the file has none that this version understands, and whether the graph is still the one
    #: that it was written for.
    manifest: dict[str, Any] | None
    fits: bool
    #: How many entries for a manifest it has.
    entries: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": 1,
            "tool": {"name": "onnx-rewrite", "version": VERSION},
            "source": self.source,
            "outcome": "explained" if self.fits else "no manifest" if self.manifest is None else "changed",
            "manifest": self.manifest,
            "manifest_fits": self.fits,
        }

    def to_json(self) -> str:
        return to_json(self.to_dict())

    def lines(self) -> list[tuple[str, str]]:
        """(label, text); the manifest comes from a file, so nothing in it is taken to be of the right type."""
        lines = [
            ("model", self.source),
            ("stamp", stamp_text(self.manifest, self.fits, entries=self.entries)),
        ]
        if self.manifest is None:
            return lines
        if not self.fits:
            lines.append(("warning", "what follows was true of the file before it was edited"))
        data = self.manifest
        for label, key in (("replaced", "replaced"), ("function", "functions")):
            for entry in _dicts(data.get(key)):
                into = ", ".join(map(str, _list(entry.get("into")))) or "nothing"
                arrow = "→" if key == "replaced" else "stays, as a call to a function of"
                lines.append(
                    (
                        label,
                        f"{entry.get('count')} × {entry.get('operator')} {arrow} {into}  "
                        f"(pass {entry.get('pass')}, {entry.get('decomposition')}){_told(entry)}",
                    )
                )
        reason = data.get("simplification_reason")
        how = _SIMPLIFIED.get(str(data.get("simplification")), "not known")
        lines.append(("simplified", reason if isinstance(reason, str) else how))
        opsets = ", ".join(
            f"{domain or 'ai.onnx'} {v}" for domain, v in _dict(data.get("opset_imports")).items()
        )
        lines.append(("needs", f"opset {opsets}; IR version {data.get('ir_version')}"))
        for key, what in (("kept", "the custom operator"), ("runtime_operators", "a runtime's own operator")):
            for entry in _dicts(data.get(key)):
                library = _dict(entry.get("library"))
                source = (
                    f" from {library.get('file')} (sha256 {library.get('sha256')})"
                    if library
                    else ""
                    if key == "runtime_operators"
                    else ", from a library that was not named"
                )
                operator = f"{entry.get('domain')}::{entry.get('name')}".removeprefix("::")
                lines.append(("needs", f"{what} {operator} version {entry.get('version')}{source}"))
        lines += _verification_lines(_dict(data.get("verification")))
        lines.append(
            (
                "note",
                "the stamp covers the graph and tensors of up to 1024 bytes"
                if data.get("digest_version", 1) != 1
                else "the stamp is of an older version: it covers the graph and small integer constants only",
            )
        )
        return lines

    def text(self) -> str:
        return as_text(self.lines())

    def __str__(self) -> str:
        return self.text()


_SIMPLIFIED = {
    "accepted": "yes, and compared with the model before",
    "refused": "no: the simplifier gave nothing that could be taken",
    "off": "no: not asked for",
}


def explain(source: Source) -> Explanation:
    """The manifest in ``source``, and whether the graph was edited since it was written; nothing is changed."""
    with open_source(source) as file:
        stamped = manifests.read(file.model)
        fits = stamped is not None and manifests.read_valid(file.model, file) is not None
        entries = manifests.entries(file.model)
    return Explanation(name_of(source), None if stamped is None else stamped.data, fits, entries)


def _verification_lines(proof: Mapping[str, Any]) -> list[tuple[str, str]]:
    verdict = str(proof.get("verdict"))
    if "against" not in proof:
        return [("unverified", str(proof.get("reason", "no reason is given")))]
    lines = [(verdict, f"against {listed(_list(proof['against']))}")]
    sizes = _sizes_text(proof.get("sizes"))
    seed = f", seed {proof.get('seed')}" if proof.get("inputs") == "drawn" else ""
    lines.append(
        (
            verdict,
            f"on {proof.get('samples')} {proof.get('inputs')} inputs{seed}{f': {sizes}' if sizes else ''}",
        )
    )
    whole = _dict(proof.get("whole_model"))
    if whole:
        sizes = _sizes_text(whole.get("sizes"))
        where = f": {sizes}" if sizes else ""
        lines.append((verdict, f"compared with the whole model on {whole.get('samples')} samples{where}"))
    lines.append((verdict, f"{proof.get('proved')} replaced operators compared with PyTorch"))
    lines += [
        (verdict, f"tolerance of {what}: {tolerance}")
        for what, tolerance in _dict(proof.get("tolerances")).items()
    ]
    lines += [
        (verdict, f"input '{name}' from {' to '.join(map(str, _list(ends)))}, as asked")
        for name, ends in _dict(proof.get("input_ranges")).items()
    ]
    lines += [
        ("warning", f"{what} agreed without saying anything: empty, constant or saturated in every sample")
        for what in _list(proof.get("vacuous"))
    ]
    for name, accepted in _dict(proof.get("own_judges")).items():
        kinds = " and ".join(map(str, _list(accepted)))
        text = f"pass '{name}' judged its own results"
        told = f"{text}, and accepts {kinds} ones as well" if kinds else text
        lines.append(("warning" if kinds else "note", told))
    lines += [(verdict, f"{what} judged as {how}") for what, how in _dict(proof.get("judged")).items()]
    runtimes = _list(proof.get("runtimes"))
    if runtimes:
        lines.append(
            (verdict, f"{listed(runtimes)} {'agree' if len(runtimes) > 1 else 'agrees'} on the same inputs")
        )
    gradients = _dict(proof.get("gradients"))
    if gradients:
        lines.append(
            (
                verdict,
                f"{gradients.get('agree')} replaced operators train with the gradient of what stands here",
            )
        )
        lines += [
            ("note", f"{where}: its gradient was not checked")
            for where in _list(gradients.get("not_checked"))
        ]
    lines += [("unproved", str(where)) for where in _list(proof.get("unproved"))]
    lines += [("note", f"{operator} was cut out: nothing ran it") for operator in _list(proof.get("cut_out"))]
    return lines


def _told(entry: Mapping[str, Any]) -> str:
    said = ", ".join(f"{count} {verdict}" for verdict, count in _dict(entry.get("verdicts")).items())
    return f": {said}" if said else ""


def _sizes_text(samples: Any) -> str:
    return "; ".join(
        ", ".join(f"{name}={size}" for name, size in sample.items()) for sample in _dicts(samples) if sample
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in _list(value) if isinstance(item, dict)]
