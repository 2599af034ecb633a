"""Every case of every pass, decomposed and interpreted, is what the pass's PyTorch reference says.

This holds for float64 too, for which onnxruntime lacks half of the kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from onnx import defs

from rewriter.placeholder import available
from rewriter.testing import Variant, variants
from rewriter.testing.variants import exists_at
from tests.interpret.passes import exact, problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Placeholder

PASSES = {p.pass_name(): p for p in available()}


def _one_opset_each(placeholder: Placeholder) -> Iterator[Variant]:
    """Each case at one opset, in turn old and new, in float32 or else the pass's first type, and in float64."""
    newest = defs.onnx_opset_version()
    for number, case in enumerate(placeholder.cases()):
        low, high = case.opsets or (11, newest)
        opset = min(max((13, newest, 17, 20, 11, 18)[number % 6], low), high)
        dtypes = [d for d in placeholder.dtypes if case.dtypes is None or d in case.dtypes] or list(
            case.dtypes or ()
        )
        symbolic = case.symbolic and number % 2 == 1
        for dtype in {"float32" if "float32" in dtypes else dtypes[0], *({"float64"} & set(dtypes))}:
            if exists_at(dtype, opset):
                yield Variant(placeholder, number, dtype, opset, symbolic, "graph", None)


@pytest.mark.parametrize("name", PASSES)
def test_cases(name: str) -> None:
    checked = [v for v in _one_opset_each(PASSES[name]) if v.dtype != "float64" or exact(v)]
    assert checked
    problems = [found for found in map(problem, checked) if found is not None]
    assert not problems, f"{len(problems)} of {len(checked)}:\n" + "\n".join(problems[:10])


@pytest.mark.full
@pytest.mark.parametrize("name", PASSES)
def test_all_variants(name: str) -> None:
    checked = [v for v in variants(PASSES[name]) if v.dtype != "float64" or exact(v)]
    problems = [found for found in map(problem, checked) if found is not None]
    assert not problems, f"{len(problems)} of {len(checked)}:\n" + "\n".join(problems[:10])
