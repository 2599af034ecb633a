"""The cases of the passes, decomposed, in the interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.decompose import decompose
from rewriter.execution.values import from_torch, to_torch
from rewriter.interpret import Interpreter
from rewriter.placeholder import Selection
from rewriter.storage import ModelFile
from rewriter.testing.check import compare, reference_of
from rewriter.testing.models import build
from rewriter.testing.variants import applies, only

if TYPE_CHECKING:
    from rewriter.testing import Variant


def problem(variant: Variant) -> str | None:
    """What is wrong with what the interpreter makes of the variant, held against the pass's reference."""
    placeholder, case = variant.placeholder, variant.case
    if variant.decomposition is not None and not applies(
        placeholder,
        case,
        dtype=variant.dtype,
        opset=variant.opset,
        symbolic=variant.symbolic,
        form=variant.decomposition,
    ):
        return None
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
        interpreter = Interpreter(file.model, file=file)
    made = interpreter({name: to_torch(np.asarray(value)) for name, value in built.feeds.items()})
    found: list[Any] = [from_torch(made[name]) for name in built.outputs]
    for name, array, want in zip(built.outputs, found, expected, strict=True):
        wrong = compare(placeholder, array, want)
        if wrong is not None:
            return f"{variant} {case}: output '{name}' {wrong}"
    if placeholder.compares:
        wrong = placeholder.compare(tuple(found), tuple(expected))
        return None if wrong is None else f"{variant} {case}: {wrong}"
    return None


def exact(variant: Variant) -> bool:
    """Whether the attributes, which are float32, hold the case's numbers as they are given to the reference."""
    values = variant.case.arguments(variant.placeholder.signature.names).values()
    flat = [item for value in values for item in (value if isinstance(value, (tuple, list)) else (value,))]
    defaults = [p.default for p in variant.placeholder.signature.parameters]
    numbers = [item for item in (*flat, *defaults) if isinstance(item, float) and np.isfinite(item)]
    return all(float(np.float32(number)) == number for number in numbers)
