"""The results of an operator, flat for ONNX and in their own form for the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rewriter.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def flatten(result: Any, operator: str) -> tuple[torch.Tensor, ...]:
    """The tensors of ``result``: one, or a (named) tuple or list of them; UsageError for anything else."""
    flat = (result,) if isinstance(result, torch.Tensor) else result
    if (
        not isinstance(flat, (tuple, list))
        or not flat
        or not all(isinstance(item, torch.Tensor) for item in flat)
    ):
        raise UsageError(
            f"it returned {_describe(result)}, and an ONNX node has nothing but tensors as outputs",
            where=operator,
            remedy="return a tensor or a tuple of tensors",
        )
    return tuple(flat)


def form(result: Any) -> Callable[[Sequence[torch.Tensor]], Any]:
    """What puts flat results back into the form of ``result``; keeps none of its tensors alive."""
    if isinstance(result, torch.Tensor):
        return lambda flat: flat[0]
    kind: Any = type(result)
    # A named tuple takes its fields one by one; torch's own (torch.return_types.cummax) take a sequence, as
    # tuple does.
    return (lambda flat: kind(*flat)) if hasattr(kind, "_make") else (lambda flat: kind(flat))


def _describe(result: Any) -> str:
    if isinstance(result, (tuple, list)):
        return (
            f"a {type(result).__name__} of {', '.join(type(item).__name__ for item in result) or 'nothing'}"
        )
    return f"a {type(result).__name__}"
