"""Which of PyTorch's exporters, if any, is tracing on this thread."""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch
from torch._guards import detect_fake_mode
from torch.onnx._internal.exporter import _flags

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Exporter(Enum):
    LEGACY = "dynamo=False"
    DYNAMO = "dynamo=True"


def running_exporter(arguments: Iterable[Any]) -> Exporter | None:
    """The exporter that is tracing a call with ``arguments``, None outside of ``torch.onnx.export``.

    ``is_in_onnx_export`` is one flag for the whole process, so a model trained on another thread during an
    export would see it too; tracing and fake tensors belong to a thread.
    """
    if torch.compiler.is_dynamo_compiling() or not torch.onnx.is_in_onnx_export():
        return None
    if is_tracing():
        return Exporter.LEGACY
    return Exporter.DYNAMO if _has_fakes(arguments) else None


def in_branch_of_an_export() -> bool:
    """Whether TorchDynamo traces this call for ``torch.onnx.export``: a branch of ``torch.cond``, the body of a loop.

    TorchDynamo takes ``is_in_onnx_export()`` for False, so the flag behind it is read.
    """
    return torch.compiler.is_dynamo_compiling() and _flags._is_onnx_exporting


def is_tracing() -> bool:
    """Whether ``torch.jit.trace`` runs on this thread, for ONNX or anything else."""
    return bool(torch._C._is_tracing())


@contextmanager
def untraced() -> Iterator[None]:
    """What is read of tensors here is no part of the trace: sizes are plain ints, not tensors of the traced model."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)  # type: ignore[attr-defined]


def is_captured(arguments: Iterable[Any]) -> bool:
    """Whether ``torch.export`` is tracing a call with ``arguments``, for ONNX or anything else."""
    return torch.compiler.is_exporting() and _has_fakes(arguments)


def _has_fakes(arguments: Iterable[Any]) -> bool:
    return detect_fake_mode(list(arguments)) is not None
