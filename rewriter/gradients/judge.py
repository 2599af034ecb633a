"""Holding the gradient that trains against the graph that ships, at one point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from rewriter.errors import RewriteError
from rewriter.gradients.forward import agreement, finite_count
from rewriter.gradients.kinds import Problem, diagnose, largest, same
from rewriter.gradients.numeric import slope
from rewriter.gradients.result import NO_GRADIENT
from rewriter.gradients.sides import (
    Point,
    Products,
    Raised,
    Side,
    draw_cotangents,
    products,
    results,
)
from rewriter.gradients.slack import DOUBLE, SINGLE, Slack

if TYPE_CHECKING:
    from rewriter.gradients.result import GradientResult, InputGradient

#: How often a point at a kink is moved a little.
_TRIES = 4
#: Differences and autograd may part by this much of the gradient's norm.
_NUMERIC = 1e-5
#: Differences that are off by more than this part of the norm decide nothing.
_DECIDES = 1e-2

#: Kinds of problem that are no fault of the gradient that training used.
OF_THE_GRAPH = frozenset({"graph"})
#: Kinds that say nothing far from where values usually are: formulas overflow there.
NOT_FAR_OUT = OF_THE_GRAPH | {"not finite", "numeric"}


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


@dataclass(frozen=True)
class Comparison:
    """``trained`` held against ``shipped``.

    ``due_of`` gives the gradients of ``shipped``, ``slacks`` how far apart gradients may be, ``labels`` the names that
    inputs go by in what is said of them, ``names`` those of the results.
    """

    trained: Side
    shipped: Side
    generator: torch.Generator
    due_of: Due = by_autograd
    slacks: Sequence[Slack] = (DOUBLE, SINGLE)
    labels: Mapping[str, str] = field(default_factory=dict)
    names: Sequence[str] = ()

    def result(self, number: int) -> str:
        return f"result '{self.names[number]}'" if number < len(self.names) else f"result {number}"

    def hold(self, point: Point, result: GradientResult) -> list[Wrong]:
        """What is wrong with the gradient of ``trained`` at ``point``, or at one nearby where that lies at a kink.

        Figures go into ``result``, whose status becomes ``not differentiable`` where ``trained`` has no gradient at
        all.  Raises Unlike where the results differ, Raised where a side raises in its forward.
        """
        wrong, decided = self._at(point, result)
        for _ in range(_TRIES):
            if decided:
                break
            nearby = point.jittered(self.generator)
            # Not beyond the end of what the function is defined for.
            if finite_count(results(self.shipped, nearby)) >= finite_count(results(self.shipped, point)):
                wrong, decided = self._at(nearby, result)
        for item in wrong:
            if item.input:
                entry = result.input(item.input)
                entry.kind, entry.problem = item.problem
        return wrong

    def _at(self, point: Point, result: GradientResult) -> tuple[list[Wrong], bool]:
        """What is wrong, and whether differences had a say about every input."""
        expected = results(self.trained, point)
        actual = results(self.shipped, point)
        slack = agreement(actual, expected, self.slacks)
        cotangents = [
            None if item is None else cotangent
            for item, cotangent in zip(actual, draw_cotangents(expected, self.generator), strict=False)
        ]
        try:
            found = products(self.trained, point, cotangents)
        except Raised as error:
            if not error.backward:
                raise
            return [Wrong("", _refused(error))], True
        if not any(found.differentiable):
            floats = any(output is not None and output.is_floating_point() for output in expected)
            result.leave(
                NO_GRADIENT,
                f"{self.trained.name} leaves autograd no way from its results to its inputs"
                if floats
                else "its results are no floating-point numbers",
            )
            return [], True
        for number, whole in enumerate(found.differentiable):
            if not whole and cotangents[number] is not None:
                # Statistics beside a result, most often: nothing is trained through them.
                cotangents[number] = None
                note = f"{self.trained.name} has no gradient of its {self.result(number)}"
                result.notes += [] if note in result.notes else [note]
        due = self.due_of(self.shipped, point, cotangents, self.generator)
        sample = _Sample(self, point, cotangents, found, due, slack)
        wrong: list[Wrong] = []
        decided = True
        for name in point.moving:
            label = self.labels.get(name, name)
            problem, certain = sample.input(name, result.input(label))
            decided = decided and certain
            if problem is not None:
                wrong.append(Wrong(label, problem))
        return wrong, decided


@dataclass(frozen=True)
class _Sample:
    """The gradients at one point."""

    comparison: Comparison
    point: Point
    cotangents: Sequence[torch.Tensor | None]
    found: Products
    due: Products
    slack: Slack

    def input(self, name: str, entry: InputGradient) -> tuple[Problem | None, bool]:
        """What is wrong with one input's gradient, and whether that is certain."""
        here = self.point.tensors[name]
        actual, expected = self.found.gradients[name], self.due.gradients[name]
        problem = self._problem(name)
        _measure(actual, expected, here, entry)
        if not here.numel():
            return problem, True
        direction = torch.randn(here.shape, generator=self.comparison.generator, dtype=torch.float64)
        direction = torch.where(torch.isfinite(here), direction, 0.0)
        measured = slope(self.comparison.shipped, self.point, self.cotangents, name, direction)
        norm = max(_norm(actual), _norm(expected))
        if measured.error > _DECIDES * norm and norm > self.slack.atol:
            return problem, False

        def fits(gradient: torch.Tensor | None, part: float = _NUMERIC) -> bool:
            allowed = part * norm + 10 * measured.error + self.slack.atol
            return abs(_along(gradient, direction) - measured.value) <= allowed

        if expected is not None and not bool(torch.isfinite(expected).all()) and problem is None:
            return None, True  # neither is finite, of which there is no difference
        if fits(expected):
            off = abs(_along(expected, direction) - measured.value)
            entry.see(max_numeric=off / norm if norm else 0.0)
            return problem, True
        if problem is None:
            return (
                Problem(
                    "numeric",
                    "is no derivative of what the delivered graph computes: along a random direction it is "
                    f"{_along(expected, direction):.6g}, by differences {measured.value:.6g}",
                ),
                True,
            )
        if (
            actual is not None
            and actual.shape == here.shape
            and fits(actual, max(_NUMERIC, self.slack.scaled))
        ):
            mirrored = diagnose(expected, actual, here.shape, self.slack)
            text = "differs" if mirrored is None else mirrored.text
            return Problem("graph", f"by autograd through the delivered graph {text}"), True
        return problem, False

    def _problem(self, name: str) -> Problem | None:
        """What :func:`diagnose` says, or a closer word where there is one."""
        labels = self.comparison.labels
        others = {labels.get(n, n): g for n, g in self.due.gradients.items() if n != name and g is not None}
        shape = self.point.tensors[name].shape
        problem = diagnose(self.found.gradients[name], self.due.gradients[name], shape, self.slack, others)
        if problem is None or problem.kind not in ("term", "zero in places", "sign in places", "factor"):
            return problem
        try:
            return self._incoming(name) or self._result(name) or problem
        except Raised:
            return problem

    def _incoming(self, name: str) -> Problem | None:
        """Whether the backward forgets the gradient that comes in."""
        doubled = [None if item is None else 2 * item for item in self.cotangents]
        again = products(self.comparison.trained, self.point, doubled, [name]).gradients[name]
        actual = self.found.gradients[name]
        if again is None or actual is None or largest(actual) <= self.slack.atol:
            return None
        if not same(again, actual, self.slack):
            return None
        return Problem("incoming", "does not depend on the gradient that comes in: multiply by it")

    def _result(self, name: str) -> Problem | None:
        """Whether only what comes through one of several results is wrong."""
        used = [number for number, item in enumerate(self.cotangents) if item is not None]
        if len(used) < 2:
            return None
        shape = self.point.tensors[name].shape
        wrong: list[tuple[int, Problem]] = []
        for number in used:
            alone = [item if at == number else None for at, item in enumerate(self.cotangents)]
            found = products(self.comparison.trained, self.point, alone, [name]).gradients[name]
            due = self.comparison.due_of(
                self.comparison.shipped, self.point, alone, self.comparison.generator
            ).gradients[name]
            problem = diagnose(found, due, shape, self.slack)
            if problem is not None:
                wrong.append((number, problem))
        if not wrong or len(wrong) == len(used):
            return None
        return Problem(
            "term",
            "; ".join(
                f"misses the term of {self.comparison.result(number)}"
                if problem.kind in ("none", "zero")
                else f"{problem.text}, in the term of {self.comparison.result(number)}"
                for number, problem in wrong
            ),
        )


def _refused(error: Raised) -> Problem:
    """What autograd says of a backward that returned something impossible."""
    if isinstance(error.error, RewriteError):
        return Problem("count", error.error.what)
    text = " ".join(str(error.error).split())
    if "invalid gradient" in text or "shape" in text:
        return Problem("shape", f"autograd refuses a gradient: {text}")
    return Problem("raised", f"the backward raised {type(error.error).__name__}: {text}")


def _measure(
    actual: torch.Tensor | None, expected: torch.Tensor | None, here: torch.Tensor, entry: InputGradient
) -> None:
    a = torch.zeros_like(here) if actual is None else actual.double()
    b = torch.zeros_like(here) if expected is None else expected.double()
    if a.shape != b.shape:
        return
    off, size = largest(a - b), largest(b)
    entry.see(max_abs=off, max_scaled=off / size if size else (0.0 if off == 0 else None))


def _along(gradient: torch.Tensor | None, direction: torch.Tensor) -> float:
    return 0.0 if gradient is None else float((gradient.double() * direction).sum())


def _norm(gradient: torch.Tensor | None) -> float:
    if gradient is None:
        return 0.0
    return float(torch.where(torch.isfinite(gradient), gradient, 0.0).double().norm())
