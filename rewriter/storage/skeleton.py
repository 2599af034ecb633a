"""Reading a model file without its payloads.

The mapped file is walked along the fields that lead to tensors, and only into records above the threshold.  What is
left when payloads are taken out is small and goes through protobuf's own parser, so every field survives, known or not.
A singular message field that occurs twice (protobuf merges the two) is left to the full parser: such files are legal,
and so rare that speed does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx import TensorProto

from rewriter.storage import stub
from rewriter.storage.payload import FilePayload, validate_packed
from rewriter.storage.wire import (
    CHILDREN,
    DATA_LOCATION,
    LENGTH,
    MAX_DEPTH,
    MODEL,
    PAYLOAD,
    RAW_DATA,
    STRING_DATA,
    TENSOR,
    VARINT,
    IrregularError,
    WireError,
    key,
    read_varint,
    records,
    varint,
)

if TYPE_CHECKING:
    from rewriter.storage.payload import Source

#: A tensor in more payload records than this (unpacked elements, a large vocabulary) is parsed, not withheld.
MAX_RECORDS = 1 << 17


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The serialised skeleton, its token, and the payloads by number."""

    content: bytes
    token: str
    payloads: list[FilePayload]


def scan(source: Source, size: int, threshold: int) -> Skeleton:
    """Withhold every payload above ``threshold`` bytes.

    Raises WireError or protobuf's DecodeError on malformed bytes, IrregularError where only a full parse will do.
    """
    ends = bytes(source.buffer[: 1 << 12]) + bytes(source.buffer[max(0, size - (1 << 12)) : size])
    token = stub.token_for(str(size).encode() + ends)  # tells files apart, without reading them
    for _ in range(2):
        scanner = _Scanner(source, threshold, token)
        content = scanner.message(MODEL, 0, size, 0)
        if content is None:
            content = bytes(source.buffer[0:size])
        if content.count(token.encode()) == len(scanner.payloads):
            return Skeleton(content, token, scanner.payloads)
        # Somebody wrote this token into the file.  The next one is a digest of all that was read, so not in there.
        token = stub.token_for(content)
    raise WireError("the file contains digests of itself")


class _Scanner:
    def __init__(self, source: Source, threshold: int, token: str) -> None:
        self.source = source
        self.buffer = source.buffer
        self.threshold = threshold
        self.token = token
        self.payloads: list[FilePayload] = []

    def message(self, kind: str, start: int, end: int, depth: int) -> bytes | None:
        """The message without the payloads in it; None when there is none to withhold."""
        if depth > MAX_DEPTH:
            return None
        buffer, children, threshold = self.buffer, CHILDREN[kind], self.threshold
        parts: list[bytes] = []
        kept = start
        singular: set[int] = set()
        twice = False
        for field, wire_type, at, value, stop in records(buffer, start, end):
            child = children.get(field)
            if child is None or wire_type != LENGTH:
                continue
            if not child.repeated:
                twice = twice or field in singular
                singular.add(field)
            if stop - value <= threshold:
                continue
            if child.message == TENSOR:
                new = self._tensor(value, stop)
            else:
                new = self.message(child.message, value, stop, depth + 1)
            if new is None:
                continue
            if kept < at:
                parts.append(buffer[kept:at])  # type: ignore[arg-type]
            parts += (key(field), varint(len(new)), new)
            kept = stop
        if not parts:
            return None
        if twice:
            raise IrregularError("a message field occurs twice")
        if kept < end:
            parts.append(buffer[kept:end])  # type: ignore[arg-type]
        return b"".join(parts)

    def _tensor(self, start: int, end: int) -> bytes | None:
        buffer = self.buffer
        header: list[bytes] = []
        ranges: list[tuple[int, int]] = []
        fields: set[int] = set()
        value_range: tuple[int, int] | None = None
        size = count = 0
        location: int | None = None
        for field, wire_type, at, value, stop in records(buffer, start, end):
            if (field, wire_type) in PAYLOAD:
                count += 1
                if count > MAX_RECORDS:
                    return None
                size += stop - value
                fields.add(field)
                if ranges and ranges[-1][1] == at:
                    ranges[-1] = (ranges[-1][0], stop)
                else:
                    ranges.append((at, stop))
                if wire_type != LENGTH:
                    value_range = None
                elif field == RAW_DATA:
                    value_range = (value, stop)
                elif field != STRING_DATA:
                    validate_packed(buffer, field, value, stop)
                    value_range = (value, stop)
                continue
            header.append(buffer[at:stop])  # type: ignore[arg-type]
            if field == DATA_LOCATION and wire_type == VARINT:
                number = read_varint(buffer, value)[0] & 0xFFFFFFFF
                if number in (TensorProto.DEFAULT, TensorProto.EXTERNAL):
                    location = (
                        number  # any other number is an unknown field to protobuf, and stays in the header
                    )
        if size <= self.threshold or location == TensorProto.EXTERNAL:
            return None
        if count > 1 and fields != {RAW_DATA}:
            value_range = None
        self.payloads.append(
            FilePayload(self.source, tuple(ranges), frozenset(fields), value_range, location)
        )
        header.append(stub.encode(self.token, len(self.payloads) - 1))
        return b"".join(header)
