"""Two ways to compute the same results, each with its gradient: what trains, and what ships."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

#: Results by position; None where a result is not asked for.
Results = Sequence[torch.Tensor | None]


@dataclass(frozen=True)
class Side:
    """Something that computes results from named tensors, in differentiable PyTorch."""

    name: str
    call: Callable[[Mapping[str, torch.Tensor]], Results]


@dataclass(frozen=True)
class Point:
    """Tensors by input name, and which of them are differentiated by (those are float64)."""

    tensors: Mapping[str, torch.Tensor]
    moving: tuple[str, ...]

    def moved(self, changes: Mapping[str, torch.Tensor]) -> Point:
        return replace(self, tensors={**self.tensors, **changes})

    def jittered(self, generator: torch.Generator, scale: float = 1e-2) -> Point:
        """A point nearby, at which nothing is equal or exactly zero by accident."""
        return self.moved(
            {
                name: value + scale * (1 + value.abs()) * _normal(value, generator)
                for name, value in ((name, self.tensors[name]) for name in self.moving)
            }
        )


@dataclass(frozen=True)
class Products:
    """The results at a point, and the product of a cotangent with the Jacobian for each moving input.

    None as a gradient: autograd finds no way from the results to the input.
    """

    outputs: tuple[torch.Tensor | None, ...]
    gradients: Mapping[str, torch.Tensor | None]
    #: Of each result, whether autograd finds a way from it to any input.
    differentiable: tuple[bool, ...]


class Raised(Exception):  # noqa: N818  (an outcome, told to whoever asked)
    """A side raised; ``backward`` tells whether it did so while differentiating."""

    def __init__(self, error: Exception, *, backward: bool) -> None:
        super().__init__(f"{type(error).__name__}: {' '.join(str(error).split())}")
        self.error = error
        self.backward = backward


def results(side: Side, point: Point) -> tuple[torch.Tensor | None, ...]:
    """The results without a gradient; Raised where it raises."""
    try:
        with torch.no_grad():
            return tuple(side.call({name: value.clone() for name, value in point.tensors.items()}))
    except Exception as error:
        raise Raised(error, backward=False) from error


def products(
    side: Side, point: Point, cotangents: Sequence[torch.Tensor | None], wanted: Sequence[str] | None = None
) -> Products:
    """Autograd's vector-Jacobian products for ``wanted`` (all moving inputs); Raised where the side raises.

    ``cotangents`` go with the results by position, None where a result plays no part.
    """
    names = point.moving if wanted is None else tuple(wanted)
    leaves = {name: point.tensors[name].detach().clone().requires_grad_() for name in names}
    # What is handed over is no leaf: a function may work in place on what it was given.
    given = {
        name: leaves[name].clone() if name in leaves else value.detach().clone()
        for name, value in point.tensors.items()
    }
    try:
        with torch.enable_grad():
            outputs = tuple(side.call(given))
    except Exception as error:
        raise Raised(error, backward=False) from error
    used = [
        (output, cotangent)
        for output, cotangent in zip(outputs, cotangents, strict=False)
        if output is not None and cotangent is not None and output.requires_grad
    ]
    found: Sequence[torch.Tensor | None] = [None] * len(names)
    if used:
        try:
            found = torch.autograd.grad(
                [output for output, _ in used],
                list(leaves.values()),
                [cotangent.to(output.dtype) for output, cotangent in used],
                allow_unused=True,
            )
        except Exception as error:
            raise Raised(error, backward=True) from error
    return Products(
        tuple(None if output is None else output.detach() for output in outputs),
        {name: None if value is None else value.detach() for name, value in zip(names, found, strict=True)},
        tuple(output is not None and output.requires_grad for output in outputs),
    )


def excusing(side: Side) -> Side:
    """``side`` with a gradient of zero at input elements that are NaN or infinite: there is no derivative there.

    Where a result is not finite either, what is NaN or infinite of the gradients says nothing: 0 · NaN is NaN.
    """

    def call(given: Mapping[str, torch.Tensor]) -> Results:
        if all(bool(torch.isfinite(value).all()) for value in given.values()):
            return side.call(given)
        broken = False

        def hook(finite: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
            def judged(gradient: torch.Tensor) -> torch.Tensor:
                if gradient.shape != finite.shape:
                    return gradient  # which is another mistake
                return torch.where(finite & torch.isfinite(gradient) if broken else finite, gradient, 0.0)

            return judged

        for value in given.values():
            if value.requires_grad:
                value.register_hook(hook(torch.isfinite(value.detach())))  # type: ignore[no-untyped-call]
        outputs = side.call(given)
        broken = any(
            output is not None and not bool(torch.isfinite(output.detach()).all()) for output in outputs
        )
        return outputs

    return replace(side, call=call)


def draw_cotangents(outputs: Results, generator: torch.Generator) -> list[torch.Tensor | None]:
    """A random cotangent for each floating-point result, zero where the result is not finite."""
    return [
        None
        if output is None or not output.is_floating_point()
        else torch.where(torch.isfinite(output), _normal(output, generator), 0.0)
        for output in outputs
    ]


def custom_backwards(outputs: Results) -> list[object]:
    """The ``autograd.Function`` nodes behind ``outputs``: backward functions that somebody wrote."""
    found: list[object] = []
    seen: set[object] = set()
    waiting = [output.grad_fn for output in outputs if output is not None and output.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            found.append(node)
        waiting += [following for following, _ in node.next_functions if following is not None]
    return found


def _normal(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(like.shape, generator=generator, dtype=torch.float64)
