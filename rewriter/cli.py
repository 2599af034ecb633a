"""The command ``rewrite``: its options, what it prints, and what it returns.

Nothing but click is imported before the arguments make sense, so that ``--help`` answers at once.
"""

from __future__ import annotations

import gc
import io
import os
import re
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rewriter.errors import MismatchError, ModelWriteError, RewriteError, UsageError
from rewriter.help import Sectioned
from rewriter.options import Bytes, Library, Range, Sizes, merged
from rewriter.version import VERSION
from rewriter.view import complain, show, silence, watched
from rewriter.worker.guard import INTERRUPTED, guarded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from rewriter.progress import Progress

_FILE = click.Path(path_type=Path)
#: What stands before the name of a file, alone or after ``domain=`` or a comma.
_FOLDERS = re.compile(r"[^=,]*[/\\]")


@click.command(
    cls=Sectioned, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.argument("source", metavar="IN", type=_FILE, required=False)
@click.argument("target", metavar="[OUT]", type=_FILE, required=False)
@click.option(
    "--passes",
    default="auto",
    metavar="LIST",
    show_default=True,
    help="Names, Python files and import paths of passes, separated by commas; auto: every installed one that matches.",
)
@click.option(
    "--bind",
    multiple=True,
    metavar="RULE",
    help='Let a pass take an operator by other names: "mylib::shift_op=roll(shifts=amount,dims=axis)".',
)
@click.option(
    "--keep",
    multiple=True,
    metavar="DOMAIN::OP",
    help="Leave an operator in place and declare it in the stamp.",
)
@click.option(
    "--library",
    multiple=True,
    type=Library(),
    metavar=Library.name,
    help="The library that runs the kept operators of a domain.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Treat as errors: a named pass that matches nothing, a runtime (--runtimes) that does not agree, agreement "
    "that says nothing, a verdict that only the file claims; at an inspection, a placeholder without a pass.",
)
@click.option(
    "--portable", is_flag=True, help="Use only decompositions that are right on every tested runtime."
)
@click.option(
    "--no-derived",
    is_flag=True,
    help="Use no decomposition that would have to be derived from PyTorch's definition of an operator.",
)
@click.option(
    "--as-function",
    is_flag=True,
    help="Let each placeholder stay, as a call to a model-local function that holds its decomposition.",
)
@click.option(
    "--opset",
    type=click.IntRange(min=1),
    metavar="N",
    help="Bring the model to this version of ONNX's own operators: what it lacks is written in forms that it has.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME[==VERSION]",
    help="The runtime that must run OUT: onnxruntime==1.15, tract, tensorrt==8.6, or a profile ./jetson.toml; several, "
    "or a list, mean what all of them have. With --check: whether they have what IN needs.",
)
@click.option(
    "--ir-version",
    type=click.IntRange(min=1),
    metavar="N",
    help="Bring the file to this IR version, instead of one that readers of the opset take.",
)
@click.option(
    "--expand",
    metavar="OP,…",
    help="Replace these operators of ONNX itself wherever they stand: GridSample,LayerNormalization.",
)
@click.option(
    "--no-expand",
    metavar="OP,…",
    help="Leave these operators of ONNX itself as they are, whatever the opset.",
)
@click.option(
    "--no-simplify",
    is_flag=True,
    help="Change nothing but the placeholders, and dims whose names an exporter invented (Convy_dim_0).",
)
@click.option(
    "--simplify-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Limit of the simplifier's process. [default: 300]",
)
@click.option(
    "--simplify-memory",
    type=Bytes(),
    metavar="SIZE",
    help="Limit of the simplifier's process, such as 512M or 8G. [default: 4G]",
)
@click.option("--strip-debug", is_flag=True, help="Drop the exporter's stack traces and module paths.")
@click.option("--no-verify", is_flag=True, help="Do not compare with PyTorch; the stamp says so.")
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many drawn inputs to verify with. [default: 2]",
)
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", help="Seed of the drawn inputs. [default: 0]"
)
@click.option(
    "--inputs", type=_FILE, metavar="FILE.npz", help="Verify with these inputs instead of drawn ones."
)
@click.option(
    "--input-range",
    multiple=True,
    type=Range(),
    metavar=Range.name,
    help="Values an input may have, both ends included.",
)
@click.option(
    "--dim", multiple=True, type=Sizes(), metavar=Sizes.name, help="Sizes of a named dim to verify with."
)
@click.option(
    "--atol",
    type=click.FloatRange(min=0),
    metavar="X",
    help="With --rtol: floating-point numbers may be off by atol + rtol·|b|, not by what their dtype allows.",
)
@click.option(
    "--rtol", type=click.FloatRange(min=0), metavar="X", help="See --atol; each alone leaves the other."
)
@click.option(
    "--compare",
    multiple=True,
    metavar="OUTPUTS=HOW",
    help="Outputs that mean the same in another order: boxes,scores,labels=detections, or indices=topk:values[:data].",
)
@click.option(
    "--against",
    metavar="WHOLE",
    help="Compare every output with the whole model as well: model.pt2 (a torch.export archive), mypkg.models:build "
    "(a module, or a function that makes one), io.npz or a folder test_data_set_0 (recorded values).",
)
@click.option(
    "--allow-unproved", is_flag=True, help="Deliver also what could not be checked for lack of types."
)
@click.option(
    "--verify-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Limit of the process of the verification. [default: 900]",
)
@click.option(
    "--verify-memory",
    type=Bytes(),
    metavar="SIZE",
    help="Limit of the memory that this process has to itself; by default 8G and three times the weights.",
)
@click.option(
    "--check-gradients",
    is_flag=True,
    help="Compare the gradient that training uses with that of the nodes that replace each placeholder.",
)
@click.option(
    "--operators",
    metavar="LIST",
    help="Files and import paths that define operators of your own in PyTorch (@placeholder, custom_op, "
    "autograd.Function): one that no pass takes is derived from it; with --check-gradients its backward is checked.",
)
@click.option(
    "--runtimes",
    metavar="LIST",
    help="Run the result on these as well: onnxruntime, openvino, tract, reference, separated by commas, or all.",
)
@click.option(
    "--report",
    multiple=True,
    type=_FILE,
    metavar="FILE",
    help="Write the report, also when the run fails: a page for people if FILE ends in .html, else JSON.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Say what IN needs and whether it is here; only libraries given by --library are loaded.",
)
@click.option(
    "--explain", is_flag=True, help="Say what the manifest of IN tells: how it was made and verified."
)
@click.option("--list", "list_passes", is_flag=True, help="List the passes, and end.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Print every node and every checked region.")
@click.option("--debug", is_flag=True, help="Print the traceback of an error.")
@click.version_option(VERSION, prog_name="rewrite", message="%(prog)s %(version)s")
def command(**options: Any) -> int:
    """Replace the placeholder operators of the ONNX model IN by standard ONNX, prove the result equal to PyTorch, and
    write it to OUT. Without OUT, say what placeholders IN holds, and which pass would take each.

    Exit codes: 0 done, and verified unless refused by flag; 1 not delivered; 2 bad usage or unreadable input; 130
    interrupted (Ctrl-C); 143 terminated (SIGTERM).
    """
    if options["check"] or options["explain"]:
        return _declaration(options)
    if options["list_passes"]:
        return _list(options)
    if options["source"] is None:
        raise UsageError("no model given", remedy="rewrite IN OUT; rewrite --help tells more")
    return _inspect(options) if options["target"] is None else _rewrite(options)


def main() -> None:
    """Entry point of the console script."""
    # What is made here by the hundred thousand lives to the end: the collector need not look at it over and over.
    gc.set_threshold(100_000, 50, 100)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names that the terminal's encoding lacks
    sys.exit(guarded(lambda: run(sys.argv[1:]), complain))


def run(arguments: Sequence[str]) -> int:
    """Run the command; its exit code.  An error becomes one message on standard error."""
    debug = "--debug" in arguments
    try:
        # Not command.main(), which has its own idea of broken pipes and interrupts.
        with command.make_context("rewrite", list(arguments), obj=tuple(arguments)) as context:
            code = command.invoke(context)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except BrokenPipeError:
        # Whoever read us has gone; python would complain once more when it flushes at its end.
        silence()
        return 0
    except (KeyboardInterrupt, click.Abort):
        complain("interrupted; nothing was written")
        return INTERRUPTED
    except click.ClickException as error:
        complain(f"error: {error.format_message()} (rewrite --help lists the options)")
        return 2
    except RewriteError as error:
        _explain(error, debug)
        return error.exit_code
    except Exception as error:  # noqa: BLE001  (the last resort of a command: never a traceback unasked)
        if debug:
            traceback.print_exc()
        complain(
            f"error: internal error: {type(error).__name__}: {_one_line(error)} (--debug prints the traceback)"
        )
        return 1
    return int(code or 0)


def _list(options: dict[str, Any]) -> int:
    from rewriter.inspection import list_passes

    if options["source"] is not None:
        raise UsageError("--list takes no model", remedy="leave out either")
    if options["report"]:
        raise UsageError("--list writes no report", remedy="rewrite IN --report FILE.json tells of a model")
    show(list_passes(options["passes"], verbose=options["verbose"]))
    return 0


def _declaration(options: dict[str, Any]) -> int:
    """``--check`` and ``--explain``: 0 where the model runs here, or has a manifest that fits it."""
    from rewriter.declare import explain, requirements

    flag = "--check" if options["check"] else "--explain"
    if options["list_passes"] or options["target"] is not None or (options["check"] and options["explain"]):
        raise UsageError(f"{flag} stands alone, with one model", remedy=f"rewrite {flag} FILE")
    if options["source"] is None:
        raise UsageError("no model given", remedy=f"rewrite {flag} FILE")
    _check_reports(options["report"], options["source"])
    try:
        if options["check"]:
            libraries = merged(options["library"], "--library")
            found = requirements(options["source"], library=libraries, target=options["targets"])
            good, data, lines = found.good, found.to_dict(), found.lines(verbose=options["verbose"])
        else:
            told = explain(options["source"])
            good, data, lines = told.fits, told.to_dict(), told.lines()
    except Exception as error:
        _report_failure(error, options)
        raise
    _write_reports(options["report"], data)
    if not options["quiet"]:
        show(lines)
    return 0 if good else 1


def _inspect(options: dict[str, Any]) -> int:
    from rewriter.inspection import inspect

    if options["library"]:
        raise UsageError(
            "--library says nothing to an inspection", remedy="give OUT, or ask with --check what IN needs"
        )
    if options["against"] is not None:
        raise UsageError("--against says nothing to an inspection", remedy="give OUT")
    _check_reports(options["report"], options["source"])
    try:
        found = inspect(
            options["source"],
            passes=options["passes"],
            bind=options["bind"],
            keep=options["keep"],
            opset=options["opset"],
            target=options["targets"],
            ir_version=options["ir_version"],
            expand=options["expand"] or (),
            no_expand=options["no_expand"] or (),
        )
    except Exception as error:
        _report_failure(error, options)
        raise
    _write_reports(options["report"], found.to_dict())
    if not options["quiet"]:
        show(found.lines(verbose=options["verbose"]))
    return 1 if options["strict"] and (found.unmatched or found.refused) else 0


def _rewrite(options: dict[str, Any]) -> int:
    from rewriter.pipeline import rewrite

    against = None if options["against"] is None else Path(options["against"])
    _check_reports(options["report"], options["source"], options["target"], options["inputs"], against)
    limits = {
        name: options[name]
        for name in (
            "samples",
            "seed",
            "simplify_timeout",
            "simplify_memory",
            "verify_timeout",
            "verify_memory",
        )
    }
    try:
        with _progress(options) as progress:
            report = rewrite(
                options["source"],
                options["target"],
                passes=options["passes"],
                bind=options["bind"],
                keep=options["keep"],
                library=merged(options["library"], "--library"),
                strict=options["strict"],
                portable=options["portable"],
                derived=not options["no_derived"],
                as_function=options["as_function"],
                opset=options["opset"],
                target=options["targets"],
                ir_version=options["ir_version"],
                expand=options["expand"] or (),
                no_expand=options["no_expand"] or (),
                simplify=not options["no_simplify"],
                strip_debug=options["strip_debug"],
                verify=not options["no_verify"],
                inputs=options["inputs"],
                input_ranges=merged(options["input_range"], "--input-range"),
                dims=merged(options["dim"], "--dim"),
                atol=options["atol"],
                rtol=options["rtol"],
                compare=options["compare"] or None,
                against=options["against"],
                allow_unproved=options["allow_unproved"],
                runtimes=options["runtimes"],
                check_gradients=options["check_gradients"],
                operators=options["operators"] or (),
                details=bool(options["report"]),
                progress=progress,
                **{name: value for name, value in limits.items() if value is not None},
            )
    except Exception as error:
        _report_failure(error, options)
        raise
    report.arguments = _arguments()
    try:
        _write_reports(options["report"], report.to_dict())
    except ModelWriteError as error:
        error.remedy = f"'{options['target']}' is delivered all the same"
        raise
    if not options["quiet"]:
        try:
            show(report.lines(verbose=options["verbose"]))
        except ModelWriteError as error:
            complain(f"warning: {error.what}; '{options['target']}' is delivered all the same")
    return 0


def _check_reports(reports: Sequence[Path], *others: Path | None) -> None:
    """No report must take the place of a model; what cannot be written is said before any work is done."""
    from rewriter.storage.destination import Destination

    taken = {os.path.realpath(other): other for other in others if other is not None}
    for report in reports:
        Destination(report)
        place = os.path.realpath(report)
        if place in taken:
            raise UsageError(
                f"--report would overwrite '{taken[place]}'", remedy="give the report a file of its own"
            )
        taken[place] = report
        if report.is_file() and report.stat().st_size and not _is_report(report):
            raise UsageError(
                f"--report would overwrite '{report}', which is no report",
                remedy="give the report a file of its own",
            )


def _is_report(path: Path) -> bool:
    """Whether a file may be one of ours: JSON, or a page that says so in its head."""
    with path.open("rb") as file:
        head = file.read(512).lstrip()
    return head.startswith(b"{") or (head.startswith(b"<!DOCTYPE html>") and b"onnx-rewrite" in head)


def _write_reports(reports: Sequence[Path], data: dict[str, Any]) -> None:
    from rewriter.report import write

    for report in reports:
        write(report, data)


def _arguments() -> list[str]:
    """The arguments of the command, files without their folders."""
    given: tuple[str, ...] = click.get_current_context().obj or ()
    return [_FOLDERS.sub("", argument) for argument in given]


def _progress(options: dict[str, Any]) -> AbstractContextManager[Progress | None]:
    if options["quiet"] or not watched():
        return nullcontext()
    from rewriter.progress import on_terminal

    return on_terminal()


def _report_failure(error: Exception, options: dict[str, Any]) -> None:
    """Write the reports of a run that failed, as far as it got."""
    from rewriter.report import Failure, Report
    from rewriter.source import folders_of

    if not options["report"]:
        return
    report = error.report if isinstance(error, RewriteError) else None
    if report is None:
        report = Report(options["source"].name, failure=Failure.of(error, folders_of(options["source"])))
    report.arguments = _arguments()
    _write_reports(options["report"], report.to_dict())


def _explain(error: RewriteError, debug: bool) -> None:
    """What went wrong, where, and what to do about it."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, MismatchError):
        first, *rest = error.lines()
        complain(f"error: {first}", *rest)
        return
    where = "" if error.where is None else f"{error.where}: "
    complain(
        f"error: {where}{error.what}", *error.details, *(() if error.remedy is None else (error.remedy,))
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    main()
