"""The one place that knows the order: open → decompose → simplify → stamp → verify → save."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewriter import manifest as manifests
from rewriter import stamp
from rewriter.declare.targets import lacks, require
from rewriter.decompose import decompose
from rewriter.derive import extend
from rewriter.digest import digest
from rewriter.domains import normal_domain
from rewriter.errors import (
    InterfaceChangedError,
    RewriteError,
    UnmatchedError,
    UnprovedError,
    UsageError,
    VerificationError,
)
from rewriter.graph.expanding import needs_torch
from rewriter.graph.interface import renamed_outputs
from rewriter.graph.survey import Keep
from rewriter.inputs.early import check_asked
from rewriter.inspection import keeping
from rewriter.libraries import Libraries
from rewriter.lower import Target, at_target, settled
from rewriter.lower.ir import settle
from rewriter.placeholder.registry import Selection
from rewriter.profiles.names import parse as parse_runtimes
from rewriter.progress import Progress, Quiet
from rewriter.report import Failure, Replaced, Report, Simplified, Written, limits_of_functions
from rewriter.simplify import DEFAULT_MEMORY, DEFAULT_TIMEOUT, NOTHING
from rewriter.source import Source, folders_of, name_of, open_source
from rewriter.storage.destination import Destination
from rewriter.strip import strip_debug as strip
from rewriter.verdict import inherited
from rewriter.verify.options import VerifyOptions, check_verified
from rewriter.verify.sides import DEFAULT_TIMEOUT as VERIFY_TIMEOUT
from rewriter.verify.sides import Apart, Here, here_because, own_operators, read_against

if TYPE_CHECKING:
    from onnx import ModelProto

    from rewriter.decompose import Decomposed
    from rewriter.graph.expanding import Region
    from rewriter.manifest import Manifest
    from rewriter.placeholder.contract import Placeholder
    from rewriter.storage import ModelFile
    from rewriter.verify.proof import Proof

PathLike = str | os.PathLike[str]


def rewrite(
    source: Source,
    output: PathLike | None = None,
    *,
    passes: str | Iterable[str | type[Placeholder] | Placeholder] = "auto",
    bind: str | Iterable[str] | None = None,
    keep: str | Iterable[str] = (),
    library: Mapping[str, PathLike] | None = None,
    strict: bool = False,
    portable: bool = False,
    derived: bool = True,
    as_function: bool = False,
    opset: int | None = None,
    ir_version: int | None = None,
    expand: str | Iterable[str] = (),
    no_expand: str | Iterable[str] = (),
    target: str | Iterable[str] = (),
    simplify: bool = True,
    simplify_timeout: float = DEFAULT_TIMEOUT,
    simplify_memory: int = DEFAULT_MEMORY,
    strip_debug: bool = False,
    verify: bool = True,
    samples: int | None = None,
    seed: int | None = None,
    inputs: PathLike | Mapping[str, Any] | None = None,
    input_ranges: Mapping[str, tuple[float, float]] | None = None,
    dims: Mapping[str, int | Iterable[int]] | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    compare: Any = None,
    against: Any = None,
    allow_unproved: bool = False,
    verify_timeout: float = VERIFY_TIMEOUT,
    verify_memory: int | None = None,
    isolate: bool = True,
    runtimes: str | Iterable[str] | None = None,
    check_gradients: bool = False,
    operators: str | Iterable[Any] = (),
    details: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Replace every placeholder of ``source`` by standard ONNX, prove the result, and write it to ``output``.

    ``source`` is a path, a ``ModelProto``, or what ``torch.onnx.export(dynamo=True)`` returns; it is never changed.
    Without ``output`` the model is ``report.model``.  ``output`` may be the source's own path; it is either left as it
    was or replaced whole.

    ``passes``: ``"auto"``, or names, Python files, import paths and passes, as a list or separated by commas.
    ``bind``: rules such as ``"mylib::shift_op=roll(shifts=amount)"``.  ``keep``: operators to leave in place
    (``"com.example::MyOp"``), whose libraries ``library`` gives by domain.  ``strict``: whatever was named and matches
    nothing is an error.  ``portable``: only decompositions that are right on every tested runtime.  ``derived``: where
    no decomposition that someone wrote serves, one may be derived from the pass's reference or from PyTorch's own
    definition of the operator.  ``as_function``:
    each placeholder stays, as a call to a model-local function of its name that holds the decomposition.
    ``opset``: the version of ONNX's own operators that is delivered, 11 to the newest (7 to 10 where nodes stay as they
    are): a node that has no such form there is replaced as a placeholder is.  ``ir_version``: that of the file.
    ``target``: the runtimes that must run the file, by name and version (``"onnxruntime==1.15,tract"``) or as TOML
    files; they decide on opset, IR version and operators.  ``expand``: operators of ONNX itself to replace wherever
    they stand; ``no_expand``: those that stay.
    ``simplify_timeout`` is in seconds, ``simplify_memory`` in bytes.  ``inputs``: arrays by name or a ``.npz`` file to
    verify with instead of ``samples`` drawn ones; ``input_ranges`` and ``dims`` say what to draw.  ``atol``, ``rtol``:
    floating-point numbers may be off by ``atol + rtol·|b|``, instead of what their dtype allows.  ``compare``: outputs
    that are judged together, ``"boxes,scores,labels=detections"`` or ``"indices=topk:values"``, one or a list, or a
    mapping from outputs to a judge or a function ``(actual, expected) -> str | None`` of two tuples of arrays.
    ``against``: what to
    compare the whole model with, a ``torch.export`` archive, an import path (``"mypkg.models:build"``), recorded values
    (a ``.npz`` file, a folder ``test_data_set_0``, arrays by name), an ``nn.Module`` or an ``ExportedProgram``.
    ``runtimes``: names (``"openvino,tract"``, ``"all"``) of runtimes to run the delivered model on besides; one that is
    absent or does not agree is a warning, and an error with ``strict``.  ``check_gradients``: the gradient that
    training uses must be that of the nodes that replace the placeholder; it is the gradient of the pass's reference, or
    of one of ``operators``.  ``operators`` are operators of your own, or files and import paths that define them: made
    by :func:`rewriter.torch.placeholder` or ``torch.library.custom_op``, or subclasses of ``torch.autograd.Function``.
    One that no pass takes has its decomposition derived from it.

    ``isolate``: PyTorch and onnxruntime run in a worker process, for at most ``verify_timeout`` seconds and within
    ``verify_memory`` bytes of memory (by default 8 GiB and three times the weights).  A crash there is an error of this
    package.  Where the model, a pass, a module to compare with or a function is given as a Python object, they run in
    this process all the same, and the report says so.  Without ``isolate`` they always do: this saves the start of a
    process in programs that call :func:`rewrite` often.

    ``details``: the report also has pictures of what was replaced, counts of operators, the interface, and which
    runtimes are known to have every operator, as its page shows them (:meth:`Report.to_html`).

    Raises a subclass of :class:`~rewriter.RewriteError` where nothing was delivered; its ``report`` tells how far the
    run got.
    """
    report = Report(name_of(source), None if output is None else Path(output).name)
    passes = passes if isinstance(passes, str) else list(passes)
    rules = [bind] if isinstance(bind, str) else list(bind or ())
    opened = ExitStack()
    try:
        if portable and as_function:
            raise UsageError(
                "portable and as_function contradict each other: most runtimes know no functions",
                remedy="leave out either",
            )
        if inputs is not None and (dims or input_ranges):
            raise UsageError(
                "inputs are given, so no sizes or ranges are drawn: --inputs stands without --dim and --input-range",
                remedy="leave out either",
            )
        elsewhere = parse_runtimes(runtimes)
        aim = Target.parse(opset, ir_version, expand, no_expand, target)
        if not verify:
            check_verified(
                {
                    "--samples": samples is not None,
                    "--seed": seed is not None,
                    "--inputs": inputs is not None,
                    "--input-range": bool(input_ranges),
                    "--dim": bool(dims),
                    "--atol": atol is not None,
                    "--rtol": rtol is not None,
                    "--compare": compare is not None,
                    "--against": against is not None,
                    "--allow-unproved": allow_unproved,
                    "--runtimes": bool(elsewhere),
                    "--check-gradients": check_gradients,
                }
            )
        named = _items(operators)
        here = here_because(source, passes, named, against, compare) if isolate else ""
        apart = None
        if here is None and (verify or simplify):
            names = passes.split(",") if isinstance(passes, str) else [str(item) for item in passes]
            apart = Apart(names, rules, derived, named, verify_timeout, verify_memory)
            opened.callback(apart.close)
        selection = Selection.load(passes, rules)
        if derived:
            selection = extend(selection, own_operators(named))
        libraries = Libraries.read(library or {})
        run = _Run(
            report,
            progress or Quiet(),
            selection,
            Keep.parse(keep),
            libraries,
            VerifyOptions(
                VerifyOptions.samples if samples is None else samples,
                VerifyOptions.seed if seed is None else seed,
                inputs if inputs is None or isinstance(inputs, Mapping) else Path(inputs),
                dict(input_ranges or {}),
                {
                    name: (sizes,) if isinstance(sizes, int) else tuple(sizes)
                    for name, sizes in (dims or {}).items()
                },
                allow_unproved,
                libraries.paths,
                atol=atol,
                rtol=rtol,
                compare=compare,
                against=against,
                runtimes=elsewhere,
                check_gradients=check_gradients,
                operators=tuple(named) if check_gradients else (),
                brought=aim is not None,
            ),
            strict=strict,
            portable=portable,
            as_function=as_function,
            simplify=simplify,
            simplify_timeout=simplify_timeout,
            simplify_memory=simplify_memory,
            strip_debug=strip_debug,
            verify=verify,
            details=details,
            apart=apart,
            here=here or "",
            aim=aim,
        )
        if output is not None:
            Destination(Path(output))  # what cannot be written is said before any work is done
        with run.watch.stage("load"):
            file = opened.enter_context(open_source(source))
        run.run(file, None if output is None else Path(output))
    except RewriteError as error:
        report.outcome = "failed"
        report.failure = Failure.of(error, folders_of(source, output, against))
        if report.details is not None:
            report.details.failed(error)
        error.report = report
        raise
    finally:
        opened.close()
    return report


def _items(operators: str | Iterable[Any]) -> list[Any]:
    items = operators.split(",") if isinstance(operators, str) else list(operators)
    wanted = [item.strip() if isinstance(item, str) else item for item in items]
    return [item for item in wanted if item != ""]


@dataclass
class _Run:
    """One run: what was asked for, and the report that it fills in."""

    report: Report
    watch: Progress
    selection: Selection
    keep: Keep
    libraries: Libraries
    options: VerifyOptions
    strict: bool
    portable: bool
    as_function: bool
    simplify: bool
    simplify_timeout: float
    simplify_memory: int
    strip_debug: bool
    verify: bool
    details: bool
    #: The process of the proof, if it has one of its own, and else why not.
    apart: Apart | None
    here: str
    #: What the model is brought to, if that was asked.
    aim: Target | None = None

    def run(self, file: ModelFile, target: Path | None) -> None:
        """Take the model of ``file`` through every step, and deliver it."""
        self.report.versions["onnx"] = importlib.metadata.version("onnx")
        self.options.judgement.check([output.name for output in file.model.graph.output])
        earlier = manifests.read_valid(file.model, file)
        if self.verify:
            kept = keeping(self.keep, earlier).operators
            self.options = check_asked(file.model, self.options, keeps=bool(kept))
        if self.details:
            from rewriter.page.details import Details

            self.report.details = Details()
            self.report.details.source(file.model)
        asked = self.options.against is not None or bool(self.options.operators)
        # What does not fit what was asked for is said before any work is done.
        side = self._side(file, earlier, torch=True) if asked or self.apart is None else None
        selection, opset = self._aimed(file.model)
        with self.watch.stage("passes"):
            decomposed = decompose(
                file,
                selection,
                keeping(self.keep, earlier),
                portable=self.portable,
                as_function=self.as_function,
            )
        self._bring(file, decomposed, opset)
        if self.report.details is not None:
            self.report.details.rewritten(file.model, decomposed.regions)
        self._record(file.model, decomposed)
        self._declare(file.model, decomposed, earlier)
        if self._nothing_to_do(decomposed, earlier):
            self._require_own_proof(earlier, copied=True)
            self.report.outcome = "copied"
            if self.options.check_gradients:
                self.report.warnings.append(
                    "no placeholder was replaced, so there were no gradients to check"
                )
            if self.report.details is not None:
                self.report.details.delivered(file, file.model)
            self.report.manifest = None if earlier is None else earlier.data
            if self.options.runtimes:
                side = side or self._side(file, earlier, torch=False)
                self._prove(side, file.model, file.model, [])
            self._finish(file, file.model, target, untouched=True)
            return
        if self.strip_debug:
            self.report.stripped_bytes = strip(file.model)
        rewritten = file.model
        side = side or self._side(file, earlier, torch=self.verify and needs_torch(decomposed.regions))
        delivered = self._simplified(file, rewritten, side)
        self._declare(delivered, decomposed, earlier)
        manifest = self._stamp(file, delivered, earlier)
        if self.report.details is not None:
            self.report.details.delivered(file, delivered)
        if self.verify:
            manifest = self._verified(file, side, rewritten, delivered, decomposed, manifest, earlier)
        else:
            self.report.outcome = "unverified"
        side.close()
        stamp.write(delivered, manifest)
        self.report.manifest = manifest.data
        self._finish(file, delivered, target)

    def _side(self, file: ModelFile, earlier: Manifest | None, *, torch: bool) -> Apart | Here:
        """Where PyTorch and onnxruntime run, with what they are to work on.

        ``torch`` says whether PyTorch will be needed.
        """
        keep = keeping(self.keep, earlier)
        if self.apart is not None:
            self.apart.open(file, self.selection, keep, self.options, torch=torch)
            return self.apart
        if not self.verify:
            return Here(file, self.options)
        options, origin = read_against(file, self.selection, keep, self.options)
        return Here(file, options, origin, self.here)

    def _aimed(self, model: ModelProto) -> tuple[Selection, int | None]:
        """The passes, with ONNX's own operators that the target lacks; and the model's opset."""
        opset = next((item.version for item in model.opset_import if not normal_domain(item.domain)), None)
        if self.aim is None or opset is None:
            return self.selection, opset
        self.aim = settled(self.aim, model)
        self.report.targets = self.aim.aim.names
        self.report.warnings += self.aim.aim.notes
        return at_target(self.selection, self.aim, opset), opset

    def _bring(self, file: ModelFile, decomposed: Decomposed, opset: int | None) -> None:
        """Settle the IR version, and note what was brought to where."""
        if self.aim is None:
            return
        before = settle(file.model, self.aim)
        if before is not None:
            decomposed.ir_version_before, decomposed.changed = before, True
        if self.aim.opset is not None and self.aim.opset != opset:
            self.report.opset_before = opset
        lacking = require(file, file.model, self.aim)
        self.report.warnings += lacking

    def _record(self, model: ModelProto, decomposed: Decomposed) -> None:
        """What decomposing did, into the report; UnmatchedError where that is less than was asked for."""
        report = self.report
        report.replaced = [Replaced.of(region) for region in decomposed.regions]
        report.unmatched_passes = list(decomposed.unmatched_passes)
        report.unmatched_rules = list(decomposed.unmatched_rules)
        report.warnings += decomposed.warnings
        report.ir_version_before = decomposed.ir_version_before
        report.warnings += limits_of_functions(report.replaced)
        report.renamed_dims = [str(dim) for dim in decomposed.invented_dims]
        report.renamed_outputs = renamed_outputs(decomposed.invented_dims, model)
        report.dropped_opsets = list(decomposed.dropped_opsets)
        unmatched = [f"pass '{name}'" for name in report.unmatched_passes]
        unmatched += [f"--bind '{rule}'" for rule in report.unmatched_rules]
        if self.strict and unmatched:
            raise UnmatchedError(
                f"nothing in the model matches {' and '.join(unmatched)}",
                remedy="leave it out, or leave out --strict",
            )

    def _declare(self, model: ModelProto, decomposed: Decomposed, earlier: Manifest | None) -> None:
        """The operators outside the standard that ``model`` holds, into the report."""
        report = self.report
        kept = {(domain, name) for domain, name, _ in decomposed.kept}
        report.kept, report.runtime_operators = stamp.declared(model, kept)
        report.kept = [self.libraries.declare(operator, earlier) for operator in report.kept]
        report.runtime_operators = [
            self.libraries.declare(operator, earlier) for operator in report.runtime_operators
        ]
        held = {operator.domain for operator in (*report.kept, *report.runtime_operators)}
        for domain in self.libraries.paths:
            if domain not in held:
                raise UsageError(
                    f"a library is given for '{domain}', but no operator of it is kept",
                    remedy=f"name it with --keep {domain}::…, or leave out --library",
                )

    def _nothing_to_do(self, decomposed: Decomposed, earlier: Manifest | None) -> bool:
        """Whether the file can be delivered as it came."""
        if decomposed.changed or self.strip_debug or self.options.against is not None:
            return False
        if self.aim is not None and not decomposed.kept and not self.libraries.paths:
            self.report.warnings.append("the model is at the target already: nothing was changed")
            return True
        if earlier is None:
            # Without placeholders only simplification would do anything, and nothing needs proof.
            return not self.simplify and not decomposed.kept and not self.libraries.paths
        proved = (
            not self.verify
            or earlier.is_verified
            or earlier.verdict == manifests.PARTLY
            or (self.options.allow_unproved and earlier.is_unproved)
        )
        declared = [*self.report.kept, *self.report.runtime_operators]
        relabelled = self.libraries.paths and declared != [
            Libraries({}, {}).declare(operator, earlier) for operator in declared
        ]
        return proved and not relabelled and (not self.simplify or earlier.simplification != "off")

    def _simplified(self, file: ModelFile, model: ModelProto, side: Apart | Here) -> ModelProto:
        """The simplifier's proposal where it stands its checks, else ``model`` itself."""
        if not self.simplify:
            return model
        from rewriter.simplify import simplify

        with self.watch.stage("simplify") as stage:
            result = simplify(
                file,
                model,
                timeout=self.simplify_timeout,
                memory=self.simplify_memory,
                equal=side.equal,
                progress=stage.note,
                lacks=None if self.aim is None else partial(lacks, file, self.aim),
            )
        self.report.versions["onnxsim"] = importlib.metadata.version("onnxsim")
        self.report.simplification = Simplified(
            result.accepted, result.reason, result.nodes_before, result.nodes_after, tuple(result.notes)
        )
        return result.model

    def _stamp(self, file: ModelFile, model: ModelProto, earlier: Manifest | None) -> Manifest:
        """Bring the opset imports in order, and say what the model is and needs."""
        report = self.report
        if self.simplify:
            # Otherwise nothing is touched that decomposing did not make unused.
            report.dropped_opsets = sorted({*report.dropped_opsets, *stamp.tidy_opset_imports(model)})
        simplification = report.simplification
        manifest = manifests.build(
            model,
            file,
            replaced=report.replaced,
            earlier=earlier,
            kept=report.kept,
            runtime_operators=report.runtime_operators,
            simplification="off"
            if simplification is None
            else "accepted"
            if simplification.accepted
            else "refused",
            # Other reasons may depend on the machine: its speed, its memory.
            simplification_reason=NOTHING
            if simplification is not None and simplification.reason == NOTHING
            else "",
            opset_before=report.opset_before
            if report.opset_before is not None or earlier is None
            else earlier.data.get("opset_before"),
        )
        stamp.write(model, manifest)
        report.opset_imports = {opset.domain: opset.version for opset in model.opset_import}
        report.ir_version = model.ir_version
        return manifest

    def _verified(
        self,
        file: ModelFile,
        side: Apart | Here,
        rewritten: ModelProto,
        delivered: ModelProto,
        decomposed: Decomposed,
        manifest: Manifest,
        earlier: Manifest | None,
    ) -> Manifest:
        """Compare with PyTorch, and put the verdict into the manifest."""
        proof = self._prove(side, rewritten, delivered, decomposed.regions)
        if digest(delivered, file) != manifest.digest:
            raise InterfaceChangedError(
                "the model changed while it was verified", remedy="report this as a fault"
            )
        stamped = manifest.with_verification(
            proof.to_manifest(),
            self.report.replaced,
            [proof.verdict_of(result) for result in proof.regions],
            earlier=earlier,
            covers_all=proof.covers_all,
        )
        if stamped.verdict == manifests.PARTLY and earlier is not None:
            self._require_own_proof(earlier, copied=False)
            if self.report.verification is not None:
                self.report.verification |= {"verdict": stamped.verdict, "inherited": inherited(earlier)}
        self.report.outcome = "verified" if stamped.is_verified else "unverified"
        return stamped

    def _require_own_proof(self, earlier: Manifest | None, *, copied: bool) -> None:
        """With ``strict``, UnprovedError where the result would rest on what a file says of itself."""
        if not (self.strict and self.verify) or earlier is None:
            return
        said = "; ".join(inherited(earlier)) or f"the file says: {earlier.verdict}"
        raise UnprovedError(
            f"{said}; this run verified {'nothing' if copied else 'only what it replaced'}",
            remedy="give --against to compare the whole model, start from the exported model, or leave out --strict",
        )

    def _prove(
        self,
        side: Apart | Here,
        rewritten: ModelProto,
        delivered: ModelProto,
        regions: Sequence[Region],
    ) -> Proof:
        """The verification, into the report, also where it fails."""
        from rewriter.runtimes.driver import require_agreement
        from rewriter.verify.proof import require_substance

        try:
            proof = side.prove(rewritten, delivered, regions, self.watch)
        except VerificationError as error:
            self.report.verification = None if error.proof is None else error.proof.to_dict()
            raise
        self.report.verification = proof.to_dict()
        self.report.versions |= proof.versions
        if self.strict:
            require_agreement(proof.runtimes)
            require_substance(proof)
        return proof

    def _finish(
        self, file: ModelFile, model: ModelProto, target: Path | None, *, untouched: bool = False
    ) -> None:
        """Write the file, or hand the model over."""
        self.report.opset_imports = {opset.domain: opset.version for opset in model.opset_import}
        self.report.ir_version = model.ir_version
        if target is None:
            self.report.model = file.hydrate(model)
            return
        with self.watch.stage("save"):
            result = file.copy_to(target) if untouched else file.save(target, model)
        self.report.written = Written(
            result.path.name, result.size, None if result.data is None else result.data.name, result.data_size
        )
