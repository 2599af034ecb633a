"""Folders in ONNX's own convention: ``test_data_set_0/input_0.pb``, ``output_0.pb``, …"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from onnx import OptionalProto, SequenceProto, TensorProto, TypeProto, numpy_helper

from rewriter.against.oracle import Interface, Recorded, names_text
from rewriter.against.recorded import record
from rewriter.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from rewriter.execution.numbers import Array
    from rewriter.execution.values import Data

_FORM = "each sample is a folder test_data_set_0 with input_0.pb, output_0.pb, … in the order of the graph"


def from_folder(folder: Path, interface: Interface) -> list[Recorded]:
    """The sample in ``folder``, or those in its folders ``test_data_set_*``; UsageError where one does not fit."""
    if _numbered(folder, "input") or _numbered(folder, "output"):
        return [_sample(folder, interface)]
    found = [
        (int(match[1]), entry)
        for entry in folder.iterdir()
        if entry.is_dir() and (match := re.fullmatch(r"test_data_set_(\d+)", entry.name))
    ]
    if not found:
        raise UsageError(f"--against {folder} holds no recorded values", remedy=_FORM)
    return [_sample(entry, interface) for _, entry in sorted(found)]


def _numbered(folder: Path, role: str) -> list[Path]:
    found = {
        int(match[1]): entry
        for entry in folder.iterdir()
        if (match := re.fullmatch(rf"{role}_(\d+)\.pb", entry.name))
    }
    missing = next((number for number in range(len(found)) if number not in found), None)
    if missing is not None:
        raise UsageError(f"--against {folder} has no {role}_{missing}.pb, but a later one", remedy=_FORM)
    return [found[number] for number in range(len(found))]


def _sample(folder: Path, interface: Interface) -> Recorded:
    values: dict[str, Data] = {}
    # Inputs with a default may be recorded or left out; in either case they stand in the graph's order.
    files = _numbered(folder, "input")
    order = interface.order if len(files) > len(interface.inputs) else list(interface.inputs)
    for role, names, paths in (
        ("input", order, files),
        ("output", list(interface.outputs), _numbered(folder, "output")),
    ):
        if len(paths) != len(names):
            raise UsageError(
                f"--against {folder.name} has {len(paths)} {role}s, the graph {len(names)}: {names_text(names)}",
                remedy=_FORM,
            )
        read = [_read(path, interface.protos[name]) for path, name in zip(paths, names, strict=True)]
        own = [name for name, _ in read]
        if set(own) == set(names):
            names = own  # the files say themselves what they are
        values |= {name: value for name, (_, value) in zip(names, read, strict=True)}
    return record(values, interface, folder.name)


def _read(path: Path, kind: TypeProto) -> tuple[str, Data]:
    """The name that the file gives, and what it holds, read as ``kind`` says."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--against: '{path.name}' cannot be read: {error.strerror}") from error
    form = kind.WhichOneof("value") or "tensor_type"
    try:
        if form == "sequence_type":
            sequence = SequenceProto.FromString(data)
            return sequence.name, [_tensor(item) for item in _items(sequence)]
        if form == "optional_type":
            optional = OptionalProto.FromString(data)
            return optional.name, _optional(optional)
        if form != "tensor_type":
            raise ValueError(f"values of the kind {form.removesuffix('_type')} are not read")
        tensor = TensorProto.FromString(data)
        return tensor.name, _tensor(tensor)
    except Exception as error:
        raise UsageError(
            f"--against: '{path.name}' in '{path.parent.name}' is no {form.removesuffix('_type')}: {error}",
            remedy=_FORM,
        ) from error


def _items(sequence: SequenceProto) -> list[TensorProto]:
    if sequence.elem_type not in (SequenceProto.TENSOR, SequenceProto.UNDEFINED):
        raise ValueError("only sequences of tensors are read")
    return list(sequence.tensor_values)


def _optional(optional: OptionalProto) -> Data:
    if optional.elem_type == OptionalProto.TENSOR:
        return _tensor(optional.tensor_value)
    if optional.elem_type == OptionalProto.SEQUENCE:
        return [_tensor(item) for item in _items(optional.sequence_value)]
    if optional.elem_type == OptionalProto.UNDEFINED:
        return None
    raise ValueError("only optionals of tensors and of sequences are read")


def _tensor(tensor: TensorProto) -> Array:
    if tensor.data_location == TensorProto.EXTERNAL:
        raise ValueError("its data is in another file, which is not read")
    if tensor.data_type == TensorProto.UNDEFINED:
        raise ValueError("it says no element type")
    return np.asarray(numpy_helper.to_array(tensor))
