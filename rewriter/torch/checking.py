"""Whether an operator's own backward is its gradient, and that of the decomposition that ships: a line in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rewriter.errors import CannotInterpretError, DecompositionError, GradientError, UsageError, Where
from rewriter.gradients.forward import Unlike
from rewriter.gradients.judge import OF_THE_GRAPH, Comparison, Wrong
from rewriter.gradients.own import Example, examine
from rewriter.gradients.result import NO_GRADIENT, NOT_CHECKED, SURROGATE, GradientResult
from rewriter.gradients.sides import Raised, excusing, results
from rewriter.gradients.slack import slacks_for
from rewriter.torch.operator import DEFAULT_OPSET, PlaceholderFunction

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rewriter.placeholder.contract import Placeholder


def check_gradients(
    operator: PlaceholderFunction,
    *args: Any,
    passes: str | Iterable[str | type[Placeholder] | Placeholder] = "auto",
    opset: int = DEFAULT_OPSET,
    seed: int = 0,
    **kwargs: Any,
) -> GradientResult:
    """Check the gradient of ``operator`` on the example arguments of one call.

    In float64, on copies: its ``backward`` (without one, autograd) against numeric differences of its function; then
    in every way in which autograd may call it: for some inputs only, with one result used, with incoming gradients
    and inputs that are not contiguous, with optional tensors omitted; and in the example's own dtypes.  Where a pass
    takes the operator, the same against the decomposition that ships, at ``opset``: ``passes`` as in
    :func:`rewriter.rewrite`; one that is named must take it.

    Returns the figures.  Raises GradientError that says which input's gradient is wrong, and how; UsageError for
    arguments that hold no floating-point tensor, or an operator that does not run in float64.
    """
    if not isinstance(operator, PlaceholderFunction):
        raise UsageError(
            f"{operator!r} is no operator",
            where="check_gradients",
            remedy="decorate it with @rewriter.torch.placeholder",
        )
    where = Where(operator=operator.qualified_name)
    generator = torch.Generator().manual_seed(seed)
    arguments = operator.parameters.bind(args, kwargs)
    tensors = {name: value.detach() for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    example = Example(
        operator, {name: value for name, value in arguments.items() if name not in tensors}, tensors
    )
    if not example.moving:
        raise UsageError(
            "no argument is a floating-point tensor, so there is no gradient to check",
            where=where,
            remedy="give an example to call it with",
        )
    result = GradientResult(
        "", "", where, trained="its backward" if operator.has_backward else "autograd", samples=1
    )
    try:
        expected = results(example.function(), example.point())
        wrong = examine(example, generator, result)
    except Raised as error:
        raise UsageError(
            f"it does not run on float64 copies of the example: {error}",
            where=where,
            remedy="give tensors that it makes the dtype of its inputs (dtype=x.dtype)",
        ) from error
    except Unlike as error:
        raise UsageError(
            f"its results differ from one call to the next: {error}",
            where=where,
            remedy="leave what is random out of the operator, or give it as an argument",
        ) from error
    if wrong:
        raise _error(
            wrong, operator, "correct its backward" if operator.has_backward else "give it a backward"
        )
    if operator.surrogate:
        result.leave(SURROGATE, operator.surrogate)
    _against_the_decomposition(example, len(expected), passes, opset, generator, result)
    return result


def _against_the_decomposition(
    example: Example,
    count: int,
    passes: str | Iterable[str | type[Placeholder] | Placeholder],
    opset: int,
    generator: torch.Generator,
    result: GradientResult,
) -> None:
    """The same against what ships, where a pass takes the operator."""
    if not passes:
        return
    # Not before it is needed: operators are defined in programs that rewrite nothing.
    from rewriter.gradients.graphs import decomposed, interpreted
    from rewriter.placeholder.registry import Selection

    selection = Selection.load(passes)
    try:
        found = decomposed(example, count, selection, opset)
    except DecompositionError as error:
        if selection.named:
            raise
        result.notes.append(f"no decomposition: {error}")
        return
    if found is None:
        if selection.named:
            raise UsageError(
                f"no pass of {', '.join(sorted(selection.named))} takes it",
                where=result.where,
                remedy="name the operator in the pass's `matches`",
            )
        result.notes.append("no installed pass takes it, so there is no decomposition to compare with")
        return
    model, region = found
    result.pass_name, result.decomposition = region.placeholder.pass_name(), region.decomposition
    what = f"the decomposition '{region.decomposition}' of pass '{result.pass_name}'"
    held = GradientResult(result.pass_name, result.decomposition, result.where)
    try:
        shipped = excusing(interpreted(model, [output.name for output in model.graph.output], name=what))
        slacks = slacks_for(str(value.dtype).removeprefix("torch.") for value in example.tensors.values())
        comparison = Comparison(example.side(), shipped, generator, slacks=slacks)
        wrong = comparison.hold(example.point(), held)
    except CannotInterpretError as error:
        result.notes.append(f"{what} is not compared: {error.what}")
        return
    except Unlike as error:
        raise GradientError(
            f"it computes something else than {what}: {error}",
            where=result.where,
            remedy="correct its function, or the pass",
        ) from error
    except Raised as error:
        raise GradientError(
            f"{what} does not run on the example: {error}", where=result.where, remedy="correct the pass"
        ) from error
    if example.operator.surrogate or held.status in (NO_GRADIENT, NOT_CHECKED):
        return
    faults = [item for item in wrong if item.problem.kind not in OF_THE_GRAPH]
    if faults:
        raise _error(
            faults,
            example.operator,
            f"{what} has another gradient: correct the operator's, or the pass",
            what,
        )
    result.warnings += [str(item) for item in wrong]
    for entry in held.inputs:
        result.input(entry.name).see(
            max_abs=entry.max_abs, max_scaled=entry.max_scaled, max_numeric=entry.max_numeric
        )


def _error(
    wrong: list[Wrong], operator: PlaceholderFunction, remedy: str, against: str = ""
) -> GradientError:
    text = "; ".join(str(item) for item in wrong)
    return GradientError(
        f"{text} (against {against})" if against else text,
        where=Where(operator=operator.qualified_name),
        remedy=remedy,
    )
