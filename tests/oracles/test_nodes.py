"""ONNX's own node tests for the operators that a pass equals; see the package's docstring."""

from __future__ import annotations

import pytest

from rewriter.placeholder import available
from tests.oracles.nodes import OPSETS, examples_of, outcome
from tests.oracles.run import Result
from tests.oracles.table import NodeRow, Unrun, collected

PASSES = {p.pass_name(): p for p in available()}
ROWS: list[NodeRow] = collected("nodes", "ROWS")
UNRUN: list[Unrun] = collected("nodes", "UNRUN")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.pass_name}-{row.op_type}")
def test_node_tests(row: NodeRow) -> None:
    problems, agreed, names = [], 0, set()
    for case in examples_of(row):
        names.add(case.name)
        for opset in OPSETS:
            for symbolic in (False, True):
                result, message = outcome(PASSES[row.pass_name], row, case, opset, symbolic=symbolic)
                covering = [u for u in UNRUN if u.covers(row.pass_name, case.name, 0, "", opset, symbolic)]
                expected = covering[0].result if covering else Result.AGREES
                agreed += result is Result.AGREES
                if result is not expected:
                    sizes = "symbolic" if symbolic else "static"
                    problems.append(
                        f"{case.name} opset {opset} {sizes}: {result.value}, expected {expected.value}: {message}"
                    )
    assert names, f"ONNX has no node test of {row.op_type}"
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:20])
    assert agreed, "no test agrees"


def test_what_is_listed_exists() -> None:
    assert {row.pass_name for row in ROWS} <= set(PASSES)
    known = {(row.pass_name, case.name) for row in ROWS for case in examples_of(row)}
    assert {(u.pass_name, u.entry) for u in UNRUN} <= known
