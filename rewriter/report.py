"""What a run did, as data, with a view for people and one for programs.

A report never says when or where the run happened: no time, no folder, no host.  The same model and the same options
give the same report but for the measured figures of the verification and the versions of the libraries.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rewriter.errors import ModelWriteError, RewriteError, Where
from rewriter.text import printable
from rewriter.verdict import verification_lines
from rewriter.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from onnx import ModelProto

    from rewriter.graph.expanding import Region
    from rewriter.graph.scopes import FunctionKey
    from rewriter.page.details import Details

#: Version of the JSON layout; raised when a field changes its meaning or goes.
FORMAT = 1


@dataclass(frozen=True)
class Replaced:
    """One placeholder that was replaced."""

    operator: str
    #: Name of the pass, of the decomposition that it chose, and why it chose it.
    by: str
    decomposition: str
    reason: str
    into: tuple[str, ...]
    where: Where
    #: Whether the operator was taken by its name alone, in a domain that the pass does not list.
    assumed: bool = False
    #: The placeholders whose decomposition made this one, outermost first; empty where it stood in the model.
    via: tuple[str, ...] = ()
    #: The model-local function that it calls now, where it stays as a call; None where it is gone.
    function: str | None = None
    #: The opset in which it was meant, where it is an operator of ONNX itself.
    opset: int | None = None

    @classmethod
    def of(cls, region: Region) -> Replaced:
        return cls(
            region.where.operator,
            region.placeholder.pass_name(),
            region.decomposition,
            region.reason,
            tuple(region.into),
            region.where,
            region.assumed,
            region.via,
            None if region.function is None else function_name(region.function),
            region.placeholder.meant_at,
        )


@dataclass(frozen=True)
class Declared:
    """An operator outside the standard that the delivered model holds."""

    domain: str
    name: str
    version: int
    count: int
    library: str | None = None
    sha256: str | None = None

    @property
    def operator(self) -> str:
        return f"{self.domain}::{self.name}"


@dataclass(frozen=True)
class Simplified:
    """What became of the simplifier's proposal."""

    accepted: bool
    reason: str = ""
    nodes_before: int = 0
    nodes_after: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Written:
    """A delivered file: its name, its size, and its data file if it has one."""

    file: str
    size: int
    data: str | None = None
    data_size: int = 0


@dataclass(frozen=True)
class Failure:
    """Why a run delivered nothing; ``code`` is stable, the words are not."""

    code: str
    exit_code: int
    what: str
    where: str | None = None
    remedy: str | None = None

    @classmethod
    def of(cls, error: Exception, folders: Iterable[Path] = ()) -> Failure:
        """``folders`` are those of the run; files in them lose their path.

        What is no RewriteError is a fault of ours, with code ``internal``.
        """

        def shown(text: object) -> str | None:
            if text is None:
                return None
            shown = str(text)
            for folder in folders:
                shown = shown.replace(f"{folder}{os.sep}", "").replace(str(folder), "the folder")
            return shown

        if not isinstance(error, RewriteError):
            what = f"internal error: {type(error).__name__}: {' '.join(str(error).split())}"
            return cls("internal", 1, shown(what) or "", None, "report this as a fault")
        what = "\n  ".join((error.what, *error.details))
        return cls(error.code, error.exit_code, shown(what) or "", shown(error.where), shown(error.remedy))


@dataclass
class Report:
    """Everything that :func:`rewriter.rewrite` did.

    ``outcome`` is ``"verified"``, ``"unverified"`` (refused by flag, or ``allow_unproved``), ``"copied"`` (there was
    nothing to do) or ``"failed"``.  ``model`` is the result where no target was given and it fits into one message.
    """

    source: str
    target: str | None = None
    outcome: str = "failed"
    failure: Failure | None = None
    replaced: list[Replaced] = field(default_factory=list)
    kept: list[Declared] = field(default_factory=list)
    runtime_operators: list[Declared] = field(default_factory=list)
    unmatched_passes: list[str] = field(default_factory=list)
    unmatched_rules: list[str] = field(default_factory=list)
    #: Dims whose names the exporter had invented, and what stands there now; those of graph outputs by output as well.
    renamed_dims: list[str] = field(default_factory=list)
    renamed_outputs: dict[str, list[str]] = field(default_factory=dict)
    dropped_opsets: list[str] = field(default_factory=list)
    stripped_bytes: int | None = None
    simplification: Simplified | None = None
    opset_imports: dict[str, int] = field(default_factory=dict)
    ir_version: int = 0
    #: What the IR version was before functions needed a newer one.
    ir_version_before: int | None = None
    #: The runtimes that the file must run on.
    targets: list[str] = field(default_factory=list)
    #: The opset that the model had, where it was brought to another.
    opset_before: int | None = None
    verification: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)
    written: Written | None = None
    manifest: dict[str, Any] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    #: Of a run of the command its arguments, files without their folders.
    arguments: list[str] = field(default_factory=list)
    #: Pictures, counts of operators, interface and runtimes, where they were asked for.
    details: Details | None = field(default=None, repr=False)
    model: ModelProto | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data; the model is left out."""
        return {
            "format": FORMAT,
            "tool": {
                "name": "onnx-rewrite",
                "version": VERSION,
                "libraries": dict(sorted(self.versions.items())),
            },
            "source": self.source,
            "target": self.target,
            "outcome": self.outcome,
            "failure": None if self.failure is None else vars(self.failure).copy(),
            "replaced": [
                {
                    "operator": r.operator,
                    "pass": r.by,
                    "decomposition": r.decomposition,
                    "reason": r.reason,
                    "into": list(r.into),
                    "assumed": r.assumed,
                    "via": list(r.via),
                    "function": r.function,
                    "opset": r.opset,
                    "scope": r.where.scope,
                    "node": r.where.node,
                    "line": r.where.source,
                }
                for r in self.replaced
            ],
            "kept": [vars(d).copy() for d in self.kept],
            "runtime_operators": [vars(d).copy() for d in self.runtime_operators],
            "unmatched_passes": list(self.unmatched_passes),
            "unmatched_rules": list(self.unmatched_rules),
            "renamed_dims": list(self.renamed_dims),
            "renamed_outputs": {name: list(dims) for name, dims in self.renamed_outputs.items()},
            "dropped_opset_imports": list(self.dropped_opsets),
            "stripped_bytes": self.stripped_bytes,
            "simplification": None
            if self.simplification is None
            else vars(self.simplification) | {"notes": list(self.simplification.notes)},
            "opset_imports": dict(self.opset_imports),
            "ir_version": self.ir_version,
            "ir_version_before": self.ir_version_before,
            "targets": list(self.targets),
            "opset_before": self.opset_before,
            "verification": self.verification,
            "warnings": list(self.warnings),
            "written": None if self.written is None else vars(self.written).copy(),
            "manifest": self.manifest,
            "arguments": list(self.arguments),
            "details": None if self.details is None else self.details.to_dict(),
        }

    def to_json(self) -> str:
        return to_json(self.to_dict())

    def to_html(self) -> str:
        """The report as a page; it has pictures where ``details`` were asked for."""
        from rewriter.page import render

        return render(self.to_dict())

    def lines(self, *, verbose: bool = False) -> list[tuple[str, str]]:
        """(label, text) for each thing worth telling, in the order in which it happened."""
        lines: list[tuple[str, str]] = []
        if self.outcome == "copied":
            verdict = (
                ""
                if self.manifest is None
                else f"; the file says {self.manifest['verification'].get('verdict')}; this run verified nothing"
            )
            lines.append(("unchanged", f"nothing to do{verdict}"))
        for label, stays in (("replaced", False), ("function", True)):
            lines += [(label, text) for text in self._replaced_lines(verbose, stays)]
        lines += [("kept", f"{d.count} × {d.operator} version {d.version}{_library(d)}") for d in self.kept]
        lines += [
            ("kept", f"{d.count} × {d.operator} version {d.version}, which belongs to a runtime")
            for d in self.runtime_operators
        ]
        if self.stripped_bytes is not None:
            lines.append(
                ("stripped", f"{size_text(self.stripped_bytes)} of the exporter's debugging information")
            )
        if self.simplification is not None:
            lines.append(_simplified_line(self.simplification))
            lines += [("", note) for note in self.simplification.notes]
        if self.opset_imports:
            domains = ", ".join(
                f"{domain or 'ai.onnx'} {version}" for domain, version in self.opset_imports.items()
            )
            if self.opset_before is not None:
                domains += f" (ai.onnx was {self.opset_before})"
            why = ": functions need it" if any(r.function is not None for r in self.replaced) else ""
            raised = "" if self.ir_version_before is None else f" (was {self.ir_version_before}{why})"
            if self.targets:
                lines.append(("target", f"{', '.join(self.targets)}"))
            lines.append(("needs", f"opset {domains}; IR version {self.ir_version}{raised}"))
        if self.outcome == "unverified" and self.verification is None:
            lines.append(("unverified", "not compared with PyTorch, as asked"))
        if self.verification is not None:
            lines += verification_lines(self.verification, verbose=verbose)
        lines += [("note", f"pass '{name}' matched nothing") for name in self.unmatched_passes]
        lines += [("note", f"--bind '{rule}' matched nothing") for rule in self.unmatched_rules]
        if self.renamed_dims:
            lines.append(("note", self._renamed_text(verbose)))
            lines += [("note", f"    {dim}") for dim in self.renamed_dims if verbose]
        lines += [("warning", text) for text in self.warnings]
        if self.written is not None:
            lines.append(("wrote", _written_text(self.written)))
        return lines

    def text(self, *, verbose: bool = False) -> str:
        """The view for people."""
        return as_text(self.lines(verbose=verbose))

    def __str__(self) -> str:
        return self.text()

    def _renamed_text(self, verbose: bool) -> str:
        count, outputs = len(self.renamed_dims), list(self.renamed_outputs)
        more = f" and {len(outputs) - 5} more" if len(outputs) > 5 else ""
        of = f", of outputs: {', '.join(outputs[:5])}{more}" if outputs else ", none of an output"
        dims = (
            "dim that the exporter had invented is"
            if count == 1
            else "dims that the exporter had invented are"
        )
        return f"{count} {dims} renamed or open now{of}{'' if verbose else ' (-v lists them)'}"

    def _replaced_lines(self, verbose: bool, stays: bool) -> list[str]:
        groups: dict[tuple[str, str, str, tuple[str, ...], str | None], list[Replaced]] = {}
        for replaced in (r for r in self.replaced if not r.via and (r.function is not None) is stays):
            key = (replaced.operator, replaced.by, replaced.decomposition, replaced.into, replaced.function)
            groups.setdefault(key, []).append(replaced)
        lines: list[str] = []
        for (operator, by, decomposition, into, function), members in groups.items():
            assumed = ", taken by its name alone" if members[0].assumed else ""
            counted = ", ".join(f"{n} {op}" if n > 1 else op for op, n in sorted(Counter(into).items()))
            fate = f"→ {counted or 'nothing'}"
            if function is not None:
                fate = f"→ call to the function {function} of {counted or 'nothing'}"
            by = f"pass {by}, {decomposition}" if members[0].opset is None else f"for {decomposition}"
            lines.append(f"{len(members)} × {operator} {fate}  ({by}{assumed})")
            if verbose:
                lines += [f"    {m.where}" + (f": {m.reason}" if m.reason else "") for m in members]
        return lines


def function_name(key: FunctionKey) -> str:
    """``"com.example::Roll"``, with an overload ``"com.example::Roll:2"``."""
    domain, name, overload = key
    return (f"{domain}::" if domain else "") + name + (f":{overload}" if overload else "")


def limits_of_functions(replaced: Iterable[Replaced]) -> list[str]:
    """What is to be said of a model in which placeholders stay as calls to functions; nothing where none do."""
    called = {item.function for item in replaced if item.function is not None}
    if not called:
        return []
    said = [
        "only onnxruntime and onnx's reference evaluator run model-local functions today; other runtimes refuse "
        "the file unless they have the operators themselves"
    ]
    overloads = sorted(name for name in called if name.rpartition("::")[2].count(":"))
    if overloads:
        said.append(
            f"{', '.join(overloads)}: decompositions of one operator are told apart by the overload, which onnx's "
            "reference evaluator ignores, so that its results are wrong; onnxruntime before 1.32 refuses the file"
        )
    return said


def columns(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """(label, its cell of the first column, text) of each line; a label that repeats the one before is not shown.

    Both may hold text of a file, which must not begin a line of its own: what is not seen is written out.
    """
    lines = [(printable(label), printable(text)) for label, text in lines]
    width = max((len(label) for label, _ in lines), default=0)
    last = ""
    for label, text in lines:
        yield label, f"{'' if label == last else label:<{width}}", text
        last = label


def as_text(lines: Iterable[tuple[str, str]]) -> str:
    """(label, text) lines in two columns."""
    return "\n".join(f"{cell}  {text}".rstrip() for _, cell, text in columns(lines))


def _library(declared: Declared) -> str:
    return f", runs with {declared.library}" if declared.library else ", no library named"


def _simplified_line(simplified: Simplified) -> tuple[str, str]:
    if not simplified.accepted:
        return "unchanged", f"not simplified: {simplified.reason}"
    if simplified.reason == "nothing to simplify":
        return "simplified", simplified.reason
    return "simplified", f"{simplified.nodes_before} → {simplified.nodes_after} nodes"


def _written_text(written: Written) -> str:
    text = f"{written.file}, {size_text(written.size)}"
    return text if written.data is None else f"{text}, with {written.data}, {size_text(written.data_size)}"


def size_text(size: float) -> str:
    """``1536`` → ``"1.5 KB"``; powers of 1024."""
    for unit in ("bytes", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"


def to_json(data: dict[str, Any]) -> str:
    """Readable, sorted, strict JSON: NaN and infinities, which it has no numbers for, as strings."""
    return json.dumps(_strict(data), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _strict(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(key): _strict(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_strict(item) for item in data]
    if isinstance(data, bytes):
        return data.decode("utf-8", "backslashreplace")
    if isinstance(data, float) and (data != data or data in (float("inf"), float("-inf"))):
        return str(data)
    if data is None or isinstance(data, (str, bool, int, float)):
        return data
    return str(data)


def is_page(path: Path) -> bool:
    """Whether a report of this name is a page for people."""
    return path.suffix.lower() in (".html", ".htm")


def write(path: Path, data: dict[str, Any]) -> None:
    """Write a report, as a page or as JSON by its name, whole or not at all; ModelWriteError where that cannot be
    done.
    """
    from rewriter.storage.destination import Staged

    if is_page(path):
        from rewriter.page import render

        text = render(data)
    else:
        text = to_json(data)
    try:
        with Staged(path.parent, None) as staged:
            staged.write(text.encode(errors="backslashreplace"))
            staged.place(path)
    except OSError as error:
        raise ModelWriteError(f"the report cannot be written: {error.strerror}", where=str(path)) from error
