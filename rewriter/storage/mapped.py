"""A regular file, opened once, mapped when looked into, and known to have stayed as it was."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from typing import TYPE_CHECKING

from rewriter.errors import ModelReadError

if TYPE_CHECKING:
    from pathlib import Path

    from rewriter.storage.wire import Buffer


class MappedFile:
    """Read-only; the descriptor serves copying, the map serves looking.

    ``release`` lets go of both until they are needed again, for models whose data is in more files than a process may
    have open.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._stat = os.fstat(fd)
        self._map: mmap.mmap | None = None
        self._closed = False
        self.size = self._stat.st_size

    @classmethod
    def open(cls, path: Path) -> MappedFile:
        """Raises OSError, also for what is no regular file (a pipe would wait for ever, a device never end)."""
        fd = _open(path)
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode):
                raise OSError(errno.EISDIR, "it is a directory")
            if not stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            return cls(path, fd)
        except BaseException:
            os.close(fd)
            raise

    @property
    def fd(self) -> int:
        self.check_open()
        if self._fd < 0:
            try:
                self._fd = _open(self.path)
            except OSError:
                raise self._changed() from None
            self.check_unchanged()
        return self._fd

    @property
    def buffer(self) -> Buffer:
        fd = self.fd
        if self._map is None:
            if self.size == 0:
                return b""
            self._map = mmap.mmap(fd, self.size, access=mmap.ACCESS_READ)
        return self._map

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """What tells this file from others, and from itself after it was written to."""
        return _identity(self._stat)

    @property
    def mode(self) -> int:
        return stat.S_IMODE(self._stat.st_mode)

    def is_same(self, path: Path) -> bool:
        """Whether ``path`` leads to this very file."""
        try:
            other = path.stat()
        except (OSError, ValueError):
            return False
        return (other.st_dev, other.st_ino) == (self._stat.st_dev, self._stat.st_ino)

    def check_open(self) -> None:
        if self._closed:
            raise ModelReadError(
                "the file was closed", where=str(self.path), remedy="use it inside the `with` block"
            )

    def check_unchanged(self) -> None:
        """Raises ModelReadError if the file was written to since it was opened: what was read may not fit together."""
        try:
            now = self.path.stat() if self._fd < 0 else os.fstat(self._fd)
        except OSError:
            raise self._changed() from None
        if _identity(now) != _identity(self._stat):
            raise self._changed()

    def check_in_place(self) -> None:
        """Raises ModelReadError if its path leads to another file by now, or to none."""
        if not self.is_same(self.path):
            raise self._changed()

    def release(self) -> None:
        if self._map is not None:
            with contextlib.suppress(
                BufferError
            ):  # an array still looks into the map; it goes with the last of them
                self._map.close()
            self._map = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        self.release()
        self._closed = True

    def _changed(self) -> ModelReadError:
        return ModelReadError(
            "the file was changed by another program while it was being read",
            where=str(self.path),
            remedy="run again when nothing writes to it",
        )


def _open(path: Path) -> int:
    # O_NONBLOCK: opening a pipe returns at once, to be refused.
    return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))


def _identity(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
