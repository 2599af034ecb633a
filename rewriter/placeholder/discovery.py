"""Finds passes: by name, in a Python file of the user's own, or by import path.

A name is looked for in two places:

1. the package ``passes``, whose modules are looked through: a new operator is one new file there;
2. entry points of the group ``rewriter.passes``, by which other packages make their passes known.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewriter.errors import PassDefinitionError, RewriteError, UnknownPassError
from rewriter.placeholder.binding import normal
from rewriter.placeholder.contract import Placeholder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

#: The package whose modules are looked through.
PACKAGE = "passes"

#: The group of entry points that makes another package's passes known by name.
GROUP = "rewriter.passes"


def available() -> list[Placeholder]:
    """Every installed pass, in order of name.  A pass of ``passes`` goes before another package's of the same name."""
    found: dict[str, Placeholder] = {}
    for module_name in _own_modules():
        for placeholder in _of_own_module(module_name):
            found.setdefault(placeholder.pass_name(), placeholder)
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda e: (e.name, e.value)):
        for placeholder in _from_entry(entry):
            found.setdefault(placeholder.pass_name(), placeholder)
    return [found[name] for name in sorted(found)]


def _own_modules() -> list[str]:
    """The modules of ``passes`` that may define passes, in order of name.  Those called ``_name`` are helpers."""
    package = importlib.import_module(PACKAGE)
    return sorted(
        module.name
        for module in pkgutil.walk_packages(package.__path__, f"{PACKAGE}.")
        if not module.ispkg and not module.name.rpartition(".")[2].startswith("_")
    )


def _of_own_module(name: str) -> list[Placeholder]:
    try:
        module = importlib.import_module(name)
    except RewriteError:
        raise
    except Exception as error:
        raise PassDefinitionError(
            f"the module does not load: {type(error).__name__}: {error}",
            where=name,
            remedy="install onnx-rewrite anew, or correct the file if it is yours",
        ) from error
    return [_validated(placeholder) for placeholder in _in_module(module)]


def _named(name: str) -> list[Placeholder]:
    """The pass called ``name``, a normal name; empty where there is none."""
    # A pass mostly stands in the module of its name, and the others need not be loaded then.
    modules = sorted(_own_modules(), key=lambda module: normal(module.rpartition(".")[2]) != name)
    for module in modules:
        found = [p for p in _of_own_module(module) if normal(p.pass_name()) == name]
        if found:
            return found
    for entry in importlib.metadata.entry_points(group=GROUP):
        if normal(entry.name) == name:
            return _from_entry(entry)
    return []


def resolve(item: str | type[Placeholder] | Placeholder) -> list[Placeholder]:
    """The passes that one element of ``--passes`` names."""
    if isinstance(item, Placeholder):
        return [_validated(item)]
    if isinstance(item, type):
        return [_validated(item())]
    path, separator, attribute = item.rpartition(":")
    if separator and path.endswith(".py"):
        return _from_object(_member(_module_of_file(Path(path)), attribute, item), item)
    if item.endswith(".py") or "/" in item:
        return _from_file(Path(item))
    called_so = _named(normal(item))
    if called_so:
        return called_so
    installed = available()
    for placeholder in installed:
        if normal(item) in all_names(placeholder):
            return [placeholder]
    if "." in item or ":" in item:
        return _from_import_path(item)
    spelt = {name: p.pass_name() for p in installed for name in sorted(all_names(p))}
    near = difflib.get_close_matches(normal(item), list(spelt), n=3, cutoff=0.5)
    nearest = ", ".join(dict.fromkeys(spelt[name] for name in near))
    everything = ", ".join(p.pass_name() for p in installed) or "none"
    raise UnknownPassError(
        f"no pass is called '{item}'",
        remedy=f"nearest: {nearest}"
        if nearest
        else f"installed: {everything}; a file of your own is ./name.py",
    )


def _from_entry(entry: importlib.metadata.EntryPoint) -> list[Placeholder]:
    try:
        target = entry.load()
    except RewriteError:
        raise
    except Exception as error:
        raise PassDefinitionError(
            f"pass '{entry.name}' does not load: {type(error).__name__}: {error}",
            where=entry.value,
            remedy="uninstall the package that brings it, or name the passes to use with --passes",
        ) from error
    return _from_object(target, entry.value)


def load_module(item: str) -> ModuleType:
    """The module that a Python file or an import path names."""
    if item.endswith(".py") or "/" in item:
        return _module_of_file(Path(item))
    target = _imported(item)
    if not inspect.ismodule(target):
        raise UnknownPassError("it names no module", where=item, remedy="give a Python file or a module")
    return target


def _from_import_path(path: str) -> list[Placeholder]:
    return _from_object(_imported(path), path)


def _imported(path: str) -> Any:
    module_name, _, attribute = path.partition(":")
    try:
        target: Any = importlib.import_module(module_name)
        for part in attribute.split(".") if attribute else ():
            target = getattr(target, part)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise UnknownPassError(f"no module '{error.name}' to import passes from", where=path) from error
        raise PassDefinitionError(f"the module does not load: {error}", where=path) from error
    except AttributeError as error:
        raise UnknownPassError(str(error), where=path) from error
    except RewriteError:
        raise
    except Exception as error:
        raise PassDefinitionError(
            f"the module does not load: {type(error).__name__}: {error}", where=path
        ) from error
    return target


def _member(module: ModuleType, name: str, item: str) -> Any:
    """What ``./file.py:Name`` names."""
    try:
        return getattr(module, name)
    except AttributeError:
        passes = ", ".join(type(placeholder).__name__ for placeholder in _in_module(module)) or "none"
        raise UnknownPassError(
            f"the file defines no '{name}'", where=item, remedy=f"its passes are: {passes}"
        ) from None


def _from_file(path: Path) -> list[Placeholder]:
    return _from_object(_module_of_file(path), str(path))


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UnknownPassError(f"no file '{path}' to load passes from")
    name = f"_rewriter_passes_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UnknownPassError(f"'{path}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Registered while it runs, since dataclasses and annotations look their module up.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except RewriteError:
        raise
    except Exception as error:
        raise PassDefinitionError(
            f"the file does not load: {type(error).__name__}: {error}", where=str(path)
        ) from error
    return module


def _from_object(target: Any, origin: str) -> list[Placeholder]:
    if isinstance(target, Placeholder):
        return [_validated(target)]
    if isinstance(target, type) and issubclass(target, Placeholder):
        return [_validated(target())]
    if inspect.ismodule(target):
        found = _in_module(target)
        if found:
            return [_validated(placeholder) for placeholder in found]
        raise PassDefinitionError(
            "no pass is defined in it", where=origin, remedy="define a subclass of rewriter.Placeholder"
        )
    raise PassDefinitionError(
        f"{target!r} is no pass", where=origin, remedy="name a subclass of rewriter.Placeholder"
    )


def _in_module(module: ModuleType) -> Sequence[Placeholder]:
    """The passes that a module defines itself (not those that it imports), in order of definition."""
    found: list[Placeholder] = []
    for name, member in vars(module).items():
        if name.startswith("_"):
            continue
        if isinstance(member, Placeholder):
            found.append(member)
        elif (
            isinstance(member, type)
            and issubclass(member, Placeholder)
            and member.__module__ == module.__name__
        ):
            found.append(member())
    return found


def _validated(placeholder: Placeholder) -> Placeholder:
    placeholder.validate()
    return placeholder


def all_names(placeholder: Placeholder) -> set[str]:
    """What a pass may be called: its name, and the operators that it takes."""
    return {
        normal(placeholder.pass_name()),
        *(normal(pattern.rpartition("::")[2]) for pattern in placeholder.matches),
    }
