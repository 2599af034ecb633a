"""Running one variant of a pass against the gradient of its reference."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rewriter.errors import Where
from rewriter.placeholder import Ref, TensorSpec
from rewriter.testing.check import decomposed, holds, model_of

if TYPE_CHECKING:
    from onnx import ModelProto

    from rewriter.gradients.result import GradientResult
    from rewriter.gradients.sides import Point, Side
    from rewriter.placeholder import Case, Placeholder
    from rewriter.testing.models import CaseModel
    from rewriter.testing.variants import Variant


def check_gradients(variant: Variant) -> GradientResult:
    """Decompose the variant's model, interpret it in float64, and hold its gradient against the reference's.

    Differentiated is by every floating-point input whose values the case leaves to be drawn, once more on other scales
    where it does not say how; the decomposition's own gradient is held against numeric differences.  AssertionError
    where anything differs; where there is nothing to hold, the status says why.
    """
    import torch

    from rewriter.gradients.forward import Unlike
    from rewriter.gradients.graphs import interpreted
    from rewriter.gradients.judge import NOT_FAR_OUT, Comparison
    from rewriter.gradients.result import AGREES, NO_GRADIENT, NOT_CHECKED, SURROGATE, GradientResult
    from rewriter.gradients.scales import elsewhere
    from rewriter.gradients.sides import Raised
    from rewriter.gradients.slack import slacks_for

    placeholder, case = variant.placeholder, variant.case
    result = GradientResult(placeholder.pass_name(), variant.decomposition or "", Where())
    if not holds(variant):
        result.leave(NOT_CHECKED, "the decomposition's precondition does not hold for the case")
        return result
    built = model_of(variant)
    point = point_of(placeholder, case, built)
    if not point.moving:
        result.leave(NO_GRADIENT, "no floating-point input varies")
        return result
    if placeholder.surrogate_gradient:
        result.leave(SURROGATE, placeholder.surrogate_gradient)
        return result
    trained = reference_of_case(placeholder, case, built.outputs)
    shipped = interpreted(hydrated(variant, built), built.outputs)
    generator = torch.Generator().manual_seed(case.seed)
    try:
        comparison = Comparison(trained, shipped, generator, slacks=slacks_for([variant.dtype]))
        wrong = comparison.hold(point, result)
    except Unlike as error:
        raise AssertionError(f"{variant} {case}: in float64, {error}") from error
    assert not wrong, f"{variant} {case}: {'; '.join(map(str, wrong))}"
    drawn = [name for name, spec in _specs(case, placeholder) if spec.draw is None]
    moved = elsewhere(point, (trained, shipped), drawn, generator) if result.status == AGREES else None
    if moved is not None:
        try:
            # Large elements hide in the results how far constants are rounded: allow all that there may be.
            comparison = replace(comparison, slacks=comparison.slacks[-1:])
            wrong = comparison.hold(moved, GradientResult(result.pass_name, result.decomposition, Where()))
        except (Unlike, Raised):
            return result  # whether the results agree there is not for this to say
        faults = [str(item) for item in wrong if item.problem.kind not in NOT_FAR_OUT]
        assert not faults, f"{variant} {case}: on other scales, {'; '.join(faults)}"
    return result


def hydrated(variant: Variant, built: CaseModel) -> ModelProto:
    """The case's model with the decomposition in its place, and all weights in it."""
    with decomposed(variant, built) as file:
        return file.hydrate(file.model)


def point_of(placeholder: Placeholder, case: Case, built: CaseModel) -> Point:
    """The inputs of a case in float64; those move whose values the case leaves to be drawn.

    Values that a case gives stand where something special happens.
    """
    from rewriter.gradients.sides import Point
    from rewriter.gradients.trained import wide

    tensors = {name: wide(value) for name, value in built.feeds.items()}
    specs = dict(_specs(case, placeholder))
    moving = tuple(
        name
        for name, spec in specs.items()
        if spec.varies and spec.value is None and tensors[name].numel() and tensors[name].is_floating_point()
    )
    return Point(tensors, moving)


def reference_of_case(placeholder: Placeholder, case: Case, outputs: tuple[str, ...]) -> Side:
    """The reference as a function of the case's tensors, by the names that they have in its model."""
    from rewriter.gradients.trained import reference_side

    arguments: dict[str, Any] = {}
    for name, value in case.arguments(placeholder.signature.names).items():
        if isinstance(value, TensorSpec):
            arguments[name] = Ref(name)
        elif isinstance(value, tuple) and value and isinstance(value[0], TensorSpec):
            arguments[name] = tuple(Ref(f"{name}_{number}") for number in range(len(value)))
        else:
            arguments[name] = tuple(value) if isinstance(value, list) else value
    return reference_side(placeholder, arguments, outputs)


def _specs(case: Case, placeholder: Placeholder) -> list[tuple[str, TensorSpec]]:
    found: list[tuple[str, TensorSpec]] = []
    for name, value in case.arguments(placeholder.signature.names).items():
        if isinstance(value, TensorSpec):
            found.append((name, value))
        elif isinstance(value, tuple):
            found += [
                (f"{name}_{number}", spec)
                for number, spec in enumerate(value)
                if isinstance(spec, TensorSpec)
            ]
    return found
