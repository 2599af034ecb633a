"""Inputs that the user gives, read and held against what the model takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from rewriter.errors import UsageError
from rewriter.execution.values import is_native
from rewriter.inputs.dims import key_of
from rewriter.types import TensorType, dtype_name

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rewriter.execution.numbers import Array
    from rewriter.execution.values import Data

_FORM = "write it with numpy.savez(file, **{name: array})"
_NUMBERS = "arrays of numbers, booleans or fixed-width text only"


def load_given(source: Path | str | Mapping[str, Any], flag: str = "--inputs") -> dict[str, Data]:
    """Arrays by name, from a ``.npz`` file or as passed; UsageError, which names ``flag``, where the file is none.

    Pickled objects in the file are refused: they could run code.  Check what :func:`outline` gives first: a small file
    may hold large arrays.
    """
    if isinstance(source, Mapping):
        return {str(name): _as_data(value) for name, value in source.items()}
    with _opened(source, flag) as loaded:
        try:
            return {name: loaded[name] for name in loaded.files}
        except Exception as error:
            raise UsageError(f"{flag} {source}: {error}", remedy=_NUMBERS) from error


def outline(source: Path | str | Mapping[str, Any], flag: str = "--inputs") -> dict[str, Data]:
    """As :func:`load_given`, with arrays that have the shapes and dtypes and take no memory; their values are 0."""
    if isinstance(source, Mapping):
        return load_given(source, flag)
    with _opened(source, flag) as loaded:
        try:
            return {name: _outline(loaded, name) for name in loaded.files}
        except Exception as error:
            raise UsageError(f"{flag} {source}: {error}", remedy=_NUMBERS) from error


def _opened(source: Path | str, flag: str) -> np.lib.npyio.NpzFile:
    try:
        loaded = np.load(Path(source), allow_pickle=False, mmap_mode="r")
    except OSError as error:
        raise UsageError(
            f"{flag} {source} cannot be read: {error.strerror or error}", remedy=_FORM
        ) from error
    except Exception as error:
        raise UsageError(f"{flag} {source} is no .npz file", remedy=_FORM) from error
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise UsageError(f"{flag} {source} holds a single array without a name", remedy=_FORM)
    return loaded


def _outline(loaded: np.lib.npyio.NpzFile, name: str) -> Array:
    archive = loaded.zip
    assert archive is not None  # it is open
    with archive.open(name if name in archive.namelist() else f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError(f"'{name}' holds Python objects")
    return np.broadcast_to(np.zeros((), dtype), shape)


def check_given(
    given: dict[str, Data],
    kinds: Mapping[str, TensorType],
    required: Sequence[str],
    optional: Collection[str],
    label: str = "--inputs",
) -> None:
    """Names, dtypes, ranks and sizes; UsageError names what does not fit, in what ``label`` says.

    Text and bfloat16 are put right in place.
    """
    missing = [name for name in required if name not in given]
    if missing:
        raise UsageError(f"{label} has no array for {_names(missing)}", remedy=f"it needs {_names(required)}")
    unknown = [name for name in given if name not in required and name not in optional]
    if unknown:
        raise UsageError(
            f"{label} has {_names(unknown)}, which the model has no input for",
            remedy=f"its inputs are {_names(required)}",
        )
    sizes: dict[str, tuple[int, str]] = {}
    for name, kind in kinds.items():
        if name in given:
            takes = f"the model takes {dtype_name(kind.dtype)}"
            if isinstance(given[name], np.ndarray):
                _fit_shape(name, given[name], kind, sizes, label)
            given[name] = fit_dtype(name, given[name], kind, label, takes)


def fit_dtype(name: str, array: Array, kind: TensorType, label: str, wanted: str) -> Array:
    """``array`` in the element type of ``kind``; UsageError where it has another."""
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{label}: '{name}' is {'absent' if array is None else 'a sequence'}, {wanted}")
    expected = helper.tensor_dtype_to_np_dtype(kind.dtype)
    if expected.kind == "O" and array.dtype.kind in "SUO":
        return array.astype(object)
    if (
        array.dtype.kind == "V"
        and array.dtype.names is None
        and array.dtype.itemsize == expected.itemsize
        and not is_native(kind.dtype)  # numpy would have saved it as what it is
    ):
        return array.view(expected)  # what numpy.savez makes of ml_dtypes' formats
    if array.dtype != expected:
        raise UsageError(
            f"{label}: '{name}' is {_dtype_text(array)}, {wanted}",
            remedy=f"save it as {dtype_name(kind.dtype)}",
        )
    return array


def _dtype_text(array: Array) -> str:
    unknown = array.dtype.kind == "V" and array.dtype.names is None
    return "of a type that numpy saves without its name (bfloat16, float8)" if unknown else str(array.dtype)


def _fit_shape(
    name: str, array: Array, kind: TensorType, sizes: dict[str, tuple[int, str]], label: str
) -> None:
    if kind.shape is None:
        return
    found = list(array.shape)
    if len(found) != len(kind.shape):
        raise UsageError(
            f"{label}: '{name}' has shape {found}, the model takes {len(kind.shape)} dims: {kind}"
        )
    for axis, dim in enumerate(kind.shape):
        key = key_of(name, axis, dim)
        if isinstance(key, int):
            if key != found[axis]:
                raise UsageError(f"{label}: '{name}' has shape {found}, the model takes {kind}")
            continue
        size, owner = sizes.setdefault(key, (found[axis], name))
        if size != found[axis]:
            raise UsageError(
                f"{label}: '{key}' is {size} in '{owner}' but {found[axis]} in '{name}', and must be the same"
            )


def _as_data(value: Any) -> Data:
    if value is None or isinstance(value, (list, tuple)):
        return value if value is None else [np.asarray(item) for item in value]
    if hasattr(value, "detach"):  # a torch tensor, without importing torch to find out
        from rewriter.execution.values import from_torch

        return from_torch(value)
    return np.asarray(value)


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
