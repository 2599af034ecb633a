"""Calls that a torch function mode does not see: those of plain Python functions, and those inside torch functions."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
import torch.functional
import torch.nn.functional as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

#: Modules of torch whose Python functions ask one of ``_ASKED`` first of all whether a mode wants the call.
_MODULES: tuple[Any, ...] = (F, torch.functional)
_ASKED = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


@contextmanager
def patched(function: Callable[..., Any], wrapper: Callable[..., Any]) -> Iterator[None]:
    """Put ``wrapper`` wherever a module or the class that defines it holds ``function``."""
    found: list[tuple[Any, str, Any, Any]] = []
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            names = [name for name, value in list(vars(module).items()) if value is function]
            found += [(module, name, function, wrapper) for name in names]
    owner: Any = sys.modules.get(getattr(function, "__module__", ""))
    *path, last = getattr(function, "__qualname__", "?").split(".")
    for name in path:
        owner = getattr(owner, name, None)
    held = vars(owner).get(last) if isinstance(owner, type) else None
    if held is function:
        found.append((owner, last, held, wrapper))
    elif isinstance(held, staticmethod) and held.__func__ is function:
        found.append((owner, last, held, staticmethod(wrapper)))
    try:
        for holder, name, _, new in found:
            setattr(holder, name, new)
        yield
    finally:
        for holder, name, old, new in found:
            if vars(holder).get(name) is new:
                setattr(holder, name, old)


class _Entering(threading.local):
    """Whether the function that is called next shall do its work, although a mode is there."""

    now = False


_entering = _Entering()
_open = 0
_lock = threading.Lock()
_originals: dict[tuple[str, str], Any] = {}


def is_composite(func: Any) -> bool:
    """Whether ``func`` is a function of torch, written in Python, that calls other functions of torch."""
    return (
        isinstance(func, FunctionType)
        and any(func.__globals__ is vars(module) for module in _MODULES)
        # One that does not ask would be given back to the mode for ever.
        and any(name in func.__code__.co_names for name in _ASKED)
    )


def opened(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the composite ``func`` so that the active mode sees the calls inside it, and not this one again."""
    _entering.now = True
    try:
        return func(*args, **kwargs)
    finally:
        _entering.now = False


@contextmanager
def composites_open() -> Iterator[None]:
    """Within this context :func:`opened` works.  Contexts nest, and may be open on several threads."""
    global _open
    with _lock:
        _open += 1
        if _open == 1:
            for module in _MODULES:
                for name in _ASKED:
                    if hasattr(module, name):
                        _originals[module.__name__, name] = getattr(module, name)
                        setattr(module, name, _asked(getattr(module, name)))
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if _open == 0:
                for module in _MODULES:
                    for name in _ASKED:
                        if (module.__name__, name) in _originals:
                            setattr(module, name, _originals.pop((module.__name__, name)))


def _asked(original: Callable[..., bool]) -> Callable[..., bool]:
    def asked(*args: Any) -> bool:
        if not torch.compiler.is_dynamo_compiling() and _entering.now:
            _entering.now = False
            return False
        return original(*args)

    return asked
