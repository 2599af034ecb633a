"""What onnxsim drops comes back: every message that is not a changed node is the original's own."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from rewriter.simplify.prepare import prepare
from rewriter.simplify.restore import restore
from rewriter.storage import ModelFile
from tests.simplify.conftest import assert_deliverable, assert_same, draw, model_of, run_stage, with_weights


def annotate(message: object, key: str) -> None:
    entry = message.metadata_props.add()  # type: ignore[attr-defined]
    entry.key, entry.value = key, "kept"


def rich_model() -> ModelProto:
    """A model in which something of every kind is there to be lost, and an Identity to be eliminated."""
    model = model_of(
        """g (float[batch, 4] x, float[4] over) => (float[batch, 4] y, float[batch, 4] z)
        <float[4] over = {1, 2, 3, 4}, float[4] small = {5, 6, 7, 8}, float unused = {1}, float[1] q_scale = {0.5}> {
          [first] a = Relu(x)
          i = Identity(a)
          b = Add(i, over)
          [third] c = Add(b, small)
          [call] d = local.Twice(c)
          [custom] y = com.example.Scale<by = 2.0>(d)
          [big] z = Add(y, table)
        }""",
        imports=', "com.example": 1, "local": 1, "unused": 3, "ai.onnx.ml": 3',
    )
    with_weights(model, table=draw(1, 4), heavy=draw(400))
    twice = helper.make_function(
        "local",
        "Twice",
        ["p"],
        ["q"],
        [helper.make_node("Identity", ["p"], ["r"]), helper.make_node("Add", ["r", "r"], ["q"])],
        [helper.make_opsetid("", 17)],
    )
    annotate(twice, "function")
    model.functions.append(twice)
    model.producer_name, model.producer_version, model.domain = "maker", "3", "some.domain"
    model.model_version, model.doc_string = 42, "the model"
    annotate(model, "model")
    graph = model.graph
    graph.doc_string = "the graph"
    annotate(graph, "graph")
    for node in graph.node:
        annotate(node, f"node {node.output[0]}")
        node.doc_string = f"makes {node.output[0]}"
    for value in (*graph.input, *graph.output):
        value.doc_string = f"value {value.name}"
        annotate(value, "value")
    graph.input[0].type.denotation = "IMAGE"
    graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    for tensor in graph.initializer:
        tensor.doc_string = f"tensor {tensor.name}"
        annotate(tensor, "tensor")
    for name in ("a", "b", "i"):
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4], f"value {name}")
        annotate(value, "value")
        graph.value_info.append(value)
    annotation = graph.quantization_annotation.add(tensor_name="a")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="q_scale")
    configuration = model.configuration.add()
    configuration.name, configuration.num_devices = "pair", 2
    sharding = graph.node[0].device_configurations.add()
    sharding.configuration_id = "pair"
    return model


def test_everything_comes_back() -> None:
    model = rich_model()
    stage = run_stage(model)
    assert stage.result.accepted, stage.result
    after, expected = stage.after, ModelProto()
    expected.CopyFrom(model)
    # All that may change, said by hand: the Identity goes, its reader reads `a`, and three constants and one entry
    # of value_info have nobody left to read them.
    del expected.graph.node[1]
    expected.graph.node[1].input[0] = "a"
    kept = [t for t in expected.graph.initializer if t.name not in ("unused", "heavy")]
    del expected.graph.initializer[:]
    expected.graph.initializer.extend(kept)
    del expected.graph.value_info[2]
    assert after == expected


def test_unknown_fields_come_back() -> None:
    unknown = bytes([0xFA, 0x3F, 3]) + b"abc"  # field 1023, length-delimited
    model = ModelProto.FromString(rich_model().SerializeToString() + unknown)
    model.graph.MergeFromString(unknown)
    model.graph.node[0].MergeFromString(unknown)
    stage = run_stage(model)
    assert stage.result.accepted
    assert stage.after.SerializeToString().count(unknown) == 3


def test_unnamed_nodes_stay_unnamed() -> None:
    model = model_of(
        "g (float[N] x) => (float[N] y) { a = Relu(x)  b = Identity(a)  c = Neg(b)  [n] y = Abs(c) }"
    )
    stage = run_stage(model)
    assert [node.name for node in stage.after.graph.node] == ["", "", "n"]


def test_names_in_bodies_stay() -> None:
    model = model_of(
        """g (float[N] x, bool c) => (float[N] y) {
          [outer] y = If(c) <
            then_branch = t () => (float[N] p) { [inner] q = Relu(x)  r = Identity(q)  p = Neg(r) },
            else_branch = e () => (float[N] s) { [other] s = Abs(x) }
          >
        }"""
    )
    body = model.graph.node[0].attribute[0].g
    body.doc_string = "the branch"
    annotate(body, "body")
    annotate(body.node[0], "node")
    stage = run_stage(model)
    assert stage.result.accepted
    after = {a.name: a.g for a in stage.after.graph.node[0].attribute}["then_branch"]
    assert (after.name, after.doc_string) == ("t", "the branch")
    assert list(after.metadata_props) == list(body.metadata_props)
    assert after.node[0] == body.node[0]
    assert "" in {node.name for node in after.node}
    assert_same(stage, {"x": draw(3), "c": np.array(True)}, {"x": draw(3), "c": np.array(False)})


def test_a_fused_node_inherits_from_the_one_whose_output_it_gives() -> None:
    """onnxsim's part is played, since which fusions it makes depends on its mood about runtimes."""
    model = model_of(
        "g (float[M, 4] x) => (float[M, 2] y) { [mm] a = MatMul(x, w)  [plus] b = Add(a, v)  [act] y = Relu(b) }"
    )
    with_weights(model, w=draw(4, 2), v=draw(2))
    annotate(model.graph.node[1], "origin")
    model.graph.node[1].doc_string = "a linear layer"
    with ModelFile.from_proto(model) as file:
        prepared = prepare(file.model, file)
        result = ModelProto()
        result.CopyFrom(prepared.model)
        del result.graph.node[:2]
        result.graph.node.insert(0, helper.make_node("Gemm", ["x", "w", "v"], ["b"], name="Gemm_7"))
        gemm, relu = restore(file.model, prepared, result).graph.node
    assert (gemm.op_type, gemm.name, gemm.doc_string) == ("Gemm", "plus", "a linear layer")
    assert [(p.key, p.value) for p in gemm.metadata_props] == [("origin", "kept")]
    assert relu == model.graph.node[2]


def test_a_convolution_that_takes_over_a_bias_keeps_its_own() -> None:
    model = model_of(
        """g (float[N, 2, 4, 4] x) => (float[N, 3, 4, 4] y) {
          [conv] a = Conv<kernel_shape = [1, 1]>(x, w)  [plus] b = Add(a, v)  [act] y = Relu(b)
        }"""
    )
    with_weights(model, w=draw(3, 2, 1, 1), v=draw(3, 1, 1))
    annotate(model.graph.node[0], "origin")
    stage = run_stage(model)
    assert stage.types() == ["Conv", "Relu"]
    conv = stage.after.graph.node[0]
    assert conv.name == "conv"
    assert list(conv.metadata_props) == list(model.graph.node[0].metadata_props)
    assert_same(stage, {"x": draw(2, 2, 4, 4)}, rtol=1e-5, atol=1e-6)


def test_the_interface_keeps_names_order_and_dims() -> None:
    """Also where an output is an input, twice the same value, a constant, or merged with another."""
    model = model_of(
        """g (float[batch, 1] x, float[batch, 1] never) =>
           (float[batch, 1] y, float[batch, 1] r, float[batch, 1] s, float[2] k, float[batch, 1] x2) {
          y = Identity(x)  a = Relu(x)  r = Identity(a)  b = Relu(x)  s = Identity(b)  x2 = Identity(y)
        }"""
    )
    with_weights(model, k=np.float32([1, 2]))
    stage = run_stage(model)
    assert stage.result.accepted, stage.result
    assert_deliverable(stage)
    onnx.checker.check_model(stage.after, full_check=True)
    assert_same(stage, {"x": draw(3, 1), "never": draw(3, 1)}, {"x": draw(1, 1), "never": draw(1, 1)})


def test_defaults_of_inputs_are_neither_folded_nor_dropped() -> None:
    model = model_of(
        "g (float[N] x, float[1] d, float[1] e) => (float[N] y) <float[1] d = {2}, float[1] e = {3}> "
        "{ two = Neg(d)  i = Identity(x)  y = Mul(i, two) }"
    )
    stage = run_stage(model)
    assert [t.name for t in stage.after.graph.initializer] == ["d", "e"]
    assert_same(stage, {"x": draw(3)}, {"x": draw(3), "d": np.float32([7])})


def test_ir_version_3() -> None:
    """There, an initializer that is no input does not exist: a folded constant is a node."""
    model = model_of(
        "g (float[2, 3] x) => (float[A] y) { s = Shape(x)  i = Identity(x)  y = Reshape(i, flat) }", ir=3
    )
    model = model_of(
        """g (float[2, 3] x) => (float[A] y) {
          s = Shape(x)  d = ReduceProd<axes = [0]>(s)  i = Identity(x)  y = Reshape(i, d)
        }""",
        ir=3,
        opset=11,
    )
    stage = run_stage(model)
    assert stage.result.accepted
    assert stage.after.ir_version == 3
    assert list(stage.after.graph.initializer) == []
    assert stage.types() == ["Constant", "Reshape"]
    assert_same(stage, {"x": draw(2, 3)})


def test_value_info_that_inference_contradicts_goes() -> None:
    model = model_of("g (float[N, 4] x) => (float[N, 4] y) { a = Relu(x)  i = Identity(a)  y = Neg(i) }")
    right = helper.make_tensor_value_info("a", TensorProto.FLOAT, ["N", 4])
    model.graph.value_info.append(right)
    assert list(run_stage(model).after.graph.value_info) == [right]
    model.graph.value_info[0].type.tensor_type.shape.dim[1].dim_value = 5
    assert list(run_stage(model).after.graph.value_info) == []


def test_nodes_out_of_order() -> None:
    model = model_of("g (float[N] x) => (float[N] y) { y = Neg(i)  i = Identity(a)  a = Relu(x) }")
    stage = run_stage(model)
    assert stage.result.accepted
    assert stage.types() == ["Relu", "Neg"]


def test_a_cycle_is_a_reason() -> None:
    model = model_of("g (float[N] x) => (float[N] y) { a = Add(x, b)  b = Neg(a)  y = Relu(b) }")
    stage = run_stage(model, equal=None)
    assert stage.result.reason == "full simplification: prepare: the graph has a cycle"
    assert stage.after == model


def test_functions_are_left_alone_and_their_calls_kept() -> None:
    model = model_of(
        "g (float[N] x) => (float[N] y) { i = Identity(x)  a = local.Identity(i)  y = local.Identity(a) }"
    )
    model.opset_import.add(domain="local", version=1)
    body = [helper.make_node("Identity", ["p"], ["t"]), helper.make_node("Neg", ["t"], ["q"])]
    model.functions.append(
        helper.make_function("local", "Identity", ["p"], ["q"], body, [helper.make_opsetid("", 17)])
    )
    stage = run_stage(model)
    assert stage.result.accepted
    assert stage.types() == ["local::Identity", "local::Identity"]
    assert list(stage.after.functions) == list(model.functions)
    assert_same(stage, {"x": draw(3)})


def test_training_graphs_keep_what_they_name() -> None:
    model = model_of(
        "g (float[N] x) => (float[N] y) <float[1] rate = {0.5}, float[1] w = {2}> { m = Neg(w)  y = Mul(x, m) }"
    )
    info = model.training_info.add()
    info.algorithm.CopyFrom(
        helper.make_graph([helper.make_node("Mul", ["w", "rate"], ["next"])], "step", [], [])
    )
    info.update_binding.add(key="w", value="next")
    stage = run_stage(model, equal=None)
    assert {t.name for t in stage.after.graph.initializer} == {"rate", "w"}
    assert stage.types() == ["Neg", "Mul"]
    assert list(stage.after.training_info) == list(model.training_info)


def test_omitted_inputs_and_outputs() -> None:
    model = model_of(
        """g (float[3, N, 2] x) => (float[1, N, 1] h, float[3, N, 2] y) <float high = {2}> {
          i = Identity(x)  all, h, last = LSTM<hidden_size = 1>(i, w, r, b)  y = Clip(i, , high)
        }"""
    )
    with_weights(model, w=draw(1, 4, 2), r=draw(1, 4, 1), b=draw(1, 8))
    model.graph.node[1].output[0] = ""
    model.graph.node[1].output[2] = ""
    stage = run_stage(model)
    assert stage.result.accepted, stage.result
    assert list(stage.after.graph.node[0].output) == ["", "h", ""]
    assert list(stage.after.graph.node[1].input) == ["x", "", "high"]
    assert_same(stage, {"x": draw(3, 2, 2)})


@pytest.mark.parametrize("dtype", ["bfloat16", "float8e4m3fn", "int4", "string"])
def test_tensors_of_types_that_onnxsim_does_not_hold(dtype: str) -> None:
    kind = getattr(TensorProto, dtype.upper())
    values = [b"a", b"b"] if dtype == "string" else [1.0, 2.0]
    model = model_of("g (float[N] x) => (float[N] y) { i = Identity(x)  y = Relu(i) }", opset=21)
    model.graph.initializer.append(helper.make_tensor("c", kind, [2], values))
    model.graph.node.append(helper.make_node("Identity", ["c"], ["d"]))
    model.graph.node.append(
        helper.make_node("Constant", [], ["e"], value=helper.make_tensor("", kind, [2], values))
    )
    for name in ("d", "e"):
        model.graph.output.append(helper.make_tensor_value_info(name, kind, [2]))
    stage = run_stage(model)
    assert stage.result.accepted, stage.result
    assert list(stage.after.graph.initializer) == list(model.graph.initializer)
    assert model.graph.node[-1] in list(stage.after.graph.node)


def test_weights_in_bodies_stay() -> None:
    model = model_of(
        """g (float[N, 400] x, bool c) => (float[N, 400] y) {
          i = Identity(x)
          y = If(c) <
            then_branch = t () => (float[N, 400] p) { p = Add(i, w) },
            else_branch = e () => (float[N, 400] q) { j = Identity(i)  q = Neg(j) }
          >
        }"""
    )
    for attribute in model.graph.node[1].attribute:
        if attribute.name == "then_branch":
            attribute.g.initializer.append(numpy_helper.from_array(draw(400), "w"))
    stage = run_stage(model)
    assert stage.result.accepted
    assert_deliverable(stage)
    assert stage.types()[0] == "If"
    assert_same(stage, {"x": draw(2, 400), "c": np.array(True)}, {"x": draw(2, 400), "c": np.array(False)})


def test_a_loop_is_kept_right() -> None:
    model = model_of(
        """g (float[4] x, int64 n) => (float[4] y, float[K, 4] all) <bool true = {1}> {
          i = Identity(x)
          y, all = Loop(n, true, i) <
            body = b (int64 k, bool go, float[4] s) => (bool go2, float[4] t, float[4] out) {
              go2 = Identity(go)  h = Identity(s)  u = Mul(h, i)  t = Add(u, w)  out = Identity(t)
            }
          >
        }"""
    )
    with_weights(model, w=draw(4))
    stage = run_stage(model)
    assert stage.result.accepted, stage.result
    assert_deliverable(stage)
    assert_same(stage, {"x": draw(4), "n": np.array(3)}, {"x": draw(4), "n": np.array(1)})


def test_nothing_to_do_returns_the_model_itself() -> None:
    stage = run_stage(model_of("g (float[N] x) => (float[N] y) { y = Relu(x) }"))
    assert stage.result.accepted
    assert stage.result.reason == "nothing to simplify"
    assert stage.after == stage.before
    assert stage.compared == []


def test_a_difference_in_values_is_refused() -> None:
    model = model_of("g (float[N] x) => (float[N] y) { i = Identity(x)  y = Relu(i) }")
    stage = run_stage(model, equal=lambda before, after: "output y differs")
    assert not stage.result.accepted
    assert stage.result.reason == "full simplification: values: output y differs"
    assert stage.after == model


def test_same_input_same_bytes() -> None:
    """In other processes, under other hash seeds."""
    code = """
import sys, hashlib
from tests.simplify.test_restore import rich_model
from tests.simplify.test_faults import attention
from tests.simplify.conftest import run_stage
for model in (rich_model(), attention(17)):
    stage = run_stage(model)
    assert stage.result.accepted
    print(hashlib.sha256(stage.after.SerializeToString()).hexdigest())
"""
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1
