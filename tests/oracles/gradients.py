"""gradcheck of a reference over the cases of its pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.placeholder import TensorSpec
from rewriter.placeholder.contract import FLOATS
from rewriter.testing.models import build
from rewriter.verify.values import to_torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Case, Placeholder


def checks(placeholder: Placeholder, *, full: bool = False) -> Iterator[tuple[Case, str | None]]:
    """The cases that hold something to differentiate by, and what is wrong with the gradient there.

    Inputs whose values a case gives are held fixed: they stand where something special happens.
    """
    import numpy as np

    # Whether a runtime has kernels of float64 does not matter here.
    if not set(FLOATS) & set(placeholder.dtypes):
        return
    for case in placeholder.cases():
        if case.dtypes is not None and "float64" not in case.dtypes:
            continue
        arguments = case.arguments(placeholder.signature.names)
        built = build(placeholder, case, dtype="float64", opset=13, symbolic=False, place="graph")
        moving: list[Any] = []

        def tensor(array: Any, spec: Any, moving: list[Any] = moving) -> Any:
            value = to_torch(np.asarray(array))
            if isinstance(spec, TensorSpec) and spec.varies and spec.value is None and value.numel():
                moving.append(value.requires_grad_())
            return value

        given: dict[str, Any] = {}
        for name, value in built.arguments.items():
            spec = arguments[name]
            if isinstance(spec, tuple) and spec and isinstance(spec[0], TensorSpec):
                given[name] = tuple(tensor(v, s) for v, s in zip(value, spec, strict=True))
            elif isinstance(value, np.ndarray):
                given[name] = tensor(value, spec)
            else:
                given[name] = value
        if moving:
            yield case, _problem(placeholder, given, moving, full)


def _problem(placeholder: Placeholder, given: dict[str, Any], moving: list[Any], full: bool) -> str | None:
    import torch

    def function(*replaced: Any) -> Any:
        swap = {id(old): new for old, new in zip(moving, replaced, strict=True)}

        def put(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(put(item) for item in value)
            return swap.get(id(value), value)

        made = placeholder.reference(**{name: put(value) for name, value in given.items()})
        results = made if isinstance(made, (tuple, list)) else [made]
        return tuple(r for r in results if r is not None and r.is_floating_point() and r.requires_grad)

    if not function(*moving):
        return "no result depends on the inputs"
    try:
        torch.autograd.gradcheck(function, tuple(moving), fast_mode=not full)
    except RuntimeError as error:  # GradcheckError is one
        return " ".join(str(error).split())[:300]
    return None
