"""onnx-graphsurgeon functions as pass bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
import pytest
import torch

import rewriter
from rewriter import Case, Ints, Value, f32, from_surgeon
from rewriter.errors import DecompositionFault, UnsupportedAtOpset
from tests.interop.conftest import line, model_of, ops, rewrite, run

RNG = np.random.default_rng(0)


def square_plus_one(graph: gs.Graph, node: gs.Node) -> None:
    """x² + 1."""
    dtype = node.inputs[0].dtype
    two = gs.Constant("two", np.asarray(2, dtype))
    one = gs.Constant("one", np.asarray(1, dtype))
    squared = gs.Variable("squared", dtype=dtype)
    # In the wrong order: sorting is the rewriter's business.
    graph.nodes.append(gs.Node("Add", inputs=[squared, one], outputs=node.outputs))
    graph.nodes.append(gs.Node("Pow", inputs=[node.inputs[0], two], outputs=[squared]))
    node.outputs.clear()


# onnxruntime has no Pow of float16 at opset 11.
@pytest.mark.parametrize(("opset", "dtype"), [(11, "float32"), (13, "float32"), (13, "float16")])
def test_square_plus_one(opset: int, dtype: str) -> None:
    square = from_surgeon(
        "mylib::square_plus_one", square_plus_one, reference=lambda x: x * x + 1, cases=[Case(f32(2, 3))]
    )
    made = rewrite(model_of("mylib::square_plus_one", {"x": (dtype, ["n", 3])}, opset=opset), square)
    assert ops(made) == ["Pow", "Add"]
    x = RNG.standard_normal((4, 3)).astype(dtype)
    np.testing.assert_allclose(
        run(made, x=x)[0], x.astype(np.float64) ** 2 + 1, rtol=2e-3 if dtype == "float16" else 1e-6
    )


def roll(graph: gs.Graph, node: gs.Node) -> None:
    x, (result,) = node.inputs[0], node.outputs
    shifts, dims = node.attrs["shifts"], node.attrs["dims"]
    node.outputs.clear()
    for number, (shift, dim) in enumerate(zip(shifts, dims, strict=True)):
        size = x.shape[dim]
        cut = (size - shift) % size
        (tail,) = graph.layer(op="Slice", inputs=[x, [cut], [size], [dim]], outputs=["tail"])
        (head,) = graph.layer(op="Slice", inputs=[x, [0], [cut], [dim]], outputs=["head"])
        last = number == len(shifts) - 1
        joined = result if last else gs.Variable(f"joined{number}", dtype=x.dtype, shape=x.shape)
        graph.layer(op="Concat", inputs=[tail, head], outputs=[joined], attrs={"axis": dim})
        x = joined


@pytest.mark.parametrize("as_inputs", [False, True], ids=["attributes", "inputs"])
def test_parameters_are_attributes_whatever_the_exporters_form(as_inputs: bool) -> None:
    made = from_surgeon(
        "com.example::Roll",
        roll,
        reference=torch.roll,
        cases=[Case(f32(2, 3, 5), shifts=[1, 2], dims=[1, 2])],
        parameters={"x": Value, "shifts": Ints, "dims": Ints},
    )
    constants = {"s": [1, 2], "d": [1, 2]}
    if as_inputs:
        model = model_of(
            "com.example::Roll",
            {"x": ("float32", ["n", 3, 5])},
            opset=13,
            arguments=["x", "s", "d"],
            constants=constants,
        )
    else:
        model = model_of(
            "com.example::Roll", {"x": ("float32", ["n", 3, 5])}, opset=13, shifts=[1, 2], dims=[1, 2]
        )
    x = RNG.standard_normal((2, 3, 5)).astype(np.float32)
    np.testing.assert_array_equal(run(rewrite(model, made), x=x)[0], np.roll(x, (1, 2), (1, 2)))


def test_several_outputs_an_omitted_input_and_the_identity() -> None:
    def body(graph: gs.Graph, node: gs.Node) -> None:
        x, bias, scale = node.inputs
        assert bias.is_empty()
        assert isinstance(scale, gs.Constant)
        assert scale.values.tolist() == [2.0]
        graph.outputs[0] = x
        (graph.outputs[1],) = graph.layer(op="Mul", inputs=[x, scale], outputs=["scaled"])
        node.outputs.clear()

    def reference(x: Any, bias: Any, scale: Any) -> Any:
        return x, x * scale

    made = from_surgeon(
        "mylib::Pair",
        body,
        reference=reference,
        cases=[Case(f32(2, 3), None, f32(1))],
        outputs=("same", "scaled"),
        dtypes=("float32",),
    )
    model = model_of(
        "mylib::Pair",
        {"x": ("float32", ["n", 3])},
        opset=13,
        arguments=["x", "", "scale"],
        constants={"scale": np.asarray([2], np.float32)},
        outputs=("a", "b"),
    )
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    same, scaled = run(rewrite(model, made), x=x)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(scaled, 2 * x)


def test_a_branch() -> None:
    def body(graph: gs.Graph, node: gs.Node) -> None:
        x = node.inputs[0]
        positive = gs.Variable("positive", dtype=np.float32)
        negative = gs.Variable("negative", dtype=np.float32)
        then = gs.Graph(
            [gs.Node("Relu", inputs=[x], outputs=[positive])], outputs=[positive], opset=graph.opset
        )
        other = gs.Graph(
            [gs.Node("Neg", inputs=[x], outputs=[negative])], outputs=[negative], opset=graph.opset
        )
        (most,) = graph.layer(op="ReduceMax", inputs=[x], outputs=["most"], attrs={"keepdims": 0})
        most.dtype = np.float32
        (above,) = graph.layer(op="Greater", inputs=[most, np.asarray(0, np.float32)], outputs=["above"])
        graph.layer(
            op="If", inputs=[above], outputs=node.outputs, attrs={"then_branch": then, "else_branch": other}
        )
        node.outputs.clear()

    def reference(x: torch.Tensor) -> torch.Tensor:
        return x.relu() if x.max() > 0 else -x

    made = from_surgeon(
        "mylib::Either", body, reference=reference, cases=[Case(f32(2, 3))], dtypes=("float32",)
    )
    model = rewrite(model_of("mylib::Either", {"x": ("float32", ["n", 3])}, opset=13), made)
    for x in (np.asarray([[3, -1, 0]], np.float32), np.asarray([[-3, -1, 0]], np.float32)):
        np.testing.assert_array_equal(run(model, x=x)[0], reference(torch.from_numpy(x)).numpy())


def test_a_constant_that_was_edited_is_a_new_one() -> None:
    def body(graph: gs.Graph, node: gs.Node) -> None:
        x, weight = node.inputs
        weight.values = weight.values * 2
        graph.layer(op="Mul", inputs=[x, weight], outputs=node.outputs)
        node.outputs.clear()

    made = from_surgeon(
        "mylib::Twice",
        body,
        reference=lambda x, w: 2 * x * w,
        cases=[Case(f32(2, 3), f32(3))],
        dtypes=("float32",),
    )
    model = model_of(
        "mylib::Twice",
        {"x": ("float32", ["n", 3])},
        opset=13,
        arguments=["x", "w"],
        constants={"w": np.asarray([1, 2, 3], np.float32)},
    )
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(run(rewrite(model, made), x=x)[0], 2 * x * np.asarray([1, 2, 3]), rtol=1e-6)


def test_the_rest_of_the_model_never_passes_through_graphsurgeon() -> None:
    model = model_of("mylib::square_plus_one", {"x": ("float32", ["n", 3])}, opset=13)
    # What graphsurgeon would lose.
    model.graph.metadata_props.add(key="kept", value="yes")
    model.graph.input[0].doc_string = "an input"
    model.graph.quantization_annotation.add(tensor_name="x")
    seen = []

    def body(graph: gs.Graph, node: gs.Node) -> None:
        seen.append(([t.name for t in graph.inputs], [n.op for n in graph.nodes], graph.inputs[0].shape))
        square_plus_one(graph, node)

    square = from_surgeon(
        "mylib::square_plus_one", body, reference=lambda x: x * x + 1, cases=[Case(f32(2, 3))]
    )
    made = rewrite(model, square)
    assert seen[0] == (["x"], ["square_plus_one"], ["n", 3])
    assert made.graph.metadata_props == model.graph.metadata_props
    assert made.graph.input == model.graph.input
    assert made.graph.quantization_annotation == model.graph.quantization_annotation


# --- refusals ----------------------------------------------------------------------------------------------------


def leaves_it(graph: gs.Graph, node: gs.Node) -> None:
    graph.layer(op="Relu", inputs=[node.inputs[0]], outputs=["unused"])


def makes_nothing(graph: gs.Graph, node: gs.Node) -> None:
    node.outputs.clear()


def two_of_one_name(graph: gs.Graph, node: gs.Node) -> None:
    a, b = gs.Variable("a"), gs.Variable("a")
    graph.nodes += [
        gs.Node("Relu", inputs=node.inputs, outputs=[a]),
        gs.Node("Neg", inputs=node.inputs, outputs=[b]),
        gs.Node("Add", inputs=[a, b], outputs=node.outputs),
    ]
    node.outputs.clear()


def reads_nothing(graph: gs.Graph, node: gs.Node) -> None:
    graph.nodes.append(gs.Node("Add", inputs=[node.inputs[0], gs.Variable("ghost")], outputs=node.outputs))
    node.outputs.clear()


def wrong_type(graph: gs.Graph, node: gs.Node) -> None:
    graph.nodes.append(
        gs.Node(
            "Mul", "scale", inputs=[node.inputs[0], gs.Constant("two", np.asarray(2.0))], outputs=node.outputs
        )
    )
    node.outputs.clear()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (leaves_it, "still holds the placeholder mylib::Body"),
        (makes_nothing, "makes no output 'output'"),
        (two_of_one_name, "has two tensors called 'a'"),
        (reads_nothing, "reads 'ghost', which nothing makes before"),
        (wrong_type, "Mul 'scale': Mul is given float32 and float64"),
    ],
)
def test_what_is_refused(body: Any, says: str) -> None:
    made = from_surgeon("mylib::Body", body, reference=lambda x: x, cases=[Case(f32(2, 3))])
    with pytest.raises(DecompositionFault, match="mylib::Body 'it'") as caught:
        rewriter.rewrite(model_of("mylib::Body", {"x": ("float32", [2, 3])}, opset=13), passes=[made])
    assert says in caught.value.what


def test_another_opsets_form() -> None:
    def body(graph: gs.Graph, node: gs.Node) -> None:
        graph.layer(op="Squeeze", name="flat", inputs=node.inputs, outputs=node.outputs, attrs={"axes": [0]})
        node.outputs.clear()

    made = from_surgeon("mylib::Body", body, reference=lambda x: x.squeeze(0), cases=[Case(f32(1, 3))])
    assert rewrite(model_of("mylib::Body", {"x": ("float32", [1, 3])}, opset=11), made)
    with pytest.raises(
        UnsupportedAtOpset, match="Squeeze 'flat': Squeeze has no attribute 'axes' at opset 13"
    ):
        rewriter.rewrite(
            model_of("mylib::Body", {"x": ("float32", [1, 3])}, opset=13), passes=[made], derived=False
        )


def test_an_error_in_the_function_names_its_line() -> None:
    def body(graph: gs.Graph, node: gs.Node) -> None:
        node.attrs["missing"]  # refused

    made = from_surgeon("mylib::Body", body, reference=lambda x: x, cases=[Case(f32(2, 3))])
    with pytest.raises(DecompositionFault) as caught:
        rewriter.rewrite(model_of("mylib::Body", {"x": ("float32", [2, 3])}, opset=13), passes=[made])
    assert caught.value.what == f"{line(body)}: KeyError: 'missing'"
