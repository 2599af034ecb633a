"""Where the proof runs: in this process, or in a worker that has limits and may die."""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from rewriter.errors import CannotVerifyError, LimitError, RewriteError, VerificationError, WorkerDiedError
from rewriter.report import size_text
from rewriter.verify.transport import CannotTransport, pack, unpack_answer
from rewriter.worker.driver import CannotStart, Limits, OutOfMemory, OutOfTime, Worker, WorkerFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import ModelProto

    from rewriter.graph.expanding import Region
    from rewriter.graph.survey import Keep
    from rewriter.placeholder.contract import Placeholder
    from rewriter.placeholder.registry import Selection
    from rewriter.progress import Progress, Stage
    from rewriter.storage import ModelFile
    from rewriter.verify.options import VerifyOptions
    from rewriter.verify.origin import Origin
    from rewriter.verify.proof import Proof
    from rewriter.worker.frames import Message

#: Seconds of wall clock for all that the worker of one run does.
DEFAULT_TIMEOUT: Final = 900.0
#: Bytes of memory of its own that the worker may have besides the weights, and how often the weights count.
DEFAULT_MEMORY: Final = 8 << 30
WEIGHTS_COUNT: Final = 3
_TARGET: Final = "rewriter.verify.worker:serve"


class Side(Protocol):
    """Compares models for one run."""

    def equal(self, before: ModelProto, after: ModelProto) -> str | None:
        """None where both compute the same, else why not; see :func:`rewriter.verify.equal`."""

    def prove(
        self, rewritten: ModelProto, delivered: ModelProto, regions: Sequence[Region], progress: Progress
    ) -> Proof:
        """See :func:`rewriter.verify.verify`."""

    def close(self) -> None:
        """Let go of the process, if there is one."""


def here_because(
    source: object, passes: object, operators: object, against: object, compare: object
) -> str | None:
    """Why the proof must run in this process: something was given that only this process has; else None."""
    if not isinstance(source, (str, os.PathLike)):
        return "the model is given as an object"
    for what, items in (("a pass", passes), ("an operator", operators)):
        if not isinstance(items, str) and not all(isinstance(item, str) for item in items):  # type: ignore[attr-defined]
            return f"{what} is given as a Python object"
    if not (against is None or isinstance(against, (str, os.PathLike)) or _is_data(against)):
        return "what to compare with is given as a Python object"
    if isinstance(compare, Mapping) and any(callable(how) for how in compare.values()):
        return "a function that compares outputs is given as a Python object"
    return None


def _is_data(against: object) -> bool:
    return isinstance(against, Mapping)


def own_operators(operators: Sequence[Any]) -> list[Placeholder]:
    """Passes for operators of the user's own, which have a decomposition derived from them."""
    if not operators:
        return []
    from rewriter.derive.function import operators_of
    from rewriter.execution.reference import require_torch

    require_torch()
    return operators_of(operators)


def read_against(
    file: ModelFile, selection: Selection, keep: Keep, options: VerifyOptions
) -> tuple[VerifyOptions, Origin | None]:
    """``options`` with what they name loaded, so that what does not fit is said before any work is done.

    And a copy of the model as it came, which tells whose fault a difference is, and what its functions and ONNX's own
    operators compute; None where nothing of this is asked.
    """
    from rewriter.verify.origin import Origin

    if options.operators:
        from rewriter.execution.reference import require_torch

        require_torch()
        from rewriter.gradients.operators import Operators

        options = replace(options, operators=Operators(options.operators).given)
    if options.against is not None:
        from rewriter.against import load

        options = replace(options, against=load(options.against, file.model))
    elif not (file.model.functions or options.brought):
        return options, None
    return options, Origin.of(file, selection, keep, options.libraries)


@dataclass
class Here:
    """In this process, without limits."""

    file: ModelFile
    options: VerifyOptions
    origin: Origin | None = None
    reason: str = ""

    def equal(self, before: ModelProto, after: ModelProto) -> str | None:
        from rewriter.verify.equality import equal

        return equal(self.file, before, after, self.options)

    def prove(
        self, rewritten: ModelProto, delivered: ModelProto, regions: Sequence[Region], progress: Progress
    ) -> Proof:
        from rewriter.verify.proving import verify

        try:
            proof = verify(
                self.file, rewritten, delivered, regions, self.options, progress, origin=self.origin
            )
        except VerificationError as error:
            if error.proof is not None:
                self._note(error.proof)
            raise
        self._note(proof)
        return proof

    def _note(self, proof: Proof) -> None:
        proof.process = self.reason
        if self.reason:
            proof.notes.append(f"PyTorch and onnxruntime ran in this process, without limits: {self.reason}")

    def close(self) -> None:
        pass


@dataclass
class Apart:
    """In a worker, which is started at once and given its work when the model is open.

    ``seconds`` is for all that the worker does, ``memory`` is in bytes; None stands for the default.
    """

    passes: Sequence[str]
    bind: Sequence[str]
    derived: bool
    operators: Sequence[str] = ()
    seconds: float = DEFAULT_TIMEOUT
    memory: int | None = None
    worker: Worker | None = field(default=None, repr=False)
    #: Sizes that ended a worker, of those that may be refused, with what it died of.
    deaths: list[tuple[dict[str, int], str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._spent = 0.0
        self._request: tuple[dict[str, Any], list[bytes]] | None = None
        self._opening = False
        self._refusal: RewriteError | None = None
        self._start()

    def open(
        self,
        file: ModelFile,
        selection: Selection,
        keep: Keep,
        options: VerifyOptions,
        *,
        torch: bool,
    ) -> None:
        """Say what it is about; ``torch``: whether PyTorch will be needed.

        Where something else is to be loaded, what does not fit is said now.
        """
        self.file, self.selection = file, selection
        if self.memory is None:
            from rewriter.simplify.accept import measure

            self.memory = DEFAULT_MEMORY + WEIGHTS_COUNT * measure(file.model, file).bytes
        options = replace(options, memory=self.memory)
        head = {
            "do": "open",
            "model": os.path.abspath(file.path or ""),  # noqa: PTH100  (links are the reader's affair)
            "identity": file.identity,
            "passes": list(self.passes),
            "bind": list(self.bind),
            "derived": self.derived,
            "operators": list(self.operators),
            "torch": torch,
        }
        self._request = head, [pack((options, keep), selection, file)]
        self._open()
        if options.against is not None or options.operators:
            self._opened()

    def equal(self, before: ModelProto, after: ModelProto) -> str | None:
        parts = [before.SerializeToString(), after.SerializeToString()]
        try:
            found: str | None = self._ask({"do": "equal"}, parts)
        except (WorkerDiedError, LimitError) as error:
            return f"it could not be compared: {error.what}"
        return found

    def prove(
        self, rewritten: ModelProto, delivered: ModelProto, regions: Sequence[Region], progress: Progress
    ) -> Proof:
        models = [rewritten] if delivered is rewritten else [rewritten, delivered]
        parts = [model.SerializeToString() for model in models]
        while True:
            try:
                packed = pack((list(regions), list(self.deaths)), self.selection, self.file)
            except CannotTransport as error:
                raise CannotVerifyError(
                    f"what was replaced cannot be handed to the process of the verification: {error}",
                    remedy="rewriter.rewrite(…, isolate=False) verifies in the caller's process",
                ) from error
            before = len(self.deaths)
            try:
                with contextlib.ExitStack() as stack:
                    shown = _Shown(progress, stack)
                    proof: Proof = self._ask({"do": "verify"}, [packed, *parts], shown)
                return proof
            except (WorkerDiedError, LimitError):
                if len(self.deaths) == before:
                    raise

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None

    # --- the worker -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        try:
            self.worker = Worker(_TARGET, path=sys.path)
        except CannotStart as error:
            raise CannotVerifyError(
                f"the process of the verification {error.reason}",
                remedy="rewriter.rewrite(…, isolate=False) verifies in the caller's process, --no-verify not at all",
            ) from error

    def _open(self) -> None:
        if self.worker is None:
            self._start()
        assert self.worker is not None
        assert self._request is not None
        self.worker.send(*self._request)
        self._opening = True

    def _opened(self) -> None:
        if not self._opening:
            return
        self._opening = False
        try:
            self._receive(None)
        except RewriteError as error:
            if self.worker is not None:
                self._refusal = error  # it has no model to work on
            raise

    def _ask(self, head: dict[str, Any], parts: Sequence[bytes], shown: _Shown | None = None) -> Any:
        if self._refusal is not None:
            raise self._refusal
        if self.worker is None:
            self._open()
        assert self.worker is not None
        self.worker.send(head, parts)
        self._opened()
        return self._receive(shown)

    def _receive(self, shown: _Shown | None) -> Any:
        """The answer to the oldest question; what the worker raised is raised here."""
        assert self.worker is not None
        start = time.monotonic()
        limits = Limits(start + max(0.0, self.seconds - self._spent), self.memory)
        try:
            answer = self.worker.receive(limits, event=None if shown is None else shown.event, output=_print)
        except WorkerFailed as failure:
            error = self._failed(failure)
            raise error from failure
        finally:
            self._spent += time.monotonic() - start
        if answer.head["answer"] == "fault":
            raise _fault(answer.head)
        value = unpack_answer(answer.parts[0])
        if isinstance(value, RewriteError):
            raise value
        return value

    def _failed(self, failure: WorkerFailed) -> WorkerDiedError | LimitError:
        """What a worker's end means.

        Sizes that may be refused are remembered, so that the next worker passes them over.
        """
        self.close()
        self._opening = False
        doing, text = failure.activity, str(failure.activity)
        who = doing.engine or "the process of the verification"
        where = doing.where or None
        if isinstance(failure, OutOfTime):
            return LimitError(
                f"verification was not done within {self.seconds:g} s{f'; it was at {text}' if text else ''}",
                where=where,
                remedy="--verify-timeout SECONDS gives it more time, --dim and --samples less to do; "
                "--no-verify compares nothing",
            )
        if doing.optional_sizes is not None:
            self.deaths.append((dict(doing.optional_sizes), f"{who} ends its process ({failure.reason})"))
        at = f", in {text}" if text else ""
        if isinstance(failure, OutOfMemory):
            return LimitError(
                f"{who} took more than {size_text(self.memory or 0)} of memory{at}",
                where=where,
                remedy="--verify-memory SIZE gives it more, --dim names smaller sizes; --no-verify compares nothing",
            )
        return WorkerDiedError(
            f"{who} ended its process ({failure.reason}){at}",
            where=where,
            remedy="nothing was delivered; other sizes (--dim) or inputs (--inputs) may avoid it, --no-verify compares "
            "nothing",
        )


@dataclass
class _Shown:
    """Shows the progress of the proof in the parent."""

    progress: Progress
    stack: contextlib.ExitStack
    stage: Stage | None = None

    def event(self, message: Message) -> None:
        head = message.head
        if head["event"] == "stage":
            self.stage = self.stack.enter_context(self.progress.stage(head["name"], head["total"]))
        elif self.stage is not None and head["event"] == "advance":
            self.stage.advance(head["steps"])
        elif self.stage is not None:
            self.stage.note(head["text"])


def _print(text: str) -> None:
    """What passes and libraries print in the worker goes to standard error."""
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _fault(head: Mapping[str, Any]) -> Exception:
    """An exception that is not an error of this package, as the worker had it."""
    kind = getattr(builtins, head["type"], None)
    made: Exception = RuntimeError(f"{head['type']}: {head['text']}")
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(TypeError):  # some take other arguments
            made = kind(head["text"])
    made.add_note(head["trace"])
    return made
