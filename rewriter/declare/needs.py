"""Whether everything that a file needs is here."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from rewriter import manifest as manifests
from rewriter.declare import here
from rewriter.declare.contents import Contents, contents_of
from rewriter.declare.libraries import Needed, needed
from rewriter.declare.runtimes import Judged, judge, judge_one
from rewriter.domains import is_standard_domain, normal_domain, runtime_of
from rewriter.errors import UsageError
from rewriter.libraries import Libraries
from rewriter.profiles import table, wanted
from rewriter.report import as_text, function_name, to_json
from rewriter.source import Source, name_of, open_source
from rewriter.verdict import stamp_text
from rewriter.version import VERSION

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from rewriter.manifest import Manifest
    from rewriter.storage import ModelFile


@dataclass(frozen=True)
class Import:
    """An opset or an IR version, and why the installed onnxruntime does not take it (None: it does).

    ``taken`` is None for a domain of operators of one's own, whose versions are a matter of their library.
    """

    domain: str
    version: int
    taken: bool | None
    refusal: str | None = None


@dataclass(frozen=True)
class Operator:
    """An operator outside the standard."""

    domain: str
    name: str
    version: int
    count: int
    library: Needed
    #: The runtime whose domain it is in; None for a custom operator.
    runtime: str | None = None

    @property
    def operator(self) -> str:
        return f"{self.domain}::{self.name}" if self.domain else self.name


@dataclass(frozen=True)
class Requirements:
    """What :func:`requirements` found; ``runs`` says whether the model can run here."""

    source: str
    #: The version of the installed onnxruntime, and why it does not load the model (None: it does).
    onnxruntime: str
    refusal: str | None
    opset_imports: list[Import]
    ir_version: Import
    operators: list[Operator]
    #: Model-local functions that are called, with how often.
    functions: dict[str, int]
    runtimes: list[Judged]
    manifest: dict[str, Any] | None = None
    manifest_fits: bool = False
    warnings: list[str] = field(default_factory=list)
    #: The runtimes that were asked about, and what was taken for them.
    targets: list[Judged] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: How many entries for a manifest the file has, understood or not.
    entries: int = 0

    @property
    def runs(self) -> bool:
        """Whether onnxruntime, as installed and with the libraries given, loads the model."""
        return self.refusal is None

    @property
    def good(self) -> bool:
        """Whether the runtimes that were asked about have everything; without any, whether the model runs here."""
        if self.targets:
            return all(item.verdict != "lacks" for item in self.targets)
        return self.runs

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": 1,
            "tool": {"name": "onnx-rewrite", "version": VERSION},
            "source": self.source,
            "outcome": "runs" if self.runs else "cannot run",
            "onnxruntime": {"version": self.onnxruntime, "loads": self.runs, "reason": self.refusal},
            "opset_imports": [vars(item).copy() for item in self.opset_imports],
            "ir_version": {
                "version": self.ir_version.version,
                "taken": self.ir_version.taken,
                "refusal": self.ir_version.refusal,
            },
            "operators": [
                {
                    "domain": item.domain,
                    "name": item.name,
                    "version": item.version,
                    "count": item.count,
                    "runtime": item.runtime,
                    "library": vars(item.library).copy(),
                }
                for item in self.operators
            ],
            "functions": dict(self.functions),
            "runtimes": {
                "date": table()["date"],
                "source": table()["source"],
                "judged": [{**vars(item), "reasons": list(item.reasons)} for item in self.runtimes],
            },
            "targets": [{**vars(item), "reasons": list(item.reasons)} for item in self.targets],
            "notes": list(self.notes),
            "manifest": self.manifest,
            "manifest_fits": self.manifest_fits,
            "warnings": list(self.warnings),
        }

    def to_json(self) -> str:
        return to_json(self.to_dict())

    def lines(self, *, verbose: bool = False) -> list[tuple[str, str]]:
        """(label, text); with ``verbose`` also the runtimes on which some operator was not tried."""
        lines = [
            ("model", self.source),
            ("stamp", stamp_text(self.manifest, self.manifest_fits, entries=self.entries)),
        ]
        lines += [
            ("opset", f"{item.domain or 'ai.onnx'} {item.version}: {self._taken(item)}")
            for item in self.opset_imports
            if item.taken is not None
        ]
        lines.append(("IR", f"version {self.ir_version.version}: {self._taken(self.ir_version)}"))
        lines += [
            (
                "custom" if item.runtime is None else "runtime's",
                f"{item.count} × {item.operator} version {item.version}: {item.library.text}",
            )
            for item in self.operators
        ]
        lines += [
            ("function", f"{count} × {name}: its body is in the file")
            for name, count in sorted(self.functions.items())
        ]
        lines += self._target_lines() if self.targets else self._runtime_lines(verbose)
        lines += [("warning", text) for text in self.warnings]
        if self.runs:
            lines.append(("runs", f"onnxruntime {self.onnxruntime} loads the model here"))
        else:
            lines.append(("cannot run", str(self.refusal)))
        return lines

    def text(self, *, verbose: bool = False) -> str:
        return as_text(self.lines(verbose=verbose))

    def __str__(self) -> str:
        return self.text()

    def _taken(self, item: Import) -> str:
        if item.taken:
            return f"onnxruntime {self.onnxruntime} takes it"
        return f"onnxruntime {self.onnxruntime} does not take it: {item.refusal}"

    def _runtime_lines(self, verbose: bool) -> list[tuple[str, str]]:
        month = date.fromisoformat(f"{table()['date']}-01").strftime("%B %Y")
        has = ", ".join(item.name for item in self.runtimes if item.verdict == "has")
        lines = [
            f"every operator is on {has} (table of {month})"
            if has
            else f"no runtime of the table has every operator ({month})"
        ]
        lines += [
            f"not on {', '.join(names)}: {'; '.join(reasons)}"
            for reasons, names in self._grouped("lacks").items()
        ]
        unknown = self._grouped("not known")
        if verbose:
            lines += [f"{', '.join(reasons)}: not tried on {', '.join(n)}" for reasons, n in unknown.items()]
        elif unknown:
            names = ", ".join(name for group in unknown.values() for name in group)
            lines.append(f"not every operator was tried on {names} (-v lists them)")
        return [("elsewhere", line) for line in lines]

    def _target_lines(self) -> list[tuple[str, str]]:
        """What each of the runtimes that were asked about lacks."""
        lines = []
        for item in self.targets:
            reasons = "; ".join(item.reasons)
            told = {"has": "has everything", "lacks": f"lacks {reasons}"}
            basis = "" if item.evidence == "measured" else " (by its own documentation, not run here)"
            lines.append(f"{item.name} {told.get(item.verdict, f'was not tried with {reasons}')}{basis}")
        return [("target", line) for line in lines] + [("note", note) for note in self.notes]

    def _grouped(self, verdict: str) -> dict[tuple[str, ...], list[str]]:
        """Names of runtimes by the reasons that they share."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for item in self.runtimes:
            if item.verdict == verdict:
                groups.setdefault(item.reasons, []).append(item.name)
        return groups


def requirements(
    source: Source,
    *,
    library: Mapping[str, str | os.PathLike[str]] | None = None,
    target: str | Iterable[str] = (),
) -> Requirements:
    """What the model ``source`` needs, and whether it is here; nothing is changed or written.

    ``library`` gives the libraries of custom operators by domain; no other is loaded, and one that is not the one
    that the model's manifest records is not either.  ``target`` are runtimes, as :func:`rewriter.rewrite` takes them.
    Raises UsageError where a library cannot be read or serves a domain that the model does not use, or where
    ``target`` names neither a runtime of the table nor a profile, and ModelReadError where ``source`` cannot be read.
    """
    libraries = Libraries.read(library or {})
    aim = wanted(target)
    with open_source(source) as file:
        contents = contents_of(file)
        unused = sorted(set(libraries.paths) - contents.domains)
        if unused:
            raise UsageError(
                f"a library is given for '{unused[0]}', but the model holds no operator of that domain",
                remedy="leave out --library",
            )
        stamped = manifests.read(file.model)
        fits = stamped is not None and manifests.read_valid(file.model, file) is not None
        operators = _operators(contents, stamped, libraries, None if file.path is None else file.path.parent)
        opsets = {normal_domain(item.domain): item.version for item in file.model.opset_import}
        ir_version = file.model.ir_version
        refusal = here.refuses_ir(ir_version)
        return Requirements(
            name_of(source),
            here.version(),
            _refusal(file, operators, libraries),
            [_import(domain, number) for domain, number in sorted(opsets.items())],
            Import("", ir_version, refusal is None, refusal),
            operators,
            {function_name(key): count for key, count in contents.functions.items()},
            judge(contents, ir_version, opsets),
            None if stamped is None else stamped.data,
            fits,
            _warnings(stamped, fits),
            [] if aim is None else [judge_one(item, contents, ir_version, opsets) for item in aim.profiles],
            [] if aim is None else list(aim.notes),
            manifests.entries(file.model),
        )


def _import(domain: str, version: int) -> Import:
    if not is_standard_domain(domain):
        return Import(domain, version, None)
    refusal = here.refuses_opset(domain, version)
    return Import(domain, version, refusal is None, refusal)


def _operators(
    contents: Contents, stamped: Manifest | None, libraries: Libraries, folder: Path | None
) -> list[Operator]:
    found = []
    for counts, is_owned in ((contents.custom, False), (contents.owned, True)):
        for (domain, name, version), count in sorted(counts.items()):
            runtime = runtime_of(domain) if is_owned else None
            library = needed(domain, name, stamped, libraries, folder)
            if runtime == "onnxruntime" and library.state == "missing":
                library = Needed("built in")
            found.append(Operator(domain, name, version, count, library, runtime))
    return found


def _refusal(file: ModelFile, operators: list[Operator], libraries: Libraries) -> str | None:
    """Why the model does not run here; None where it does."""
    for item in operators:
        if item.library.state == "differs":
            return f"{item.operator}: {item.library.text}"
    allowed = {item.domain for item in operators if item.library.may_load}
    said = here.refuses_model(file, [path for domain, path in libraries.paths.items() if domain in allowed])
    if said is None:
        return None
    lacking = [item.operator for item in operators if item.library.state in ("missing", "beside")]
    return f"nothing here has {', '.join(lacking)}: {said}" if lacking else said


def _warnings(stamped: Manifest | None, fits: bool) -> list[str]:
    if stamped is None or fits:
        return []
    return ["the graph was edited after it was stamped: what the manifest says of it may hold no more"]
