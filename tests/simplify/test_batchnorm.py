"""Folding a BatchNormalization into the convolution before it; expected values are float64 numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from rewriter.simplify.batchnorm import fold
from rewriter.storage import ModelFile
from tests.simplify.conftest import assert_deliverable, draw, in_onnxruntime, run_stage

NAMES = {np.float32: "float", np.float16: "float16", np.float64: "double"}


def conv_bn(
    dtype: Any = np.float32, *, channels: int = 8, group: int = 1, bias: bool = True, spatial: int = 2
) -> ModelProto:
    """x → Conv → BatchNormalization → y, 4 input channels, kernel 3."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    kernel = (3,) * spatial
    weights = {
        "w": draw(channels, 4 // group, *kernel, dtype=dtype),
        "scale": draw(channels, seed=1, dtype=dtype),
        "shift": draw(channels, seed=2, dtype=dtype),
        "mean": draw(channels, seed=3, dtype=dtype),
        "var": abs(draw(channels, seed=4, dtype=dtype)) + dtype(0.5),
    }
    if bias:
        weights["b"] = draw(channels, seed=5, dtype=dtype)
    sizes = [f"s{i}" for i in range(spatial)]
    graph = helper.make_graph(
        [
            helper.make_node(
                "Conv", ["x", "w"] + ["b"] * bias, ["c"], name="conv", group=group, pads=[1] * 2 * spatial
            ),
            helper.make_node(
                "BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["y"], name="bn", epsilon=1e-3
            ),
        ],
        "g",
        [helper.make_tensor_value_info("x", kind, ["N", 4, *sizes])],
        [helper.make_tensor_value_info("y", kind, ["N", channels, *sizes])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def constants(model: ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def folded(model: ModelProto, **options: Any) -> tuple[ModelProto, int, tuple[str, ...]]:
    before = ModelProto.FromString(model.SerializeToString())
    with ModelFile.from_proto(model) as file:
        result = fold(file.model, file, **options)
        after = file.hydrate(result.model)
    assert model == before
    return after, result.count, result.notes


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("dtype", NAMES)
def test_weights_are_the_float64_result_rounded_once(dtype: Any, group: int, bias: bool) -> None:
    model = conv_bn(dtype, group=group, bias=bias)
    after, count, notes = folded(model)
    assert (count, notes) == (1, ())
    (node,) = after.graph.node
    assert (node.op_type, node.name, list(node.output)) == ("Conv", "conv", ["y"])
    assert list(node.attribute) == list(model.graph.node[0].attribute)
    old = {name: array.astype(np.float64) for name, array in constants(model).items()}
    factor = old["scale"] / np.sqrt(old["var"] + float(np.float32(1e-3)))
    new = constants(after)
    assert len(new) == 2
    expected = (old["w"].T * factor).T.astype(dtype)
    np.testing.assert_array_equal(new[node.input[1]], expected)
    shift = ((old.get("b", 0) - old["mean"]) * factor + old["shift"]).astype(dtype)
    np.testing.assert_array_equal(new[node.input[2]], shift)
    assert {array.dtype for array in new.values()} == {np.dtype(dtype)}


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("group", [1, 2])
def test_the_delivered_model_computes_the_same(spatial: int, group: int) -> None:
    model = conv_bn(group=group, spatial=spatial, channels=16)
    stage = run_stage(model)
    assert stage.result.accepted, stage.result
    assert_deliverable(stage)
    assert stage.types() == ["Conv"]
    onnx.checker.check_model(stage.after, full_check=True)
    x = draw(2, 4, *[5] * spatial)
    (old,), (new,) = in_onnxruntime(model, {"x": x}), in_onnxruntime(stage.after, {"x": x})
    np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)


def test_only_the_folded_weights_are_loaded() -> None:
    model = conv_bn(channels=32)
    model.graph.initializer.append(numpy_helper.from_array(draw(32, 500), "other"))
    model.graph.node.append(helper.make_node("MatMul", ["z", "other"], ["o"]))
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 32]))
    model.graph.output.append(helper.make_tensor_value_info("o", TensorProto.FLOAT, ["N", 500]))
    with ModelFile.from_proto(model) as file:
        loaded: list[str] = []
        array = file.array
        file.array = lambda tensor: loaded.append(tensor.name) or array(tensor)  # type: ignore[method-assign]
        result = fold(file.model, file)
    assert result.count == 1
    assert set(loaded) == {"w", "b", "scale", "shift", "mean", "var"}


def _training(model: ModelProto) -> None:
    model.graph.node[1].attribute.add(name="training_mode", type=2, i=1)
    model.graph.node[1].output.extend(["m", "v"])


def _read_twice(model: ModelProto) -> None:
    model.graph.node.append(helper.make_node("Relu", ["c"], ["r"]))
    model.graph.output.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, None))


def _output(model: ModelProto) -> None:
    model.graph.output.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, None))


def _captured(model: ModelProto) -> None:
    branch = helper.make_graph(
        [helper.make_node("Relu", ["c"], ["p"])], "b", [], [helper.make_tensor_value_info("p", 1, None)]
    )
    model.graph.input.append(helper.make_tensor_value_info("q", TensorProto.BOOL, []))
    model.graph.node.append(helper.make_node("If", ["q"], ["r"], then_branch=branch, else_branch=branch))
    model.graph.output.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, None))


def _shared(model: ModelProto) -> None:
    model.graph.node.append(helper.make_node("Conv", ["x", "w"], ["r"]))
    model.graph.output.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, None))


def _overridable(model: ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("mean", TensorProto.FLOAT, [8]))


def _computed(model: ModelProto) -> None:
    model.graph.node.insert(0, helper.make_node("Neg", ["var"], ["computed"]))
    model.graph.node[2].input[4] = "computed"


def _negative_variance(model: ModelProto) -> None:
    for tensor in model.graph.initializer:
        if tensor.name == "var":
            tensor.CopyFrom(numpy_helper.from_array(np.full(8, -1, np.float32), "var"))


def _wrong_size(model: ModelProto) -> None:
    for tensor in model.graph.initializer:
        if tensor.name == "mean":
            tensor.CopyFrom(numpy_helper.from_array(draw(7), "mean"))


def _mixed_types(model: ModelProto) -> None:
    for tensor in model.graph.initializer:
        if tensor.name == "var":
            tensor.CopyFrom(numpy_helper.from_array(np.ones(8, np.float64), "var"))


def _custom(model: ModelProto) -> None:
    model.graph.node[1].domain = "com.example"


@pytest.mark.parametrize(
    "change",
    [
        _training,
        _read_twice,
        _output,
        _captured,
        _shared,
        _overridable,
        _computed,
        _negative_variance,
        _wrong_size,
        _mixed_types,
        _custom,
    ],
)
def test_what_is_not_folded(change: Any) -> None:
    model = conv_bn()
    change(model)
    after, count, _ = folded(model)
    assert count == 0
    assert after == model


def test_pinned_weights_are_not_folded() -> None:
    model = conv_bn()
    assert folded(model, pinned={"w"})[1] == 0


def test_float16_that_would_overflow_is_not_folded() -> None:
    model = conv_bn(np.float16)
    for tensor in model.graph.initializer:
        if tensor.name == "scale":
            tensor.CopyFrom(numpy_helper.from_array(np.full(8, 6e4, np.float16), "scale"))
        if tensor.name == "w":
            tensor.CopyFrom(numpy_helper.from_array(np.full((8, 4, 3, 3), 100, np.float16), "w"))
    assert folded(model)[1] == 0


def test_constants_that_are_nodes() -> None:
    model = conv_bn()
    for tensor in list(model.graph.initializer):
        model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
    del model.graph.initializer[:]
    after, count, _ = folded(model)
    assert count == 1
    assert [node.op_type for node in after.graph.node] == ["Conv"]


def test_a_parameter_that_others_read_stays_for_them() -> None:
    """One scale for two normalisations: both are folded, from the same values."""
    model, second = conv_bn(), conv_bn()
    for node in second.graph.node:
        node.name += "2"
        for field in (node.input, node.output):
            for i, name in enumerate(field):
                field[i] = {"x": "y", "c": "c2", "y": "z", "w": "w2", "b": "b2"}.get(name, name)
    weights = {t.name: t for t in second.graph.initializer}
    model.graph.node.extend(second.graph.node)
    for name in ("w", "b"):
        weights[name].name += "2"
    weights["w"].CopyFrom(numpy_helper.from_array(draw(8, 8, 3, 3), "w2"))
    model.graph.initializer.extend([weights["w"], weights["b"]])
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 8, "s0", "s1"]))
    after, count, _ = folded(model)
    assert count == 2
    assert len(after.graph.initializer) == 4
    x = draw(1, 4, 6, 6)
    for new, old in zip(in_onnxruntime(after, {"x": x}), in_onnxruntime(model, {"x": x}), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-4)


def test_what_does_not_fit_is_left_and_noted() -> None:
    after, count, notes = folded(conv_bn(), budget=100)
    assert count == 0
    assert notes == ("1 BatchNormalization nodes were not folded: the weights are too large",)
    assert [node.op_type for node in after.graph.node] == ["Conv", "BatchNormalization"]


def test_new_names_are_new() -> None:
    model = conv_bn()
    model.graph.node.append(helper.make_node("Relu", ["x"], ["w_folded"]))
    model.graph.output.append(helper.make_tensor_value_info("w_folded", TensorProto.FLOAT, None))
    after, count, _ = folded(model)
    assert count == 1
    assert after.graph.node[0].input[1] == "w_folded_1"
