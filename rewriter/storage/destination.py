"""Putting files in place: whole and on disk before they get their name, and nothing left behind on failure."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.errors import ModelWriteError
from rewriter.storage.locks import is_at, lock

if TYPE_CHECKING:
    from collections.abc import Iterator


class Destination:
    """Where a model is to be written.

    ``path`` is the file that gets replaced: what ``target`` links to, or with ``follow=False`` the link itself.
    Raises ModelWriteError where that cannot be.
    """

    def __init__(self, target: Path, *, follow: bool = True) -> None:
        self.target = target
        with writing(target):
            self.path = Path(os.path.realpath(target)) if follow else _real_parent(target)
            self.folder = self.path.parent
            try:
                self.existing: os.stat_result | None = target.stat()
            except FileNotFoundError:
                self.existing = None
            self._check()

    def _check(self) -> None:
        if self.existing is None:
            if not self.folder.is_dir():
                raise ModelWriteError(
                    f"the folder '{self.folder}' does not exist",
                    where=str(self.target),
                    remedy="create it first",
                )
            return
        mode = self.existing.st_mode
        if stat.S_ISDIR(mode):
            raise ModelWriteError("it is a directory", where=str(self.target), remedy="name a file in it")
        if not stat.S_ISREG(mode):
            raise ModelWriteError(
                "it is not a regular file (a device, pipe or socket)",
                where=str(self.target),
                remedy="name a file",
            )
        if not os.access(self.target, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise ModelWriteError(
                "the file is write-protected",
                where=str(self.target),
                remedy="allow writing, or choose another name",
            )

    @property
    def mode(self) -> int | None:
        """Permissions of the file that is replaced; None for a new one, which gets what the umask allows."""
        return None if self.existing is None else stat.S_IMODE(self.existing.st_mode)


class Staged:
    """A file being written under a temporary name in its final folder; leaving the context unplaced removes it.

    It is locked while it is written, which tells other runs that it is in use.
    """

    def __init__(self, folder: Path, mode: int | None) -> None:
        self.folder = folder
        self.fd = -1
        self._placed = False
        try:
            self._create()
            found = os.fstat(self.fd)
            self._identity = (found.st_dev, found.st_ino)
            if mode is not None:
                with contextlib.suppress(OSError):  # file systems without permissions
                    os.fchmod(self.fd, mode)
        except BaseException:  # an interrupt
            self.__exit__()
            raise

    def _create(self) -> None:
        while True:
            self.path = self.folder / f".rewrite-{secrets.token_hex(8)}.tmp"
            try:
                self.fd = os.open(
                    self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666
                )
            except FileExistsError:
                continue
            # Another run may take the file for a dead run's before it is locked; then there is another name.
            if lock(self.fd) is not False and is_at(self.fd, self.path):
                return
            os.close(self.fd)
            self.fd = -1
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Staged:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._placed:
            with contextlib.suppress(OSError):
                self.path.unlink()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]

    def finish(self) -> None:
        """On disk."""
        os.fsync(self.fd)

    def place(self, final: Path) -> None:
        """Give the file its name, replacing what has it, and make the name last."""
        os.close(self.fd)
        self.fd = -1
        self.path.replace(final)
        self._placed = True
        sync_folder(self.folder)

    def place_new(self, final: Path) -> bool:
        """Give the file the name ``final`` if nothing has it; False, and no change, if something does."""
        try:
            os.link(self.path, final)
        except FileExistsError:
            return False
        except OSError:  # file systems without links: take the name with an empty file, then replace that
            try:
                os.close(os.open(final, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            except FileExistsError:
                return False
            self.place(final)
            return True
        self.path.unlink()  # at once: readers of external data refuse a file with two names
        self._placed = True
        sync_folder(self.folder)
        return True

    def is_at(self, path: Path) -> bool:
        """Whether ``path`` is this very file.  Asked of the file system, since an interrupt can come between a rename
        and any note of it."""
        try:
            found = path.lstat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity


def sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` last; a file system that cannot is not asked twice."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _real_parent(target: Path) -> Path:
    return Path(os.path.realpath(target.parent)) / target.name


_SAID = {
    errno.ENOSPC: ("the disk is full", "free some space or choose another folder"),
    errno.EDQUOT: ("the disk quota is used up", "free some space or choose another folder"),
    errno.EFBIG: (
        "the file would be larger than is allowed here",
        "raise the limit or choose another file system",
    ),
    errno.EROFS: ("the file system is read-only", "choose another folder"),
    errno.EACCES: ("permission denied", "choose a folder that you may write to"),
    errno.EPERM: ("permission denied", "choose a folder that you may write to"),
    errno.ENAMETOOLONG: ("the file name is too long", "choose a shorter one"),
    errno.ELOOP: ("it is a link that leads to itself", "remove it or choose another name"),
    errno.ENOTDIR: ("a part of its path is not a folder", "check the path"),
    errno.ENOENT: (
        "the folder or an unfinished file in it is gone",
        "another program removed it: create the folder and run again",
    ),
    errno.ESTALE: ("the file server has lost the file", "run again"),
    errno.EIO: ("the disk or the file server failed", "check it, and run again"),
    errno.EDEADLK: ("the file server refuses a lock", "run again"),
}


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn what the operating system says into ModelWriteError."""
    try:
        yield
    except OSError as error:
        what, remedy = _SAID.get(error.errno or 0, (error.strerror or str(error), "check the path"))
        raise ModelWriteError(f"cannot write: {what}", where=str(target), remedy=remedy) from error
    except ValueError as error:  # a NUL in the path
        raise ModelWriteError(f"cannot write: {error}", where=str(target), remedy="check the path") from error
