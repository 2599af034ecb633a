"""Values inside a reference, for what the errors of kernels are multiplied by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def evaluated(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """The first result of ``function``, written in PyTorch, on arguments of which arrays become tensors."""
    import torch

    with torch.no_grad():
        found = function(
            **{
                name: torch.from_numpy(np.ascontiguousarray(value))
                if isinstance(value, np.ndarray)
                else value
                for name, value in arguments.items()
            }
        )
    return (found[0] if isinstance(found, tuple) else found).numpy()
