"""ONNX's own node tests, all of them, against the interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from rewriter.interpret import supported
from tests.interpret.nodes import Outcome, cases, outcome
from tests.interpret.table import ROWS, WIDENED

if TYPE_CHECKING:
    from tests.interpret.table import Row


#: The bodies that ONNX gives to operators, as models; without a kernel of its own the interpreter runs them anyway.
_EXPANDED = "_expanded"


@pytest.mark.parametrize(
    ("dtype", "rows", "expanded"),
    [
        pytest.param(None, ROWS, False, id="as_written"),
        pytest.param(None, ROWS, True, id="expanded", marks=pytest.mark.full),
        pytest.param(torch.float64, (*ROWS, *WIDENED), False, id="float64", marks=pytest.mark.full),
        pytest.param(torch.float64, (*ROWS, *WIDENED), True, id="expanded-float64", marks=pytest.mark.full),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_node_tests(dtype: Any, rows: tuple[Row, ...], expanded: bool) -> None:
    problems, agreed = [], 0
    for name, case in cases().items():
        if name.endswith(_EXPANDED) is not expanded:
            continue
        expected = next((row.outcome for row in rows if row.covers(name)), Outcome.AGREES)
        found, message = outcome(case, dtype)
        agreed += found is Outcome.AGREES
        if found is not expected:
            problems.append(f"{name}: {found.value}, expected {expected.value}: {message}")
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:30])
    assert agreed > (350 if expanded else 1100)


def test_every_row_covers_a_test() -> None:
    assert [row.pattern for row in (*ROWS, *WIDENED) if not any(row.covers(name) for name in cases())] == []


def test_every_operator_that_agrees_is_called_supported() -> None:
    for name, case in cases().items():
        version = next((item.version for item in case.model.opset_import if item.domain == ""), 0)
        operators = {node.op_type for node in case.model.graph.node if node.domain == ""}
        if version >= 11 and not any(row.covers(name) for row in ROWS):
            assert operators <= supported(version), name
