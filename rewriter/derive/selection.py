"""Passes that are not written: a selection that also takes what only PyTorch defines."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from rewriter.derive import aten
from rewriter.derive.form import derived
from rewriter.derive.stops import stops
from rewriter.derive.translate import torch_version
from rewriter.placeholder.binding import normal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.placeholder.contract import Decomposition, Placeholder
    from rewriter.placeholder.registry import Selection


def extend(selection: Selection, operators: Sequence[Placeholder] = ()) -> Selection:
    """``selection``, whose passes may derive a decomposition, and which takes PyTorch's own operators as well.

    ``operators`` are functions of the user's own (:func:`rewriter.derive.function.operators_of`).  A decomposition that
    someone wrote always goes first, then these, then PyTorch's definition.
    """
    names = stops(selection.passes)
    return replace(
        selection,
        last_resort=functools.partial(_last_resort, names),
        unknown=functools.partial(_unknown, tuple(operators)),
    )


def _last_resort(names: tuple[str, ...], placeholder: Placeholder) -> Decomposition:
    """The form of a pass where none of its own decompositions serves."""
    if isinstance(placeholder, (aten.AtenOperator, aten.AtenOverload)):
        return derived(f"PyTorch's own definition (torch {torch_version()})", names)
    own = set(stops([placeholder]))
    others = tuple(name for name in names if name not in own)
    return derived(f"the reference of pass '{placeholder.pass_name()}'", others)


def _unknown(operators: tuple[Placeholder, ...], domain: str, name: str) -> Placeholder | None:
    """The pass of an operator that no other takes; None where neither the user nor PyTorch has such an operator.

    DerivationError where PyTorch is not installed, and could have it.
    """
    for operator in operators:
        its_domain, separator, its_name = operator.matches[0].rpartition("::")
        if normal(its_name) == normal(name) and (not separator or its_domain == domain):
            return operator
    if domain not in aten.NAMESPACES:
        return None
    try:
        found = aten.is_bound(domain, name)
    except ImportError as error:
        raise aten.refuse_without_torch(f"{domain}::{name}", error) from error
    return aten.operator(domain, name) if found else None
