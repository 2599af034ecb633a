"""Runs the worker process: limits, progress, and a reason whenever it does not deliver."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rewriter.simplify.optimizers import ALLOWED, REFUSED
from rewriter.storage.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Callable

WORKER: Final = Path(__file__).with_name("worker.py")
#: Seconds between two calls of the progress callback.
TICK: Final = 0.5
#: The worker may write this much more than it was sent: what it folds never comes near.
SLACK: Final = 256 << 20
#: What Python, C++, protobuf and the system say when memory is refused.
_NO_MEMORY: Final = ("MemoryError", "bad_alloc", "alloc failed", "Cannot allocate memory")


class WorkerFailed(Exception):  # noqa: N818  (an outcome that the caller turns into a reason, not a user's error)
    """The worker delivered nothing.

    ``final`` says that another attempt would end the same way: no time is left, or there is no worker at all.
    """

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.final = final


class OutOfTime(WorkerFailed):
    """The time that the caller gave is over."""

    def __init__(self) -> None:
        super().__init__("not done in time", final=True)


class OutOfMemory(WorkerFailed):
    """The worker said that it got no more memory."""


@dataclass(frozen=True)
class Task:
    """What one call of onnxsim does: fold constants up to ``threshold`` and / or run the allowed passes."""

    fold: bool = True
    optimise: bool = True
    threshold: str = "1KB"


def run_worker(
    request: bytes,
    task: Task,
    *,
    timeout: float,
    memory: int,
    progress: Callable[[float], None] | None = None,
) -> bytes:
    """The serialised model that onnxsim makes of ``request``, a serialised ModelProto.

    ``timeout`` is in seconds of wall clock, ``memory`` in bytes of address space beyond what the worker's libraries
    map; ``progress`` is called twice a second with the seconds so far.

    Raises:
        WorkerFailed: no result, for whatever reason; the process and its children are gone.
    """
    if timeout <= 0:
        raise OutOfTime
    with scratch_folder() as folder:
        options = asdict(task) | {
            "allowed": sorted(ALLOWED),
            "refused": sorted(REFUSED),
            "memory": memory,
            "file_size": len(request) + SLACK,
            "alarm": min(math.ceil(timeout) + 5, 2**31 - 1),
        }
        try:
            (folder / "request.json").write_text(json.dumps(options), encoding="utf-8")
            (folder / "request.onnx").write_bytes(request)
        except OSError as error:
            raise WorkerFailed(f"cannot hand over the model: {error}", final=True) from error
        _wait(folder, timeout, progress)
        try:
            return (folder / "result.onnx").read_bytes()
        except OSError as error:
            raise WorkerFailed(f"left no result: {error}") from error


def _wait(folder: Path, timeout: float, progress: Callable[[float], None] | None) -> None:
    """Starts the worker in ``folder``, and returns when it has ended well."""
    output = folder / "output.txt"
    start = time.monotonic()
    with output.open("wb") as sink:
        try:
            # Its own session: an interrupt at the terminal reaches this process only, which then ends the worker.
            process = subprocess.Popen(
                [sys.executable, "-P", str(WORKER), str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerFailed(f"cannot start: {error}", final=True) from error
        try:
            while (left := timeout - (time.monotonic() - start)) > 0:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(min(TICK, left))
                    break
                if progress is not None:
                    progress(time.monotonic() - start)
            else:
                raise OutOfTime
        finally:
            # Also on KeyboardInterrupt and whatever the callback raises.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode:
        story = _story(process.returncode, output)
        raise (OutOfMemory if any(words in story for words in _NO_MEMORY) else WorkerFailed)(story)


def _environment() -> dict[str, str]:
    """This process's environment without what would change onnxsim's results or inflate its address space."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ONNXSIM_", "ORT_"))}
    return kept | {
        "PYTHONHASHSEED": "0",
        "MALLOC_ARENA_MAX": "2",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _story(status: int, output: Path) -> str:
    """What ended the worker, in a line."""
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"killed by {name}"
    try:
        with output.open("rb") as stream:
            stream.seek(max(0, output.stat().st_size - 4096))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    said = [line.strip() for line in lines if line.strip() and not line.startswith((" ", "==>"))]
    return (said[-1][:300] if said else "") or f"exit status {status}"
