"""Folders for temporary files that do not lie beside the target, and those that dead runs left behind."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.storage.locks import lock

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "onnx-rewrite-"
#: The file in a folder that its run holds locked.
_HELD = ".held"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder, removed at the end; if the process is killed, by the next run."""
    _remove_dead(tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / _HELD).open("wb") as held:
            lock(held.fileno())
            yield folder


@functools.cache  # once in a process
def _remove_dead(where: str) -> None:
    with contextlib.suppress(OSError), os.scandir(where) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                _remove_if_dead(Path(entry.path))


def _remove_if_dead(folder: Path) -> None:
    """Remove ``folder`` if its lock is free.  A folder of another user, or without a lock, stays."""
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with contextlib.suppress(OSError):
        if hasattr(os, "getuid") and folder.lstat().st_uid != os.getuid():
            return
        fd = os.open(folder / _HELD, flags)
        try:
            if lock(fd) is True:
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(fd)
