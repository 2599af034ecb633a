"""Payloads: the elements of a tensor, left where they are (in a file, or in the caller's message) until written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from onnx import TensorProto

from rewriter.storage.wire import (
    ELEMENT_WIRE,
    FIXED32,
    FIXED64,
    NUMBER,
    PAYLOAD_NAMES,
    RAW_DATA,
    VARINT,
    WireError,
    key,
    records,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.storage.mapped import MappedFile
    from rewriter.storage.sink import Sink
    from rewriter.storage.wire import Buffer

#: How much of a varint-packed payload is decoded at a time.
CHUNK = 1 << 22


class Source(Protocol):
    """The mapped model file."""

    @property
    def fd(self) -> int: ...

    @property
    def buffer(self) -> Buffer: ...


class Payload(Protocol):
    """The withheld elements of one tensor.

    ``location`` is the tensor's own ``data_location`` (None where it had none), ``first_field`` the lowest payload
    field present, which decides where in the record the payload stands.
    """

    @property
    def location(self) -> int | None: ...

    @property
    def first_field(self) -> int: ...

    def size(self) -> int:
        """Bytes of the encoded records."""

    def write(self, sink: Sink) -> None:
        """The encoded records."""

    def raw(self) -> tuple[int, int] | None:
        """(offset, length) in the source file of the elements as raw little-endian bytes, where they are."""

    def pieces(self) -> Iterator[TensorProto]:
        """Messages that hold nothing but consecutive parts of the payload, each of moderate size where possible."""


@dataclass(frozen=True, slots=True)
class FilePayload:
    """Records of the source file.

    ``ranges`` are byte ranges of whole records in file order, ``fields`` the payload fields that occur,
    ``value`` the (start, end) of the value where the payload is a single one (the last one, for ``raw_data``).
    """

    source: Source
    ranges: tuple[tuple[int, int], ...]
    fields: frozenset[int]
    value: tuple[int, int] | None
    location: int | None

    @property
    def first_field(self) -> int:
        return min(self.fields)

    def size(self) -> int:
        return sum(end - start for start, end in self.ranges)

    def write(self, sink: Sink) -> None:
        for start, end in self.ranges:
            sink.copy(self.source.fd, start, end - start)

    def raw(self) -> tuple[int, int] | None:
        if self.value is None:
            return None
        span = (self.value[0], self.value[1] - self.value[0])
        if RAW_DATA in self.fields:
            return span
        (field,) = self.fields
        return span if ELEMENT_WIRE.get(field) in (FIXED32, FIXED64) else None

    def pieces(self) -> Iterator[TensorProto]:
        if self.value is not None and len(self.fields) == 1:
            (field,) = self.fields
            if ELEMENT_WIRE.get(field) == VARINT:
                yield from _packed_pieces(self.source.buffer, field, *self.value)
                return
        yield TensorProto.FromString(b"".join(bytes(self.source.buffer[a:b]) for a, b in self.ranges))


@dataclass(frozen=True, slots=True)
class HeldPayload:
    """The elements of a tensor of a model in memory; the caller's message is kept, not copied."""

    tensor: TensorProto
    location: int | None

    @property
    def first_field(self) -> int:
        return min(NUMBER[f.name] for f, _ in self.tensor.ListFields() if f.name in NUMBER)

    def _only(self) -> TensorProto:
        only = TensorProto()
        for field, value in self.tensor.ListFields():
            if field.name == "raw_data":
                only.raw_data = value
            elif field.name in PAYLOAD_NAMES:
                getattr(only, field.name).MergeFrom(value)
        return only

    def _raw_only(self) -> bytes | None:
        """The raw bytes where they are all there is: a payload above protobuf's limit cannot be serialised."""
        typed = any(f.name in PAYLOAD_NAMES and f.name != "raw_data" for f, _ in self.tensor.ListFields())
        return None if typed else self.tensor.raw_data

    def size(self) -> int:
        raw = self._raw_only()
        if raw is not None:
            return len(key(RAW_DATA)) + len(varint(len(raw))) + len(raw)
        return len(self._only().SerializeToString())

    def write(self, sink: Sink) -> None:
        raw = self._raw_only()
        if raw is not None:
            sink.write(key(RAW_DATA) + varint(len(raw)))
            sink.write(raw)
        else:
            sink.write(self._only().SerializeToString())

    def raw(self) -> tuple[int, int] | None:
        return None

    def pieces(self) -> Iterator[TensorProto]:
        yield self._only()


@dataclass(frozen=True, slots=True)
class RawPayload:
    """A range of a data file, as ``raw_data``."""

    file: MappedFile
    offset: int
    length: int
    location: int | None = TensorProto.DEFAULT

    @property
    def first_field(self) -> int:
        return RAW_DATA

    def size(self) -> int:
        return len(key(RAW_DATA)) + len(varint(self.length)) + self.length

    def write(self, sink: Sink) -> None:
        sink.write(key(RAW_DATA) + varint(self.length))
        sink.write(bytes(self.file.buffer[self.offset : self.offset + self.length]))
        self.file.release()  # there may be more files than can be open

    def raw(self) -> tuple[int, int] | None:
        return None

    def pieces(self) -> Iterator[TensorProto]:
        yield TensorProto(raw_data=bytes(self.file.buffer[self.offset : self.offset + self.length]))


def _packed_pieces(buffer: Buffer, field: int, start: int, end: int) -> Iterator[TensorProto]:
    """A varint-packed value cut at element boundaries, each piece decoded by protobuf."""
    while start < end:
        stop = min(start + CHUNK, end)
        chunk = bytes(buffer[start:stop])
        last = len(chunk)
        while last and chunk[last - 1] >= 0x80:
            last -= 1
        if last == 0 or len(chunk) - last > 10 or (stop == end and last != len(chunk)):
            raise WireError(f"a packed number before byte {stop} does not end")
        yield TensorProto.FromString(key(field) + varint(last) + chunk[:last])
        start += last


def validate_packed(buffer: Buffer, field: int, start: int, end: int) -> None:
    """Raise WireError (or protobuf's DecodeError) unless the value is a whole number of elements.

    Fixed-size elements need only their length looked at; varints are decoded, piece by piece.
    """
    wire = ELEMENT_WIRE[field]
    if wire == VARINT:
        for _ in _packed_pieces(buffer, field, start, end):
            pass
    elif (end - start) % (4 if wire == FIXED32 else 8):
        raise WireError(f"the packed numbers at byte {start} are cut off")


def cut_for(first_field: int, header: bytes) -> int:
    """Where in a tensor's serialised header its payload belongs in protobuf's canonical order."""
    for field, _, at, _, _ in records(header, 0, len(header)):
        if field > first_field:
            return at
    return len(header)
