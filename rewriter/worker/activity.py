"""What a worker is busy with, noted where the parent can read it after the worker has died.

The note lies in memory that both processes share, so that noting costs a few microseconds and no message.  In a process
that is not a worker, nothing is noted.
"""

from __future__ import annotations

import json
import mmap
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes of the shared memory.
SIZE: Final = 8192


@dataclass(frozen=True)
class Activity:
    """One piece of work; "" stands for what is not known."""

    #: The stage of the run: ``"verify"``, ``"compare before and after simplification"``.
    stage: str = ""
    #: Whose code runs: ``"PyTorch"``, ``"onnxruntime"``.
    engine: str = ""
    #: What it does: ``"the reference of pass 'roll'"``.
    step: str = ""
    #: The replaced placeholder that is worked on.
    where: str = ""
    #: The inputs: ``"sample 0 (n=2)"``.
    sample: str = ""
    #: Sizes that may be refused, by dim: a death on them is not an error.
    optional_sizes: tuple[tuple[str, int], ...] | None = None

    def __str__(self) -> str:
        """Step and sample, or the stage; the place is told apart."""
        return ", ".join(text for text in (self.step, self.sample) if text) or self.stage


class Board:
    """The shared memory: a file descriptor of ``SIZE`` bytes, mapped."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, SIZE)

    def write(self, found: Activity) -> None:
        data = json.dumps({f.name: value for f in fields(found) if (value := getattr(found, f.name))})
        encoded = data.encode()
        if len(encoded) < SIZE:
            self._map[: len(encoded) + 1] = encoded + b"\0"

    def read(self) -> Activity:
        """What was noted last; an empty activity where nothing was."""
        text = bytes(self._map[:]).partition(b"\0")[0]
        try:
            data: dict[str, Any] = json.loads(text) if text else {}
            sizes = data.pop("optional_sizes", None)
            known = None if sizes is None else tuple((str(name), int(size)) for name, size in sizes)
            return Activity(**{name: str(value) for name, value in data.items()}, optional_sizes=known)
        except (ValueError, TypeError):
            return Activity()


_NOTHING: Final = Activity()
_current: ContextVar[Activity] = ContextVar("activity", default=_NOTHING)
_board: Board | None = None


def note_on(board: Board) -> None:
    """From now on this process, a worker, notes what it does."""
    global _board
    _board = board


@contextmanager
def doing(**what: Any) -> Iterator[None]:
    """Note the fields of :class:`Activity` that ``what`` names, while the context lasts; others stay as they are."""
    if _board is None:
        yield
        return
    before = _current.get()
    now = replace(before, **what)
    token = _current.set(now)
    _board.write(now)
    try:
        yield
    finally:
        _current.reset(token)
        _board.write(before)
