"""What to write: the serialised skeleton, opened up along the ways to the tensors whose payloads go back in.

The model is serialised once, by protobuf, and then walked on the wire like a file, so stubs are found wherever they
stand and nothing is edited.  Serialised by protobuf, a tensor with external data (and so every stub) contains the two
bytes that say ``data_location = EXTERNAL``; only messages with such a place inside are walked.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from onnx import TensorProto

from rewriter.errors import ModelWriteError
from rewriter.storage import stub
from rewriter.storage.external import is_external
from rewriter.storage.payload import cut_for
from rewriter.storage.wire import (
    CHILDREN,
    DATA_LOCATION,
    LENGTH,
    MODEL,
    TENSOR,
    VARINT,
    key,
    records,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rewriter.storage.payload import Payload
    from rewriter.storage.sink import Sink

_EXTERNAL = key(DATA_LOCATION, VARINT) + varint(TensorProto.EXTERNAL)


class TensorPart:
    """A tensor that needs attention.

    ``header`` is the message without elements, ``payload`` what was withheld, or None for external data of the source.
    ``dense_initializer`` tells plain weights, which every runtime takes from a data file.
    """

    def __init__(
        self, field: int, header: TensorProto, payload: Payload | None, dense_initializer: bool
    ) -> None:
        self.field = field
        self.header = header
        self.payload = payload
        self.dense_initializer = dense_initializer
        self.inline = payload is not None
        self._size = payload.size() if payload is not None else 0
        self._bytes: tuple[bytes, bytes] | None = None

    @property
    def payload_size(self) -> int:
        return self._size

    def refer(self, location: str, offset: int, length: int) -> None:
        """Have the tensor's elements in a data file."""
        kept = [(e.key, e.value) for e in self.header.external_data if e.key not in _OURS]
        del self.header.external_data[:]
        for name, value in (("location", location), ("offset", str(offset)), ("length", str(length)), *kept):
            self.header.external_data.add(key=name, value=value)
        self.header.data_location = TensorProto.EXTERNAL
        self.inline = False
        self._bytes = None

    def embed(self, payload: Payload) -> None:
        """Have the elements of an external tensor inline, the way ``onnx.load`` leaves it."""
        del self.header.external_data[:]
        self.header.data_location = TensorProto.DEFAULT
        self.payload = payload
        self.inline = True
        self._size = payload.size()
        self._bytes = None

    def _split(self) -> tuple[bytes, bytes]:
        if self._bytes is None:
            header = self.header.SerializeToString()
            payload = self.payload
            cut = cut_for(payload.first_field, header) if self.inline and payload is not None else len(header)
            self._bytes = header[:cut], header[cut:]
        return self._bytes

    def body_length(self) -> int:
        before, after = self._split()
        return len(before) + len(after) + (self._size if self.inline else 0)

    def length(self) -> int:
        body = self.body_length()
        return len(key(self.field)) + len(varint(body)) + body

    def write(self, sink: Sink) -> None:
        before, after = self._split()
        sink.write(key(self.field) + varint(self.body_length()) + before)
        if self.inline and self.payload is not None:
            self.payload.write(sink)
        sink.write(after)


#: Entries that describe where the elements were.  A checksum is of the whole data file, and does not hold for another.
_OURS = frozenset({"location", "offset", "length", "checksum"})


class Message:
    """A message on the way to such tensors."""

    def __init__(self, field: int | None, parts: list[memoryview | Message | TensorPart]) -> None:
        self.field = field
        self.parts = parts
        self._body: int | None = None

    def body_length(self) -> int:
        if self._body is None:
            self._body = sum(len(p) if isinstance(p, memoryview) else p.length() for p in self.parts)
        return self._body

    def length(self) -> int:
        body = self.body_length()
        return body if self.field is None else len(key(self.field)) + len(varint(body)) + body

    def write(self, sink: Sink) -> None:
        if self.field is not None:
            sink.write(key(self.field) + varint(self.body_length()))
        for part in self.parts:
            if isinstance(part, memoryview):
                sink.write(part)
            else:
                part.write(sink)

    def forget_lengths(self) -> None:
        self._body = None
        for part in self.parts:
            if isinstance(part, Message):
                part.forget_lengths()

    def tensors(self) -> Iterator[TensorPart]:
        for part in self.parts:
            if isinstance(part, TensorPart):
                yield part
            elif isinstance(part, Message):
                yield from part.tensors()


def plan(content: bytes, token: str, payloads: Sequence[Payload]) -> Message:
    """Open up a serialised skeleton.  Raises ModelWriteError when a stub is where it cannot be resolved."""
    planner = _Planner(content, token, payloads)
    root = planner.message(MODEL, None, 0, len(content))
    if content.count(token.encode()) != planner.stubs:
        raise ModelWriteError(
            "a withheld tensor stands where no tensor can stand",
            remedy="this is a fault of the pass or tool that put it there, please report it",
        )
    return root


def _places(content: bytes) -> list[int]:
    found = []
    at = content.find(_EXTERNAL)
    while at >= 0:
        found.append(at)
        at = content.find(_EXTERNAL, at + 1)
    return found


class _Planner:
    def __init__(self, content: bytes, token: str, payloads: Sequence[Payload]) -> None:
        self.content = content
        self.view = memoryview(content)
        self.token = token
        self.payloads = payloads
        self.places = _places(content)
        self.stubs = 0

    def _touches(self, start: int, end: int) -> bool:
        i = bisect_left(self.places, start)
        return i < len(self.places) and self.places[i] < end

    def message(self, kind: str, field: int | None, start: int, end: int) -> Message:
        parts: list[memoryview | Message | TensorPart] = []
        kept = start
        children = CHILDREN[kind]
        if self._touches(start, end):
            for number, wire_type, at, value, stop in records(self.content, start, end):
                child = children.get(number)
                if child is None or wire_type != LENGTH or not self._touches(value, stop):
                    continue
                part: Message | TensorPart | None
                if child.message == TENSOR:
                    part = self._tensor(number, value, stop, dense=kind == "onnx.GraphProto")
                else:
                    part = self.message(child.message, number, value, stop)
                if part is None:
                    continue
                if kept < at:
                    parts.append(self.view[kept:at])
                parts.append(part)
                kept = stop
        if kept < end:
            parts.append(self.view[kept:end])
        return Message(field, parts)

    def _tensor(self, field: int, start: int, end: int, *, dense: bool) -> TensorPart | None:
        tensor = TensorProto.FromString(self.view[start:end])
        if not is_external(tensor):
            return None
        number = stub.number_of(tensor, self.token)
        if number is None:
            return TensorPart(field, tensor, None, dense)
        self.stubs += 1
        if number >= len(self.payloads):
            raise ModelWriteError(
                f"the withheld tensor '{tensor.name}' is not of this file", remedy="please report this fault"
            )
        payload = self.payloads[number]
        stub.unmark(tensor, self.token, payload.location)
        if tensor.HasField("raw_data") or any(len(getattr(tensor, n)) for n in _TYPED):
            raise ModelWriteError(
                f"the tensor '{tensor.name}' was given new elements but still stands for withheld ones",
                remedy="clear data_location and external_data when setting elements",
            )
        return TensorPart(field, tensor, payload, dense)


_TYPED = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
