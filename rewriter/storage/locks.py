"""Locks between runs, and what dead runs left behind.

Two kinds of lock are used.  The kernel frees both when their process ends, however it ends.

- A run locks the folder while it puts its files in place (:func:`folder_lock`).  Naming a data file, naming the model
  that refers to it and removing the data of the model before is then one step for other runs.
- A run holds a lock on each of its temporary files.  A temporary file without a lock belongs to a dead run.

Some file systems have no such locks.  There a run never shares a data file with another run and removes no
temporary file: both need a lock to be safe.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import time
from pathlib import PurePath
from typing import TYPE_CHECKING

from rewriter.errors import ModelWriteError

try:
    import fcntl
except ImportError:  # pragma: no cover  (Windows)
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Seconds to wait for another run that puts its files into the same folder.
PATIENCE = 600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1

TEMPORARY = re.compile(r"\.rewrite-[0-9a-f]{16}\.tmp")
#: The first line of a journal; see :mod:`rewriter.storage.undo`.
JOURNAL = "onnx-rewrite undo"
MAX_JOURNAL = 1 << 24
#: What ``flock`` answers where somebody else holds the lock.
_BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


def lock(fd: int) -> bool | None:
    """Try to lock the open file ``fd`` for this process alone, without waiting.

    False where another holds the lock; None where the file system has no locks.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in _BUSY else None
    return True


@contextlib.contextmanager
def folder_lock(folder: Path, target: Path) -> Iterator[bool]:
    """Hold the lock of ``folder``.

    Yields False where the folder cannot be locked.  Raises ModelWriteError, which names ``target``, where another
    program holds the lock for longer than :data:`PATIENCE`.  Dead runs' temporary files are removed first.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
    except PermissionError:  # a folder that may be written to and not be listed
        yield False
        return
    try:
        held = _wait(fd, folder, target)
        if held:
            remove_dead(folder)
        yield held
    finally:
        os.close(fd)


def _wait(fd: int, folder: Path, target: Path) -> bool:
    pause, end = _FIRST_PAUSE, time.monotonic() + PATIENCE
    while (got := lock(fd)) is False:
        if time.monotonic() > end:
            raise ModelWriteError(
                f"another program has held the lock of the folder '{folder}' for {PATIENCE:.0f} seconds",
                where=str(target),
                remedy="wait until it ends, or choose another folder",
            )
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return got is True


def remove_dead(folder: Path) -> None:
    """Remove the temporary files in ``folder`` that no living run holds.  Needs the lock of the folder."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        names = [path for path in folder.iterdir() if TEMPORARY.fullmatch(path.name)]
        dead = [path for path in names if _take(path, stack)]
        for path in dead:  # journals first: whether the model's temporary file exists decides
            _undo(path, folder)
        for path in dead:
            with contextlib.suppress(OSError):
                path.unlink()


def _take(path: Path, stack: contextlib.ExitStack) -> bool:
    """Whether ``path`` is a temporary file without a lock; it is locked then."""
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        fd = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return False
    stack.callback(os.close, fd)
    return stat.S_ISREG(os.fstat(fd).st_mode) and lock(fd) is True and is_at(fd, path)


def _undo(path: Path, folder: Path) -> None:
    """Take away what the journal ``path`` names; nothing where it is another kind of file.

    A file goes only where it is still the very file that the dead run named: a journal that came with a download
    cannot know that.
    """
    try:
        with path.open("rb") as file:
            lines = file.read(MAX_JOURNAL).splitlines()
        head, model, *made = (json.loads(line) for line in lines)
    except (OSError, ValueError):
        return
    if head != JOURNAL or not isinstance(model, str) or not TEMPORARY.fullmatch(model):
        return
    unplaced = (folder / model).exists()
    for name, identity, before in reversed(
        [item for item in made if isinstance(item, list) and len(item) == 3]
    ):
        if before is not unplaced or not isinstance(name, str):
            continue
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
            continue
        with contextlib.suppress(OSError, ValueError):
            if identity is None:
                (folder / name).rmdir()  # fails where something is in it
            elif identity == identity_of((folder / name).lstat()):
                (folder / name).unlink()


def identity_of(found: os.stat_result) -> list[int]:
    """What tells a file from every other that has or will have its name."""
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns]


def is_at(fd: int, path: Path) -> bool:
    """Whether ``path`` is the open file ``fd``."""
    try:
        found, opened = path.lstat(), os.fstat(fd)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)
