"""The stage as a whole: attempts from the boldest to the most careful, the first acceptable one is delivered."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError, EncodeError
from onnx import ModelProto

from rewriter.errors import RewriteError
from rewriter.report import size_text
from rewriter.simplify import accept, batchnorm, culprits, pins
from rewriter.simplify.accept import Refused, measure
from rewriter.simplify.limits import DEFAULT_MEMORY, DEFAULT_TIMEOUT, NOTHING
from rewriter.simplify.prepare import CannotPrepare, prepare
from rewriter.simplify.process import NoMemory, Task, run_worker
from rewriter.simplify.restore import CannotRestore, restore
from rewriter.worker.driver import CannotStart, OutOfTime, WorkerFailed

if TYPE_CHECKING:
    from rewriter.storage import ModelFile

#: ``equal(before, after)``: None, or how the two models differ.
Equal = Callable[[ModelProto, ModelProto], str | None]
#: ``lacks(model)``: what a target lacks of it, in words.
Lacks = Callable[[ModelProto], set[str]]
#: Called with a line to show, at least twice a second while a worker runs.
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Simplification:
    """What came of it.  ``model`` is the simplified model or, not accepted, the very one that was given.

    ``reason`` names the stage that refused (``"onnxsim: killed by SIGSEGV"``) or, accepted, how it went.  ``notes``
    are further lines for the report: what was left undone, which bolder attempts were refused and why.
    """

    model: ModelProto
    accepted: bool
    reason: str
    nodes_before: int
    nodes_after: int
    bytes_before: int
    bytes_after: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """One way to simplify.  ``hold`` names values whose nodes are kept from being folded."""

    name: str
    task: Task
    batchnorm: bool = False
    hold: frozenset[str] = frozenset()


ATTEMPTS: Final = (
    Attempt("full simplification", Task(), batchnorm=True),
    Attempt("without constant folding", Task(fold=False)),
    Attempt("constant folding only", Task(optimise=False)),
)
#: How often an attempt is repeated with further nodes held back, before folding is given up altogether.
HOLDS: Final = 3


def simplify(
    file: ModelFile,
    model: ModelProto,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    memory: int = DEFAULT_MEMORY,
    equal: Equal | None = None,
    progress: Progress | None = None,
    lacks: Lacks | None = None,
) -> Simplification:
    """Simplifies ``model``, a skeleton whose withheld payloads ``file`` knows; it is not changed.

    Weights over 1 KiB are never sent to onnxsim, which runs in a process of its own for at most ``timeout`` seconds
    and within ``memory`` bytes.  Nothing that happens there fails the run: the unsimplified model is returned with
    the reason.
    """
    return _Stage(file, model, timeout, memory, equal, progress, lacks).run()


@dataclass
class _Stage:
    file: ModelFile
    model: ModelProto
    timeout: float
    memory: int
    equal: Equal | None
    progress: Progress | None
    lacks: Lacks | None = None
    notes: list[str] = field(default_factory=list)

    def run(self) -> Simplification:
        self.deadline = time.monotonic() + self.timeout
        self.before = measure(self.model, self.file)
        try:
            pinned = pins.pinned(self.model)
            folded = batchnorm.fold(self.model, self.file, pinned)
        except pins.CannotPin as error:
            return self._refused(f"prepare: {error}")
        except Exception as error:  # noqa: BLE001  (see below)
            return self._refused(f"prepare: {type(error).__name__}: {error}")
        refusals: list[str] = []
        queue = list(ATTEMPTS)
        holds = 0
        while queue:
            attempt = queue.pop(0)
            source = folded.model if attempt.batchnorm else self.model
            try:
                result = self._attempt(attempt, source, pinned)
            except _Held as held:
                holds += 1
                if holds <= HOLDS:
                    queue.insert(0, Attempt(attempt.name, attempt.task, attempt.batchnorm, held.hold))
                    continue
                refusals.append(f"{attempt.name}: {held.reason}")
                continue
            except _Failed as failure:
                refusals.append(f"{attempt.name}: {failure.reason}")
                if failure.final:
                    break
                continue
            except Exception as error:  # noqa: BLE001  (whatever a damaged model brings about: it must not end the run)
                refusals.append(f"{attempt.name}: {type(error).__name__}: {error}")
                continue
            if result is self.model and refusals:
                break  # a careful attempt changes nothing: the bolder one's failure is the news
            self.notes.extend(refusals)
            if attempt.batchnorm:
                self.notes.extend(folded.notes)
            return self._accepted(result, attempt)
        self.notes.extend(refusals[1:])
        return self._refused(refusals[0])

    def _attempt(self, attempt: Attempt, source: ModelProto, pinned: frozenset[str]) -> ModelProto:
        """The simplified model, checked; ``self.model`` itself where there was nothing to do."""
        self._say("preparing")
        try:
            prepared = prepare(source, self.file, hold=attempt.hold, pinned=pinned)
            request = prepared.model.SerializeToString(deterministic=True)
        except CannotPrepare as error:
            raise _Failed(f"prepare: {error}", final=True) from error
        except (EncodeError, ValueError) as error:
            raise _Failed(f"prepare: {error}") from error
        nodes = len(prepared.nodes)
        try:
            raw = run_worker(
                request,
                attempt.task,
                timeout=self.deadline - time.monotonic(),
                memory=self.memory,
                progress=lambda seconds: self._say(f"onnxsim, {nodes:,} nodes, {seconds:.0f} s"),
            )
        except OutOfTime as error:
            raise _Failed(
                f"onnxsim: not done within {self.timeout:g} s (--simplify-timeout)", final=True
            ) from error
        except NoMemory as error:
            limit = f"the limit of {size_text(self.memory)} (--simplify-memory)"
            raise _Failed(f"onnxsim: out of memory within {limit}: {error.reason}") from error
        except WorkerFailed as error:
            raise _Failed(f"onnxsim: {error.reason}", final=isinstance(error, CannotStart)) from error
        del request
        self._say("checking")
        try:
            result = ModelProto.FromString(raw)
            after = restore(source, prepared, result)
        except (CannotRestore, DecodeError, KeyError, IndexError, ValueError) as error:
            raise _Failed(f"restore: {error or type(error).__name__}") from error
        try:
            accept.check(self.model, after, self.file)
            accept.check_target(self.model, after, self.lacks)
        except Refused as error:
            if error.growth and attempt.task.fold:
                more = culprits.find(prepared, after) - attempt.hold
                if more:
                    raise _Held(error.reason, attempt.hold | more) from error
            raise _Failed(error.reason) from error
        if after == self.model:
            return self.model  # and nothing that would have to be compared
        self._compare(after)
        return after

    def _compare(self, after: ModelProto) -> None:
        if self.equal is None:
            return
        self._say("comparing")
        try:
            difference = self.equal(self.model, after)
        except RewriteError as error:
            difference = f"could not be compared: {error}"
        if difference is not None:
            raise _Failed(f"values: {difference}")

    def _accepted(self, model: ModelProto, attempt: Attempt) -> Simplification:
        after = measure(model, self.file)
        reason = NOTHING if model is self.model else attempt.name
        if attempt.hold:
            names = sorted(attempt.hold)
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            self.notes.append(f"not folded, since it would grow the file: {', '.join(names[:5])}{more}")
        return Simplification(
            model,
            True,
            reason,
            self.before.nodes,
            after.nodes,
            self.before.bytes,
            after.bytes,
            tuple(self.notes),
        )

    def _refused(self, reason: str) -> Simplification:
        size = self.before
        return Simplification(
            self.model, False, reason, size.nodes, size.nodes, size.bytes, size.bytes, tuple(self.notes)
        )

    def _say(self, line: str) -> None:
        if self.progress is not None:
            self.progress(line)


class _Failed(Exception):  # noqa: N818
    """An attempt came to nothing; after a ``final`` one there is no other."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.final = final


class _Held(Exception):  # noqa: N818
    """An attempt is to be repeated with the values in ``hold`` not folded."""

    def __init__(self, reason: str, hold: frozenset[str]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hold = hold
