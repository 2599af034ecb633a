"""A PyTorch module run for its answers only: in evaluation mode, without gradients, and left as it was."""

from __future__ import annotations

import io
import logging
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

from rewriter.against.oracle import OracleRefused
from rewriter.errors import CannotVerifyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@contextmanager
def unchanged(module: Any, *, evaluate: bool) -> Iterator[None]:
    """Run ``module`` in evaluation mode, without gradients; its modes and buffers are put back afterwards.

    A cache that a call fills would make the next call another function.
    """
    import torch

    modes = {part: part.training for part in module.modules()}
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    try:
        if evaluate:
            module.eval()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for part, training in modes.items():
            part.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def call(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, evaluate: bool = True) -> Any:
    """What ``module`` gives, in memory of its own; OracleRefused with PyTorch's words where it raises."""
    import torch
    from torch.utils import _pytree as pytree

    with unchanged(module, evaluate=evaluate):
        try:
            # A result may be a buffer, or a view of one, which is put back before anybody reads the result.
            return pytree.tree_map_only(torch.Tensor, torch.clone, module(*args, **kwargs))
        except MemoryError as error:
            raise CannotVerifyError("not enough memory to run the PyTorch model") from error
        except Exception as error:
            raise OracleRefused(f"{type(error).__name__}: {first_line(error)}") from error


def device_of(module: Any) -> Any:
    """Where the module's weights are."""
    import itertools

    import torch

    first = next(itertools.chain(module.parameters(), module.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else "no message"


@contextmanager
def silent() -> Iterator[None]:
    """Without what torch logs, warns of and prints: an error says it."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
