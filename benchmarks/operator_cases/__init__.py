"""What ``operators.py`` times: a module per group of passes, each with ``ROWS``.

A row is a pass, a label, a :class:`~rewriter.placeholder.Case` with the sizes of real models (several rows to a pass:
small and large, few and many channels), and PyTorch's own operator, called with the case's arguments by name::

    Row(
        "roll",
        "Swin 1x56x56x96, H and W",
        Case(f32(1, 56, 56, 96), shifts=[-3, -3], dims=[1, 2]),
        lambda x, shifts, dims: torch.roll(x, shifts, dims),
    )

``constants`` are the inputs that are weights in a model.  ``torch`` None says that PyTorch has no such operator: its
place is taken by the pass's reference, which then does not count in the geometric mean, nor is it exported unless
``export`` says so.  A formula that some library has is marked ``builtin=False``, and does not count either.
``limit`` is a copy of the operator's bytes unless it gives the (batch, m, k, n) of a MatMul of the same FLOPs.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnx import ModelProto

    from rewriter.placeholder import Case


@dataclass(frozen=True)
class Row:
    pass_name: str
    label: str
    case: Case
    torch: Callable[..., Any] | None = None
    constants: tuple[str, ...] = ()
    limit: tuple[int, int, int, int] | None = None
    #: Whether exporters are given the operator (or its reference); None: where PyTorch has it.
    export: bool | None = None
    #: Whether PyTorch itself has the operator: ``torch`` may be a formula that some library has of it.
    builtin: bool = True
    #: Forms that other exporters write (torchvision registers its own), by name: from the opset to the model.
    peers: Mapping[str, Callable[[int], ModelProto]] = field(default_factory=dict)
    #: Changes to the inputs that a form has to stand, beyond those that every row makes.
    special: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether the row is one of PyTorch's own operators."""
        return self.torch is not None and self.builtin

    @property
    def exported(self) -> bool:
        return self.torch is not None if self.export is None else self.export


def rows() -> list[Row]:
    """All rows, by group and in the order in which they are written."""
    found: list[Row] = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        found += importlib.import_module(f"{__name__}.{module.name}").ROWS
    return found
