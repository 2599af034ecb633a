"""Names: nothing clashes, the interface stays, and people can tell where a new node came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from tests.decompose.passes import Affine, Pass, evaluate, model_of, operators, run_pass

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.example": 1]>\n'
X = np.asarray([[-1.0, 2.0, 3.5]], np.float32)


def interface(model: onnx.ModelProto) -> list[bytes]:
    return [value.SerializeToString() for value in (*model.graph.input, *model.graph.output)]


def test_same_constant_names_with_different_values():
    source = model_of(
        HEAD
        + """g (float[1, 3] x) => (float[1, 3] y) {
            [a] t = com.example.Affine<scale = 2.0, offset = 10.0>(x)
            [b] y = com.example.Affine<scale = 3.0, offset = -1.0>(t)
        }"""
    )
    model, _ = run_pass(source)
    assert operators(model) == {"Mul", "Add"}
    np.testing.assert_allclose(evaluate(model, x=X)[0], (X * 2 + 10) * 3 - 1)
    names = [t.name for t in model.graph.initializer]
    assert len(set(names)) == len(names) == 4
    assert interface(model) == interface(source)


def test_identity_between_graph_input_and_graph_output():
    source = model_of(HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = com.example.Same(x) }")
    model, _ = run_pass(source)
    assert interface(model) == interface(source)
    np.testing.assert_array_equal(evaluate(model, x=X)[0], X)


def test_identity_whose_readers_are_nodes_and_bodies():
    source = model_of(
        HEAD
        + """g (float[1, 3] x, bool c) => (float[1, 3] y, float[1, 3] z) {
            s = com.example.Same(x)
            y = Neg(s)
            z = If(c) <then_branch = t () => (float[1, 3] p) { p = Abs(s) },
                       else_branch = e () => (float[1, 3] q) { q = Identity(s) }>
        }"""
    )
    model, _ = run_pass(source)
    for c in (True, False):
        y, z = evaluate(model, x=X, c=np.asarray(c))
        np.testing.assert_array_equal(y, -X)
        np.testing.assert_array_equal(z, np.abs(X) if c else X)
    # Readers are none of our nodes: they are as they were.
    assert list(model.graph.node)[-2:] == list(source.graph.node)[-2:]


def test_output_that_is_a_graph_output_and_read_elsewhere():
    source = model_of(
        HEAD
        + """g (float[1, 3] x, bool c) => (float[1, 3] y, float[1, 3] z, float[1, 3] w) {
            y = com.example.Affine<scale = 2.0>(x)
            z = Neg(y)
            w = If(c) <then_branch = t () => (float[1, 3] p) { p = Mul(y, z) },
                       else_branch = e () => (float[1, 3] q) { q = Add(y, y) }>
        }"""
    )
    model, _ = run_pass(source)
    assert interface(model) == interface(source)
    y, z, w = evaluate(model, x=X, c=np.asarray(True))
    np.testing.assert_allclose(y, 2 * X)
    np.testing.assert_allclose(z, -2 * X)
    np.testing.assert_allclose(w, -4 * X * X)
    np.testing.assert_allclose(evaluate(model, x=X, c=np.asarray(False))[2], 4 * X)


def test_one_value_for_two_outputs():
    model, _ = run_pass(
        HEAD + "g (float[1, 3] x) => (float[1, 3] a, float[1, 3] b) { a, b = com.example.Twice(x) }"
    )
    a, b = evaluate(model, x=X)
    np.testing.assert_array_equal(a, -X)
    np.testing.assert_array_equal(b, -X)


@pytest.mark.parametrize("outputs", ["a, , c", ", , c", "a", ", m"])
def test_omitted_outputs(outputs: str):
    source = model_of(HEAD + "g (float[1, 3] x) => (float[1, 3] a) { a = com.example.Parts(x) }")
    names = [name.strip() for name in outputs.split(",")]
    del source.graph.output[:], source.graph.node[0].output[:]
    source.graph.node[0].output.extend(names)
    for name in names:
        if name:
            source.graph.output.add(name=name).type.CopyFrom(source.graph.input[0].type)
            if name == "c":
                source.graph.output[-1].type.tensor_type.shape.dim.pop(0)
                source.graph.output[-1].type.tensor_type.shape.dim[0].dim_value = 1
    model, _ = run_pass(source)
    expected = {"a": np.sign(X), "m": np.abs(X), "c": np.asarray([3.0], np.float32)}
    found = evaluate(model, x=X)
    for name, value in zip([name for name in names if name], found, strict=True):
        np.testing.assert_array_equal(value, expected[name])
    assert ("Abs" in operators(model)) == ("m" in names)


def test_trailing_empty_output():
    source = model_of(HEAD + "g (float[1, 3] x) => (float[1, 3] a) { a = com.example.Parts(x) }")
    source.graph.node[0].output.extend(["", ""])
    model, _ = run_pass(source)
    np.testing.assert_array_equal(evaluate(model, x=X)[0], np.sign(X))


def test_names_that_the_model_already_uses():
    """Every name that a replacement would get is taken: by an input, an initializer, a value in a body, a node."""
    text = (
        HEAD
        + """g (float[1, 3] x, bool c) => (float[1, 3] y, float[1, 3] z)
        <float[1, 3] "r/constant" = {1.0, 1.0, 1.0}> {
            [r] y = com.example.Affine<scale = 2.0, offset = 1.0>(x)
            ["r/Mul"] "r/Mul_output_0" = Add(x, "r/constant")
            ["r/Add"] z = If(c) <then_branch = t () => (float[1, 3] p) {
                    "r/constant_2" = Neg("r/Mul_output_0")
                    p = Add(y, "r/constant_2") },
                else_branch = e () => (float[1, 3] q) { q = Identity("r/Mul_output_0") }>
        }"""
    )
    source = model_of(text)
    model, _ = run_pass(source)
    y, z = evaluate(model, x=X, c=np.asarray(True))
    np.testing.assert_allclose(y, 2 * X + 1)
    np.testing.assert_allclose(z, 2 * X + 1 - (X + 1))
    nodes = [node.name for node in model.graph.node]
    assert len(set(nodes)) == len(nodes)


def test_names_that_look_like_the_builders_own():
    source = model_of(
        HEAD + "g (float[1, 3] x) => (float[1, 3] y) { t = Neg(x) y = com.example.Affine<scale = 2.0>(t) }"
    )
    for old, new in (("t", "%0"), ("y", "%1")):
        for node in source.graph.node:
            for field in (node.input, node.output):
                for index, name in enumerate(field):
                    if name == old:
                        field[index] = new
    source.graph.output[0].name = "%1"
    model, done = run_pass(source)
    np.testing.assert_allclose(evaluate(model, x=X)[0], -2 * X)
    assert [ref.name for ref in done.regions[0].bound.refs()] == ["%0"]


def test_names_that_are_no_utf8():
    source = model_of(
        HEAD
        + "g (float[1, 3] x) => (float[1, 3] y) { tttt = Neg(x) y = com.example.Affine<scale = 2.0>(tttt) }"
    )
    raw = source.SerializeToString().replace(b"tttt", b"\xff\xfett")
    model, _ = run_pass(onnx.ModelProto.FromString(raw))
    assert operators(model) == {"Neg", "Mul", "Add"}
    data = model.SerializeToString()
    assert data.count(b"\xff\xfett") == 2
    back = onnx.ModelProto.FromString(data.replace(b"\xff\xfett", b"tttt"))
    np.testing.assert_allclose(evaluate(back, x=X)[0], -2 * X)


def test_derived_names_and_their_order_do_not_depend_on_the_run():
    text = (
        HEAD
        + """g (float[1, 3] x) => (float[1, 3] y) {
            [layer] t = com.example.Affine<scale = 2.0>(x)
            y = com.example.Affine(t)
        }"""
    )
    first, second = (run_pass(text)[0].SerializeToString(deterministic=True) for _ in range(2))
    assert first == second
    model, _ = run_pass(text)
    assert [node.name for node in model.graph.node] == ["layer/Mul", "layer/Add", "y/Mul", "y/Add"]
    assert [node.output[0] for node in model.graph.node] == ["layer/Mul_output_0", "t", "y/Mul_output_0", "y"]


def test_metadata_and_doc_string_reach_each_replacement():
    source = model_of(
        HEAD + "g (float[1, 3] x) => (float[1, 3] y) { [n] y = com.example.Affine<scale = 2.0>(x) }"
    )
    node = source.graph.node[0]
    node.doc_string = "where it came from"
    node.metadata_props.add(key="pkg.torch.onnx.namespace", value="net/affine")
    node.metadata_props.add(key="ключ", value="значение")
    model, _ = run_pass(source)
    assert len(model.graph.node) == 2
    for new in model.graph.node:
        assert new.doc_string == "where it came from"
        assert list(new.metadata_props) == list(node.metadata_props)


def test_metadata_that_is_no_utf8_reaches_each_replacement():
    source = model_of(
        HEAD + "g (float[1, 3] x) => (float[1, 3] y) { [n] y = com.example.Affine<scale = 2.0>(x) }"
    )
    source.graph.node[0].doc_string = "docdoc"
    source.graph.node[0].metadata_props.add(key="kkkk", value="vvvv")
    raw = source.SerializeToString().replace(b"docdoc", b"\xff\xfe\xfd...").replace(b"vvvv", b"\xc3\x28vv")
    data = run_pass(onnx.ModelProto.FromString(raw))[0].SerializeToString()
    assert data.count(b"\xff\xfe\xfd...") == data.count(b"\xc3\x28vv") == 2


def test_initializers_before_ir_version_4():
    """There every initializer must be an input as well, so constants are nodes."""
    source = model_of(
        HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = com.example.Affine<scale = 2.0>(x) }"
    )
    source.ir_version = 3
    model, _ = run_pass(source, Affine)
    assert not model.graph.initializer
    assert [value.name for value in model.graph.input] == ["x"]
    np.testing.assert_allclose(evaluate(model, x=X)[0], 2 * X)


def test_value_info_of_new_values_where_the_graph_declares_types():
    text = (
        HEAD + "g (float[N, 3] x) => (float[N, 3] y) <float[N, 3] t> { t = Neg(x) y = com.example.Affine(t) }"
    )
    model, _ = run_pass(text)
    declared = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in model.graph.value_info
    }
    assert declared == {"t": ["N", 3], "y/Mul_output_0": ["N", 3]}
    model, _ = run_pass(HEAD + "g (float[N, 3] x) => (float[N, 3] y) { y = com.example.Affine(x) }")
    assert not model.graph.value_info


def test_bodies_that_a_decomposition_makes_have_names_of_their_own():
    """Two replacements with an If each, whose branches read values of the replacement and of the model."""

    class Relu2(Pass):
        matches = ("Relu2",)

        def decompose(self, g: Builder, x: Value) -> Value:
            total = g.op("ReduceSum", x, keepdims=0)
            zero = g.const(0.0, x)
            branches = []
            for scale in (2.0, -1.0):
                body = g.body()
                result = body.op("Mul", x, body.const(scale, x))
                branches.append(g.subgraph("branch", body, [], [result]))
            positive = g.op("Greater", total, zero)
            made: Value = g.op("If", positive, then_branch=branches[0], else_branch=branches[1])
            return made

    model, _done = run_pass(
        HEAD
        + """g (float[1, 3] x) => (float[1, 3] y) {
            t = com.example.Relu2(x)
            u = Neg(t)
            y = com.example.Relu2(u)
        }""",
        Relu2,
    )
    names = [name for node in model.graph.node for a in node.attribute for n in a.g.node for name in n.output]
    assert len(set(names)) == len(names) == 4
    np.testing.assert_allclose(evaluate(model, x=X)[0], 2 * X)
    np.testing.assert_allclose(evaluate(model, x=-X)[0], X)
