"""What an import path or a Python file names: ``mypkg.models:build``, ``./mk.py:build``."""

from __future__ import annotations

import difflib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewriter.against.running import first_line
from rewriter.errors import RewriteError, UsageError
from rewriter.placeholder.discovery import load_module

if TYPE_CHECKING:
    from types import ModuleType

#: Names that a message lists.
_SHOWN = 6


def imported(path: str) -> Any:
    """The object that ``path`` names; UsageError where the module or the name in it is not there, or fails to load."""
    place, _, attribute = path.rpartition(":") if not path.endswith(".py") else (path, "", "")
    module = _of_file(path, place) if place.endswith(".py") else _of_name(path, place)
    if not attribute:
        raise UsageError(f"--against {path} names nothing in the file", remedy=_names(path, module, ""))
    target: Any = module
    owner = place
    for part in attribute.split("."):
        try:
            target = getattr(target, part)
        except AttributeError as error:
            raise UsageError(
                f"--against {path}: there is no '{part}' in '{owner}'", remedy=_names(place, target, part)
            ) from error
        owner = part
    return target


def _of_file(path: str, place: str) -> ModuleType:
    if not Path(place).is_file():
        raise UsageError(
            f"--against {path}: there is no file '{place}'",
            remedy="give the file's path, as in ./models.py:build",
        )
    try:
        return load_module(place)
    except RewriteError as error:
        raise UsageError(
            f"--against {path}: {error.what}", remedy=f"'python {place}' must run without an error"
        ) from error


def _of_name(path: str, place: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except Exception as error:
        what = (
            f"there is no module '{error.name}'"
            if isinstance(error, ModuleNotFoundError)
            else f"importing it raises {type(error).__name__}: {first_line(error)}"
        )
        raise UsageError(
            f"--against {path}: {what}",
            remedy="run it where 'python -c \"import …\"' finds the module, or give a file: ./models.py:build",
        ) from error


def _names(place: str, owner: Any, wanted: str) -> str:
    """The names in ``owner`` that are like ``wanted``, or those that might make a model."""
    usable = {
        name: value
        for name, value in getattr(owner, "__dict__", {}).items()
        if not name.startswith("_") and (callable(value) or _is_model(value))
    }
    near = difflib.get_close_matches(wanted, list(usable), n=3, cutoff=0.5) if wanted else []
    if near:
        return f"did you mean {' or '.join(near)}?"
    here = {getattr(owner, "__name__", None), getattr(owner, "__module__", None)}
    public = [
        name
        for name, value in usable.items()
        if _is_model(value) or getattr(value, "__module__", None) in here - {None}
    ]
    shown = ", ".join(public[:_SHOWN]) + (", …" if len(public) > _SHOWN else "")
    return (
        f"name what it defines ({shown}), as in {place.rpartition('/')[2]}:{public[0]}"
        if public
        else ("it defines no module, and no class or function that makes one")
    )


def _is_model(value: Any) -> bool:
    import torch

    return isinstance(value, (torch.nn.Module, torch.export.ExportedProgram))
