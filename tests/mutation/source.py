"""A mutation as data: a piece of source text and what stands there instead, for as long as a run lasts.

The text must occur exactly once in its file, or the mutation says so loudly.  The changed file is only compiled: each
function whose code differs is given the changed code in place, so that everybody who holds the function (a pass, an
importer, a cached list of decompositions) runs it, and given its own back afterwards.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


class NotOnceError(AssertionError):
    """The text to be replaced does not stand exactly once in the file: the mutation is out of date."""


@contextmanager
def replaced(file: str, old: str, new: str) -> Iterator[None]:
    """While this lasts, ``file`` (a path from the project's root) has ``new`` where it has ``old``."""
    path = ROOT / file
    text = path.read_text()
    if text.count(old) != 1:
        raise NotOnceError(f"{file} has {text.count(old)} times:\n{old}")
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    before = codes(compile(text, str(path), "exec"))
    after = codes(compile(text.replace(old, new), str(path), "exec"))
    changed = {name for name in before if name in after and not same(before[name], after[name])}
    held = [(name, function) for name, function in functions(module) if name in changed]
    missing = changed - {name for name, _ in held} - {"<module>"}
    reached = {name.partition(".<locals>")[0] for name in changed} & {name for name, _ in held}
    assert reached, f"no function of {file} holds the change: {sorted(missing)}"
    originals = [(function, function.__code__) for _, function in held]
    try:
        for name, function in held:
            function.__code__ = after[name]
        yield
    finally:
        for function, code in originals:
            function.__code__ = code


def codes(code: CodeType) -> dict[str, CodeType]:
    """Every code object of a module by its qualified name."""
    found = {code.co_qualname: code}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= codes(constant)
    return found


def same(a: CodeType, b: CodeType) -> bool:
    """Whether two code objects do the same, wherever they stand."""
    if a.co_code != b.co_code or a.co_names != b.co_names or len(a.co_consts) != len(b.co_consts):
        return False
    for one, other in zip(a.co_consts, b.co_consts, strict=True):
        if isinstance(one, CodeType) and isinstance(other, CodeType):
            if not same(one, other):
                return False
        elif type(one) is not type(other) or repr(one) != repr(other):
            return False
    return True


def functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """The functions and methods that ``module`` defines, by qualified name."""
    for owner in (module, *(m for m in vars(module).values() if inspect.isclass(m))):
        if inspect.isclass(owner) and owner.__module__ != module.__name__:
            continue
        for member in vars(owner).values():
            function = _plain(member)
            if function is not None and function.__module__ == module.__name__:
                yield function.__qualname__, function


def _plain(member: Any) -> FunctionType | None:
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    elif isinstance(member, property):
        member = member.fget
    elif isinstance(member, functools.cached_property):
        member = member.func
    member = inspect.unwrap(member) if callable(member) else member
    return member if isinstance(member, FunctionType) else None
