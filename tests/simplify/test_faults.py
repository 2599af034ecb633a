"""What onnxsim was seen to do to models, case by case: the delivered model is right, standard, and no larger.

Expected values are what onnxruntime computes from the *original* model (or, where it has no kernel, numpy).
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.simplify.conftest import (
    assert_deliverable,
    assert_same,
    draw,
    in_onnxruntime,
    in_reference,
    model_of,
    run_stage,
    with_weights,
)


def attention(opset: int) -> onnx.ModelProto:
    """Multi-head self-attention as exporters write it, 2 heads of 4."""
    model = model_of(
        """attention (float[B, 6, 8] x) => (float[B, 6, 8] y)
        <int64[4] split = {0, 0, 2, 4}, int64[3] join = {0, 0, 8}, float scale = {0.5}> {
          qm = MatMul(x, wq)  q0 = Add(qm, bq)  q1 = Reshape(q0, split)  q = Transpose<perm = [0, 2, 1, 3]>(q1)
          km = MatMul(x, wk)  k0 = Add(km, bk)  k1 = Reshape(k0, split)  k = Transpose<perm = [0, 2, 3, 1]>(k1)
          vm = MatMul(x, wv)  v0 = Add(vm, bv)  v1 = Reshape(v0, split)  v = Transpose<perm = [0, 2, 1, 3]>(v1)
          qk = MatMul(q, k)   s = Mul(qk, scale)  p = Softmax<axis = 3>(s)  o = MatMul(p, v)
          ot = Transpose<perm = [0, 2, 1, 3]>(o)  oj = Reshape(ot, join)  om = MatMul(oj, wo)  y = Add(om, bo)
        }""",
        opset=opset,
    )
    weights = {f"w{n}": draw(8, 8, seed=i) for i, n in enumerate("qkvo")}
    return with_weights(model, **weights, **{f"b{n}": draw(8, seed=9 + i) for i, n in enumerate("qkvo")})


@pytest.mark.parametrize("opset", [11, 17, 23])
def test_attention_stays_standard(opset: int) -> None:
    stage = run_stage(attention(opset))
    assert stage.result.accepted
    assert_deliverable(stage)
    assert "com.microsoft" not in {n.domain for n in stage.after.graph.node}
    assert_same(stage, {"x": draw(1, 6, 8)}, {"x": draw(3, 6, 8)}, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["Identity", "Transpose", "Dropout", "Cast", "Concat"])
def test_custom_operators_with_standard_names_stay(name: str) -> None:
    model = model_of(
        f"""g (float[N, 4] x) => (float[N, 4] y) {{
          a = Identity(x)  b = com.example.{name}<to = 1, perm = [0, 1], axis = 0>(a)  y = Relu(b)
        }}""",
        imports=', "com.example": 1',
    )
    stage = run_stage(model)
    assert stage.result.accepted
    assert stage.types() == [f"com.example::{name}", "Relu"]
    assert stage.after.graph.node[0].attribute == stage.before.graph.node[1].attribute


@pytest.mark.parametrize("name", ["Reshape", "Gemm"])
def test_custom_operators_that_crash_onnxsim_stay(name: str) -> None:
    model = model_of(
        f"g (float[N, 4] x) => (float[N, 4] y) {{ a = Identity(x)  b = com.example.{name}(a)  y = Relu(b) }}",
        imports=', "com.example": 1',
    )
    stage = run_stage(model)
    assert stage.result.accepted, stage.result.reason
    assert stage.types() == [f"com.example::{name}", "Relu"]


def test_two_custom_operators_alike_are_not_merged() -> None:
    """They may draw random numbers or keep state."""
    model = model_of(
        """g (float[4] x) => (float[4] y) {
          a = com.example.Draw(x)  b = com.example.Draw(x)  c = Identity(b)  y = Add(a, c)
        }""",
        imports=', "com.example": 1',
    )
    stage = run_stage(model)
    assert stage.result.accepted
    assert stage.types() == ["com.example::Draw", "com.example::Draw", "Add"]


def test_custom_operators_in_a_constant_branch_keep_their_domain() -> None:
    model = model_of(
        """g (float[N, 4] x) => (float[N, 4] y) <bool c = {1}> {
          z = Identity(x)
          y = If(c) <
            then_branch = t () => (float[N, 4] p) { q = com.example.Relu(z)  p = Neg(q) },
            else_branch = e () => (float[N, 4] r) { r = Abs(z) }
          >
        }""",
        imports=', "com.example": 1',
    )
    stage = run_stage(model)
    assert stage.result.accepted
    assert_deliverable(stage)
    assert "com.example::Relu" in stage.types()
    assert "Relu" not in stage.types()
    # The hidden If reads `x` where it read `z`: the body must say so.
    assert "z" not in {name for node in stage.after.graph.node for name in node.output}
    onnx.checker.check_model(stage.after)


def test_a_constant_branch_of_standard_operators_is_inlined() -> None:
    model = model_of(
        """g (float[N, 4] x) => (float[N, 4] y) <bool c = {1}> {
          y = If(c) <
            then_branch = t () => (float[N, 4] p) { q = Relu(x)  p = Neg(q) },
            else_branch = e () => (float[N, 4] r) { r = Abs(x) }
          >
        }"""
    )
    stage = run_stage(model)
    assert stage.types() == ["Relu", "Neg"]
    assert_deliverable(stage)
    assert_same(stage, {"x": draw(2, 4)})


def test_undeclared_domain() -> None:
    model = model_of(
        "g (float[N, 4] x) => (float[N, 4] y) { a = Identity(x)  y = com.example.Foo(a) }",
        imports=', "com.example": 1',
    )
    del model.opset_import[1]
    stage = run_stage(model)
    assert stage.result.accepted
    assert stage.types() == ["com.example::Foo"]
    assert list(stage.after.opset_import) == list(model.opset_import)


@pytest.mark.parametrize("what", ["shape", "type"])
def test_output_without_shape_or_type(what: str) -> None:
    model = model_of(
        "g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z) { y = Identity(x)  a = Identity(x)  z = Relu(a) }"
    )
    for value in model.graph.output:
        if what == "shape":
            value.type.tensor_type.ClearField("shape")
        else:
            value.ClearField("type")
    stage = run_stage(model)
    assert stage.result.accepted
    assert list(stage.after.graph.output) == list(model.graph.output)
    assert stage.types().count("Relu") == 1
    assert stage.result.nodes_after == 2  # y is the input: only an Identity can call it so
    if what == "shape":
        assert_same(stage, {"x": draw(3, 4)})


def test_input_without_shape() -> None:
    model = model_of("g (float[N, 4] x) => (float[N, 4] y) { a = Identity(x)  y = Relu(a) }")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    stage = run_stage(model)
    assert stage.result.accepted
    assert stage.types() == ["Relu"]
    assert_deliverable(stage)
    assert_same(stage, {"x": draw(3, 4)})


def test_sparse_constant() -> None:
    model = model_of("g (float[5] x) => (float[5] y) { a = Identity(x)  y = Add(a, s) }")
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("", TensorProto.FLOAT, [2], [7.0, 9.0]),
        helper.make_tensor("", TensorProto.INT64, [2], [1, 3]),
        [5],
    )
    model.graph.node.insert(0, helper.make_node("Constant", [], ["s"], sparse_value=sparse))
    stage = run_stage(model)
    assert stage.result.accepted
    assert stage.types() == ["Constant", "Add"]
    assert stage.after.graph.node[0] == model.graph.node[0]
    assert_same(stage, {"x": draw(5)})


def test_sparse_initializer_stays_sparse() -> None:
    model = model_of("g (float[5] x) => (float[5] y) { a = Identity(x)  y = Add(a, s) }")
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            helper.make_tensor("s", TensorProto.FLOAT, [2], [7.0, 9.0]),
            helper.make_tensor("", TensorProto.INT64, [2], [1, 3]),
            [5],
        )
    )
    stage = run_stage(model)
    assert stage.types() == ["Add"]
    assert list(stage.after.graph.sparse_initializer) == list(model.graph.sparse_initializer)
    assert_same(stage, {"x": draw(5)})


@pytest.mark.parametrize("axes", ["absent", "empty"])
def test_reduce_that_is_a_noop(axes: str) -> None:
    body = "s = ReduceSum<noop_with_empty_axes = 1, keepdims = 0>(a{})  y = Neg(s)"
    model = model_of(
        "g (float[N, 3] x) => (float[N, 3] y) <int64[0] none = {}> { a = Relu(x)  "
        + body.format("" if axes == "absent" else ", none")
        + " }"
    )
    stage = run_stage(model)
    assert stage.result.accepted
    assert stage.types() == ["Relu", "Neg"]
    assert_same(stage, {"x": draw(2, 3)})


@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceL2"])
def test_reduce_with_axes_and_the_noop_flag(operator: str) -> None:
    model = model_of(
        f"""g (float[N, 3] x) => (float[N, 1] y, float[N, 3] z) <int64[1] one = {{1}}> {{
          a = Identity(x)
          y = {operator}<noop_with_empty_axes = 1>(a, one)
          z = {operator}<noop_with_empty_axes = 1>(a)
        }}""",
        opset=18,
    )
    stage = run_stage(model)
    assert_deliverable(stage)
    assert_same(stage, {"x": draw(2, 3)})


def test_consecutive_reduces() -> None:
    model = model_of(
        """g (float[A, 3, 4] x) => (float[A] y, float[A] z) <int64[1] two = {2}, int64[1] one = {1}> {
          a = ReduceSum<keepdims = 0>(x, two)  y = ReduceSum<keepdims = 0>(a, one)
          b = ReduceSum<keepdims = 0, noop_with_empty_axes = 1>(x)
          c = ReduceSum<keepdims = 0>(b, two)  z = ReduceSum<keepdims = 0>(c, one)
        }"""
    )
    stage = run_stage(model)
    assert stage.result.accepted
    assert_deliverable(stage)
    assert_same(stage, {"x": draw(2, 3, 4)}, rtol=1e-6)


@pytest.mark.parametrize(
    ("pads", "kernel", "more"),
    [(3, 2, ""), (2, 2, ""), (1, 3, ", ceil_mode = 1, strides = [2, 2]")],
)
@pytest.mark.parametrize(("pool", "fill"), [("MaxPool", -3.4028234663852886e38), ("AveragePool", 0.0)])
def test_pad_into_pooling(pool: str, fill: float, pads: int, kernel: int, more: str) -> None:
    model = model_of(
        f"""g (float[1, 1, 6, 6] x) => (float[1, 1, A, B] y)
        <int64[8] p = {{0, 0, {pads}, {pads}, 0, 0, {pads}, {pads}}}, float value = {{{fill}}}> {{
          a = Pad(x, p, value)  y = {pool}<kernel_shape = [{kernel}, {kernel}]{more}>(a)
        }}"""
    )
    stage = run_stage(model)
    assert stage.result.accepted
    assert_deliverable(stage)
    assert_same(stage, {"x": -1 - abs(draw(1, 1, 6, 6))})


def test_stale_value_info_is_not_believed() -> None:
    model = model_of(
        """g (float[N, 4] x) => (int64[2] y) <float[7, 4] liar> {
          a = Relu(x)  b = Identity(a)  y = Shape(b)
        }"""
    )
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [7, 4]))
    stage = run_stage(model)
    assert_same(stage, {"x": draw(2, 4)}, {"x": draw(7, 4)})


def test_wrong_declared_output_shape_is_not_believed() -> None:
    model = model_of("g (float[N, 4] x) => (float[7, 4] a, int64[2] y) { a = Relu(x)  y = Shape(a) }")
    stage = run_stage(model)
    assert in_onnxruntime(stage.after, {"x": draw(2, 4)})[1].tolist() == [2, 4]


def test_independent_random_numbers_are_not_merged() -> None:
    model = model_of(
        """g (float[64] x) => (float[64] y) {
          a = RandomNormal<shape = [64]>()  b = RandomNormal<shape = [64]>()
          d = Sub(a, b)  i = Identity(x)  y = Add(i, d)
        }"""
    )
    stage = run_stage(model)
    assert stage.result.accepted
    assert stage.types().count("RandomNormal") == 2
    x = draw(64)
    (y,) = in_onnxruntime(stage.after, {"x": x})
    assert np.abs(y - x).max() > 0.1


def test_exp_before_argmax_stays() -> None:
    model = model_of(
        "g (float[N, 3] x) => (int64[N, 1] y) { a = Exp(x)  b = Identity(a)  y = ArgMax<axis = 1>(b) }"
    )
    stage = run_stage(model)
    assert stage.types() == ["Exp", "ArgMax"]
    saturated = np.array(
        [[100.0, 200.0, 300.0]], np.float32
    )  # all of them become Inf: the first one is taken
    assert in_onnxruntime(stage.after, {"x": saturated})[0].tolist() == [[0]]


def test_convolution_with_strides_of_zero() -> None:
    """It crashes the process; what it computes is undefined, so all that can be asked is that it stays."""
    model = model_of(
        """g (float[1, 1, 4, 4] x) => (float[1, 1, A, B] y) <float[1, 1, 1, 1] w = {2}> {
          a = Identity(x)  y = Conv<strides = [0, 0]>(a, w)
        }"""
    )
    stage = run_stage(model)
    assert stage.types()[-1] == "Conv"
    assert stage.after.graph.node[-1].attribute == model.graph.node[1].attribute


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_the_smallest_integer_divided_by_minus_one(operator: str) -> None:
    """The division traps when it is folded (SIGFPE); nothing but folding is given up."""
    low = np.iinfo(np.int64).min
    model = model_of(
        f"""g (int64[2] x) => (int64[2] y) <int64[1] low = {{{low}}}, int64[1] minus = {{-1}}> {{
          a = {operator}(low, minus)  b = Identity(x)  y = Add(a, b)
        }}"""
    )
    stage = run_stage(model)
    assert_deliverable(stage)
    assert stage.result.accepted
    assert "Identity" not in stage.types()
    if operator == "Div":
        assert stage.types() == ["Div", "Add"]
        assert any("SIGFPE" in note for note in stage.result.notes)
    else:
        # Dividing is a trap in onnxruntime as well; the remainder is 0.
        assert_same(stage, {"x": np.array([1, 2])})


def test_an_optional_input_keeps_its_name() -> None:
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("OptionalGetElement", ["x"], ["a"]),
                helper.make_node("Identity", ["a"], ["i"]),
                helper.make_node("Relu", ["i"], ["y"]),
                helper.make_node("OptionalHasElement", ["x"], ["b"]),
            ],
            "g",
            [
                helper.make_value_info(
                    "x",
                    helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["N"])),
                )
            ],
            [
                helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"]),
                helper.make_tensor_value_info("b", TensorProto.BOOL, []),
            ],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    stage = run_stage(model)
    assert stage.result.accepted
    assert_deliverable(stage)
    assert stage.types().count("Identity") == 0
    for new, old in zip(
        in_reference(stage.after, {"x": draw(3)}), in_reference(model, {"x": draw(3)}), strict=True
    ):
        np.testing.assert_array_equal(new, old)


def test_sequences_at_the_edge() -> None:
    text = """g (seq(float[N]) xs, int64 at) => (seq(float[N]) ys, float[N] y) {
      a = SequenceAt(xs, at)  i = Identity(a)  y = Relu(i)  ys = SequenceInsert(xs, y)
    }"""
    model = model_of(text)
    stage = run_stage(model)
    assert stage.result.accepted
    assert_deliverable(stage)
    assert "Identity" not in stage.types()
    feed = {"xs": [draw(3), draw(3, seed=1)], "at": np.array(1)}
    old, new = in_onnxruntime(model, feed), in_onnxruntime(stage.after, feed)
    np.testing.assert_array_equal(new[1], old[1])
    for a, b in zip(new[0], old[0], strict=True):
        np.testing.assert_array_equal(a, b)


def test_deeply_nested_branches_are_judged_once() -> None:
    """Asking at every level anew would take 2 to the power of the depth."""
    graph = helper.make_graph(
        [helper.make_node("Foo", ["x"], ["r"], domain="com.example")],
        "innermost",
        [],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, ["N"])],
    )
    for level in range(28):
        node = helper.make_node("If", ["c"], [f"r{level}"], then_branch=graph, else_branch=graph.__class__())
        node.attribute[1 if node.attribute[1].name == "else_branch" else 0].g.CopyFrom(
            helper.make_graph(
                [helper.make_node("Neg", ["x"], [f"e{level}"])],
                "other",
                [],
                [helper.make_tensor_value_info(f"e{level}", TensorProto.FLOAT, ["N"])],
            )
        )
        output = helper.make_tensor_value_info(f"r{level}", TensorProto.FLOAT, ["N"])
        graph = helper.make_graph([node], f"level{level}", [], [output])
    graph.input.extend(
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ]
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    stage = run_stage(helper.make_model(graph, opset_imports=imports, ir_version=10))
    assert stage.types().count("com.example::Foo") == 1
