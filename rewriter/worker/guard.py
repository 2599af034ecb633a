"""The command in a process of its own, so that a signal ends it wherever it is.

A signal handler in Python runs between two steps of the interpreter.  A long call into C++ (shape inference, a parser)
keeps it waiting.  So the command forks before it has loaded anything: the child does the work, the parent waits for it
and for signals.  A child that has not ended soon after a signal is killed, and its own children die with it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

from rewriter.worker.program import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

#: Exit codes, as shells have them.
INTERRUPTED: Final = 128 + signal.SIGINT
TERMINATED: Final = 128 + signal.SIGTERM
#: Seconds that the child has to clean up after a signal.
GRACE: Final = 1.2
#: What a fault in native code ends a process with.
FAULTS: Final = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})


def guarded(work: Callable[[], int], complain: Callable[[str], None]) -> int:
    """The exit code of ``work``, which runs in a child process; ``complain`` is told what it could not tell itself.

    In the child SIGINT raises KeyboardInterrupt and SIGTERM raises SystemExit, once.
    """
    watched = {
        number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN
    }
    # Blocked, so that none is lost between the fork and the wait.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*watched, signal.SIGCHLD})
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        die_with_parent(parent)
        for number in watched:
            signal.signal(number, _stop)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return work()
    return _wait(child, watched, complain)


def _stop(number: int, frame: object) -> None:  # noqa: ARG001
    """End the work by unwinding it; a second signal must not break the clean-up of the first."""
    for every in (signal.SIGINT, signal.SIGTERM):
        signal.signal(every, signal.SIG_IGN)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(TERMINATED)


def _wait(child: int, watched: set[signal.Signals], complain: Callable[[str], None]) -> int:
    """Wait for the child, and pass signals on to it; its exit code."""
    received: int | None = None
    deadline = 0.0
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return _code(status, received, complain)
        left = 60.0 if received is None else deadline - time.monotonic()
        if left <= 0:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            return _code(status, received, complain)
        found = signal.sigtimedwait({*watched, signal.SIGCHLD}, left)
        if found is not None and found.si_signo != signal.SIGCHLD and received is None:
            received, deadline = found.si_signo, time.monotonic() + GRACE
            os.kill(child, received)


def _code(status: int, received: int | None, complain: Callable[[str], None]) -> int:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    if received is not None:
        complain("interrupted" if received == signal.SIGINT else "terminated")
        return 128 + received
    if -code in FAULTS:
        complain(
            f"error: internal error: the process was killed by {signal.Signals(-code).name}; nothing was written"
        )
        return 1
    return 128 - code
