"""ONNX's own node tests as a source of inputs and expected outputs."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import defs, helper

from tests.oracles.run import Result, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Placeholder
    from tests.oracles.table import NodeRow

#: Opsets at which each test is run; its own operator may well be newer.
OPSETS = (13, defs.onnx_opset_version())


@functools.cache
def cases() -> dict[str, list[Any]]:
    """All node tests that hold a single node, by its operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases()
    by_operator: dict[str, list[Any]] = {}
    for case in found:
        if case.model is not None and len(case.model.graph.node) == 1 and case.data_sets:
            by_operator.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return by_operator


def outcome(
    placeholder: Placeholder, row: NodeRow, case: Any, opset: int, *, symbolic: bool = False
) -> tuple[Result, str]:
    """What comes out of one test."""
    node = case.model.graph.node[0]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
    names = [i.name for i in case.model.graph.input]
    for inputs, outputs in case.data_sets:
        values = dict(zip(names, inputs, strict=False))
        given = [np.asarray(values[name]) if name else None for name in node.input]
        try:
            arguments = row.adapt(attributes, given)
        except Exception as error:  # noqa: BLE001
            return Result.BROKEN, f"{type(error).__name__}: {error}"
        result, message = run(
            placeholder,
            arguments,
            [np.asarray(o) for o in outputs],
            opset=opset,
            symbolic=symbolic,
            tolerance=row.tolerance,
        )
        if result is not Result.AGREES:
            return result, message
    return Result.AGREES, ""


def examples_of(row: NodeRow) -> Iterator[Any]:
    yield from sorted(cases().get(row.op_type, ()), key=lambda case: case.name)
