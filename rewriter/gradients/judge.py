"""Holding the gradient that trains against the graph that ships, at one point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from rewriter.errors import RewriteError
from rewriter.gradients.kinds import Problem, diagnose, largest, same
from rewriter.gradients.numeric import slope
from rewriter.gradients.result import NO_GRADIENT
from rewriter.gradients.sides import (
    Point,
    Products,
    Raised,
    Results,
    Side,
    draw_cotangents,
    products,
    results,
)
from rewriter.gradients.slack import DOUBLE, SINGLE, Slack

if TYPE_CHECKING:
    from rewriter.gradients.result import GradientResult

#: How often a point at a kink is moved a little.
_TRIES = 4
#: Differences and autograd may part by this much of the gradient's norm.
_NUMERIC = 1e-5
#: Differences that are off by more than this part of the norm decide nothing.
_DECIDES = 1e-2

#: Kinds of problem that are no fault of the gradient that training used.
OF_THE_GRAPH = frozenset({"graph"})


class Unlike(Exception):  # noqa: N818  (an outcome: there is nothing to differentiate alike)
    """The two sides compute different results."""


@dataclass(frozen=True)
class Wrong:
    """An input, and what is wrong with its gradient."""

    input: str
    problem: Problem

    def __str__(self) -> str:
        return f"the gradient of '{self.input}' {self.problem.text}" if self.input else self.problem.text


#: What gives the gradients that are due, of a side at a point for given cotangents.
Due = Callable[[Side, Point, Sequence["torch.Tensor | None"], torch.Generator], Products]


def by_autograd(
    side: Side,
    point: Point,
    cotangents: Sequence[torch.Tensor | None],
    generator: torch.Generator,  # noqa: ARG001
) -> Products:
    """Autograd through the side itself."""
    return products(side, point, cotangents)


def hold(
    trained: Side,
    shipped: Side,
    point: Point,
    generator: torch.Generator,
    result: GradientResult,
    due_of: Due = by_autograd,
    slacks: Sequence[Slack] = (DOUBLE, SINGLE),
) -> list[Wrong]:
    """What is wrong with the gradient of ``trained`` at ``point``, or at one nearby where that lies at a kink.

    ``due_of`` gives the gradients of ``shipped``.  Figures go into ``result``, whose status becomes ``not
    differentiable`` where ``trained`` has no gradient at all.
    Raises Unlike where the results differ, Raised where a side raises in its forward.
    """
    wrong: list[Wrong] = []
    for attempt in range(_TRIES):
        here = point if attempt == 0 else point.jittered(generator)
        wrong, decided = _hold(trained, shipped, here, generator, result, due_of, slacks)
        if decided or not wrong:
            break
    for item in wrong:
        if item.input:
            entry = result.input(item.input)
            entry.kind, entry.problem = item.problem
    return wrong


def _hold(
    trained: Side,
    shipped: Side,
    point: Point,
    generator: torch.Generator,
    result: GradientResult,
    due_of: Due,
    slacks: Sequence[Slack],
) -> tuple[list[Wrong], bool]:
    """What is wrong, and whether differences decided it."""
    expected = results(trained, point)
    actual = results(shipped, point)
    slack = agreement(actual, expected, slacks)
    cotangents = [
        None if item is None else cotangent
        for item, cotangent in zip(actual, draw_cotangents(expected, generator), strict=False)
    ]
    try:
        found = products(trained, point, cotangents)
    except Raised as error:
        if not error.backward:
            raise
        return [Wrong("", _refused(error))], True
    if not any(found.differentiable):
        floats = any(output is not None and output.is_floating_point() for output in expected)
        result.leave(
            NO_GRADIENT,
            f"{trained.name} leaves autograd no way from its results to its inputs"
            if floats
            else "its results are no floating-point numbers",
        )
        return [], True
    for number, whole in enumerate(found.differentiable):
        if not whole and cotangents[number] is not None:
            # Statistics beside a result, most often: nothing is trained through them.
            cotangents[number] = None
            note = f"{trained.name} has no gradient of its result {number}"
            result.notes += [] if note in result.notes else [note]
    due = due_of(shipped, point, cotangents, generator)
    wrong: list[Wrong] = []
    decided = True
    for name in point.moving:
        problem, certain = _input(name, found, due, shipped, point, cotangents, slack, generator, result)
        if problem is not None:
            wrong.append(Wrong(name, problem))
            decided = decided and certain
    return [_narrowed(item, trained, point, cotangents, found, due, slack) for item in wrong], decided


def _input(
    name: str,
    found: Products,
    due: Products,
    shipped: Side,
    point: Point,
    cotangents: Sequence[torch.Tensor | None],
    slack: Slack,
    generator: torch.Generator,
    result: GradientResult,
) -> tuple[Problem | None, bool]:
    """What is wrong with one input's gradient, and whether that is certain."""
    here = point.tensors[name]
    actual, expected = found.gradients[name], due.gradients[name]
    others = {n: g for n, g in due.gradients.items() if n != name and g is not None}
    problem = diagnose(actual, expected, here.shape, slack, others)
    _measure(actual, expected, here, result.input(name).see)
    if not here.numel():
        return problem, True
    direction = torch.randn(here.shape, generator=generator, dtype=torch.float64)
    direction = torch.where(torch.isfinite(here), direction, 0.0)
    measured = slope(shipped, point, cotangents, name, direction)
    norm = max(_norm(actual), _norm(expected))
    certain = measured.error <= _DECIDES * norm
    if not certain and norm > slack.atol:
        return problem, False

    def fits(gradient: torch.Tensor | None, part: float = _NUMERIC) -> bool:
        along = 0.0 if gradient is None else float((gradient.double() * direction).sum())
        return abs(along - measured.value) <= part * norm + 10 * measured.error + slack.atol

    if expected is not None and not bool(torch.isfinite(expected).all()) and problem is None:
        return None, True  # neither is finite, of which there is no difference
    if fits(expected):
        along = 0.0 if expected is None else float((expected * direction).sum())
        result.input(name).see(max_numeric=abs(along - measured.value) / norm if norm else 0.0)
        return problem, True
    if problem is None:
        return (
            Problem(
                "numeric",
                "is no derivative of what the delivered graph computes: along a random direction it is "
                f"{0.0 if expected is None else float((expected * direction).sum()):.6g}, by differences "
                f"{measured.value:.6g}",
            ),
            True,
        )
    if actual is not None and actual.shape == here.shape and fits(actual, max(_NUMERIC, slack.scaled)):
        mirrored = diagnose(expected, actual, here.shape, slack)
        text = mirrored.text if mirrored is not None else "differs"
        return Problem("graph", f"by autograd through the delivered graph {text}"), True
    return problem, False


def _narrowed(
    wrong: Wrong,
    trained: Side,
    point: Point,
    cotangents: Sequence[torch.Tensor | None],
    found: Products,
    due: Products,
    slack: Slack,
) -> Wrong:
    """A closer word for what :func:`diagnose` cannot see: whether the incoming gradient matters."""
    actual, expected = found.gradients[wrong.input], due.gradients[wrong.input]
    if actual is None or expected is None or wrong.problem.kind not in ("term", "zero in places", "factor"):
        return wrong
    doubled = [None if item is None else 2 * item for item in cotangents]
    try:
        again = products(trained, point, doubled, [wrong.input]).gradients[wrong.input]
    except Raised:
        return wrong
    if again is not None and largest(actual) > slack.atol and same(again, actual, slack):
        return Wrong(
            wrong.input, Problem("incoming", "does not depend on the gradient that comes in: multiply by it")
        )
    return wrong


def agreement(actual: Results, expected: Results, slacks: Sequence[Slack]) -> Slack:
    """The closest of ``slacks`` for gradients of results that agree as these do; Unlike where they do not."""
    if len(expected) < len(actual):
        raise Unlike(f"there are {len(actual)} results, {len(expected)} expected")
    at = 0
    for number, (a, b) in enumerate(zip(actual, expected, strict=False)):
        if a is None or b is None:
            continue
        if a.shape != b.shape:
            raise Unlike(f"result {number} has shape {list(a.shape)}, expected {list(b.shape)}")
        if not b.is_floating_point():
            if not torch.equal(a.to(b.dtype), b):
                raise Unlike(f"result {number} differs")
            continue
        while not same(a, b, slacks[at].closer):
            at += 1
            if at == len(slacks):
                raise Unlike(
                    f"result {number} differs by up to {largest(a.double() - b.double()):.3g} of {largest(b):.3g}"
                )
    return slacks[at]


def _refused(error: Raised) -> Problem:
    """What autograd says of a backward that returned something impossible."""
    if isinstance(error.error, RewriteError):
        return Problem("count", error.error.what)
    text = " ".join(str(error.error).split())
    if "invalid gradient" in text or "shape" in text:
        return Problem("shape", f"autograd refuses a gradient: {text}")
    return Problem("raised", f"the backward raised {type(error.error).__name__}: {text}")


def _measure(
    actual: torch.Tensor | None, expected: torch.Tensor | None, here: torch.Tensor, see: object
) -> None:
    a = torch.zeros_like(here) if actual is None else actual.double()
    b = torch.zeros_like(here) if expected is None else expected.double()
    if a.shape != b.shape or not callable(see):
        return
    off, size = largest(a - b), largest(b)
    see(max_abs=off, max_scaled=off / size if size else (0.0 if off == 0 else None))


def _norm(gradient: torch.Tensor | None) -> float:
    if gradient is None:
        return 0.0
    return float(torch.where(torch.isfinite(gradient), gradient, 0.0).double().norm())
