"""The cases of the passes, decomposed, in the interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rewriter.execution.values import from_torch, to_torch
from rewriter.interpret import Interpreter
from rewriter.testing.check import decomposed, disagreement, holds, model_of, reference_of

if TYPE_CHECKING:
    from rewriter.testing import Variant


def problem(variant: Variant) -> str | None:
    """What is wrong with what the interpreter makes of the variant, held against the pass's reference."""
    if not holds(variant):
        return None
    expected = reference_of(variant)
    built = model_of(variant, len(expected))
    with decomposed(variant, built) as file:
        interpreter = Interpreter(file.model, file=file)
    made = interpreter({name: to_torch(np.asarray(value)) for name, value in built.feeds.items()})
    return disagreement(variant, built, {name: from_torch(made[name]) for name in built.outputs}, expected)


def exact(variant: Variant) -> bool:
    """Whether the attributes, which are float32, hold the case's numbers as they are given to the reference."""
    values = variant.case.arguments(variant.placeholder.signature.names).values()
    flat = [item for value in values for item in (value if isinstance(value, (tuple, list)) else (value,))]
    defaults = [p.default for p in variant.placeholder.signature.parameters]
    numbers = [item for item in (*flat, *defaults) if isinstance(item, float) and np.isfinite(item)]
    return all(float(np.float32(number)) == number for number in numbers)
