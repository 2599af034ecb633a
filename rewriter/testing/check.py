"""Running one variant of a pass against its PyTorch reference."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.errors import CannotVerifyError, RewriteError
from rewriter.testing.models import build
from rewriter.testing.variants import Variant, applies, only

if TYPE_CHECKING:
    from rewriter.placeholder import Placeholder


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
    from rewriter.decompose import decompose
    from rewriter.execution.session import Session
    from rewriter.placeholder import Selection
    from rewriter.storage import ModelFile

    placeholder, case = variant.placeholder, variant.case
    if variant.decomposition is not None and not applies(
        placeholder,
        case,
        dtype=variant.dtype,
        opset=variant.opset,
        symbolic=variant.symbolic,
        form=variant.decomposition,
    ):
        return Outcome.NOT_APPLICABLE
    expected = reference_of(variant)
    built = build(
        placeholder,
        case,
        dtype=variant.dtype,
        opset=variant.opset,
        symbolic=variant.symbolic,
        place=variant.place,
        outputs=len(expected),
    )
    forced = only(placeholder, variant.decomposition)
    with ModelFile.from_proto(built.model) as file:
        decompose(file, Selection((forced,), frozenset({forced.pass_name()})))
        leftover = {n.domain for n in file.model.graph.node} - {"", "test.local"}
        assert not leftover, f"{variant}: nodes of {leftover} are left"
        try:
            session = Session(file, file.model)
            found = session.run(built.feeds, list(built.outputs))
        except CannotVerifyError:
            return Outcome.NO_KERNEL
        except RewriteError as error:
            raise AssertionError(f"{variant} {case}: {error}") from error
    for name, want in zip(built.outputs, expected, strict=True):
        problem = compare(placeholder, np.asarray(found[name]), want)
        assert problem is None, f"{variant} {case}: output '{name}' {problem}"
    if placeholder.compares:
        more = (built.arguments,) if placeholder.compares_arguments else ()
        problem = placeholder.compare(tuple(found[name] for name in built.outputs), tuple(expected), *more)
        assert problem is None, f"{variant} {case}: {problem}"
    return Outcome.AGREES


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


def compare(placeholder: Placeholder, found: Any, expected: Any) -> str | None:
    """What is wrong, in a clause; by the pass's own tolerance for the dtype, else the one for a single operator."""
    from rewriter.verify.compare import REGION, Tolerance, judge, measure, tolerance_for

    metrics = measure(found, expected)
    if placeholder.compares and metrics.comparable:
        return None  # the pass judges the values itself, all results together
    own = placeholder.tolerances.get(str(expected.dtype))
    tolerance = Tolerance(*own) if own is not None else tolerance_for(str(expected.dtype), REGION)
    return judge(found, expected, metrics, tolerance)
