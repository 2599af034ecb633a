"""The delivered file on other runtimes, each in a process of its own that it may take down."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rewriter.errors import CannotVerifyError, MismatchError
from rewriter.runtimes.exchange import read_all, write_all
from rewriter.runtimes.names import RUNTIMES
from rewriter.storage.scratch import scratch_folder
from rewriter.verify.proof import Checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import ModelProto

    from rewriter.storage import ModelFile
    from rewriter.verify.judgement import Judgement
    from rewriter.verify.options import VerifyOptions

#: Seconds for one runtime, all samples together.
TIMEOUT: Final = 600.0
_WORKER: Final = Path(__file__).with_name("worker.py")


@dataclass
class RuntimeResult:
    """What one runtime makes of the delivered file.

    ``status`` is ``"agrees"``, ``"differs"``, ``"refuses"`` (the file or the inputs), ``"crashed"`` or
    ``"not installed"``; ``detail`` says how.
    """

    name: str
    version: str = ""
    status: str = "agrees"
    detail: str = ""
    outputs: list[Checked] = field(default_factory=list)

    def describe(self) -> str:
        """One line for people."""
        name = f"{self.name} {self.version}".strip()
        done = {
            "refuses": "refuses the delivered file",
            "crashed": "crashed on the delivered file",
            "not installed": "is not installed, and was not tried",
        }
        text = f"{name} {done.get(self.status, self.status)}"
        return f"{text}: {self.detail}" if self.detail else text

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "status": self.status,
            "detail": self.detail,
            "outputs": [checked.to_dict() for checked in self.outputs],
        }


@dataclass(frozen=True)
class Expected:
    """One sample: values for the graph's inputs, and what the outputs must be, by name."""

    feeds: Mapping[str, Any]
    outputs: Mapping[str, Any]
    described: str = ""


def run(
    names: Sequence[str],
    file: ModelFile,
    model: ModelProto,
    samples: Sequence[Expected],
    options: VerifyOptions,
) -> list[RuntimeResult]:
    """``model``, a skeleton of ``file``, on every runtime in ``names``, held against ``samples``."""
    results = [_installed(name) for name in names]
    if all(result.status == "not installed" for result in results):
        return results
    with scratch_folder() as folder:
        file.save(folder / "model.onnx", model)
        (folder / "inputs.json").write_text(json.dumps([list(sample.feeds) for sample in samples]))
        for number, sample in enumerate(samples):
            write_all(folder / f"{number}.in", list(sample.feeds.values()))
        for result in results:
            if result.status != "not installed":
                libraries = [str(path) for path in options.libraries.values()]
                _run(result, folder, libraries if result.name == "onnxruntime" else [])
                names = [output.name for output in model.graph.output]
                _judge(result, folder, names, samples, options.judgement)
                _clear(folder, len(samples))
    return results


def require_agreement(results: Sequence[RuntimeResult]) -> None:
    """MismatchError where a runtime does not agree, CannotVerifyError where one was not tried."""
    for result in results:
        if result.status != "agrees":
            kind = CannotVerifyError if result.status == "not installed" else MismatchError
            raise kind(result.describe(), remedy=f"leave out '{result.name}', or --strict")


def _installed(name: str) -> RuntimeResult:
    package = RUNTIMES[name]
    try:
        found = importlib.util.find_spec(package) is not None
        version = importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        found, version = False, ""
    if not found:
        return RuntimeResult(name, status="not installed", detail="pip install onnx-rewrite[runtimes]")
    return RuntimeResult(name, version)


def _run(result: RuntimeResult, folder: Path, libraries: Sequence[str]) -> None:
    """Run the worker to its end; ``result`` says where it comes to none of its own."""
    output = folder / "output.txt"
    with output.open("wb") as sink:
        # Its own session: an interrupt at the terminal reaches this process only, which then ends the worker.
        process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER), result.name, str(folder), *map(os.path.abspath, libraries)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
        try:
            code = process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            result.status, result.detail = "crashed", f"came to no end in {TIMEOUT:.0f} s"
            return
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code < 0:
        result.status, result.detail = "crashed", f"killed by {_signal_name(-code)}"
    elif code:
        lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        result.status, result.detail = "crashed", lines[-1][:400] if lines else f"exit status {code}"


def _judge(
    result: RuntimeResult,
    folder: Path,
    outputs: Sequence[str],
    samples: Sequence[Expected],
    judgement: Judgement,
) -> None:
    """Hold what the runtime left behind against what was expected."""
    if result.status != "agrees":
        return
    result.outputs = [Checked(name) for name in outputs]
    for number, sample in enumerate(samples):
        where = f" ({sample.described})" if sample.described else ""
        place = folder / f"{number}.out"
        if not place.is_dir():
            said = (folder / "refused.txt").read_text(encoding="utf-8")
            result.status, result.detail = "refuses", said[:600] + where
            return
        found = read_all(place)
        if len(found) != len(outputs):
            result.status = "differs"
            result.detail = f"gives {len(found)} outputs, and {len(outputs)} are expected{where}"
            return
        values = {checked.name: value for checked, value in zip(result.outputs, found, strict=True)}
        noted = {checked.name: checked for checked in result.outputs}
        for name, problem in judgement.outputs(values, sample.outputs, noted).items():
            if result.status == "agrees":
                result.status, result.detail = "differs", f"output '{name}' {problem}{where}"


def _clear(folder: Path, samples: int) -> None:
    """Make room for the next runtime."""
    (folder / "refused.txt").unlink(missing_ok=True)
    for number in range(samples):
        place = folder / f"{number}.out"
        if place.is_dir():
            for path in place.iterdir():
                path.unlink()
            place.rmdir()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
