"""Placeholders wherever nodes can stand: bodies in bodies, outer values, functions however they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest

import rewriter
from rewriter.errors import CyclicDecompositionError, RewriteError
from rewriter.graph.opsets import clashes
from tests.decompose.passes import Pass, evaluate, model_of, operators, run_pass

if TYPE_CHECKING:
    from pathlib import Path

    from rewriter.placeholder import Builder, Value

HEAD = '<ir_version: 10, opset_import: ["": 17, "com.example": 1, "local": 1]>\n'
X = np.asarray([[-1.0, 2.0, 3.5]], np.float32)


def function_names(model: onnx.ModelProto) -> list[str]:
    return [function.name for function in model.functions]


def test_if_inside_if():
    model, done = run_pass(
        HEAD
        + """g (float[1, 3] x, bool c, bool d) => (float[1, 3] y) {
            y = If(c) <then_branch = t () => (float[1, 3] p) {
                    p = If(d) <then_branch = tt () => (float[1, 3] pp) {
                        pp = com.example.Affine<scale = 2.0, offset = 1.0>(x) },
                               else_branch = te () => (float[1, 3] pq) {
                                   u = com.example.Same(x) pq = com.example.Mirror(u) }> },
                else_branch = e () => (float[1, 3] q) { q = com.example.Affine<scale = 3.0>(x) }>
        }"""
    )
    assert not any("com.example" in name for name in operators(model))
    expected = {(1, 1): 2 * X + 1, (1, 0): X[:, ::-1], (0, 1): 3 * X, (0, 0): 3 * X}
    for (c, d), value in expected.items():
        np.testing.assert_allclose(
            evaluate(model, x=X, c=np.asarray(bool(c)), d=np.asarray(bool(d)))[0], value
        )
    assert [region.where.scope for region in done.regions] == [
        "If 'y' then_branch / If 'p' then_branch",
        "If 'y' then_branch / If 'p' else_branch",
        "If 'y' then_branch / If 'p' else_branch",
        "If 'y' else_branch",
    ]
    for region in done.regions:
        inner = region.scope.find(model)
        made = {name for node in inner.node for name in node.output}
        assert {name for name, _ in region.outputs} <= made


def test_loop_body_that_reads_an_outer_value():
    text = (
        HEAD
        + """g (float[1, 3] x, int64 n) => (float[1, 3] y) {
            outer = Neg(x)
            c = Constant<value = bool {1}>()
            y = Loop(n, c, x) <body = b (int64 i, bool go, float[1, 3] v) => (bool again, float[1, 3] w) {
                again = Identity(go)
                a = com.example.Affine<scale = 2.0, offset = 1.0>(outer)
                w = Add(v, a) }>
        }"""
    )
    model, done = run_pass(text)
    assert "com.example::Affine" not in operators(model)
    np.testing.assert_allclose(evaluate(model, x=X, n=np.asarray(3))[0], X + 3 * (-2 * X + 1))
    assert str(done.regions[0].inputs[0][1]) == "float32[1, 3]"


def test_scan_body():
    text = (
        HEAD
        + """g (float[4, 3] x, float[3] s) => (float[3] f, float[4, 3] y) {
            f, y = Scan<num_scan_inputs = 1, body = b (float[3] state, float[3] v) => (float[3] next, float[3] w) {
                w = com.example.Mirror(v)
                next = Add(state, w) }>(s, x)
        }"""
    )
    model, _ = run_pass(text)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    f, y = evaluate(model, x=x, s=np.zeros(3, np.float32))
    np.testing.assert_array_equal(y, x[:, ::-1])
    np.testing.assert_array_equal(f, x[:, ::-1].sum(0))


FUNCTION = """<domain: "local", opset_import: ["": 17, "com.example": 1]> F<k>(a) => (b) {
    t = com.example.Affine<scale: float = @k>(a)
    b = com.example.Mirror(t)
}"""


def test_function_called_twice_with_other_attributes_and_types():
    model, done = run_pass(
        HEAD
        + """g (float[1, 3] x, float[3] z) => (float[1, 3] y, float[3] w, float[1, 3] v) {
            y = local.F<k = 2.0>(x)
            w = local.F<k = 3.0>(z)
            v = local.F<k = 2.0>(y)
        }
        """
        + FUNCTION
    )
    z = np.asarray([1.0, 2.0, 3.0], np.float32)
    y, w, v = evaluate(model, x=X, z=z)
    np.testing.assert_allclose(y, 2 * X[:, ::-1])
    np.testing.assert_allclose(w, 3 * z[::-1])
    np.testing.assert_allclose(v, 4 * X)
    assert function_names(model) == ["F", "F__2"]
    assert [node.op_type for node in model.graph.node] == ["F", "F__2", "F"]
    assert {region.scope.function for region in done.regions} == {("local", "F", ""), ("local", "F__2", "")}


def test_equal_specialisations_share_one_copy():
    """Other types, but the same body: one function, under its own name."""
    model, done = run_pass(
        HEAD
        + """g (float[1, 3] x, float[7] z) => (float[1, 3] y, float[7] w) {
            y = local.F(x)
            w = local.F(z)
        }
        <domain: "local", opset_import: ["": 17, "com.example": 1]> F(a) => (b) {
            b = com.example.Affine<scale = 2.0>(a) }"""
    )
    assert function_names(model) == ["F"]
    assert {str(region.inputs[0][1]) for region in done.regions} == {"float32[1, 3]", "float32[7]"}
    np.testing.assert_allclose(evaluate(model, x=X, z=np.ones(7, np.float32))[1], np.full(7, 2.0))


def test_default_of_a_function_attribute():
    source = model_of(
        HEAD
        + "g (float[1, 3] x) => (float[1, 3] y, float[1, 3] z) { y = local.F(x) z = local.F<k = 5.0>(x) }\n"
        + FUNCTION
    )
    del source.functions[0].attribute[:]
    source.functions[0].attribute_proto.append(onnx.helper.make_attribute("k", 4.0))
    y, z = evaluate(run_pass(source)[0], x=X)
    np.testing.assert_allclose(y, 4 * X[:, ::-1])
    np.testing.assert_allclose(z, 5 * X[:, ::-1])


def test_function_called_only_from_a_branch():
    model, _ = run_pass(
        HEAD
        + """g (float[1, 3] x, bool c) => (float[1, 3] y) {
            y = If(c) <then_branch = t () => (float[1, 3] p) { p = local.F<k = 2.0>(x) },
                       else_branch = e () => (float[1, 3] q) { q = Neg(x) }>
        }
        """
        + FUNCTION
    )
    np.testing.assert_allclose(evaluate(model, x=X, c=np.asarray(True))[0], 2 * X[:, ::-1])
    np.testing.assert_allclose(evaluate(model, x=X, c=np.asarray(False))[0], -X)


def test_function_with_an_opset_of_its_own():
    """At 11 Squeeze takes its axes as an attribute, at 13 as an input: each scope gets the form of its own opset.

    ReduceSum, written for 11, could not be read at the model's.
    """

    class Lift(Pass):
        matches = ("Lift",)

        def decompose(self, g: Builder, x: Value) -> Value:
            made: Any = g.squeeze(g.unsqueeze(x, [0]), [0])
            return made

    source = model_of(
        HEAD
        + """g (float[1, 3] x) => (float[1, 3] y) { t = local.F(x) y = com.example.Lift(t) }
        <domain: "local", opset_import: ["": 11, "com.example": 1]> F(a) => (b) {
            c = ReduceSum<axes = [0]>(a)  b = com.example.Lift(c) }"""
    )
    source.opset_import[0].version = 13
    model, _ = run_pass(source, Lift)
    assert {len(node.input) for node in model.functions[0].node} == {1}
    assert {len(node.input) for node in model.graph.node if "queeze" in node.op_type} == {2}
    assert {item.domain: item.version for item in model.functions[0].opset_import} == {"": 11}


def test_function_that_did_not_import_the_default_domain():
    source = model_of(
        HEAD
        + """g (float[1, 3] x) => (float[1, 3] y) { y = local.F(x) }
        <domain: "local", opset_import: ["com.example": 1]> F(a) => (b) { b = com.example.Affine<scale = 2.0>(a) }"""
    )
    model, _ = run_pass(source)
    assert {item.domain: item.version for item in model.functions[0].opset_import} == {"": 17}
    np.testing.assert_allclose(evaluate(model, x=X)[0], 2 * X)


def test_functions_that_call_functions():
    """The inner one is specialised for what the outer one's own calls give it."""
    model, _ = run_pass(
        HEAD
        + """g (float[1, 3] x) => (float[1, 3] y, float[1, 3] z) { y = local.G<m = 2.0>(x) z = local.G<m = 3.0>(x) }
        <domain: "local", opset_import: ["": 17, "local": 1]> G<m>(a) => (b) {
            t = local.F<k: float = @m>(a)
            b = local.F<k = 1.0>(t)
        }
        """
        + FUNCTION
    )
    y, z = evaluate(model, x=X)
    np.testing.assert_allclose(y, 2 * X)
    np.testing.assert_allclose(z, 3 * X)
    assert sorted(function_names(model)) == ["F", "F__2", "F__3", "G", "G__2"]


def test_fresh_function_names_avoid_those_of_the_model():
    model, _ = run_pass(
        HEAD
        + """g (float[1, 3] x) => (float[1, 3] y, float[1, 3] z, float[1, 3] w) {
            y = local.F<k = 2.0>(x) z = local.F<k = 3.0>(x) w = local.F__2(x) }
        """
        + FUNCTION
        + """<domain: "local", opset_import: ["": 17]> F__2(a) => (b) { b = Neg(a) }"""
    )
    assert function_names(model) == ["F", "F__3", "F__2"]
    _, z, w = evaluate(model, x=X)
    np.testing.assert_allclose(z, 3 * X[:, ::-1])
    np.testing.assert_array_equal(w, -X)


def test_constant_argument_of_a_call_reaches_the_placeholder():
    model, _ = run_pass(
        HEAD
        + """g (float[1, 3] x) => (float[1, 3] y, float[1, 3] z) <float[1] two = {2.0}, float[1] five = {5.0}> {
            y = local.F(x, two)
            z = local.F(x, five)
        }
        <domain: "local", opset_import: ["": 17, "com.example": 1]> F(a, s) => (b) { b = com.example.Shift(a, s) }"""
    )
    y, z = evaluate(model, x=X)
    np.testing.assert_allclose(y, X + 2)
    np.testing.assert_allclose(z, X + 5)


def test_overloads_are_told_apart():
    source = model_of(
        HEAD
        + "g (float[1, 3] x) => (float[1, 3] y, float[1, 3] z) { y = local.F<k = 2.0>(x) z = local.F(x) }\n"
        + FUNCTION
        + """<domain: "local", opset_import: ["": 17, "com.example": 1]> F(a) => (b) {
            b = com.example.Affine<offset = 1.0>(a) }"""
    )
    source.functions[1].overload = source.graph.node[1].overload = "plain"
    model, _ = run_pass(source)
    assert [(f.name, f.overload) for f in model.functions] == [("F", ""), ("F", "plain")]
    assert "com.example::Affine" not in operators(model)


def test_unused_function_is_decomposed_where_it_can_be():
    model, done = run_pass(
        HEAD
        + """g (float[1, 3] x) => (float[1, 3] y) { y = Neg(x) }
        <domain: "local", opset_import: ["": 17, "com.example": 1]> F(a) => (b) { b = com.example.Same(a) }"""
    )
    assert function_names(model) == ["F"]
    assert operators(model) == {"Neg", "Identity"}
    assert not done.warnings


def test_unused_function_that_cannot_be_decomposed_goes_with_a_note():
    model, done = run_pass(
        HEAD
        + """g (float[1, 3] x) => (float[1, 3] y) { y = Neg(x) }
        <domain: "local", opset_import: ["": 17, "com.example": 1]> F(a) => (b) { b = com.example.Mirror(a) }
        <domain: "local", opset_import: ["": 17, "com.example": 1]> G(a) => (b) { b = com.example.Unheard(a) }"""
    )
    assert function_names(model) == []
    assert len(done.warnings) == 2


def test_recursive_functions_are_an_error():
    with pytest.raises(CyclicDecompositionError, match=r"local::F → local::G → local::F"):
        run_pass(
            HEAD
            + """g (float[1, 3] x) => (float[1, 3] y) { y = local.F(x) }
            <domain: "local", opset_import: ["": 17, "com.example": 1, "local": 1]> F(a) => (b) {
                t = com.example.Same(a) b = local.G(t) }
            <domain: "local", opset_import: ["": 17, "local": 1]> G(a) => (b) { b = local.F(a) }"""
        )


def test_functions_nested_beyond_reason_are_an_error_and_no_crash():
    bodies = [
        f'<domain: "local", opset_import: ["": 17, "local": 1]> F{k}(a) => (b) {{ b = local.F{k + 1}(a) }}'
        for k in range(400)
    ]
    last = '<domain: "local", opset_import: ["": 17, "com.example": 1]> F400(a) => (b) { b = com.example.Same(a) }'
    text = HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = local.F0(x) }\n" + "\n".join([*bodies, last])
    with pytest.raises(RewriteError, match="nested"):
        run_pass(text)


def test_function_that_is_called_exponentially_often_is_specialised_once():
    """Each function calls the next one twice: 2^40 calls, of one specialisation each."""
    bodies = [
        f'<domain: "local", opset_import: ["": 17, "local": 1]> F{k}(a) => (b) {{ '
        f"t = local.F{k + 1}(a) b = local.F{k + 1}(t) }}"
        for k in range(40)
    ]
    last = '<domain: "local", opset_import: ["": 17, "com.example": 1]> F40(a) => (b) { b = com.example.Same(a) }'
    model, done = run_pass(
        HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = local.F0(x) }\n" + "\n".join([*bodies, last])
    )
    assert len(model.functions) == 41
    assert len(done.regions) == 1


def test_value_of_a_body_inside_a_function():
    model, _ = run_pass(
        HEAD
        + """g (float[1, 3] x, bool c) => (float[1, 3] y) { y = local.F<k = 2.0>(x, c) }
        <domain: "local", opset_import: ["": 17, "com.example": 1]> F<k>(a, c) => (b) {
            b = If(c) <then_branch = t () => (p) { p = com.example.Affine<scale: float = @k, offset = 1.0>(a) },
                       else_branch = e () => (q) { q = com.example.Mirror(a) }>
        }"""
    )
    assert operators(model) == {"F", "local::F", "If", "Mul", "Add", "Slice", "Constant"} - {"F"}
    np.testing.assert_allclose(evaluate(model, x=X, c=np.asarray(True))[0], 2 * X + 1)
    np.testing.assert_allclose(evaluate(model, x=X, c=np.asarray(False))[0], X[:, ::-1])


@pytest.mark.parametrize(("version", "top"), [(12, 17), (17, 17), (18, 20), (20, 18), (17, 21)])
def test_a_function_of_another_opset_is_decomposed_at_the_models(version: int, top: int) -> None:
    """Runtimes read its body by the model's opset; ONNX's checker wants operators that are the same at both."""
    text = (
        HEAD.replace("17", str(top))
        + "g (float[1, 3] x) => (float[1, 3] y) { y = local.F(x) }"
        + f"""<domain: "local", opset_import: ["": {version}, "com.example": 1]> F(a) => (b) {{
            c = Identity(a)  b = com.example.Affine<scale = 2.0, offset = 1.0>(c) }}"""
    )
    model, done = run_pass(text)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": X})[0], 2 * X + 1)
    assert {item.domain: item.version for item in model.functions[0].opset_import}[""] == top
    assert done.warnings == []


@pytest.mark.parametrize(("version", "top"), [(17, 21), (21, 17), (11, 21)])
@pytest.mark.parametrize("operator", ["RmsNorm", "LayerNorm"])
def test_a_normalisation_in_a_function_of_another_opset_runs(
    version: int, top: int, operator: str, tmp_path: Path
) -> None:
    """The form of ReduceMean changed at 18: its axes became an input."""
    source = model_of(
        HEAD.replace("17", str(top))
        + "g (float[n, 3] x) => (float[n, 3] y) { y = local.F(x) }"
        + f"""<domain: "local", opset_import: ["": {version}, "com.example": 1]> F(a) => (b) {{
            b = com.example.{operator}<normalized_shape = [3]>(a) }}"""
    )
    source.ir_version = 10
    report = rewriter.rewrite(source, tmp_path / "out.onnx", simplify=False)
    assert report.verification["verdict"] == "verified"
    found = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"x": X})[0]
    centred = X - (X.mean(-1, keepdims=True) if operator == "LayerNorm" else 0)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_a_function_that_its_models_opset_reads_otherwise_is_told() -> None:
    text = (
        HEAD.replace("17", "21")
        + "g (float[1, 3] x) => (float[1, 1] y) { y = local.F(x) }"
        + """<domain: "local", opset_import: ["": 17, "com.example": 1]> F(a) => (b) {
            c = ReduceMean<axes = [1], keepdims = 1>(a)  b = com.example.Affine<scale = 2.0, offset = 1.0>(c) }"""
    )
    model, done = run_pass(text)
    assert {item.domain: item.version for item in model.functions[0].opset_import}[""] == 17
    assert len(done.warnings) == 1
    assert "ReduceMean changed in between" in done.warnings[0]


@pytest.mark.parametrize(
    ("operator", "here", "there", "alike"),
    [
        ("Add(a, a)", 11, 21, True),
        ("Reshape(a, a)", 11, 21, True),
        ("Cast<to = 1>(a)", 13, 24, True),
        ("ReduceSum<axes = [1]>(a)", 11, 13, False),
        ("ReduceSum(a)", 11, 13, True),
        ("Softmax<axis = 1>(a)", 11, 13, False),
        ("Softmax<axis = 1>(a)", 13, 21, True),
        ("Split<axis = 0>(a)", 17, 18, False),
        ("Split<axis = 0>(a, a)", 17, 18, True),
        ("Gelu(a)", 17, 20, False),
        ("Unheard(a)", 17, 20, True),
        ("RoiAlign(a, a, a)", 11, 16, False),
        ("Reshape<allowzero = 1>(a, a)", 14, 13, False),
    ],
)
def test_what_two_opsets_read_alike(operator: str, here: int, there: int, alike: bool) -> None:
    node = onnx.parser.parse_node(f"b = {operator}")
    assert clashes([node], here, there) == ([] if alike else [node.op_type])
