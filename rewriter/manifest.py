"""The manifest that a delivered model carries: what was replaced, what is still needed, and how it was proved.

It is one ``metadata_props`` entry, JSON with sorted keys and no spaces, so that the same run writes the same bytes.
``docs/manifest.md`` describes it for readers of other languages; the schema is ``manifest.schema.json``.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rewriter.digest import DIGEST_VERSION, digest
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

#: The verdict where operators are listed that an earlier run replaced, and that this one did not compare.
PARTLY = "partly verified"

#: The verdict of an operator that is covered by a comparison of the whole model.
WHOLE = "whole model"
VERDICTS = frozenset({"verified", "unproved", "not verified", "never runs", WHOLE})

REFUSED: Mapping[str, Any] = {"verdict": "not verified", "reason": "refused by flag"}


@dataclass(frozen=True)
class Manifest:
    """What stands in the file, as plain data in the layout of the schema."""

    data: dict[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return str(self.data.get("digest", ""))

    @property
    def digest_version(self) -> int:
        return int(self.data.get("digest_version", 1))

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

    @property
    def verdict(self) -> str:
        return str(self.data.get("verification", {}).get("verdict", "not verified"))

    @property
    def claims(self) -> list[tuple[str, dict[str, int]]]:
        """What this file says of each replaced operator: its name, and how many of it have which verdict."""
        return [
            (str(entry["operator"]), _verdicts(entry, self)) for entry in (*self.replaced, *self.functions)
        ]

    def with_verification(
        self,
        verification: Mapping[str, Any],
        replaced: Sequence[Replaced] = (),
        verdicts: Sequence[str] = (),
        *,
        earlier: Manifest | None = None,
        covers_all: bool = False,
    ) -> Manifest:
        """With the outcome of a comparison: ``verdicts`` of each of ``replaced``.

        What ``earlier`` lists keeps the verdict that it had, unless the whole model was compared (``covers_all``).
        The file is verified only where each operator that it lists was compared now.
        """
        data = self.data | {"verification": dict(verification)}
        data |= _lists(replaced, verdicts, earlier, covers_all=covers_all)
        inherited = earlier is not None and (earlier.replaced or earlier.functions) and not covers_all
        if inherited and verification.get("verdict") == "verified":
            data["verification"]["verdict"] = PARTLY
        return Manifest(data)

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
    opset_before: int | None = None,
) -> Manifest:
    """The manifest of ``model`` as it stands, not verified yet.

    ``earlier`` is the valid manifest that the model came with: what an earlier run replaced stays on record.
    """
    return Manifest(
        {
            "format": FORMAT,
            "tool": {"name": "onnx-rewrite", "version": VERSION},
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
            "digest_version": DIGEST_VERSION,
            "verification": dict(REFUSED),
        }
        | _lists(replaced, ["not verified"] * len(replaced), earlier)
        | ({"simplification_reason": simplification_reason} if simplification_reason else {})
        | ({} if opset_before is None else {"opset_before": opset_before})
    )


def read(model: ModelProto) -> Manifest | None:
    """The manifest in ``model``; None where there is none that this version understands.  It is not checked."""
    entries = [prop.value for prop in model.metadata_props if prop.key == KEY]
    if len(entries) != 1:
        return None  # of two, another reader may take the other
    try:
        data = json.loads(entries[0])
    except (ValueError, RecursionError):
        return None
    return Manifest(data) if _understood(data) else None


def entries(model: ModelProto) -> int:
    """How many entries for a manifest ``model`` has, understood or not; with several, none counts."""
    return sum(prop.key == KEY for prop in model.metadata_props)


def read_valid(model: ModelProto, payloads: Payloads) -> Manifest | None:
    """The manifest in ``model`` if its digest is that of the model: nothing was edited since it was written."""
    manifest = read(model)
    if manifest is None or manifest.digest != digest(model, payloads, manifest.digest_version):
        return None
    return manifest


def _understood(data: Any) -> bool:
    """Whether ``data`` has the parts that are used here, in the right types: it comes from a file."""
    return (
        isinstance(data, dict)
        and data.get("format") == FORMAT
        and isinstance(data.get("digest"), str)
        and data.get("digest_version", 1) in (1, DIGEST_VERSION)
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


def _lists(
    replaced: Sequence[Replaced],
    verdicts: Sequence[str],
    earlier: Manifest | None,
    *,
    covers_all: bool = False,
) -> dict[str, Any]:
    """The entries ``replaced`` and (where there are any) ``functions`` of a manifest."""
    pairs = list(zip(replaced, verdicts, strict=True))
    gone = [(item, verdict) for item, verdict in pairs if item.function is None]
    stay = [(item, verdict) for item, verdict in pairs if item.function is not None]
    found = {"replaced": _merged(gone, earlier, "replaced", covers_all=covers_all)}
    functions = _merged(stay, earlier, "functions", covers_all=covers_all)
    return found | ({"functions": functions} if functions else {})


def _merged(
    replaced: Sequence[tuple[Replaced, str]], earlier: Manifest | None, key: str, *, covers_all: bool
) -> list[dict[str, Any]]:
    counts: defaultdict[tuple[str, str, str, tuple[str, ...]], Counter[str]] = defaultdict(Counter)
    for old in () if earlier is None else getattr(earlier, key):
        into, count = old.get("into"), old.get("count")
        if isinstance(into, list) and isinstance(count, int) and count > 0:
            had = {WHOLE: count} if covers_all or earlier is None else _verdicts(old, earlier)
            counts[old["operator"], old["pass"], old["decomposition"], tuple(map(str, into))].update(had)
    for new, verdict in replaced:
        if new.via:
            continue  # it came from a placeholder that is counted
        counts[new.operator, new.by, new.decomposition, tuple(sorted(set(new.into)))][verdict] += 1
    return [
        {
            "operator": operator,
            "pass": by,
            "decomposition": decomposition,
            "into": list(into),
            "count": verdicts.total(),
            "verdicts": dict(sorted(verdicts.items())),
        }
        for (operator, by, decomposition, into), verdicts in sorted(counts.items())
    ]


def _verdicts(entry: Mapping[str, Any], manifest: Manifest) -> dict[str, int]:
    """How many of an entry's operators have which verdict, as far as its file says."""
    count, said = entry.get("count"), entry.get("verdicts")
    count = count if isinstance(count, int) and count > 0 else 0
    if isinstance(said, dict) and all(isinstance(n, int) and n > 0 for n in said.values()):
        known = {name: n for name, n in said.items() if name in VERDICTS}
        if sum(known.values()) == count:
            return known
    # A manifest of before verdicts were told apart: no more is known than its own verdict, if it proved that many.
    if not manifest.is_verified:
        return {"unproved" if manifest.is_unproved else "not verified": count} if count else {}
    proved = manifest.data["verification"].get("proved")
    listed = sum(n for e in (*manifest.replaced, *manifest.functions) if isinstance(n := e.get("count"), int))
    enough = isinstance(proved, int) and proved >= listed
    return {"verified" if enough else "not verified": count} if count else {}
