"""What the proof is told and what it found, between this process and its worker.

Pickled, with exceptions.  A pass is named, since both sides have loaded it.  A weight that lies in the model's files is
named too, and read there.  What comes back is data of this package: nothing else is looked up when it is read, so that
a worker that a model has brought down does not decide what runs here.
"""

from __future__ import annotations

import io
import pickle
import traceback
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from google.protobuf.message import Message

from rewriter import errors
from rewriter.errors import RewriteError
from rewriter.placeholder.binding import Site
from rewriter.placeholder.contract import Placeholder
from rewriter.placeholder.registry import Match
from rewriter.simplify import walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rewriter.placeholder.registry import Selection
    from rewriter.storage import ModelFile

#: Arrays from this many bytes on are named where they lie in a file.
_LARGE: Final = 1 << 16
#: Modules whose classes a worker's answer may hold, besides this package's and numpy's functions that make arrays.
_PLAIN: Final = {
    "builtins": {"set", "frozenset", "complex", "bytearray", "range", "slice"},
    "collections": {"OrderedDict", "defaultdict", "Counter"},
    "pathlib": {"Path", "PosixPath", "PurePosixPath"},
    "numpy": {"ndarray", "dtype"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.numeric": {"_frombuffer"},
}


class CannotTransport(Exception):  # noqa: N818  (an outcome: the proof then runs in this process)
    """Something has no form in which another process could have it; the message says what."""


# --- to the worker --------------------------------------------------------------------------------------------


def pack(value: Any, selection: Selection, file: ModelFile) -> bytes:
    """``value`` for a worker that has the passes of ``selection`` and reads the files of ``file``."""
    stream = io.BytesIO()
    try:
        _Packer(stream, selection, file).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise CannotTransport(f"{type(error).__name__}: {error}") from error
    return stream.getvalue()


def unpack(data: bytes, selection: Selection, file: ModelFile) -> Any:
    """What :func:`pack` was given."""
    return _Unpacker(io.BytesIO(data), selection, file).load()


@dataclass(frozen=True)
class _LastResort:
    """Stands for the decomposition that a selection derives for a pass; each side derives it itself."""

    placeholder: Placeholder


class _Packer(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, selection: Selection, file: ModelFile) -> None:
        super().__init__(stream, protocol=5)
        self._passes = {id(item): item.pass_name() for item in selection.passes}
        self._unknown = selection.unknown
        self._file = file
        self._places: dict[tuple[Any, ...], bytes] | None = None

    def persistent_id(self, obj: Any) -> tuple[str, Any] | None:
        if isinstance(obj, _LastResort):
            return "last resort", obj.placeholder
        if isinstance(obj, Placeholder) and id(obj) in self._passes:
            return "pass", self._passes[id(obj)]
        if isinstance(obj, Placeholder) and self._unknown is not None and obj.matches:
            domain, _, name = obj.matches[0].rpartition("::")
            return ("unknown", (domain, name)) if self._unknown(domain, name) is obj else None
        if isinstance(obj, np.ndarray) and obj.nbytes >= _LARGE:
            place = self._known().get(_place(obj))
            return None if place is None else ("tensor", place)
        return None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Message):
            return _message, (type(obj).__name__, obj.SerializeToString(deterministic=True))
        if type(obj) is Site:
            # Its constants are looked up where they are asked for: those of the node are all that a proof reads.
            constants = {name: obj.constants[name] for name in obj.node.input if name in obj.constants}
            return Site, (obj.node, obj.inputs, constants, obj.opset, obj.ir_version, obj.where, obj.wanted)
        if type(obj) is Match:
            last = None if obj.last_resort is None else _LastResort(obj.placeholder)
            return Match, (
                obj.placeholder,
                obj.qualified,
                obj.rule,
                obj.selectors,
                obj.assumed,
                last,
                obj.original,
            )
        return NotImplemented

    def _known(self) -> Mapping[tuple[Any, ...], bytes]:
        """The tensors that are views of the mapped files, by where they lie in memory."""
        if self._places is None:
            self._places = {}
            for tensor in walk.tensors(self._file.model.graph):
                raw = self._file.raw(tensor) if tensor.data_location == tensor.EXTERNAL else None
                if raw is not None and raw.length >= _LARGE and raw.offset % 8 == 0:
                    self._places[_place(self._file.array(tensor))] = tensor.SerializeToString()
        return self._places


def _place(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    return array.__array_interface__["data"][0], array.shape, array.strides, str(array.dtype)


class _Unpacker(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, selection: Selection, file: ModelFile) -> None:
        super().__init__(stream)
        self._passes = {item.pass_name(): item for item in selection.passes}
        self._unknown = selection.unknown
        self._last_resort = selection.last_resort
        self._file = file

    def persistent_load(self, pid: Any) -> Any:
        kind, value = pid
        if kind == "tensor":
            return self._file.array(onnx.TensorProto.FromString(value))
        if kind == "last resort":
            return None if self._last_resort is None else self._last_resort(value)
        if kind == "unknown" and self._unknown is not None:
            return self._unknown(*value)
        return self._passes[value]


def _message(name: str, data: bytes) -> Message:
    found: Message = getattr(onnx, name).FromString(data)
    return found


# --- from the worker ------------------------------------------------------------------------------------------


def pack_answer(value: Any) -> bytes:
    """Plain data of this package, or an error of it."""
    return pickle.dumps(_state(value) if isinstance(value, RewriteError) else value, protocol=5)


def unpack_answer(data: bytes) -> Any:
    """What :func:`pack_answer` was given; UnpicklingError for anything but data of this package."""
    value = _Answer(io.BytesIO(data)).load()
    return _error(*value[1:]) if isinstance(value, tuple) and value[:1] == (_ERROR,) else value


_ERROR: Final = "rewriter error"


def _state(error: RewriteError) -> tuple[str, str, tuple[Any, ...], dict[str, Any]]:
    """An error in parts: its class may take other arguments than those that it keeps."""
    name = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    kept = {key: value for key, value in vars(error).items() if key != "report"}
    kept["__notes__"] = ["".join(traceback.format_exception(error)).rstrip()]
    return _ERROR, name, error.args, kept


def _error(name: str, arguments: tuple[Any, ...], kept: dict[str, Any]) -> RewriteError:
    kind: type[RewriteError] = getattr(errors, name)
    made: RewriteError = kind.__new__(kind)
    made.args = arguments
    vars(made).update(report=None, **kept)
    return made


class _Answer(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _PLAIN.get(module, ()) or module.split(".")[0] == "ml_dtypes" or module == "numpy.dtypes":
            return super().find_class(module, name)
        if module.split(".")[0] == "rewriter":
            found = super().find_class(module, name)
            if isinstance(found, type) and not issubclass(found, PurePath):
                return found
        raise pickle.UnpicklingError(f"a worker's answer names {module}.{name}")
