"""Values between processes, in the formats of ONNX's own test data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import OptionalProto, SequenceProto, TensorProto, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def pack(values: Iterable[Any]) -> tuple[list[str], list[bytes]]:
    """The kind of each value and its bytes: tensors of every element type, sequences, absent optionals."""
    kinds, parts = [], []
    for value in values:
        message, kind = _message(value)
        kinds.append(kind)
        parts.append(message.SerializeToString())
    return kinds, parts


def unpack(kinds: Sequence[str], parts: Sequence[bytes]) -> list[Any]:
    """The values that :func:`pack` was given."""
    return [_value(kind, data) for kind, data in zip(kinds, parts, strict=True)]


def _message(value: Any) -> tuple[Any, str]:
    if value is None:
        return OptionalProto(), "none"
    if isinstance(value, (list, tuple)):
        return numpy_helper.from_list([np.asarray(item) for item in value]), "sequence"
    return numpy_helper.from_array(np.asarray(value)), "tensor"


def _value(kind: str, data: bytes) -> Any:
    if kind == "none":
        return None
    if kind == "sequence":
        return numpy_helper.to_list(SequenceProto.FromString(data))
    return numpy_helper.to_array(TensorProto.FromString(data))
