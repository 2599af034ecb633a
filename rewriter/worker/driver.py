"""The parent's side of a child process: start, messages, limits, end, and why it ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self

from rewriter.worker.activity import SIZE, Activity, Board
from rewriter.worker.frames import Decoder, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PROGRAM: Final = Path(__file__).with_name("program.py")
#: The folder that holds the package: a child started by path finds it there.
_ROOT: Final = str(Path(__file__).parents[2])
#: Seconds between two looks at the child's memory.
_LOOK: Final = 0.05
#: Seconds between two calls of a ``tick``.
_TICK: Final = 0.5
_CHUNK: Final = 1 << 20
#: Most bytes that are told of what a child printed.
_TOLD: Final = 1 << 16


class WorkerFailed(Exception):  # noqa: N818  (an outcome that the caller turns into an error or a reason)
    """The child gave no answer.  It is gone when this is raised.

    ``reason`` says why in a few words; ``activity`` is what the child noted last.
    """

    def __init__(self, reason: str, activity: Activity | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.activity = activity or Activity()


class CannotStart(WorkerFailed):
    """There is no child."""


class Died(WorkerFailed):
    """The child ended by itself: a signal, an exception, an exit."""


class OutOfTime(WorkerFailed):
    """The time that the caller gave is over."""


class OutOfMemory(WorkerFailed):
    """The child's own memory passed the limit."""


@dataclass(frozen=True)
class Limits:
    """``deadline`` is a time of :func:`time.monotonic`; ``memory`` is in bytes, None for no limit.

    Memory is what the child has written to (``RssAnon``): mapped weights and reserved addresses do not count.
    """

    deadline: float
    memory: int | None = None


class Worker:
    """A child process that runs ``target`` (see :mod:`rewriter.worker.program`).

    ``environment`` is its environment, ``folder`` its working directory; by default both are this process's.  With
    ``path`` it imports modules from these folders and no others.
    """

    def __init__(
        self,
        target: str,
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        path: Sequence[str] | None = None,
    ) -> None:
        self._outgoing: deque[memoryview] = deque()
        self._incoming: deque[Message] = deque()
        self._decoder = Decoder()
        self._ended = False
        self._told = 0
        #: What the child prints; the file has no name, so nothing is left behind.
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)
        with tempfile.TemporaryFile() as shared:
            shared.truncate(SIZE)
            self._board = Board(shared.fileno())
            self._start(target, shared.fileno(), environment, folder, path)

    def _start(
        self,
        target: str,
        board: int,
        environment: Mapping[str, str] | None,
        folder: str | os.PathLike[str] | None,
        path: Sequence[str] | None,
    ) -> None:
        theirs_in, self._writing = os.pipe()
        self._reading, theirs_out = os.pipe()
        fds = (theirs_in, theirs_out, board)
        blocked = [name for name, module in sys.modules.items() if module is None and "." not in name]
        given = json.dumps({"path": path, "root": _ROOT, "blocked": blocked})
        command = [sys.executable, "-P", str(PROGRAM), target, *map(str, fds), str(os.getpid()), given]
        try:
            # Its own session: an interrupt at the terminal reaches this process only, which then ends the child.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                pass_fds=fds,
                start_new_session=True,
            )
        except OSError as error:
            self._ended = True
            os.close(self._writing)
            os.close(self._reading)
            self._output.close()
            raise CannotStart(f"cannot start: {error}") from error
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        os.set_blocking(self._writing, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, head: Mapping[str, Any], parts: Sequence[bytes] = ()) -> None:
        """Hand over a message.  It is written as far as the pipe takes it; the rest goes while an answer is awaited."""
        self._outgoing.extend(memoryview(piece) for piece in Message(head, parts).encoded())
        self._write()

    def receive(
        self,
        limits: Limits,
        *,
        event: Callable[[Message], None] | None = None,
        tick: Callable[[float], None] | None = None,
        output: Callable[[str], None] | None = None,
    ) -> Message:
        """The next answer.  Messages whose head has an ``event`` are no answers: they go to ``event``.

        ``tick`` is called twice a second, with the seconds so far, ``output`` with what the child prints.

        Raises WorkerFailed where no answer comes; then, and where anything else is raised meanwhile
        (KeyboardInterrupt), the child is gone.
        """
        start = ticked = time.monotonic()
        try:
            while True:
                if output is not None and (text := self.printed()):
                    output(text)
                while self._incoming:
                    message = self._incoming.popleft()
                    if "event" not in message.head:
                        return message
                    if event is not None:
                        event(message)
                now = time.monotonic()
                if tick is not None and now - ticked >= _TICK:
                    ticked = now
                    tick(now - start)
                self._check(limits, now)
                self._exchange(min(_LOOK, max(0.0, limits.deadline - now)))
        except BaseException:
            if output is not None and (text := self.printed()):
                output(text)
            self.close()
            raise

    def ask(
        self, head: Mapping[str, Any], parts: Sequence[bytes], limits: Limits, **calls: Callable[[Any], None]
    ) -> Message:
        """Send a message and wait for the answer; see :meth:`receive`."""
        self.send(head, parts)
        return self.receive(limits, **calls)

    def close(self) -> None:
        """End the child and its children, whatever they are doing."""
        if self._ended:
            return
        self._ended = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._reading)
        os.close(self._writing)
        self._output.close()

    def printed(self) -> str:
        """What the child printed since this was asked last; of much, the end."""
        text, self._told = self._text(self._told)
        return text

    def _text(self, start: int) -> tuple[str, int]:
        """What was printed from byte ``start`` on, and where that ends."""
        if self._output.closed:
            return "", start
        fd = self._output.fileno()  # pread: the child writes where the file's own position is
        size = os.fstat(fd).st_size
        start = max(start, size - _TOLD)
        return os.pread(fd, size - start, start).decode("utf-8", "replace"), size

    # --- one step -----------------------------------------------------------------------------------------------

    def _check(self, limits: Limits, now: float) -> None:
        if now >= limits.deadline:
            raise OutOfTime("not done in time", self._board.read())
        if limits.memory is not None:
            used = private_memory(self._process.pid)
            if used > limits.memory:
                raise OutOfMemory(f"{used} bytes in use", self._board.read())

    def _exchange(self, timeout: float) -> None:
        """Wait until something can be read or written, and do it."""
        if self._ended:
            raise Died("ended before", self._board.read())
        writing = [self._writing] if self._outgoing else []
        readable, writable, _ = select.select([self._reading], writing, [], timeout)
        if writable:
            self._write()
        if readable:
            data = os.read(self._reading, _CHUNK)
            if not data:
                raise self._death()
            self._incoming.extend(self._decoder.feed(data))
        elif self._process.poll() is not None:
            raise self._death()  # a child of its own keeps the pipe open

    def _write(self) -> None:
        try:
            while self._outgoing:
                piece = self._outgoing[0]
                written = os.write(self._writing, piece)
                if written < len(piece):
                    self._outgoing[0] = piece[written:]
                    return
                self._outgoing.popleft()
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._outgoing.clear()  # that the child is gone shows when its answer is awaited

    def _death(self) -> Died:
        """What ended a child that has closed its pipe."""
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.close()
            return Died("closed its pipe", self._board.read())
        if code < 0:
            return Died(f"killed by {signal_name(-code)}", self._board.read())
        lines = [line.strip() for line in self._text(0)[0].splitlines() if line[:1] not in ("", " ", "=")]
        return Died(lines[-1][:300] if lines else f"exit status {code}", self._board.read())


def private_memory(pid: int) -> int:
    """Bytes of memory that the process has to itself; 0 where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def signal_name(number: int) -> str:
    """``"SIGSEGV"``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
