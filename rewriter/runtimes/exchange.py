"""Values between processes: a folder with one file each, in the formats of ONNX's own test data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import OptionalProto, SequenceProto, TensorProto, numpy_helper

if TYPE_CHECKING:
    from pathlib import Path


def write_all(folder: Path, values: list[Any]) -> None:
    """Write each value into ``folder``, which is made: tensors of every element type, sequences, absent optionals."""
    folder.mkdir()
    for number, value in enumerate(values):
        message, kind = _message(value)
        (folder / f"{number}.{kind}").write_bytes(message.SerializeToString())


def read_all(folder: Path) -> list[Any]:
    """The values of a folder, in order."""
    found = sorted(folder.iterdir(), key=lambda path: int(path.stem))
    return [_value(path) for path in found]


def _message(value: Any) -> tuple[Any, str]:
    if value is None:
        return OptionalProto(), "none"
    if isinstance(value, (list, tuple)):
        return numpy_helper.from_list([np.asarray(item) for item in value]), "sequence"
    return numpy_helper.from_array(np.asarray(value)), "tensor"


def _value(path: Path) -> Any:
    data = path.read_bytes()
    if path.suffix == ".none":
        return None
    if path.suffix == ".sequence":
        return numpy_helper.to_list(SequenceProto.FromString(data))
    return numpy_helper.to_array(TensorProto.FromString(data))
