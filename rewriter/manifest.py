"""The manifest that a delivered model carries: what was replaced, what is still needed, and how it was proved.

It is one ``metadata_props`` entry, JSON with sorted keys and no spaces, so that the same run writes the same bytes.
``docs/manifest.md`` describes it for readers of other languages; the schema is ``manifest.schema.json``.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rewriter.digest import digest
from rewriter.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import ModelProto

    from rewriter.digest import Payloads
    from rewriter.report import Declared, Replaced

#: The ``metadata_props`` key of the manifest, and of the sentence that says the same to people.
KEY = "rewriter.manifest"
SENTENCE_KEY = "custom_op_info"

#: Version of the layout; a manifest of another version is not understood, and the model treated as having none.
FORMAT = 1

REFUSED: Mapping[str, Any] = {"verdict": "not verified", "reason": "refused by flag"}


@dataclass(frozen=True)
class Manifest:
    """What stands in the file, as plain data in the layout of the schema."""

    data: dict[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return str(self.data.get("digest", ""))

    @property
    def is_verified(self) -> bool:
        return bool(self.data.get("verification", {}).get("verdict") == "verified")

    @property
    def is_unproved(self) -> bool:
        return bool(self.data.get("verification", {}).get("verdict") == "unproved")

    @property
    def simplification(self) -> str:
        return str(self.data.get("simplification", "off"))

    @property
    def kept(self) -> list[dict[str, Any]]:
        return list(self.data.get("kept", []))

    @property
    def runtime_operators(self) -> list[dict[str, Any]]:
        return list(self.data.get("runtime_operators", []))

    @property
    def replaced(self) -> list[dict[str, Any]]:
        return list(self.data.get("replaced", []))

    @property
    def functions(self) -> list[dict[str, Any]]:
        return list(self.data.get("functions", []))

    def with_verification(self, verification: Mapping[str, Any]) -> Manifest:
        return Manifest(self.data | {"verification": dict(verification)})

    def to_text(self) -> str:
        return json.dumps(
            self.data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )


def build(
    model: ModelProto,
    payloads: Payloads,
    *,
    replaced: Sequence[Replaced],
    earlier: Manifest | None,
    kept: Sequence[Declared],
    runtime_operators: Sequence[Declared],
    simplification: str,
    simplification_reason: str = "",
) -> Manifest:
    """The manifest of ``model`` as it stands, not verified yet.

    ``earlier`` is the valid manifest that the model came with: what an earlier run replaced stays on record.
    """
    gone = [item for item in replaced if item.function is None]
    functions = _merged(
        [item for item in replaced if item.function is not None], earlier.functions if earlier else []
    )
    return Manifest(
        {
            "format": FORMAT,
            "tool": {"name": "onnx-rewrite", "version": VERSION},
            "replaced": _merged(gone, earlier.replaced if earlier else []),
            "kept": [
                {
                    "domain": d.domain,
                    "name": d.name,
                    "version": d.version,
                    "library": _library(d),
                }
                for d in kept
            ],
            "runtime_operators": [
                {"domain": d.domain, "name": d.name, "version": d.version}
                | ({} if d.library is None else {"library": _library(d)})
                for d in runtime_operators
            ],
            "opset_imports": {opset.domain: opset.version for opset in model.opset_import},
            "ir_version": model.ir_version,
            "simplification": simplification,
            "digest": digest(model, payloads),
            "verification": dict(REFUSED),
        }
        | ({"functions": functions} if functions else {})
        | ({"simplification_reason": simplification_reason} if simplification_reason else {})
    )


def read(model: ModelProto) -> Manifest | None:
    """The manifest in ``model``; None where there is none that this version understands.  It is not checked."""
    for prop in model.metadata_props:
        if prop.key == KEY:
            try:
                data = json.loads(prop.value)
            except (ValueError, RecursionError):
                return None
            return Manifest(data) if _understood(data) else None
    return None


def has_entry(model: ModelProto) -> bool:
    """Whether ``model`` has an entry for a manifest, whether or not it is understood."""
    return any(prop.key == KEY for prop in model.metadata_props)


def read_valid(model: ModelProto, payloads: Payloads) -> Manifest | None:
    """The manifest in ``model`` if its digest is that of the model: nothing was edited since it was written."""
    manifest = read(model)
    if manifest is None or manifest.digest != digest(model, payloads):
        return None
    return manifest


def _understood(data: Any) -> bool:
    """Whether ``data`` has the parts that are used here, in the right types: it comes from a file."""
    return (
        isinstance(data, dict)
        and data.get("format") == FORMAT
        and isinstance(data.get("digest"), str)
        and isinstance(data.get("verification"), dict)
        and _entries(data.get("kept"), "domain", "name")
        and _entries(data.get("replaced"), "operator", "pass", "decomposition")
        and _entries(data.get("functions", []), "operator", "pass", "decomposition")
        and _entries(data.get("runtime_operators", []), "domain", "name")
    )


def _entries(entries: Any, *keys: str) -> bool:
    return isinstance(entries, list) and all(
        isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in keys) for entry in entries
    )


def _library(operator: Declared) -> dict[str, str | None] | None:
    return None if operator.library is None else {"file": operator.library, "sha256": operator.sha256}


def _merged(replaced: Sequence[Replaced], earlier: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    counts: Counter[tuple[str, str, str, tuple[str, ...]]] = Counter()
    for old in earlier:
        into, count = old.get("into"), old.get("count")
        if isinstance(into, list) and isinstance(count, int):
            counts[old["operator"], old["pass"], old["decomposition"], tuple(map(str, into))] += count
    for new in replaced:
        if new.via:
            continue  # it came from a placeholder that is counted
        counts[new.operator, new.by, new.decomposition, tuple(sorted(set(new.into)))] += 1
    return [
        {"operator": operator, "pass": by, "decomposition": decomposition, "into": list(into), "count": count}
        for (operator, by, decomposition, into), count in sorted(counts.items())
    ]
