"""Files with holes: what a hole stands for is neither read nor written."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = 1 << 22
#: What ``st_blocks`` counts.
_UNIT = 512


def pieces(fd: int, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """The range from ``start`` to ``end`` of ``fd`` in order, as (start, end, whether there is data)."""
    found = os.fstat(fd)
    if not hasattr(os, "SEEK_DATA") or found.st_blocks * _UNIT >= found.st_size:
        yield start, end, True
        return
    while start < end:
        data = min(_next_data(fd, start), end)
        if start < data:
            yield start, data, False
        if data == end:
            return
        start = min(max(_seek(fd, data, os.SEEK_HOLE), data + 1), end)
        yield data, start, True


def same_bytes(one: int, other: int, size: int) -> bool:
    """Whether the first ``size`` bytes of two files are equal; where both have a hole they are."""
    at = 0
    while at < size:
        at = min(_next_data(one, at), _next_data(other, at))
        if at >= size:
            break
        length = min(_BLOCK, size - at)
        if os.pread(one, length, at) != os.pread(other, length, at):
            return False
        at += length
    return True


def _next_data(fd: int, at: int) -> int:
    """Where data begins at ``at`` or after it; the end of the file where there is none."""
    return _seek(fd, at, os.SEEK_DATA) if hasattr(os, "SEEK_DATA") else at


def _seek(fd: int, at: int, whence: int) -> int:
    try:
        return os.lseek(fd, at, whence)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole up to the end
            return max(at, os.fstat(fd).st_size)
        if whence == os.SEEK_DATA:  # a file system that does not tell
            return at
        return os.fstat(fd).st_size
