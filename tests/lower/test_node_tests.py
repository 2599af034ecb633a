"""ONNX's own node tests, brought to other opsets and judged by their recorded results.

The same code as ``benchmarks/lowering.py``, which counts them all; here the tests whose operators have a form of ours.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from onnx.backend.test.case.node import collect_testcases

from rewriter.lower.forms import FORMS, forms_of

ROOT = Path(__file__).parents[2]


def _benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("lowering_benchmark", ROOT / "benchmarks" / "lowering.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


bench = _benchmark()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # onnx computes its expected results here, infinities among them
    TESTS = {test.name: test for test in collect_testcases(None)}
#: What no opset before has: bits of one type read as another, and lists of unknown length.
REFUSED = (
    "bitcast",
    "sequence_map",
    "optional",
    "if_opt",
    "loop16_seq_none",
    "image_decoder",
    "string",
    "regex",
)


def _sample() -> list[str]:
    """The first two tests of every operator that has a form."""
    forms_of("Shape")
    found: dict[str, list[str]] = {}
    for name, test in TESTS.items():
        operators = {node.op_type for node in test.model.graph.node} & FORMS.keys()
        if len(test.model.graph.node) == 1 and operators and bench.has_answer(test, 13):
            found.setdefault(operators.pop(), []).append(name)
    return [name for names in found.values() for name in names[:2] if not name.startswith("test_training")]


def _outcome(name: str, target: int) -> tuple[str, str]:
    test = TESTS[name]
    outcome, reason = bench.one(test, target, False)
    if outcome in ("wrong", "invalid", "evaluator") and bench.agrees(test, test.model)[0] != "right":
        outcome = "original too"
    return outcome, reason


@pytest.mark.parametrize("name", _sample())
def test_an_operator_with_a_form_is_right_at_13_and_11(name: str) -> None:
    for target in (13, 11):
        outcome, reason = _outcome(name, target)
        if outcome == "refused" and any(part in name for part in REFUSED):
            continue
        assert outcome in ("right", "random", "original too"), f"to {target}: {reason}"


@pytest.mark.full
@pytest.mark.parametrize("target", [11, 13, 17, 21])
def test_no_node_test_is_wrong_or_invalid(target: int) -> None:
    tally = bench.run(list(TESTS.values()), target, False)
    assert tally.bad == []
    assert tally.numbers["right"] / bench.judged(tally) > 0.98
