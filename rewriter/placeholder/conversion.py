"""Values as files write them, turned into what a parameter is declared to be."""

from __future__ import annotations

from typing import Any

import numpy as np

from rewriter.placeholder.signature import Kind


def plain(value: Any) -> Any:
    """Attribute values as plain Python: bytes decoded, lists of bytes too."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (list, tuple)) and any(isinstance(item, bytes) for item in value):
        return [plain(item) for item in value]
    return value


def kind_of(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"a constant {value.dtype} tensor of shape {list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"a list of {type(value[0]).__name__}" if len(value) else "an empty list"
    return f"{type(value).__name__} {short(value)}"


def as_kind(kind: Kind, value: Any) -> Any:
    """``value`` (Python, or a constant array) as ``kind``; TypeError or ValueError where it is none."""
    if isinstance(value, np.ndarray):
        if kind is Kind.ARRAY:
            return value
        if value.ndim > 1:
            raise TypeError("a tensor")
        value = [_item(v) for v in value.tolist()] if value.ndim else _item(value.item())
    if kind is Kind.TENSOR:
        raise TypeError("a value that is not computed")
    if kind is Kind.ARRAY:
        if isinstance(value, str) or value is None:
            raise TypeError("no tensor")
        return np.asarray(value)
    if kind in (Kind.INTS, Kind.FLOATS, Kind.STRS):
        items = value if isinstance(value, (list, tuple)) else [value]
        item_kind = {Kind.INTS: Kind.INT, Kind.FLOATS: Kind.FLOAT, Kind.STRS: Kind.STR}[kind]
        return tuple(as_kind(item_kind, item) for item in items)
    if isinstance(value, (list, tuple)):
        if len(value) != 1:
            raise TypeError("a list")
        value = value[0]
    if kind is Kind.STR:
        if not isinstance(value, str):
            raise TypeError("no string")
        return value
    if isinstance(value, str):
        raise TypeError("a string")
    if kind is Kind.BOOL:
        if not isinstance(value, (bool, int, np.bool_)) or value not in (0, 1):
            raise TypeError("no boolean")
        return bool(value)
    if kind is Kind.INT:
        if isinstance(value, float):
            raise TypeError("a float")
        return int(value)
    return float(value)


def _item(value: Any) -> Any:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def short(value: Any) -> str:
    """A value for a message, in sixty characters at most."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
