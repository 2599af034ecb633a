"""Stubs: tensors whose payload was withheld.

A stub is an ordinary TensorProto with name, type, dims, documentation and unknown fields intact.  In place of the
elements it has ``data_location = EXTERNAL`` and, after the tensor's own ``external_data`` entries, one more whose
location is the file's *token* and the payload's number.  It therefore survives every way of copying a message.  The
token does not occur in what was read, so no file can forge a stub.
"""

from __future__ import annotations

from hashlib import blake2b

from onnx import StringStringEntryProto, TensorProto

from rewriter.storage.wire import DATA_LOCATION, EXTERNAL_DATA, VARINT, key, varint

_PREFIX = "withheld-payload:"


def token_for(content: bytes) -> str:
    """A token of fixed length made from ``content``; deterministic."""
    return f"{_PREFIX}{blake2b(content, digest_size=16).hexdigest()}:"


def encode(token: str, number: int) -> bytes:
    """The two fields that make a header a stub, on the wire; the last ``data_location`` of a message holds."""
    entry: bytes = StringStringEntryProto(key="location", value=f"{token}{number}").SerializeToString()
    return key(EXTERNAL_DATA) + varint(len(entry)) + entry + key(DATA_LOCATION, VARINT) + b"\x01"


def mark(tensor: TensorProto, token: str, number: int) -> None:
    """Make ``tensor``, which has no payload, a stub."""
    tensor.external_data.add(key="location", value=f"{token}{number}")
    tensor.data_location = TensorProto.EXTERNAL


def number_of(tensor: TensorProto, token: str) -> int | None:
    """The payload's number if ``tensor`` is a stub with this token."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return None
    for entry in reversed(tensor.external_data):
        value = entry.value
        if isinstance(value, str) and value.startswith(token):
            digits = value[len(token) :]
            return int(digits) if digits.isascii() and digits.isdigit() else None
    return None


def unmark(tensor: TensorProto, token: str, location: int | None) -> None:
    """Take the marks away again, giving the tensor back the ``data_location`` it had."""
    entries = tensor.external_data
    for i in reversed(range(len(entries))):
        value = entries[i].value
        if isinstance(value, str) and value.startswith(token):
            del entries[i]
    if location is None:
        tensor.ClearField("data_location")
    else:
        tensor.data_location = location  # type: ignore[assignment]
