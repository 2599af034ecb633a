"""The program of every child process: ``python -P program.py TARGET READ WRITE BOARD PARENT IMPORTS``.

``TARGET`` is a function, ``"package.module:function"`` or ``"/folder/file.py:function"``; it is called with the channel
to the parent.  ``READ``, ``WRITE`` and ``BOARD`` are file descriptors, ``PARENT`` is the parent's process id.
``IMPORTS`` says, in JSON, where modules are imported from, and which must not be.

A child dies with its parent: the kernel kills it (Linux), and the pipe that it reads from ends.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from rewriter.worker.frames import Channel

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent, whose id is ``parent``, is gone."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it died before that


def _function(target: str) -> Callable[[Channel], None]:
    place, _, name = target.rpartition(":")
    module: Any
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location("worker_target", place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    found: Callable[[Channel], None] = getattr(module, name)
    return found


def main() -> None:
    target, reading, writing, board, parent, imports = sys.argv[1:]
    die_with_parent(int(parent))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # An interrupt at the terminal is the parent's affair.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    environment = json.loads(imports)
    sys.path[:] = [*(sys.path if environment["path"] is None else environment["path"]), environment["root"]]
    for name in environment["blocked"]:
        sys.modules[name] = None  # type: ignore[assignment]
    from rewriter.worker.activity import Board, note_on
    from rewriter.worker.frames import Channel

    for fd in (reading, writing, board):
        os.set_inheritable(int(fd), False)
    note_on(Board(int(board)))
    _function(target)(Channel(int(reading), int(writing)))


if __name__ == "__main__":
    main()
