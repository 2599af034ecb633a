"""Simplification: onnxsim in a process of its own, its result accepted only after checks.

Nothing heavy is imported here, and the stage itself only when it is first used; onnxsim is never imported by this
process at all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rewriter.simplify.limits import DEFAULT_MEMORY, DEFAULT_TIMEOUT, NOTHING

if TYPE_CHECKING:
    from rewriter.simplify.driver import Simplification, simplify

__all__ = ["DEFAULT_MEMORY", "DEFAULT_TIMEOUT", "NOTHING", "Simplification", "simplify"]


def __getattr__(name: str) -> Any:
    if name in ("Simplification", "simplify"):
        return getattr(importlib.import_module("rewriter.simplify.driver"), name)
    raise AttributeError(f"module 'rewriter.simplify' has no attribute '{name}'")
