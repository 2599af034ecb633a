"""Runs onnxsim in a worker: one model there, one model back, or a reason."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rewriter.simplify.optimizers import ALLOWED, REFUSED
from rewriter.worker.driver import CannotStart, Limits, OutOfTime, Worker, WorkerFailed

if TYPE_CHECKING:
    from collections.abc import Callable

#: Started by path, so that nothing of the rewriter but the channel is imported there.
TARGET: Final = f"{Path(__file__).with_name('worker.py')}:simplify"
#: The worker may write this much more than it was sent: what it folds never comes near.
SLACK: Final = 256 << 20
#: What Python, C++, protobuf and the system say when memory is refused.
_NO_MEMORY: Final = ("MemoryError", "bad_alloc", "alloc failed", "Cannot allocate memory")


class NoMemory(WorkerFailed):
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
        raise OutOfTime("not done in time")
    limits = Limits(time.monotonic() + timeout)
    options = asdict(task) | {
        "allowed": sorted(ALLOWED),
        "refused": sorted(REFUSED),
        "memory": memory,
        "file_size": len(request) + SLACK,
    }
    with Worker(TARGET, environment=_environment(), folder="/") as worker:
        worker.send(options, [request])
        try:
            answer = worker.receive(limits, tick=progress)
        except (CannotStart, OutOfTime):
            raise
        except WorkerFailed as failure:
            if any(words in failure.reason for words in _NO_MEMORY):
                raise NoMemory(failure.reason) from failure
            raise
    return answer.parts[0] if answer.parts else b""


def _environment() -> dict[str, str]:
    """This process's environment without what would change onnxsim's results or inflate its address space."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ONNXSIM_", "ORT_"))}
    return kept | {
        "PYTHONHASHSEED": "0",
        "MALLOC_ARENA_MAX": "2",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
