"""From what the user named to an oracle."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewriter.against.oracle import Interface, Oracle
from rewriter.errors import UsageError

if TYPE_CHECKING:
    from onnx import ModelProto

_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_IMPORT = re.compile(rf"{_NAME}:{_NAME}|.+\.py(:{_NAME})?", re.DOTALL)

FORMS = (
    "give a torch.export archive (model.pt2), an import path (mypkg.models:build) or a file (./models.py:build), "
    "recorded values (io.npz), or a folder test_data_set_0"
)


def load(source: Any, model: ModelProto) -> Oracle:
    """The oracle that ``source`` names, for the graph of ``model``; what is an oracle already stays as it is.

    Besides the forms of the command, ``source`` may be an ``nn.Module``, an ``ExportedProgram``, or arrays by the names
    of inputs and outputs.  UsageError where it cannot be read or does not fit the graph.
    """
    interface = Interface.of(model)
    if isinstance(source, (str, os.PathLike)):
        return _named(os.fspath(source), interface)
    if isinstance(source, Mapping):
        from rewriter.against.recorded import Records, from_arrays

        return Records("recorded values", from_arrays(source, interface, "recorded values"))
    if all(hasattr(source, name) for name in ("recorded", "inner", "assumed")):
        oracle: Oracle = source
        return oracle
    from rewriter.against.factory import of_object

    return of_object(source, getattr(source, "__qualname__", type(source).__name__), interface)


def _named(text: str, interface: Interface) -> Oracle:
    path = Path(text)
    if path.is_dir():
        from rewriter.against.recorded import Records
        from rewriter.against.test_data import from_folder

        return Records(path.name or "folder", from_folder(path, interface))
    if path.suffix.lower() == ".npz":
        from rewriter.against.recorded import Records, from_npz

        return Records(path.name, from_npz(path, interface))
    if path.suffix.lower() == ".pt2":
        from rewriter.against.archive import from_archive

        return from_archive(path, interface)
    if path.is_file() and not _IMPORT.fullmatch(text):
        raise UsageError(f"--against {text}: neither a .pt2 archive nor a .npz file", remedy=FORMS)
    if _IMPORT.fullmatch(text):
        from rewriter.against.factory import from_import

        return from_import(text, interface)
    raise UsageError(f"--against {text}: no such file, folder or import path", remedy=FORMS)
