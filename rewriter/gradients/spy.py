"""A backward watched while autograd calls it: what it returns as it stands, and what it changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from rewriter.gradients.kinds import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rewriter.torch.function import Context
    from rewriter.torch.operator import PlaceholderFunction


@dataclass
class Spy:
    """Watches one operator's backward; ``problems`` are (input, what is wrong), without regard to values."""

    problems: list[tuple[str, Problem]] = field(default_factory=list)
    calls: int = 0

    def on(self, operator: PlaceholderFunction) -> PlaceholderFunction:
        """The operator with its backward watched."""
        return operator.observed(self._watched)

    def _watched(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        def watched(ctx: Context, *grads: torch.Tensor) -> Any:
            self.calls += 1
            given = {
                name: value for name, value in vars(ctx.inputs).items() if isinstance(value, torch.Tensor)
            }
            held = [
                *((f"'{name}'", value) for name, value in given.items()),
                *((f"its result {number}", value) for number, value in enumerate(ctx.outputs)),
                *(
                    ("the gradient that comes in", value)
                    for value in grads
                    if isinstance(value, torch.Tensor)
                ),
            ]
            before = [(what, value, value.detach().clone()) for what, value in held]
            made = backward(ctx, *grads)
            for what, value, copy in before:
                if not _unchanged(value, copy):
                    self._say("", "mutates", f"its backward changes {what} in place, which others read too")
            self._look(tuple(made) if isinstance(made, (tuple, list)) else (made,), given)
            return made

        return watched

    def _look(self, made: Sequence[Any], given: dict[str, torch.Tensor]) -> None:
        if len(made) != len(given):
            return  # the operator itself says so
        for (name, value), gradient in zip(given.items(), made, strict=True):
            if gradient is None:
                continue
            if not isinstance(gradient, torch.Tensor):
                self._say(name, "type", f"is a {type(gradient).__name__}, no tensor: return a tensor or None")
                continue
            if not value.is_floating_point():
                continue  # autograd drops it
            if not _summable(gradient.shape, value.shape):
                self._say(
                    name, "shape", f"has shape {list(gradient.shape)}, and the input {list(value.shape)}"
                )
            if gradient.dtype != value.dtype:
                self._say(
                    name,
                    "dtype",
                    f"is {_name(gradient.dtype)} for an input of {_name(value.dtype)}: autograd converts it, and what "
                    "was rounded stays so",
                )

    def _say(self, name: str, kind: str, text: str) -> None:
        item = (name, Problem(kind, text))
        if item not in self.problems:
            self.problems.append(item)


def _summable(shape: torch.Size, target: torch.Size) -> bool:
    """Whether autograd sums a gradient of ``shape`` to ``target``, as it does for an input that was broadcast."""
    surplus = len(shape) - len(target)
    return surplus >= 0 and all(
        wide == narrow or narrow == 1 for wide, narrow in zip(shape[surplus:], target, strict=True)
    )


def _unchanged(value: torch.Tensor, copy: torch.Tensor) -> bool:
    return torch.equal(torch.nan_to_num(value.detach()), torch.nan_to_num(copy))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
