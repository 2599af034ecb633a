"""Nothing else changes: what is not a replaced node survives, equal as a parsed message, unknown fields included."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import onnx
import pytest

from rewriter.decompose import decompose
from rewriter.errors import OpsetError
from rewriter.storage import ModelFile
from tests.decompose.filled import UNKNOWN, all_fields, fields_set, filled_model
from tests.decompose.passes import Affine, evaluate, model_of, run_pass, selection


@functools.cache
def backend_models() -> list[tuple[str, onnx.ModelProto]]:
    """The node models of onnx's own backend test."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    return [(case.name, case.model) for case in cases if case.model is not None]


def sample(full: bool) -> list[tuple[str, onnx.ModelProto]]:
    return backend_models() if full else backend_models()[::15]


DEPTHS = [pytest.param(False, id="sample"), pytest.param(True, id="all", marks=pytest.mark.full)]


@pytest.mark.parametrize("full", DEPTHS)
def test_backend_models_without_placeholder_are_untouched(full: bool):
    models = sample(full)
    assert len(models) > (1800 if full else 100)
    for name, model in models:
        with ModelFile.from_proto(model) as file:
            before = file.model.SerializeToString()
            done = decompose(file, selection())
            assert file.model.SerializeToString() == before, name
            assert not done.changed
            assert not done.regions


@pytest.mark.parametrize("full", DEPTHS)
def test_backend_models_with_a_placeholder_added_keep_everything_else(full: bool):
    refused = 0
    for name, source in sample(full):
        model = onnx.ModelProto()
        model.CopyFrom(source)
        add_placeholder(model)
        version = {item.domain: item.version for item in model.opset_import}.get("")
        if version is None or version < 11:
            with pytest.raises(OpsetError):
                run_pass(model, Affine)
            refused += 1
            continue
        result, done = run_pass(model, Affine)
        assert len(done.regions) == 1, name
        assert without_the_new(result, {"rewriter.y"}) == source, name
    assert not full or refused < 80


def add_placeholder(model: onnx.ModelProto) -> None:
    """A node between the others that scales a new input into a new output."""
    graph = model.graph
    kind = onnx.helper.make_tensor_type_proto(1, ["rewriter.n", 3])
    graph.input.add(name="rewriter.x").type.CopyFrom(kind)
    graph.output.add(name="rewriter.y").type.CopyFrom(kind)
    node = onnx.helper.make_node(
        "Affine", ["rewriter.x"], ["rewriter.y"], name="rewriter.node", domain="com.example", scale=2.0
    )
    nodes = [*graph.node]
    nodes.insert(len(nodes) // 2, node)
    raw = [item.SerializeToString() for item in nodes]
    del graph.node[:]
    for data in raw:
        graph.node.add().MergeFromString(data)
    model.opset_import.add(domain="com.example", version=1)


def without_the_new(model: onnx.ModelProto, outputs: set[str]) -> onnx.ModelProto:
    """``model`` without the input, the output, and the nodes and constants that belong to the placeholder."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph

    def drop(field: Any, mine: Any) -> None:
        for index in reversed(range(len(field))):
            if mine(field[index]):
                del field[index]

    drop(graph.input, lambda value: value.name == "rewriter.x")
    drop(graph.output, lambda value: value.name in outputs)
    drop(graph.node, lambda node: str(node.name).startswith("rewriter.node"))
    drop(graph.initializer, lambda tensor: str(tensor.name).startswith("rewriter.node/"))
    drop(graph.value_info, lambda value: str(value.name).startswith("rewriter.node/"))
    return result


def test_every_field_of_the_protobuf_survives():
    source = filled_model()
    assert all_fields() - set(fields_set(source)) == set()
    raw = source.SerializeToString(deterministic=True)
    assert raw.count(UNKNOWN) > 1000
    with ModelFile.from_proto(source) as file:
        done = decompose(file, selection(Affine))
        result = file.hydrate(file.model)
    assert [region.where.node for region in done.regions] == ["placeholder"]
    # What was the placeholder's goes from both; the rest is compared byte for byte.
    expected = onnx.ModelProto.FromString(raw)
    del expected.graph.node[-1], expected.opset_import[-1]
    new = [node for node in result.graph.node if str(node.name).startswith("placeholder/")]
    assert [node.op_type for node in new] == ["Mul", "Add"]
    assert list(result.graph.node[-2:]) == new
    del result.graph.node[-2:]
    assert [str(t.name) for t in result.graph.initializer[-2:]] == [
        "placeholder/constant",
        "placeholder/constant_2",
    ]
    del result.graph.initializer[-2:]
    assert result.graph.value_info[-1].name == "placeholder/Mul_output_0"
    del result.graph.value_info[-1]
    assert result.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)


def test_every_field_survives_with_nothing_to_replace():
    source = filled_model()
    del source.graph.node[-1]
    with ModelFile.from_proto(source) as file:
        before = file.model.SerializeToString(deterministic=True)
        assert not decompose(file, selection(Affine)).changed
        assert file.model.SerializeToString(deterministic=True) == before


def test_initializers_that_are_also_inputs_and_types_of_every_kind():
    source = model_of(
        """<ir_version: 10, opset_import: ["": 21, "com.example": 1]>
        g (float[2] w, float[2] x, seq(float[2]) s, optional(float[2]) o, map(string, float[2]) m)
            => (float[2] y, seq(float[2]) t) <float[2] w = {1.0, 2.0}> {
            a = com.example.Affine<scale = 3.0>(w)
            y = Add(a, x)
            t = Identity(s)
        }"""
    )
    result, _ = run_pass(source)
    assert list(result.graph.input) == list(source.graph.input)
    assert list(result.graph.output) == list(source.graph.output)
    assert list(result.graph.initializer)[:1] == list(source.graph.initializer)


def test_unusual_tensors_survive():
    """int4, float8, bfloat16, strings and sparse tensors, beside a placeholder."""
    source = model_of(
        '<ir_version: 10, opset_import: ["": 21, "com.example": 1]> g (float[2] x) => (float[2] y) '
        "{ y = com.example.Affine<scale = 3.0>(x) }"
    )
    tensors = [
        onnx.helper.make_tensor("i4", onnx.TensorProto.INT4, [3], [1, -2, 7]),
        onnx.helper.make_tensor("f8", onnx.TensorProto.FLOAT8E4M3FN, [2], [0.5, 2.0]),
        onnx.helper.make_tensor("bf", onnx.TensorProto.BFLOAT16, [2], [0.5, 2.0]),
        onnx.helper.make_tensor("st", onnx.TensorProto.STRING, [2], [b"\xff", "ж".encode()]),
    ]
    source.graph.initializer.extend(tensors)
    values = onnx.helper.make_tensor("sp", onnx.TensorProto.FLOAT, [1], [4.0])
    indices = onnx.helper.make_tensor("", onnx.TensorProto.INT64, [1], [2])
    source.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [5]))
    annotation = source.graph.quantization_annotation.add(tensor_name="x")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="bf")
    result, _ = run_pass(source)
    assert list(result.graph.initializer)[:4] == tensors
    assert list(result.graph.sparse_initializer) == list(source.graph.sparse_initializer)
    assert list(result.graph.quantization_annotation) == list(source.graph.quantization_annotation)


def test_only_imports_that_became_unused_go():
    source = model_of(
        """<ir_version: 10, opset_import: ["": 17, "com.example": 1, "never.used": 3, "ai.onnx.ml": 3]>
        g (float[2] x) => (float[2] y) { t = com.example.Affine(x) y = Neg(t) }"""
    )
    result, done = run_pass(source)
    assert {item.domain: item.version for item in result.opset_import} == {
        "": 17,
        "never.used": 3,
        "ai.onnx.ml": 3,
    }
    assert done.dropped_opsets == ["com.example"]
    source.graph.node[1].op_type, source.graph.node[1].domain = "Kept", "com.example"
    result, done = run_pass(source, keep=["com.example::Kept"])
    assert "com.example" in {item.domain for item in result.opset_import}
    assert done.dropped_opsets == []
    assert [(domain, name) for domain, name, _ in done.kept] == [("com.example", "Kept")]


def test_large_weights_are_neither_loaded_nor_lost():
    weights = np.arange(5000, dtype=np.float32)
    source = model_of(
        '<ir_version: 10, opset_import: ["": 17, "com.example": 1]> g (float[5000] x) => (float[5000] y) '
        "{ t = Add(x, w) y = com.example.Affine<scale = 2.0>(t) }"
    )
    source.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    with ModelFile.from_proto(source) as file:
        decompose(file, selection(Affine))
        assert file.is_withheld(file.model.graph.initializer[0])
        result = file.hydrate(file.model)
    x = np.ones(5000, np.float32)
    np.testing.assert_allclose(evaluate(result, x=x)[0], 2 * (x + weights))
