"""Messages over a pipe: a head in JSON, and any number of binary parts.

A frame is the length of the head (4 bytes, big-endian), the head, and the parts one after another.  The head says how
long each part is.  Nothing is executed when a message is read.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_LENGTH = struct.Struct(">I")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Message:
    """``head`` is what JSON can express, ``parts`` are bytes."""

    head: Mapping[str, Any]
    parts: Sequence[bytes] = ()

    def encoded(self) -> list[bytes]:
        """The frame, in pieces to be written in order."""
        head = json.dumps({"head": self.head, "sizes": [len(part) for part in self.parts]}).encode()
        return [_LENGTH.pack(len(head)) + head, *(part for part in self.parts if part)]


class Decoder:
    """Turns what comes through a pipe into messages."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._head: dict[str, Any] | None = None

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now."""
        self._data += data
        while (message := self._next()) is not None:
            yield message

    def _next(self) -> Message | None:
        if self._head is None:
            if len(self._data) < _LENGTH.size:
                return None
            end = _LENGTH.size + _LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                return None
            self._head = json.loads(bytes(self._data[_LENGTH.size : end]))
            del self._data[:end]
        sizes = self._head["sizes"]
        if len(self._data) < sum(sizes):
            return None
        parts, at = [], 0
        for size in sizes:
            parts.append(bytes(self._data[at : at + size]))
            at += size
        del self._data[:at]
        head, self._head = self._head["head"], None
        return Message(head, tuple(parts))


class Channel:
    """The child's side of the two pipes: it waits for each message."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._decoder = Decoder()
        self._waiting: list[Message] = []

    def receive(self) -> Message | None:
        """The next message; None when the parent has closed the pipe or is gone."""
        while not self._waiting:
            data = os.read(self._reading, _CHUNK)
            if not data:
                return None
            self._waiting += self._decoder.feed(data)
        return self._waiting.pop(0)

    def send(self, head: Mapping[str, Any], parts: Sequence[bytes] = ()) -> None:
        for piece in Message(head, parts).encoded():
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(self._writing, rest) :]
