"""The delivered file on other runtimes, each in a process of its own that it may take down."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rewriter.errors import CannotVerifyError, MismatchError
from rewriter.profiles.names import runtimes
from rewriter.runtimes.exchange import pack, unpack
from rewriter.storage.scratch import scratch_folder
from rewriter.verify.proof import Checked
from rewriter.worker.driver import Limits, OutOfMemory, OutOfTime, Worker, WorkerFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from onnx import ModelProto

    from rewriter.storage import ModelFile
    from rewriter.verify.judgement import Judgement
    from rewriter.verify.options import VerifyOptions
    from rewriter.worker.frames import Message

#: Seconds for one runtime, all samples together.
TIMEOUT: Final = 600.0
_TARGET: Final = "rewriter.runtimes.worker:serve"


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
        path = folder / "model.onnx"
        file.save(path, model)
        outputs = [output.name for output in model.graph.output]
        for result in results:
            if result.status != "not installed":
                _run(result, path, outputs, samples, options)
    return results


def require_agreement(results: Sequence[RuntimeResult]) -> None:
    """MismatchError where a runtime does not agree, CannotVerifyError where one was not tried."""
    for result in results:
        if result.status != "agrees":
            kind = CannotVerifyError if result.status == "not installed" else MismatchError
            raise kind(result.describe(), remedy=f"leave out '{result.name}', or --strict")


def _installed(name: str) -> RuntimeResult:
    package = runtimes()[name]
    try:
        found = importlib.util.find_spec(package) is not None
        version = importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        found, version = False, ""
    if not found:
        return RuntimeResult(name, status="not installed", detail="pip install onnx-rewrite[runtimes]")
    return RuntimeResult(name, version)


def _run(
    result: RuntimeResult,
    path: Path,
    outputs: Sequence[str],
    samples: Sequence[Expected],
    options: VerifyOptions,
) -> None:
    """Run the samples in a worker; ``result`` says how that ended."""
    libraries = [os.path.abspath(library) for library in options.libraries.values()]  # noqa: PTH100
    heads, parts = [], []
    for sample in samples:
        kinds, packed = pack(sample.feeds.values())
        heads.append({"names": list(sample.feeds), "kinds": kinds})
        parts += packed
    head = {
        "runtime": result.name,
        "model": str(path),
        "libraries": libraries if result.name == "onnxruntime" else [],
        "samples": heads,
    }
    found: list[list[Any]] = []

    def collect(message: Message) -> None:
        found.append(unpack(message.head["kinds"], message.parts))

    try:
        with Worker(_TARGET, folder=path.parent) as worker:
            limits = Limits(time.monotonic() + TIMEOUT, options.memory)
            refused = worker.ask(head, parts, limits, event=collect).head["refused"]
    except OutOfTime:
        result.status, result.detail = "crashed", f"came to no end in {TIMEOUT:.0f} s"
    except OutOfMemory as failure:
        result.status, result.detail = "crashed", f"takes too much memory: {failure.reason}"
    except WorkerFailed as failure:
        result.status, result.detail = "crashed", failure.reason
    else:
        _judge(result, outputs, samples, found, refused, options.judgement)


def _judge(
    result: RuntimeResult,
    outputs: Sequence[str],
    samples: Sequence[Expected],
    results: Sequence[Sequence[Any]],
    refused: str | None,
    judgement: Judgement,
) -> None:
    """Hold what the runtime gave against what was expected."""
    result.outputs = [Checked(name) for name in outputs]
    for number, sample in enumerate(samples):
        where = f" ({sample.described})" if sample.described else ""
        if number >= len(results):
            result.status, result.detail = "refuses", (refused or "no result")[:600] + where
            return
        found = results[number]
        if len(found) != len(outputs):
            result.status = "differs"
            result.detail = f"gives {len(found)} outputs, and {len(outputs)} are expected{where}"
            return
        values = {checked.name: value for checked, value in zip(result.outputs, found, strict=True)}
        noted = {checked.name: checked for checked in result.outputs}
        for name, problem in judgement.outputs(values, sample.outputs, noted).items():
            if result.status == "agrees":
                result.status, result.detail = "differs", f"output '{name}' {problem}{where}"
