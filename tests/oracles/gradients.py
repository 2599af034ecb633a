"""gradcheck of a reference over the cases of its pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.placeholder.contract import FLOATS
from rewriter.testing.gradients import point_of, reference_of_case
from rewriter.testing.models import build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.gradients.sides import Point, Side
    from rewriter.placeholder import Case, Placeholder


def checks(placeholder: Placeholder, *, full: bool = False) -> Iterator[tuple[Case, str | None]]:
    """The cases that hold something to differentiate by, and what is wrong with the gradient there.

    Inputs whose values a case gives are held fixed: they stand where something special happens.
    """
    # Whether a runtime has kernels of float64 does not matter here.
    if not set(FLOATS) & set(placeholder.dtypes):
        return
    for case in placeholder.cases():
        if case.dtypes is not None and "float64" not in case.dtypes:
            continue
        built = build(placeholder, case, dtype="float64", opset=13, symbolic=False, place="graph")
        point = point_of(placeholder, case, built)
        if point.moving:
            yield case, _problem(reference_of_case(placeholder, case, built.outputs), point, full)


def _problem(reference: Side, point: Point, full: bool) -> str | None:
    import torch

    def function(*moved: Any) -> Any:
        results = reference.call(point.moved(dict(zip(point.moving, moved, strict=True))).tensors)
        return tuple(r for r in results if r is not None and r.is_floating_point() and r.requires_grad)

    moving = tuple(point.tensors[name].requires_grad_() for name in point.moving)
    if not function(*moving):
        return "no result depends on the inputs"
    try:
        torch.autograd.gradcheck(function, moving, fast_mode=not full)
    except RuntimeError as error:  # GradcheckError is one
        return " ".join(str(error).split())[:300]
    return None
