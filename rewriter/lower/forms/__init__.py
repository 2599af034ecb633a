"""The forms of operators, one place for each operator, for every target.

A form is given the builder and the operator as it is meant.  It writes what means the same with operators of the
target, or of any opset: what the target lacks is written in turn.  It gives the results, or None where it does not
serve.
Modules of this folder are looked through; each adds its operators to the table.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from rewriter.lower.forms.table import FORMS, form

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["form", "forms_of"]


def forms_of(op_type: str) -> list[Callable[..., Any]]:
    """The forms of an operator, in the order in which they are tried."""
    _load()
    return FORMS.get(op_type, [])


@functools.cache
def _load() -> None:
    for item in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{item.name}")
