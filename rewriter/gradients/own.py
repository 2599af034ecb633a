"""An operator of one's own: its backward against the derivative of its function, in every way autograd may call it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from rewriter.errors import Where
from rewriter.gradients.forward import Unlike
from rewriter.gradients.judge import NOT_FAR_OUT, OF_THE_GRAPH, Comparison, Wrong
from rewriter.gradients.kinds import Problem, diagnose
from rewriter.gradients.result import NO_GRADIENT, GradientResult
from rewriter.gradients.scales import elsewhere
from rewriter.gradients.sides import Point, Raised, Side, draw_cotangents, excusing, products, results
from rewriter.gradients.slack import DOUBLE, ROUNDED, SINGLE, Slack
from rewriter.gradients.spy import Spy
from rewriter.gradients.truth import believed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rewriter.torch.operator import PlaceholderFunction

#: Of more inputs than these not every combination is tried.
_MOST_INPUTS = 4


@dataclass(frozen=True)
class Example:
    """An operator and the arguments of one call, tensors apart."""

    operator: PlaceholderFunction
    #: The arguments that are no tensors, by name.
    plain: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]

    @property
    def moving(self) -> tuple[str, ...]:
        return tuple(name for name, value in self.tensors.items() if value.is_floating_point())

    def point(self) -> Point:
        """The tensors in float64, where they are of floating point."""
        return Point(
            {
                name: value.detach().double() if name in self.moving else value.detach()
                for name, value in self.tensors.items()
            },
            self.moving,
        )

    def side(self, spy: Spy | None = None) -> Side:
        """The operator as it trains."""
        operator = self.operator if spy is None else spy.on(self.operator)
        return excusing(Side("its backward", lambda given: _flat(operator(**{**self.plain, **given}))))

    def function(self) -> Side:
        """The function that it was made from."""
        function = self.operator.function
        return excusing(
            Side("autograd through its function", lambda given: _flat(function(**{**self.plain, **given})))
        )

    def without(self, names: Sequence[str]) -> Example:
        """The same call with tensors omitted."""
        return Example(
            self.operator,
            {**self.plain, **dict.fromkeys(names)},
            {name: value for name, value in self.tensors.items() if name not in names},
        )

    def optional(self) -> list[str]:
        """Tensors that the operator may be called without."""
        parameters = self.operator.parameters
        return [name for name in self.tensors if parameters.default(name) is None]


def examine(example: Example, generator: torch.Generator, result: GradientResult) -> list[Wrong]:
    """What is wrong with the operator's gradient; figures go into ``result``.

    Raises Raised where the function does not run in float64.
    """
    wrong = _values(example, generator, result)
    if wrong or result.status == NO_GRADIENT:
        return wrong
    wrong = _on_other_scales(example, generator)
    if wrong:
        return wrong
    for text, variant in _omitted(example):
        wrong = _values(variant, generator, GradientResult("", "", result.where))
        if not example.operator.has_backward:
            # Where PyTorch itself does not differentiate this call, nobody's backward is at fault.
            wrong = [item for item in wrong if item.problem.kind != "raised"]
        if wrong:
            return [_under(text, item) for item in wrong]
    if not example.operator.has_backward:
        return []
    return (
        next((found for found in _ways(example, generator) if found), None)
        or _own_dtype(example, generator)
        or []
    )


def _values(
    example: Example,
    generator: torch.Generator,
    result: GradientResult,
    slacks: Sequence[Slack] = (DOUBLE, SINGLE),
) -> list[Wrong]:
    """The gradient against the derivative of the function."""
    if not example.moving:
        result.leave(NO_GRADIENT, "no argument is a floating-point tensor")
        return []
    spy = Spy()
    surrogate = bool(example.operator.surrogate)
    found: list[Wrong] = []
    if surrogate:
        point = example.point()
        cotangents = draw_cotangents(results(example.function(), point), generator)
        try:
            products(example.side(spy), point, cotangents)
        except Raised as error:
            found = [Wrong("", Problem("raised", f"its backward raised {error}"))]
    else:
        found = Comparison(example.side(spy), example.function(), generator, believed, slacks).hold(
            example.point(), result
        )
    if spy.problems:
        return [Wrong(name, problem) for name, problem in spy.problems]
    # Where differences say that the backward is right, autograd through the function need not be.
    return [item for item in found if item.problem.kind not in OF_THE_GRAPH]


def _on_other_scales(example: Example, generator: torch.Generator) -> list[Wrong]:
    """The same where some elements are large or small, if the function takes that."""
    if example.operator.surrogate or not example.operator.has_backward:
        return []
    point = elsewhere(example.point(), [example.function()], example.moving, generator)
    if point is None:
        return []
    try:
        wrong = _values(
            replace(example, tensors=point.tensors),
            generator,
            GradientResult("", "", Where()),
            (ROUNDED, SINGLE),
        )
    except (Raised, Unlike):
        return []
    return [
        _under("on values of other scales", item) for item in wrong if item.problem.kind not in NOT_FAR_OUT
    ]


def _ways(example: Example, generator: torch.Generator) -> Iterator[list[Wrong]]:
    """Every other way in which autograd may call the backward; what comes of each must be the same."""
    side, point = example.side(), example.point()
    cotangents = draw_cotangents(results(example.function(), point), generator)
    whole = products(side, point, cotangents).gradients
    yield from (
        _compare(text, example, point, items, whole, wanted)
        for text, items, wanted in (
            *(
                (f"with a gradient needed for {_listed(wanted)} only", cotangents, wanted)
                for wanted in _subsets(example.moving)
            ),
            ("with an incoming gradient that is not contiguous", [_strided(c) for c in cotangents], None),
        )
    )
    flat = [
        None if c is None else torch.full((), 0.75, dtype=torch.float64).expand(c.shape) for c in cotangents
    ]
    once = [None if c is None else c.contiguous() for c in flat]
    expected = products(side, point, once).gradients
    text = "with an incoming gradient that is expanded, as after sum()"
    yield _compare(text, example, point, flat, expected, None)
    if sum(c is not None for c in cotangents) > 1 and not example.operator.surrogate:
        yield from _single_outputs(example, point, cotangents, generator)
    for name in example.tensors:
        moved = point.moved({name: _strided(point.tensors[name])})
        try:
            results(example.function(), moved)
        except Raised:
            continue  # the function itself does not take it
        yield _compare(f"with '{name}' not contiguous", example, moved, cotangents, whole, None)


def _single_outputs(
    example: Example,
    point: Point,
    cotangents: Sequence[torch.Tensor | None],
    generator: torch.Generator,
) -> Iterator[list[Wrong]]:
    """Each result used alone: autograd hands zeros to the backward for the others."""
    for number, cotangent in enumerate(cotangents):
        if cotangent is None:
            continue
        alone = [item if at == number else None for at, item in enumerate(cotangents)]
        found: list[Wrong] = []
        # At a kink the two may differ with right; nearby they may not.
        for here in (point, point.jittered(generator)):
            due = believed(example.function(), here, alone, generator).gradients
            found = _compare(f"with only result {number} used", example, here, alone, due, None)
            if not found:
                break
        yield found


def _compare(
    text: str,
    example: Example,
    point: Point,
    cotangents: Sequence[torch.Tensor | None],
    expected: Mapping[str, torch.Tensor | None],
    wanted: Sequence[str] | None,
) -> list[Wrong]:
    try:
        found = products(example.side(), point, cotangents, wanted).gradients
    except Raised as error:
        return [_under(text, Wrong("", Problem("raised", f"its backward raised {error}")))]
    wrong: list[Wrong] = []
    for name, gradient in found.items():
        due = expected[name]
        # An input that needs no gradient in this way, or results that agree to the last bit, say nothing more.
        problem = diagnose(gradient, due, point.tensors[name].shape, DOUBLE)
        if problem is not None:
            wrong.append(_under(text, Wrong(name, problem)))
    return wrong


def _own_dtype(example: Example, generator: torch.Generator) -> list[Wrong] | None:
    """In the dtypes of the example: whether each gradient has its input's; values are not looked at."""
    if all(example.tensors[name].dtype == torch.float64 for name in example.moving):
        return None
    spy = Spy()
    operator = spy.on(example.operator)
    leaves = {
        name: value.detach().clone().requires_grad_(name in example.moving)
        for name, value in example.tensors.items()
    }
    try:
        outputs = _flat(operator(**{**example.plain, **leaves}))
    except RuntimeError:
        return None  # torch lacks a kernel for the dtype
    used = [output for output in outputs if output.requires_grad]
    grads = [torch.randn(output.shape, generator=generator).to(output.dtype) for output in used]
    try:
        torch.autograd.grad(used, [leaves[n] for n in example.moving], grads, allow_unused=True)
    except Exception as error:  # noqa: BLE001  (the backward is anybody's code)
        text = f"its backward raised {Raised(error, backward=True)} (in the dtypes of the example)"
        if not spy.problems:
            return [Wrong("", Problem("raised", text))]
    return [Wrong(name, problem) for name, problem in spy.problems]


def _omitted(example: Example) -> Iterator[tuple[str, Example]]:
    """The calls that leave out tensors which may be left out, where the function takes them."""
    optional = example.optional()
    for count in range(1, len(optional) + 1):
        for names in itertools.combinations(optional, count):
            if count not in (1, len(optional)):
                continue
            variant = example.without(names)
            if not variant.moving:
                continue
            try:
                results(variant.function(), variant.point())
            except Raised:
                continue  # the function needs one of them
            yield f"with {_listed(names)} omitted", variant


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    if len(names) <= _MOST_INPUTS:
        for count in range(1, len(names)):
            yield from itertools.combinations(names, count)
        return
    for name in names:
        yield (name,)
        yield tuple(other for other in names if other != name)


def _strided(tensor: torch.Tensor | None) -> Any:
    """The same values with gaps between neighbours and the last axis outermost: nothing that ``view`` takes."""
    if tensor is None:
        return None
    axes = tuple(reversed(range(tensor.ndim)))
    made = torch.zeros((*(tensor.shape[axis] for axis in axes), 2), dtype=tensor.dtype)[..., 0].permute(axes)
    return made.copy_(tensor)


def _under(text: str, wrong: Wrong) -> Wrong:
    return Wrong(wrong.input, Problem(wrong.problem.kind, f"{wrong.problem.text} ({text})"))


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"'{name}'" for name in names)


def _flat(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)
