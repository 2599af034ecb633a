"""Passes that are not written: a selection that also takes what only PyTorch defines."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from rewriter.derive import aten
from rewriter.derive.form import derived
from rewriter.derive.stops import stops
from rewriter.derive.translate import torch_version

if TYPE_CHECKING:
    from rewriter.placeholder.contract import Decomposition, Placeholder
    from rewriter.placeholder.registry import Selection


def extend(selection: Selection) -> Selection:
    """``selection``, whose passes may derive a decomposition, and which takes PyTorch's own operators as well.

    A decomposition that someone wrote always goes first.
    """
    names = stops(selection.passes)
    return replace(selection, last_resort=functools.partial(_last_resort, names), unknown=_unknown)


def _last_resort(names: tuple[str, ...], placeholder: Placeholder) -> Decomposition:
    """The form of a pass where none of its own decompositions serves."""
    if isinstance(placeholder, (aten.AtenOperator, aten.AtenOverload)):
        return derived(f"PyTorch's own definition (torch {torch_version()})", names)
    own = set(stops([placeholder]))
    others = tuple(name for name in names if name not in own)
    return derived(f"the reference of pass '{placeholder.pass_name()}'", others)


def _unknown(domain: str, name: str) -> Placeholder | None:
    """The pass of an operator that no other takes; None where PyTorch has no such operator.

    DerivationError where PyTorch is not installed, and could have it.
    """
    if domain not in aten.NAMESPACES:
        return None
    try:
        found = aten.is_bound(domain, name)
    except ImportError as error:
        raise aten.refuse_without_torch(f"{domain}::{name}", error) from error
    return aten.operator(domain, name) if found else None
