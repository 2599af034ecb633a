"""What PyTorch says: a pass's reference on given tensors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.errors import CannotVerifyError, VerificationError
from rewriter.execution.values import from_torch, to_torch
from rewriter.placeholder.binding import Bound, Ref
from rewriter.worker.activity import doing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rewriter.execution.numbers import Array
    from rewriter.placeholder.contract import Placeholder


#: What torch says where an operator exists, but not in a narrow format on the CPU.
_LACKS_FORMAT = re.compile(r"not implemented for|Half|BFloat16|Float8")


class ReferenceRefused(VerificationError):  # noqa: N818  (an outcome of a sample, handled by whoever drew it)
    """The reference raised on these inputs."""

    code = "reference-refused"


def require_torch() -> str:
    """torch's version; CannotVerifyError where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise CannotVerifyError(
            "PyTorch is not installed, so the replaced operators cannot be compared with it",
            remedy="pip install onnx-rewrite[torch], or pass --no-verify to deliver it unverified",
        ) from error
    return str(torch.__version__)


def evaluate(placeholder: Placeholder, bound: Bound, value_of: Callable[[Ref], Array]) -> list[Array | None]:
    """The reference's results on the values of the tensor arguments; ReferenceRefused where it raises."""
    if placeholder.is_standard:
        return placeholder.evaluated(plain_arguments(bound, value_of)) or []
    narrow: list[Any] = []

    def tensor(array: Array, wide: bool) -> Any:
        made = to_torch(array)
        if made.is_floating_point() and made.element_size() < 4:
            narrow.append(made.dtype)
            return made.float() if wide else made
        return made

    def argument(item: Any, wide: bool) -> Any:
        if isinstance(item, Ref):
            return tensor(np.asarray(value_of(item)), wide)
        if isinstance(item, tuple):
            return tuple(argument(part, wide) for part in item)
        if isinstance(item, np.ndarray):
            return tensor(item, wide)  # a parameter that is a known tensor
        return item

    def call(*, wide: bool) -> list[Any]:
        given = {name: argument(item, wide) for name, item in bound.arguments.items()}
        result = _call(placeholder, given)
        return list(result) if isinstance(result, (tuple, list)) else [result]

    try:
        results = call(wide=False)
    except ReferenceRefused as error:
        if not narrow or not _LACKS_FORMAT.search(error.what):
            raise
        # torch lacks the operator in this format on the CPU: computed in float32, and rounded once.
        dtype = narrow[0]
        results = [_narrowed(item, dtype) for item in call(wide=True)]
    return [None if item is None else _array(item) for item in results]


def _call(placeholder: Placeholder, given: Mapping[str, Any]) -> Any:
    import torch

    step = f"the reference of pass '{placeholder.pass_name()}'"
    try:
        with doing(engine="PyTorch", step=step), torch.no_grad():
            return call_reference(placeholder, given)
    except Exception as error:
        raise ReferenceRefused(f"{type(error).__name__}: {error}") from error


def call_reference(placeholder: Placeholder, given: Mapping[str, Any]) -> Any:
    """The reference on arguments by name, a variadic one as a tuple; whatever it raises."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    variadic = next((p.name for p in placeholder.signature.parameters if p.variadic), None)
    for name, item in given.items():
        if name == variadic:
            positional += item
            variadic = None
        elif variadic is not None:
            positional.append(item)  # what precedes a variadic parameter can only be given by position
        else:
            named[name] = item
    return placeholder.reference(*positional, **named)


def _narrowed(item: Any, dtype: Any) -> Any:
    import torch

    return item.to(dtype) if isinstance(item, torch.Tensor) and item.dtype == torch.float32 else item


def _array(item: Any) -> Array:
    return from_torch(item) if hasattr(item, "detach") else np.asarray(item)


def plain_arguments(bound: Bound, value_of: Callable[[Ref], Array]) -> dict[str, Any]:
    """The arguments by parameter name, tensors as numpy arrays."""

    def plain(argument: Any) -> Any:
        if isinstance(argument, Ref):
            return np.asarray(value_of(argument))
        return tuple(plain(item) for item in argument) if isinstance(argument, tuple) else argument

    return {name: plain(argument) for name, argument in bound.arguments.items()}
