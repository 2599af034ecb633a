"""Running one variant of a pass against its PyTorch reference."""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.errors import CannotVerifyError, RewriteError
from rewriter.testing.models import build
from rewriter.testing.variants import Variant, applies, only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rewriter.placeholder import Placeholder
    from rewriter.storage import ModelFile
    from rewriter.testing.models import CaseModel


class Outcome(Enum):
    AGREES = "agrees"
    #: The decomposition's own precondition does not hold for the case.
    NOT_APPLICABLE = "not applicable"
    #: onnxruntime lacks a kernel for the dtype.
    NO_KERNEL = "no kernel"


def check(variant: Variant) -> Outcome:
    """Decompose the variant's model, run it in onnxruntime, and compare with the reference.

    AssertionError where they differ, or where anything of the placeholder is left.
    """
    from rewriter.execution.session import Session

    if not holds(variant):
        return Outcome.NOT_APPLICABLE
    expected = reference_of(variant)
    built = model_of(variant, len(expected))
    with decomposed(variant, built) as file:
        leftover = {n.domain for n in file.model.graph.node} - {"", "test.local"}
        assert not leftover, f"{variant}: nodes of {leftover} are left"
        try:
            found = Session(file, file.model).run(built.feeds, list(built.outputs))
        except CannotVerifyError:
            return Outcome.NO_KERNEL
        except RewriteError as error:
            raise AssertionError(f"{variant} {variant.case}: {error}") from error
    problem = disagreement(variant, built, found, expected)
    assert problem is None, problem
    return Outcome.AGREES


def holds(variant: Variant) -> bool:
    """Whether the decomposition says that it is right for the case."""
    return variant.decomposition is None or applies(
        variant.placeholder,
        variant.case,
        dtype=variant.dtype,
        opset=variant.opset,
        symbolic=variant.symbolic,
        form=variant.decomposition,
    )


def model_of(variant: Variant, outputs: int | None = None) -> CaseModel:
    """The variant's case as a model with the placeholder, of so many results (by default all)."""
    return build(
        variant.placeholder,
        variant.case,
        dtype=variant.dtype,
        opset=variant.opset,
        symbolic=variant.symbolic,
        place=variant.place,
        outputs=outputs,
    )


@contextmanager
def decomposed(variant: Variant, built: CaseModel) -> Iterator[ModelFile]:
    """The model with the placeholder replaced by the variant's decomposition."""
    from rewriter.decompose import decompose
    from rewriter.placeholder import Selection
    from rewriter.storage import ModelFile

    forced = only(variant.placeholder, variant.decomposition)
    with ModelFile.from_proto(built.model) as file:
        decompose(file, Selection((forced,), frozenset({forced.pass_name()})))
        yield file


def disagreement(
    variant: Variant, built: CaseModel, found: Mapping[str, Any], expected: Sequence[Any]
) -> str | None:
    """What is wrong with the model's outputs, by name, against the reference's results; None where they agree."""
    placeholder = variant.placeholder
    for name, want in zip(built.outputs, expected, strict=True):
        problem = compare(placeholder, np.asarray(found[name]), want, lambda: built.arguments)
        if problem is not None:
            return f"{variant} {variant.case}: output '{name}' {problem}"
    if not placeholder.compares:
        return None
    more = (built.arguments,) if placeholder.compares_arguments else ()
    problem = placeholder.compare(tuple(found[name] for name in built.outputs), tuple(expected), *more)
    return None if problem is None else f"{variant} {variant.case}: {problem}"


def reference_of(variant: Variant) -> list[Any]:
    """What the reference gives on the variant's inputs, as arrays."""
    import torch

    from rewriter.execution.values import from_torch, to_torch

    placeholder = variant.placeholder
    built = build(
        placeholder, variant.case, dtype=variant.dtype, opset=variant.opset, symbolic=False, place="graph"
    )

    def torch_value(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return to_torch(value)
        if isinstance(value, tuple):
            return tuple(torch_value(item) for item in value)
        return value

    with torch.no_grad():
        made = placeholder.reference(**{name: torch_value(value) for name, value in built.arguments.items()})
    results = made if isinstance(made, (tuple, list)) else [made]
    return [from_torch(result) for result in results if result is not None]


def compare(
    placeholder: Placeholder,
    found: Any,
    expected: Any,
    arguments: Callable[[], Mapping[str, Any]] | None = None,
) -> str | None:
    """What is wrong, in a clause; by the pass's own tolerance for the dtype, else the one for a single operator.

    ``arguments`` gives those of the reference, by which the errors of kernels are multiplied (`Placeholder.terms`).
    """
    from rewriter.verify.compare import judge, measure
    from rewriter.verify.judgement import Judgement

    metrics = measure(found, expected)
    if placeholder.compares and metrics.comparable:
        return None  # the pass judges the values itself, all results together
    judgement = Judgement()
    tolerance = judgement.region(placeholder, str(expected.dtype))
    terms = None if arguments is None else judgement.terms(placeholder, arguments, expected)
    return judge(found, expected, metrics, tolerance, terms)
