"""onnxscript functions and FunctionProto as pass bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxscript
import pytest
import torch
from onnx import AttributeProto, TensorProto, helper, parser
from onnxscript import opset13, opset18

import rewriter
from rewriter import Case, f32, from_function, from_onnxscript
from rewriter.errors import DecompositionFault, PassDefinitionError, UnsupportedAtOpset
from tests.interop.conftest import model_of, ops, rewrite, run

RNG = np.random.default_rng(0)
LOCAL = onnxscript.values.Opset("local", 1)


@onnxscript.script(LOCAL, default_opset=opset13)
def sigmoid_of(x):  # type: ignore[no-untyped-def]
    return opset13.Sigmoid(x)


@onnxscript.script(LOCAL, default_opset=opset13)
def swish(x, beta: float = 1.0):  # type: ignore[no-untyped-def]
    """x · sigmoid(βx)."""
    return opset13.Mul(x, sigmoid_of(opset13.Mul(opset13.Constant(value_float=beta), x)))


def swish_reference(x: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    return x * torch.sigmoid(beta * x)


SWISH = from_onnxscript(
    "com.example::Swish",
    swish,
    reference=swish_reference,
    cases=[Case(f32(2, 3)), Case(f32(2, 3), beta=1.5)],
    dtypes=("float32",),
    opset=13,
)


@pytest.mark.parametrize("given", [{}, {"beta": 1.5}], ids=["default", "given"])
def test_onnxscript_with_an_attribute_and_a_nested_call(given: dict[str, float]) -> None:
    made = rewrite(model_of("com.example::Swish", {"x": ("float32", ["n", 3])}, opset=13, **given), SWISH)
    assert ops(made) == ["Mul", "Sigmoid", "Mul"]
    assert not made.functions
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    expected = swish_reference(torch.from_numpy(x.astype(np.float64)), **given).numpy()
    np.testing.assert_allclose(run(made, x=x)[0], expected, rtol=1e-5, atol=1e-6)


def test_it_is_like_any_other_pass() -> None:
    assert SWISH.pass_name() == "swish"
    assert SWISH.outputs == tuple(swish.to_function_proto().output)
    assert str(SWISH.signature) == "x, beta=1.0"
    SWISH.validate()


@onnxscript.script(LOCAL, default_opset=opset18)
def branch(x, flip: int = 0):  # type: ignore[no-untyped-def]
    if flip > 0:  # noqa: SIM108  (a branch of the graph)
        y = opset18.Neg(x)
    else:
        y = opset18.Relu(x)
    return y


@onnxscript.script(LOCAL, default_opset=opset18)
def doubling(x):  # type: ignore[no-untyped-def]
    for _ in range(3):
        x = opset18.Add(x, x)
    return x


@pytest.mark.parametrize("flip", [0, 1])
def test_a_branch(flip: int) -> None:
    made = from_onnxscript(
        "mylib::branch",
        branch,
        reference=lambda x, flip=0: -x if flip else x.relu(),
        cases=[Case(f32(2, 3), flip=1)],
        dtypes=("float32",),
    )
    model = rewrite(model_of("mylib::branch", {"x": ("float32", ["n", 3])}, opset=18, flip=flip), made)
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(model, x=x)[0], -x if flip else np.maximum(x, 0))


def test_a_loop() -> None:
    made = from_onnxscript(
        "mylib::doubling", doubling, reference=lambda x: x * 8, cases=[Case(f32(2, 3))], dtypes=("float32",)
    )
    model = rewrite(model_of("mylib::doubling", {"x": ("float32", ["n", 3])}, opset=18), made)
    assert "Loop" in ops(model)
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(model, x=x)[0], x * 8)


# --- FunctionProto -------------------------------------------------------------------------------------------------


def function(text: str, defaults: tuple[AttributeProto, ...] = ()) -> onnx.FunctionProto:
    made = parser.parse_function(text)
    made.attribute_proto.extend(defaults)
    return made


PAIR = """
<domain: "local", opset_import: ["" : 13]>
Pair <axis, factor> (x, weight) => (sums, %0) {
    joined = Concat<axis: int = @axis>(x, weight)
    scale = Constant<value_float: float = @factor>()
    %0 = Mul(joined, scale)
    two = Constant<value = int64[1] {1}>()
    sums = ReduceSum(joined, two)
}
""".replace("%0", "scaled")


def pair_reference(x: Any, weight: Any, axis: int, factor: float) -> Any:
    joined = torch.cat([x, weight], axis)
    return joined.sum(1, keepdim=True), joined * factor


def test_a_function_with_two_outputs_and_required_attributes() -> None:
    made = from_function(
        "mylib::pair",
        function(PAIR),
        reference=pair_reference,
        cases=[Case(f32(2, 3), f32(2, 3), axis=0, factor=2.0)],
        dtypes=("float32",),
    )
    assert made.outputs == ("sums", "scaled")
    types = {"x": ("float32", ["n", 3]), "weight": ("float32", ["m", 3])}
    # `sums` and `scaled` are also names of the model: they must not meet those of the body.
    model = model_of("mylib::pair", types, opset=13, outputs=("scaled", "joined"), axis=0, factor=2.0)
    x, weight = (RNG.standard_normal((rows, 3)).astype(np.float32) for rows in (2, 4))
    sums, scaled = run(rewrite(model, made), x=x, weight=weight)
    both = np.concatenate([x, weight])
    np.testing.assert_allclose(sums, both.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(scaled, both * 2)
    with pytest.raises(rewriter.errors.BindingError, match=r"'factor' .* is missing"):
        rewriter.rewrite(model_of("mylib::pair", types, opset=13, axis=0), passes=[made])


def test_an_attribute_left_out_and_an_optional_input() -> None:
    text = """
    <domain: "local", opset_import: ["" : 13]>
    Limited <alpha> (x, low, high) => (y) {
        limited = Clip(x, low, high)
        y = Elu<alpha: float = @alpha>(limited)
    }
    """
    made = from_function(
        "mylib::limited",
        function(text),
        reference=lambda x, low, high, alpha: torch.nn.functional.elu(x.clamp(max=high), alpha or 1.0),
        cases=[Case(f32(2, 3), None, f32(value=0.5)), Case(f32(2, 3), None, f32(value=0.5), alpha=2.0)],
        dtypes=("float32",),
    )
    types = {"x": ("float32", ["n", 3]), "high": ("float32", [])}
    model = model_of("mylib::limited", types, opset=13, arguments=["x", "", "high"])
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    expected = torch.nn.functional.elu(torch.from_numpy(x).clamp(max=0.5)).numpy()
    np.testing.assert_allclose(run(rewrite(model, made), x=x, high=np.float32(0.5))[0], expected, rtol=1e-5)


def test_an_output_nobody_asked_for_stays_so() -> None:
    text = """
    <domain: "local", opset_import: ["" : 13]>
    Last (x, w, r) => (y) { unused, y = RNN<hidden_size: int = 2>(x, w, r) }
    """
    made = function(text)
    made.node[0].output[0] = ""

    def reference(x: torch.Tensor, w: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(x.shape[1], 2)
        for step in x:
            state = torch.tanh(step @ w[0].T + state @ r[0].T)
        return state[None]

    last = from_function(
        "mylib::last",
        made,
        reference=reference,
        cases=[Case(f32(3, 1, 4), f32(1, 2, 4), f32(1, 2, 2))],
        dtypes=("float32",),
    )
    types = {"x": ("float32", [3, 1, 4]), "w": ("float32", [1, 2, 4]), "r": ("float32", [1, 2, 2])}
    model = model_of("mylib::last", types, opset=13)
    (node,) = rewrite(model, last).graph.node
    assert list(node.output) == ["", "y"]


# --- opsets --------------------------------------------------------------------------------------------------------


def relu_reduced(opset: int) -> onnx.FunctionProto:
    return function(f"""
    <domain: "local", opset_import: ["" : {opset}]>
    Reduced (x) => (y) {{ y = Elu(x) }}
    """)


@pytest.mark.parametrize(("written", "model"), [(18, 13), (11, 17), (18, 21)])
def test_another_opset_with_the_same_forms(written: int, model: int) -> None:
    made = from_function(
        "mylib::elu",
        relu_reduced(written),
        reference=torch.nn.functional.elu,
        cases=[Case(f32(2, 3))],
        parameters={},
        dtypes=("float32",),
    )
    assert ops(rewrite(model_of("mylib::elu", {"x": ("float32", ["n", 3])}, opset=model), made)) == ["Elu"]


def test_another_opset_with_another_form() -> None:
    with pytest.raises(UnsupportedAtOpset) as caught:
        rewriter.rewrite(
            model_of("com.example::Swish", {"x": ("float32", ["n", 3])}, opset=18),
            passes=[SWISH],
            derived=False,
        )
    assert caught.value.what.endswith(
        "Mul is written for opset 13 (the form of opset 13); the model has opset 18, where it has the form of opset 14"
    )
    assert "com.example::Swish 'it'" in str(caught.value)


def test_an_operator_that_the_models_opset_lacks() -> None:
    text = '<domain: "local", opset_import: ["" : 20]> G (x) => (y) { y = Gelu(x) }'
    made = from_function("mylib::g", function(text), reference=torch.nn.functional.gelu, cases=[Case(f32(2))])
    with pytest.raises(UnsupportedAtOpset, match=r"Gelu is written for opset 20 .* opset 13, which lacks it"):
        rewriter.rewrite(
            model_of("mylib::g", {"x": ("float32", [2])}, opset=13), passes=[made], derived=False
        )


# --- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("y = Relu(ghost)", "reads 'ghost', which nothing makes before"),
        ("x = Relu(x) y = Relu(x)", "the name 'x' is given twice"),
        ("a = Relu(x)", "reads 'y', which nothing makes before"),
        ("y = MatMul(x, x)", "MatMul does not fit its inputs"),
        ("y = Relu<alpha: float = 1.0>(x)", "Relu has no attribute 'alpha'"),
        ("y = Transpose<perm: int = 1>(x)", "attribute 'perm' of Transpose is ints, an int is given"),
        ("y = local.F(x)", "calls itself"),
        ("y = other.G(x)", "imports no opset of domain 'other'"),
    ],
)
def test_a_faulty_body(body: str, says: str) -> None:
    made = function(f'<domain: "local", opset_import: ["" : 13, "local" : 1]> F (x) => (y) {{ {body} }}')
    faulty = from_function("mylib::f", made, functions=[made], reference=lambda x: x, cases=[Case(f32(2, 3))])
    with pytest.raises((DecompositionFault, UnsupportedAtOpset), match="mylib::f 'it'") as caught:
        rewriter.rewrite(
            model_of("mylib::f", {"x": ("float32", [2, 3])}, opset=13), passes=[faulty], derived=False
        )
    assert says in caught.value.what
    assert "function local::F" in caught.value.what


def test_what_is_no_function() -> None:
    with pytest.raises(PassDefinitionError, match="no FunctionProto"):
        from_function("mylib::f", TensorProto())  # type: ignore[arg-type]
    with pytest.raises(PassDefinitionError, match="no onnxscript function"):
        from_onnxscript("mylib::f", lambda x: x)
    graph = AttributeProto(name="b", type=AttributeProto.GRAPH, ref_attr_name="b")
    node = helper.make_node("If", ["x"], ["y"])
    node.attribute.append(graph)
    made = helper.make_function("local", "F", ["x"], ["y"], [node], [helper.make_opsetid("", 13)], ["b"])
    with pytest.raises(PassDefinitionError, match="attribute 'b' is a graph"):
        from_function("mylib::f", made)
