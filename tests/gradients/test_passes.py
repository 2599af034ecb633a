"""Every pass: the gradient that trains (its reference's) is the gradient of every graph that may ship."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING

import pytest
import torch
from onnx import defs

from rewriter.gradients.graphs import interpreted
from rewriter.gradients.result import AGREES, NO_GRADIENT, NOT_CHECKED
from rewriter.placeholder import available
from rewriter.testing.gradients import check_gradients, decomposed, model_of, point_of
from rewriter.testing.variants import LOWEST_OPSET, Variant, applies, opsets_of_interest
from tests.oracles.table import collected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Case, Decomposition, Placeholder

PASSES = available()

#: Pass and why no case of it has a gradient.
NOT_DIFFERENTIABLE: dict[str, str] = dict(collected("gradients", "NOT_DIFFERENTIABLE"))

#: Pass, a part of the case's text, and why autograd through the graph, or through the reference, fails there.
EXCEPTIONS: tuple[tuple[str, str, str], ...] = (
    (
        "neighborhood_attention",
        "float32[1, 9, 1, 2]",
        "its values hold an infinity: softmax's gradient is 0 · ∞",
    ),
    (
        "scaled_dot_product_attention",
        "bool[3, 3])",
        "a query may attend to nothing: softmax over −∞ alone is NaN, which a Where hides from the result and not from "
        "its gradient; PyTorch's own is 0",
    ),
    ("scaled_dot_product_attention", "float32[1, 2, 3, 4], float32[3, 3]", "likewise"),
    ("scaled_dot_product_attention", "bool[2, 1, 1, 2]", "likewise"),
    ("scaled_dot_product_attention", "bool[3, 3], is_causal=True", "likewise"),
    ("eigh", "float32[3, 3])", "the signs of the vectors are free, and the gradient has them"),
    ("svd", "float32[4, 3])", "likewise"),
)

#: Pass, a part of the case's text, and why it is left out: it would end the process.
LEFT_OUT: tuple[tuple[str, str, str], ...] = tuple(
    (
        "grid_sample",
        part,
        "PyTorch 2.13's backward of grid_sample reads out of bounds where a float64 grid is NaN",
    )
    for part in ("float32[1, 1, 8, 2]", "float32[1, 1, 5, 2]", "float32[1, 1, 1, 4, 3]")
)


def cases_of(placeholder: Placeholder) -> Iterator[tuple[int, Case]]:
    """The cases with their numbers."""
    left_out = [part for owner, part, _ in LEFT_OUT if owner == placeholder.pass_name()]
    for number, case in enumerate(placeholder.cases()):
        if not any(part in repr(case) for part in left_out):
            yield number, case


def dtype_of(placeholder: Placeholder, case: Case, dtype: str) -> str | None:
    """``dtype`` where the case is run in it, else the first floating-point dtype that it is run in."""
    allowed = [d for d in placeholder.dtypes if case.dtypes is None or d in case.dtypes] or list(
        case.dtypes or ()
    )
    floats = [d for d in allowed if "float" in d]
    return dtype if dtype in floats else next(iter(floats), None)


def opsets_of(case: Case, form: Decomposition) -> range:
    low, high = case.opsets or (LOWEST_OPSET, defs.onnx_opset_version())
    return range(max(low, form.opset), min(high, form.until or high) + 1)


def cheap(placeholder: Placeholder) -> Iterator[Variant]:
    """Each decomposition once, at its newest opset, on the first case that it serves and that has a gradient."""
    for form in placeholder.decompositions:
        for number, case in cases_of(placeholder):
            dtype, opsets = dtype_of(placeholder, case, "float32"), opsets_of(case, form)
            if dtype is None or not opsets:
                continue
            if any(owner == placeholder.pass_name() and part in repr(case) for owner, part, _ in EXCEPTIONS):
                continue
            variant = Variant(placeholder, number, dtype, opsets[-1], False, "graph", form.name)
            if serves(variant) and point_of(placeholder, case, model_of(variant)).moving:
                yield variant
                break


def complete(placeholder: Placeholder) -> Iterator[Variant]:
    """Every case in every decomposition and both wide dtypes, at every opset at which a form changes."""
    opsets = opsets_of_interest(placeholder)
    for number, case in cases_of(placeholder):
        for form in placeholder.decompositions:
            allowed = opsets_of(case, form)
            for opset in sorted({*opsets, *allowed[:1]} & set(allowed)):
                for dtype in dict.fromkeys(dtype_of(placeholder, case, d) for d in ("float32", "float64")):
                    for symbolic in (False, True) if case.symbolic else (False,):
                        if dtype is not None:
                            yield Variant(placeholder, number, dtype, opset, symbolic, "graph", form.name)


def serves(variant: Variant) -> bool:
    assert variant.decomposition is not None
    return applies(
        variant.placeholder,
        variant.case,
        dtype=variant.dtype,
        opset=variant.opset,
        symbolic=variant.symbolic,
        form=variant.decomposition,
    )


@functools.cache
def outcome(variant: Variant) -> str:
    """``"agrees"``, another status, or what is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's own, on sizes that cases are made of
        try:
            return check_gradients(variant).status
        except AssertionError as error:
            return str(error)


def check(placeholder: Placeholder, variants: Iterator[Variant]) -> list[Variant]:
    """The variants that agree; AssertionError where one does not and is not listed, or is listed and agrees."""
    name = placeholder.pass_name()
    listed = [part for owner, part, _ in EXCEPTIONS if owner == name]
    problems: list[str] = []
    good: list[Variant] = []
    failed: dict[str, bool] = dict.fromkeys(listed, False)
    for variant in variants:
        found = outcome(variant)
        covering = [part for part in listed if part in repr(variant.case)]
        if found == AGREES:
            good.append(variant)
        elif found not in (NO_GRADIENT, NOT_CHECKED):
            if not covering:
                problems.append(found)
            failed.update(dict.fromkeys(covering, True))
    assert not problems, "\n".join(problems[:20])
    assert all(failed.values()) or not good, (
        f"listed, but right: {[p for p, wrong in failed.items() if not wrong]}"
    )
    return good


@pytest.mark.parametrize("placeholder", PASSES, ids=lambda p: p.pass_name())
def test_what_trains_is_the_gradient_of_what_ships(placeholder: Placeholder) -> None:
    variants = list(cheap(placeholder))
    name = placeholder.pass_name()
    if name in NOT_DIFFERENTIABLE:
        assert {outcome(variant) for variant in variants} <= {NO_GRADIENT}
        return
    covered = {variant.decomposition for variant in variants}
    assert covered == {form.name for form in placeholder.decompositions}, "a decomposition without a case"
    for variant in variants:
        assert outcome(variant) == AGREES


@pytest.mark.full
@pytest.mark.parametrize("placeholder", PASSES, ids=lambda p: p.pass_name())
def test_in_full(placeholder: Placeholder) -> None:
    good = check(placeholder, complete(placeholder))
    assert bool(good) == (placeholder.pass_name() not in NOT_DIFFERENTIABLE)


@pytest.mark.full
@pytest.mark.parametrize("placeholder", PASSES, ids=lambda p: p.pass_name())
def test_gradcheck_of_the_graph(placeholder: Placeholder) -> None:
    """torch's own gradcheck of what the interpreter makes of the delivered nodes."""
    if placeholder.pass_name() in NOT_DIFFERENTIABLE:
        return
    for variant in cheap(placeholder):
        built = model_of(variant)
        point = point_of(placeholder, variant.case, built)
        side = interpreted(decomposed(variant), built.outputs)

        def function(*moved: torch.Tensor, point=point, side=side) -> tuple[torch.Tensor, ...]:
            found = side.call(point.moved(dict(zip(point.moving, moved, strict=True))).tensors)
            return tuple(item for item in found if item is not None and item.requires_grad)

        inputs = tuple(point.tensors[name].clone().requires_grad_() for name in point.moving)
        assert torch.autograd.gradcheck(function, inputs, fast_mode=True), variant


def test_what_is_listed_exists() -> None:
    assert NOT_DIFFERENTIABLE.keys() <= {p.pass_name() for p in PASSES}
    for owner, part, _ in (*EXCEPTIONS, *LEFT_OUT):
        cases = next(p for p in PASSES if p.pass_name() == owner).cases()
        assert any(part in repr(case) for case in cases), f"{owner}: no case '{part}'"


@pytest.mark.parametrize("listed", EXCEPTIONS, ids=lambda e: f"{e[0]} {e[1]}")
def test_what_is_listed_fails(listed: tuple[str, str, str]) -> None:
    owner, part, _ = listed
    placeholder = next(p for p in PASSES if p.pass_name() == owner)
    form = placeholder.decompositions[-1]
    cases = [(number, case) for number, case in enumerate(placeholder.cases()) if part in repr(case)]
    assert cases
    outcomes = [
        outcome(Variant(placeholder, number, "float32", opsets_of(case, form)[-1], False, "graph", item.name))
        for number, case in cases
        for item in placeholder.decompositions
    ]
    assert any(found not in (AGREES, NO_GRADIENT, NOT_CHECKED) for found in outcomes)
