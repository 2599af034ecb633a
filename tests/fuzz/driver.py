"""Inputs by seed, each in a process of its own with limits of time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.corpus import entries
from tests.fuzz.judge import Options, Outcome, judge
from tests.fuzz.models import valid_model, warm_up
from tests.fuzz.mutate import mutated

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds of processor time that a run may take, and of time where it waits for others.
CPU, WALL = 10, 60
#: Resident bytes that a run may take beyond what it starts with.
MEMORY = 2 << 30
#: Tries a file.  What it tells stands until it tells something else, or returns.
Work = Callable[[Path, Callable[[Outcome], None]], Outcome]

#: Address space, so that a run that would take all memory ends.
ADDRESSES = 24 << 30


@dataclass
class Tally:
    """What a run of the fuzzer saw."""

    outcomes: dict[str, int] = field(default_factory=dict)
    #: The first seed of each cause, and how often the cause occurred.
    finds: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, seed: int, outcome: Outcome) -> bool:
        """Whether the outcome is a find of a new cause."""
        key = f"{outcome.kind} {outcome.cause}".strip()
        self.outcomes[key] = self.outcomes.get(key, 0) + 1
        if not outcome.is_find:
            return False
        first, count = self.finds.get(key, (seed, 0))
        self.finds[key] = (first, count + 1)
        return count == 0


def make(seed: int, *, verify: float = 0.1, simplify: float = 0.01) -> tuple[bytes, Options]:
    """The input and the options of ``seed``."""
    rng = random.Random(seed)
    options = Options.draw(rng, verify=verify, simplify=simplify)
    return mutated(rng, valid_model(rng)), options


def run(
    seeds: Iterator[int], until: float, report: Callable[[int, Outcome], None], **chances: float
) -> Tally:
    """Try seeds until the time ``until`` (of ``time.monotonic``), their end, or an interrupt."""
    _preload(verify=chances.get("verify", 0.1) > 0)
    tally = Tally()
    with contextlib.suppress(KeyboardInterrupt):
        for seed in seeds:
            if time.monotonic() > until:
                break
            outcome = attempt(lambda path, tell, seed=seed: _one(path, tell, seed, chances))
            if tally.add(seed, outcome):
                report(seed, outcome)
    return tally


def run_corpus(report: Callable[[Path, Outcome], None]) -> Tally:
    """Try every input that was a find once."""
    _preload(verify=True)
    tally = Tally()
    for number, (file, options) in enumerate(entries()):
        outcome = attempt(lambda path, tell, file=file, options=options: _copy(path, tell, file, options))
        if tally.add(number, outcome) or outcome.is_find:
            report(file, outcome)
    return tally


def attempt(work: Work) -> Outcome:
    """``work`` with a fresh folder's ``in.onnx``, in a forked process with limits."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _child(reader, writer, folder, work)
    os.close(writer)
    try:
        answer, killed = _answer(reader, child)
        _, status, used = os.wait4(child, 0)
    finally:
        os.close(reader)
        shutil.rmtree(folder, ignore_errors=True)
    lines = answer.splitlines()
    outcome = Outcome(**json.loads(lines[-1])) if lines else None
    if outcome is not None and outcome.kind == "delivered" and os.WIFSIGNALED(status):
        return Outcome("checker", "dies", outcome.detail)  # in onnx.checker, after the delivery was told
    if killed or os.WIFSIGNALED(status):
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if killed or number in (signal.SIGXCPU, signal.SIGKILL):
            return Outcome("hang", "", f"more than {CPU} s of processor time or {WALL} s")
        return Outcome("crash", signal.Signals(number).name)
    if outcome is None:
        return Outcome("crash", f"status {status}")
    resident = used.ru_maxrss * 1024
    if resident > MEMORY + _baseline():
        return Outcome("memory", outcome.cause, f"{resident >> 20} MB; {outcome}")
    return outcome


def _one(path: Path, tell: Callable[[Outcome], None], seed: int, chances: dict[str, float]) -> Outcome:
    data, options = make(seed, **chances)
    path.write_bytes(data)
    return judge(path, options, tell)


def _copy(path: Path, tell: Callable[[Outcome], None], file: Path, options: Options) -> Outcome:
    shutil.copy(file, path)
    return judge(path, options, tell)


def _child(reader: int, writer: int, folder: Path, work: Work) -> None:
    """Never returns."""

    def tell(outcome: Outcome) -> None:
        os.write(writer, (json.dumps(asdict(outcome)) + "\n").encode())

    try:
        os.setpgid(0, 0)
        os.close(reader)
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU + 5))
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        tell(work(folder / "in.onnx", tell))
        os._exit(0)
    except BaseException as error:  # noqa: BLE001  (a process of its own, which must not run on)
        tell(Outcome("exception", type(error).__name__, repr(error)))
        os._exit(1)


def _answer(reader: int, child: int) -> tuple[bytes, bool]:
    """What the child wrote, and whether it had to be killed."""
    end = time.monotonic() + WALL
    parts: list[bytes] = []
    while True:
        left = end - time.monotonic()
        ready, _, _ = select.select([reader], [], [], max(left, 0))
        if not ready:
            os.killpg(child, signal.SIGKILL)
            return b"", True
        data = os.read(reader, 1 << 16)
        if not data:
            return b"".join(parts), False
        parts.append(data)


def _baseline() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _preload(*, verify: bool) -> None:
    """Import and load once, before forking, what every run would import and load."""
    import rewriter.pipeline
    import rewriter.report  # noqa: F401
    from rewriter.placeholder import discovery, registry

    # Making and checking all passes takes longer than anything else that happens to a small model.
    passes = discovery.available()
    discovery.available = registry.available = lambda: list(passes)
    warm_up()
    if verify:
        import onnxruntime
        import torch

        torch.set_num_threads(1)
        onnxruntime.set_default_logger_severity(4)
    sys.stdout.flush()
