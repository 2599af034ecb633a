"""The shape arithmetic agrees with onnxruntime on all its operators, and gives up where only a part is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from rewriter.graph.arithmetic import OPERATORS, evaluate

I = lambda *v: np.asarray(v, np.int64)  # noqa: E731, E741
CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Identity", [I(1, 2)], {}),
    ("Gather", [I(4, 5, 6), np.asarray(-1)], {}),
    ("Gather", [np.arange(6).reshape(2, 3), I(2, 0)], {"axis": 1}),
    ("Concat", [I(1), I(2, 3)], {"axis": 0}),
    ("Unsqueeze", [np.asarray(7), I(0)], {}),
    ("Unsqueeze", [I(1, 2), I(0, 2)], {}),
    ("Squeeze", [I(7), I(0)], {}),
    ("Squeeze", [I(7)], {}),
    ("Reshape", [np.arange(6).reshape(2, 3), I(0, -1)], {}),
    ("Slice", [I(1, 2, 3, 4), I(-1), I(-(2**63) + 1), I(0), I(-1)], {}),
    ("Slice", [np.arange(8).reshape(4, 2), I(-1), I(-(2**63) + 1), I(0), I(-1)], {}),
    ("Slice", [I(1, 2, 3, 4), I(3), I(0), I(0), I(-2)], {}),
    ("Slice", [I(1, 2, 3, 4), I(1), I(2**31)], {}),
    ("Transpose", [np.arange(6).reshape(2, 3)], {"perm": [1, 0]}),
    ("Cast", [I(1, 2)], {"to": onnx.TensorProto.FLOAT}),
    ("Cast", [np.asarray([1.9, -1.9], np.float32)], {"to": onnx.TensorProto.INT64}),
    ("ConstantOfShape", [I(3)], {}),
    ("ConstantOfShape", [I(3, 2)], {"value": helper.make_tensor("v", onnx.TensorProto.INT64, [1], [7])}),
    ("Add", [I(1, 2), I(3)], {}),
    ("Sub", [I(1, 2), I(3, 5)], {}),
    ("Mul", [I(1, 2), np.asarray(4)], {}),
    ("Div", [I(7, 9), I(2)], {}),
    ("Div", [np.asarray([7.0], np.float32), np.asarray([2.0], np.float32)], {}),
    ("Mod", [I(-7, 7, -7), I(3, -3, -3)], {}),
    ("Mod", [I(-7, 7), I(3, -3)], {"fmod": 1}),
    ("Neg", [I(1, -2)], {}),
    ("Abs", [I(1, -2)], {}),
    ("Floor", [np.asarray([1.5, -1.5], np.float32)], {}),
    ("Ceil", [np.asarray([1.5, -1.5], np.float32)], {}),
    ("Min", [I(1, 5), I(3)], {}),
    ("Max", [I(1, 5), I(3), I(2, 9)], {}),
    ("Equal", [I(1, 5), I(5)], {}),
    ("Less", [I(1, 5), I(5)], {}),
    ("Greater", [I(1, 5), I(4)], {}),
    ("LessOrEqual", [I(1, 5), I(5)], {}),
    ("GreaterOrEqual", [I(1, 5), I(5)], {}),
    ("Not", [np.asarray([True, False])], {}),
    ("And", [np.asarray([True, False]), np.asarray([True, True])], {}),
    ("Or", [np.asarray([True, False]), np.asarray([False, False])], {}),
    ("Where", [np.asarray([True, False]), I(1, 2), I(3, 4)], {}),
    ("Range", [np.asarray(1), np.asarray(8), np.asarray(3)], {}),
    ("Range", [np.asarray(8), np.asarray(1), np.asarray(-2)], {}),
]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)]
)
def test_agrees_with_onnxruntime(op_type: str, inputs: list[Any], attributes: dict[str, Any]):
    import onnxruntime

    names = [f"i{k}" for k in range(len(inputs))]
    node = helper.make_node(op_type, names, ["o"], **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="o")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, dict(zip(names, inputs, strict=True)))[0]
    found = evaluate(node, inputs)
    assert found is not None
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_every_operator_has_a_case():
    assert {op_type for op_type, _, _ in CASES} == OPERATORS


def partial(*values: Any) -> Any:
    return np.asarray(values, dtype=object)


def test_moving_keeps_what_is_known():
    node = helper.make_node("Gather", ["s", "i"], ["o"])
    found = evaluate(node, [partial(None, 7, 9), np.asarray([1, 2])])
    assert found is not None
    assert (found.dtype, found.tolist()) == (np.int64, [7, 9])
    found = evaluate(node, [partial(None, 7, 9), np.asarray([0, 2])])
    assert found is not None
    assert (found.dtype, found.tolist()) == (object, [None, 9])


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Add", [partial(None, 7), I(1)], {}),
        ("Cast", [partial(None, 7)], {"to": onnx.TensorProto.FLOAT}),
        ("Mod", [I(7), I(0)], {}),
        ("Div", [I(7), I(0)], {}),
        ("Div", [I(-7), I(2)], {}),
        ("Gather", [I(1), I(5)], {}),
        ("Reshape", [I(1, 2), I(3)], {}),
        ("Concat", [I(1), I(2)], {}),
        ("ConstantOfShape", [I(2**40)], {}),
        ("ConstantOfShape", [I(-1)], {}),
        ("Range", [np.asarray(0), np.asarray(2**40), np.asarray(1)], {}),
        ("Range", [np.asarray(0), np.asarray(2), np.asarray(0)], {}),
        ("Softmax", [I(1)], {}),
    ],
)
def test_gives_up(op_type: str, inputs: list[Any], attributes: dict[str, Any]):
    names = [f"i{k}" for k in range(len(inputs))]
    assert evaluate(helper.make_node(op_type, names, ["o"], **attributes), inputs) is None
