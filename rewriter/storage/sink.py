"""Writing to a descriptor: small pieces are gathered, ranges of other files are copied by the kernel where it can.

Holes of other files stay holes.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Protocol

from rewriter.errors import ModelReadError
from rewriter.storage.sparse import pieces

if TYPE_CHECKING:
    Bytes = bytes | memoryview

#: Gathered before one write.
GATHER = 1 << 20
#: Ranges below this are gathered too; a system call each would cost more.
SMALL_RANGE = 1 << 16
#: One kernel copy.  Written pages are handed to the disk after each, so that the final fsync has little to wait for.
STRIDE = 1 << 26
#: Read and written at a time where the kernel cannot copy.
BLOCK = 1 << 22

#: What a kernel or file system answers that has no such copy.
_NO_KERNEL_COPY = {
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.ETXTBSY,
    errno.EBADF,
    errno.EIO,
}


class Sink(Protocol):
    """Where encoded bytes go."""

    def write(self, data: Bytes) -> None: ...

    def copy(self, fd: int, offset: int, length: int) -> None:
        """``length`` bytes of the file ``fd`` at ``offset``."""


class FileSink:
    """Appends to ``fd``.  ``position`` counts what was given, written or not; call ``flush`` at the end."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.position = 0
        self._small: list[bytes] = []
        self._gathered = 0
        self._range: tuple[int, int, int] | None = None
        self._kernel = hasattr(os, "copy_file_range")
        self._started = 0
        self._ends_in_hole = False

    def write(self, data: Bytes) -> None:
        view = memoryview(data).cast("B")
        self._flush_range()
        self.position += len(view)
        if len(view) >= GATHER:
            self._flush_small()
            self._write_all(view)
            return
        self._small.append(bytes(view))
        self._gathered += len(view)
        if self._gathered >= GATHER:
            self._flush_small()

    def pad_to(self, alignment: int) -> None:
        """Zeros up to the next multiple of ``alignment``."""
        missing = -self.position % alignment
        if missing:
            self.write(bytes(missing))

    def copy(self, fd: int, offset: int, length: int) -> None:
        if length == 0:
            return
        self.position += length
        if self._range is not None:
            held, start, end = self._range
            if held == fd and end == offset:
                self._range = (fd, start, offset + length)
                return
            self._flush_range()
        self._range = (fd, offset, offset + length)

    def settle(self) -> None:
        """Read what was given by ``copy``; its file may then be closed."""
        self._flush_range()

    def flush(self) -> None:
        self._flush_range()
        self._flush_small()
        if self._ends_in_hole:
            os.ftruncate(self.fd, os.lseek(self.fd, 0, os.SEEK_CUR))
            self._ends_in_hole = False

    def _flush_small(self) -> None:
        if self._small:
            data = b"".join(self._small)
            self._small.clear()
            self._gathered = 0
            self._write_all(memoryview(data))

    def _write_all(self, view: memoryview) -> None:
        self._ends_in_hole = False
        while len(view):
            view = view[os.write(self.fd, view) :]

    def _flush_range(self) -> None:
        if self._range is None:
            return
        fd, offset, end = self._range
        self._range = None
        if end - offset < SMALL_RANGE:
            while offset < end:
                data = _read(fd, end - offset, offset)
                self._small.append(data)
                self._gathered += len(data)
                offset += len(data)
            if self._gathered >= GATHER:
                self._flush_small()
            return
        self._flush_small()
        for start, stop, has_data in pieces(fd, offset, end):
            if has_data or stop - start < SMALL_RANGE:
                self._copy_range(fd, start, stop)
            else:
                os.lseek(self.fd, stop - start, os.SEEK_CUR)
                self._ends_in_hole = True

    def _copy_range(self, fd: int, offset: int, end: int) -> None:
        self._ends_in_hole = False
        while offset < end:
            done = self._kernel_copy(fd, offset, min(end - offset, STRIDE))
            if not done:
                data = _read(fd, min(end - offset, BLOCK), offset)
                self._write_all(memoryview(data))
                done = len(data)
            offset += done
            self._start_writeback(done)

    def _kernel_copy(self, fd: int, offset: int, length: int) -> int:
        """Bytes copied; 0 where the kernel cannot, now or ever."""
        if not self._kernel:
            return 0
        try:
            done = os.copy_file_range(fd, self.fd, length, offset)
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
            done = 0
        if not done:
            self._kernel = False
        return done

    def _start_writeback(self, done: int) -> None:
        """Have the disk begin with what was written; on Linux that is what this advice does to dirty pages."""
        self._started += done
        if self._started >= STRIDE and hasattr(os, "posix_fadvise"):
            here = os.lseek(self.fd, 0, os.SEEK_CUR)
            os.posix_fadvise(self.fd, here - self._started, self._started, os.POSIX_FADV_DONTNEED)
            self._started = 0


class MemorySink:
    """Collects the bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Bytes) -> None:
        self._parts.append(bytes(data))

    def copy(self, fd: int, offset: int, length: int) -> None:
        end = offset + length
        while offset < end:
            data = _read(fd, end - offset, offset)
            self._parts.append(data)
            offset += len(data)

    def getvalue(self) -> bytes:
        return b"".join(self._parts)


def _read(fd: int, length: int, offset: int) -> bytes:
    data = os.pread(fd, length, offset)
    if not data:
        raise ModelReadError(
            "a source file became shorter while it was being read",
            remedy="run again when nothing writes to it",
        )
    return data
