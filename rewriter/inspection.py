"""What a model holds, without changing it: its placeholders, where they are, and which pass would take each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rewriter import manifest, stamp
from rewriter.declare.targets import require
from rewriter.decompose import decompose
from rewriter.derive import extend
from rewriter.errors import LeftoverPlaceholderError, TargetError
from rewriter.graph.advice import Advice, advice
from rewriter.graph.kept import texts, unmatched_keep
from rewriter.graph.leftover import meant
from rewriter.graph.survey import Keep, survey, unmatched_rules
from rewriter.lower import Target, at_target, settled
from rewriter.lower.ir import settle
from rewriter.placeholder.registry import Selection
from rewriter.report import Declared, Replaced, as_text, to_json
from rewriter.source import Source, name_of, open_source
from rewriter.verdict import stamp_text
from rewriter.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rewriter.errors import Where
    from rewriter.graph.survey import Found
    from rewriter.manifest import Manifest
    from rewriter.placeholder.contract import Placeholder
    from rewriter.storage import ModelFile

#: Names of a pass, and places of an operator, that are listed without ``verbose``.
_SHOWN = 4


@dataclass(frozen=True)
class Sighting:
    """One placeholder of the model."""

    operator: str
    where: Where
    #: The pass that would take it, or None.
    by: str | None
    #: Whether it would be taken by its name alone, in a domain that the pass does not list.
    assumed: bool = False
    kept: bool = False
    #: A pass that might be meant where none takes it, and what to do about it.
    nearest: str | None = None
    hint: str = ""


@dataclass(frozen=True)
class Inspection:
    """What :func:`rewriter.inspect` found."""

    source: str
    opset_imports: dict[str, int]
    ir_version: int
    placeholders: list[Sighting]
    runtime_operators: list[Declared]
    #: Operators of the file's own manifest that were kept, and whether the manifest fits the model.
    manifest: dict[str, Any] | None = None
    manifest_fits: bool = False
    unmatched_passes: list[str] = field(default_factory=list)
    unmatched_rules: list[str] = field(default_factory=list)
    #: Operators to be kept that are no placeholders of the model.
    unmatched_keep: list[str] = field(default_factory=list)
    #: The opset that was asked for.
    opset: int | None = None
    #: What would stand for nodes that this opset lacks, and why some have no form there.
    lowered: list[Replaced] = field(default_factory=list)
    refused: tuple[str, ...] = ()
    #: The runtimes that were named, and what was taken for them or is not known of them.
    targets: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def unmatched(self) -> list[Sighting]:
        """Placeholders that no pass takes and nobody keeps."""
        return [sighting for sighting in self.placeholders if sighting.by is None and not sighting.kept]

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": 1,
            "tool": {"name": "onnx-rewrite", "version": VERSION},
            "source": self.source,
            "outcome": "inspected",
            "opset_imports": dict(self.opset_imports),
            "ir_version": self.ir_version,
            "placeholders": [
                {
                    "operator": s.operator,
                    "pass": s.by,
                    "assumed": s.assumed,
                    "kept": s.kept,
                    "nearest": s.nearest,
                    "scope": s.where.scope,
                    "node": s.where.node,
                    "line": s.where.source,
                }
                for s in self.placeholders
            ],
            "runtime_operators": [vars(d).copy() for d in self.runtime_operators],
            "unmatched_passes": list(self.unmatched_passes),
            "unmatched_rules": list(self.unmatched_rules),
            "unmatched_keep": list(self.unmatched_keep),
            "targets": list(self.targets),
            "notes": list(self.notes),
            "opset": self.opset,
            "lowered": [
                {"operator": r.operator, "into": list(r.into), "scope": r.where.scope, "node": r.where.node}
                for r in self.lowered
            ],
            "refused": list(self.refused),
            "manifest": self.manifest,
            "manifest_fits": self.manifest_fits,
        }

    def to_json(self) -> str:
        return to_json(self.to_dict())

    def lines(self, *, verbose: bool = False) -> list[tuple[str, str]]:
        """(label, text), one line for each kind of placeholder, or with ``verbose`` each one."""
        domains = ", ".join(
            f"{domain or 'ai.onnx'} {version}" for domain, version in self.opset_imports.items()
        )
        lines = [("model", f"{self.source}: opset {domains}; IR version {self.ir_version}")]
        if not self.placeholders:
            lines.append(("clean", "it holds no placeholders"))
        groups: dict[tuple[str, str | None, bool, bool, str], list[Sighting]] = {}
        for s in self.placeholders:
            groups.setdefault((s.operator, s.by, s.assumed, s.kept, s.hint), []).append(s)
        for (operator, by, assumed, kept, hint), members in groups.items():
            if by is not None:
                fate = f"→ pass {by}" + (" (by its name alone: its meaning is assumed)" if assumed else "")
            elif kept:
                fate = "would stay"
            else:
                fate = "→ no pass" + (f"; {hint}" if hint else "")
            label = "unknown" if by is None and not kept else "found"
            lines.append((label, f"{len(members)} × {operator} {fate}"))
            shown = members if verbose else members[:_SHOWN]
            lines += [(label, f"    {_place(member.where)}") for member in shown]
            if len(members) > len(shown):
                lines.append((label, f"    … and {len(members) - len(shown)} more (-v shows all)"))
        if self.targets:
            lines.append(("target", ", ".join(self.targets)))
        lines += self._at_target(verbose)
        lines += [("note", note) for note in self.notes]
        lines += [
            ("runtime's", f"{d.count} × {d.operator}: it stays, and needs a runtime that has it")
            for d in self.runtime_operators
        ]
        lines += [("note", f"pass '{name}' matches nothing") for name in self.unmatched_passes]
        lines += [("note", f"--bind '{rule}' matches nothing") for rule in self.unmatched_rules]
        lines += [("note", f"the model holds no {name} to keep") for name in self.unmatched_keep]
        if self.manifest is not None:
            lines.append(("stamp", stamp_text(self.manifest, self.manifest_fits)))
        return lines

    def _at_target(self, verbose: bool) -> list[tuple[str, str]]:
        """What would be done to bring the model to the opset that was asked for."""
        if self.opset is None:
            return []
        if self.refused:
            return [("refused", line) for line in self.refused]
        own = self.opset_imports.get("", self.opset_imports.get("ai.onnx"))
        if not self.lowered:
            told = "the model is there already" if own == self.opset else "every node stays as it is"
            return [("opset", f"{self.opset}: {told}")]
        lines = [
            ("opset", f"{own} → {self.opset}: {len(self.lowered)} nodes would be written in another form")
        ]
        groups: dict[tuple[str, tuple[str, ...]], list[Replaced]] = {}
        for item in self.lowered:
            groups.setdefault((item.operator, tuple(sorted(set(item.into)))), []).append(item)
        for (operator, into), members in groups.items():
            lines.append(("opset", f"{len(members)} × {operator} → {', '.join(into) or 'nothing'}"))
            if verbose:
                lines += [("opset", f"    {_place(member.where)}") for member in members]
        return lines

    def text(self, *, verbose: bool = False) -> str:
        return as_text(self.lines(verbose=verbose))

    def __str__(self) -> str:
        return self.text()


def inspect(
    source: Source,
    *,
    passes: str | Iterable[str | type[Placeholder] | Placeholder] = "auto",
    bind: str | Iterable[str] | None = None,
    keep: str | Iterable[str] = (),
    opset: int | None = None,
    ir_version: int | None = None,
    expand: str | Iterable[str] = (),
    no_expand: str | Iterable[str] = (),
    target: str | Iterable[str] = (),
) -> Inspection:
    """The placeholders of ``source``, and which of ``passes`` would take each; nothing is changed or written.

    The arguments are those of :func:`rewriter.rewrite`.  With ``opset`` or ``expand`` it also says which of ONNX's own
    operators would be replaced, and which have no form there.
    """
    aim = Target.parse(opset, ir_version, expand, no_expand, target)
    selection = extend(Selection.load(passes, bind))
    with open_source(source) as file:
        stamped = manifest.read(file.model)
        valid = manifest.read_valid(file.model, file)
        kept = keeping(Keep.parse(keep), valid)
        found = survey(file.model, selection, kept)
        inspection = Inspection(
            name_of(source),
            {opset.domain: opset.version for opset in file.model.opset_import},
            file.model.ir_version,
            [_sighting(item, selection) for item in found.found],
            stamp.declared(file.model, ())[1],
            None if stamped is None else stamped.data,
            valid is not None,
            _unmatched(found.found, selection),
            unmatched_rules(found.found, selection),
            texts(unmatched_keep(found, kept)),
        )
        return inspection if aim is None else _aimed(inspection, file, selection, kept, aim)


def _aimed(
    inspection: Inspection, file: ModelFile, selection: Selection, keep: Keep, aim: Target
) -> Inspection:
    """``inspection``, and what bringing the model to ``aim`` would do: it is done, and thrown away."""
    own = inspection.opset_imports.get("", inspection.opset_imports.get("ai.onnx", 0))
    aim, notes = settled(aim, file.model), list(aim.aim.notes)
    found: list[Replaced] = []
    refused: tuple[str, ...] = ()
    try:
        regions = decompose(file, at_target(selection, aim, own), keep).regions
        settle(file.model, aim)
        notes += require(file, file.model, aim)
        found = [Replaced.of(region) for region in regions if region.placeholder.is_standard]
    except TargetError as error:
        where = "" if error.where is None else f"{error.where}: "
        refused = (f"{where}{error.what}", *error.details)
    except LeftoverPlaceholderError:
        refused = ("operators that no pass takes come first: see above",)
    return replace(
        inspection,
        opset=aim.opset or own,
        lowered=found,
        refused=refused,
        targets=aim.aim.names,
        notes=notes,
    )


def keeping(keep: Keep, earlier: Manifest | None) -> Keep:
    """``keep``, and what an earlier run kept in this very model."""
    declared = frozenset(
        () if earlier is None else ((entry["domain"], entry["name"]) for entry in earlier.kept)
    )
    return Keep(keep.operators | declared, declared - keep.operators)


def list_passes(passes: str = "auto", *, verbose: bool = False) -> list[tuple[str, str]]:
    """(name, text) for each pass: what it means, what it matches, the opsets that it is written for."""
    lines: list[tuple[str, str]] = []
    for placeholder in Selection.load(passes).passes:
        name = placeholder.pass_name()
        lines.append((name, placeholder.summary))
        shown = placeholder.matches if verbose else placeholder.matches[:_SHOWN]
        more = len(placeholder.matches) - len(shown)
        names = ", ".join(shown) + (f" and {more} more" if more else "")
        lines.append((name, f"    matches {names}; opset {_opsets(placeholder)}"))
        if verbose:
            lines.append(
                (name, f"    parameters {placeholder.signature}; results {', '.join(placeholder.outputs)}")
            )
            lines.append((name, f"    in domains {', '.join(placeholder.domains)}"))
            lines += [
                (
                    name,
                    f"    decomposition {d.name}, opset {d.opset}{'' if d.until is None else f' to {d.until}'}",
                )
                for d in placeholder.decompositions
            ]
    return lines


def _opsets(placeholder: Placeholder) -> str:
    oldest = min(d.opset for d in placeholder.decompositions)
    ends = [d.until for d in placeholder.decompositions]
    return (
        f"{oldest} and newer"
        if None in ends
        else f"{oldest} to {max(end for end in ends if end is not None)}"
    )


def _sighting(found: Found, selection: Selection) -> Sighting:
    match = found.match
    meanings = advice(found.node, selection) if found.is_leftover else Advice()
    return Sighting(
        meant(found.node),
        found.where,
        None if match is None else match.placeholder.pass_name(),
        match is not None and match.assumed,
        found.kept,
        meanings.nearest or None,
        meanings.said(selection),
    )


def _unmatched(found: Sequence[Found], selection: Selection) -> list[str]:
    """Passes that were named and match nothing."""
    matched = {item.match.placeholder.pass_name() for item in found if item.match is not None}
    return sorted(selection.named - matched)


def _place(where: Where) -> str:
    text = f"'{where.node}' in {where.scope}"
    return f"{text} ({where.source})" if where.source else text
