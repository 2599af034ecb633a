"""The table of forms, and how a module adds to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: Forms by operator, in the order in which they are tried.
FORMS: dict[str, list[Callable[..., Any]]] = {}


def form(*op_types: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function ``(g, call)`` as a form of these operators."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        for op_type in op_types:
            FORMS.setdefault(op_type, []).append(function)
        return function

    return mark
