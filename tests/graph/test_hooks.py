"""The process's schema registry is as it was, whatever happened while a hook was there."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import defs, parser, shape_inference

from rewriter.graph.hooks import hooked

MODEL = """<ir_version: 8, opset_import: ["": 13, "com.example": 2]>
g (float[N, 3] x) => (y) { t = com.example.Op(x) y = Neg(t) }"""


def registered() -> set[tuple[str, str, int]]:
    return {(s.domain, s.name, s.since_version) for s in defs.get_all_schemas_with_history()}


def swap(context: Any) -> None:
    kind = context.get_input_type(0)
    kind.tensor_type.shape.dim.reverse()
    context.set_output_type(0, kind)


def inferred_rank_two() -> list[Any]:
    output = shape_inference.infer_shapes(parser.parse_model(MODEL)).graph.output[0]
    return [d.dim_param or d.dim_value for d in output.type.tensor_type.shape.dim]


def test_a_hook_infers_and_goes():
    before = registered()
    with hooked([("com.example", "Op", 2)], swap):
        assert inferred_rank_two() == [3, "N"]
    assert inferred_rank_two() == []
    assert registered() == before


def test_a_schema_that_was_there_comes_back():
    mine = defs.OpSchema("Op", "com.example", 2, inputs=[], outputs=[], doc="mine")
    defs.register_schema(mine)
    try:
        with hooked([("com.example", "Op", 2)], swap):
            assert inferred_rank_two() == [3, "N"]
        assert defs.get_schema("Op", 2, "com.example").doc == "mine"
    finally:
        defs.deregister_schema("Op", 2, "com.example")


def test_a_standard_operator_keeps_its_own_schema():
    original = defs.get_schema("Reshape", 13)
    with hooked([("", "Reshape", 13)], swap):
        assert defs.get_schema("Reshape", 13).doc != original.doc
        assert defs.get_schema("Reshape", 14).since_version == 14
    assert defs.get_schema("Reshape", 13).doc == original.doc
    assert defs.get_schema("Reshape", 13).has_type_and_shape_inference_function


def test_everything_goes_when_the_block_raises():
    before = registered()
    with pytest.raises(KeyboardInterrupt), hooked([("com.example", "Op", 2), ("", "Roll", 13)], swap):
        raise KeyboardInterrupt
    assert registered() == before


def test_one_in_another():
    with hooked([("com.example", "Op", 2)], swap):
        with hooked((), swap):
            pass
        assert inferred_rank_two() == [3, "N"]


def test_an_interrupt_in_a_hook_is_not_lost():
    """onnx turns what a hook raises into an error of the model."""
    calls = []

    def hook(context: object) -> None:
        calls.append(context)
        raise KeyboardInterrupt

    def twice() -> None:
        with hooked([("com.example", "Op", 2)], hook):
            inferred_rank_two()
            inferred_rank_two()

    before = registered()
    with pytest.raises(KeyboardInterrupt):
        twice()
    assert len(calls) == 1
    assert registered() == before
