"""The interpreter as its users call it: inputs, values, scopes, functions, types, errors and memory."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper, parser

from rewriter.errors import CannotInterpretError, InterpreterRefusedError, OpsetError
from rewriter.interpret import Interpreter
from rewriter.storage import ModelFile

if TYPE_CHECKING:
    from pathlib import Path


def run(text: str, feeds: dict[str, Any], **options: Any) -> dict[str, torch.Tensor]:
    return Interpreter(parser.parse_model(text), **options)(feeds)


CHAIN = """
<ir_version: 8, opset_import: ["" : 17]>
main (float[N] x, float[N] unused) => (float[N] y, float[N] z)
<float[2] w = {2, 3}>
{
    a = Mul(x, w)
    b = Exp(a)
    y = Neg(b)
    z = com.example.Missing(unused)
}
"""


def test_only_what_is_wanted_is_computed_and_needed() -> None:
    """The other output has an operator that nobody knows, and an input that is not given."""
    found = Interpreter(parser.parse_model(CHAIN))({"x": torch.tensor([1.0, 2.0])}, ["a", "y"])
    assert list(found) == ["a", "y"]
    torch.testing.assert_close(found["a"], torch.tensor([2.0, 6.0]))
    torch.testing.assert_close(found["y"], -torch.tensor([2.0, 6.0]).exp())


def test_an_unknown_operator_is_named_with_its_node() -> None:
    with pytest.raises(CannotInterpretError, match=r"com.example::Missing 'z': .*no such operator"):
        run(CHAIN, {"x": torch.ones(2), "unused": torch.ones(2)})


def test_an_input_that_is_missing_or_unknown_is_refused() -> None:
    model = parser.parse_model(CHAIN)
    with pytest.raises(InterpreterRefusedError, match="no value is given for x"):
        Interpreter(model)({}, ["y"])
    with pytest.raises(InterpreterRefusedError, match="no input 'q'"):
        Interpreter(model)({"q": torch.ones(2)})
    with pytest.raises(InterpreterRefusedError, match="'nothing'"):
        Interpreter(model)({"x": torch.ones(2)}, ["nothing"])


def test_an_operator_that_does_not_take_its_inputs_is_refused_with_its_place() -> None:
    with pytest.raises(InterpreterRefusedError, match="Mul 'a'") as caught:
        Interpreter(parser.parse_model(CHAIN))({"x": torch.ones(3)}, ["y"])
    assert caught.value.where is not None


def test_an_opset_below_11_is_refused() -> None:
    with pytest.raises(OpsetError, match="opset 10 is too old"):
        run(CHAIN.replace("17", "10"), {})


def test_parameters_are_leaves_that_gradients_reach() -> None:
    interpreter = Interpreter(parser.parse_model(CHAIN), dtype=torch.float64)
    (name,) = interpreter.parameters
    assert name == "w"
    w = interpreter.parameters["w"].requires_grad_()
    x = torch.tensor([0.5, -0.25], dtype=torch.float64, requires_grad=True)
    interpreter({"x": x}, ["y"])["y"].sum().backward()
    # d(−exp(w x)) = −exp(w x) (x dw + w dx)
    size = torch.tensor([np.exp(1.0), np.exp(-0.75)])
    torch.testing.assert_close(w.grad, -size * x.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(
        x.grad, -size * torch.tensor([2.0, 3.0], dtype=torch.float64), rtol=1e-12, atol=0
    )


def test_a_parameter_may_be_replaced_and_an_input_overrides_its_default() -> None:
    model = parser.parse_model(CHAIN)
    interpreter = Interpreter(model)
    interpreter.parameters["w"] = torch.tensor([1.0, 1.0])
    torch.testing.assert_close(interpreter({"x": torch.ones(2)}, ["a"])["a"], torch.ones(2))
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    interpreter = Interpreter(model)
    assert "w" not in interpreter.inputs
    torch.testing.assert_close(interpreter({"x": torch.ones(2)}, ["a"])["a"], torch.tensor([2.0, 3.0]))
    given = interpreter({"x": torch.ones(2), "w": torch.zeros(2)}, ["a"])["a"]
    torch.testing.assert_close(given, torch.zeros(2))


# --- types ------------------------------------------------------------------------------------------------------

#: The bits 11878 are 0.1 in float16.
NARROW = """
<ir_version: 8, opset_import: ["" : 17]>
main (float[N] x, float16[N] like) => (float[N] y, float16[N] cast, float16[N] alike, int64[N] whole, float filled)
<float16[1] tenth = {11878}>
{
    half = Cast <to = 10> (x)
    cast = Add(half, tenth)
    alike = CastLike(x, like)
    third = Constant <value_float = 0.333> ()
    y = Mul(x, third)
    whole = Cast <to = 7> (x)
    empty = Constant <value = int64[0] {}> ()
    filled = ConstantOfShape <value = float[1] {2.5}> (empty)
}
"""


def test_types_are_the_model_s_own() -> None:
    found = run(NARROW, {"x": torch.tensor([1.2345678]), "like": torch.ones(1).half()})
    assert {name: value.dtype for name, value in found.items()} == {
        "y": torch.float32,
        "cast": torch.float16,
        "alike": torch.float16,
        "whole": torch.int64,
        "filled": torch.float32,
    }
    assert found["alike"].item() == float(np.float16(1.2345678))


def test_one_type_stands_for_all_floating_point_types() -> None:
    """Constants keep the value that they have in the model; nothing is rounded after them."""
    x = 1.23456789012345
    found = run(
        NARROW,
        {"x": torch.tensor([x], dtype=torch.float64), "like": torch.ones(1).half()},
        dtype=torch.float64,
    )
    floating = {name: value for name, value in found.items() if name != "whole"}
    assert {value.dtype for value in floating.values()} == {torch.float64}
    assert found["whole"].dtype == torch.int64
    assert found["cast"].item() == x + float(np.float16(0.1))
    assert found["alike"].item() == x
    assert found["y"].item() == x * float(np.float32(0.333))


def test_a_tensor_that_pytorch_cannot_hold_is_said_where_it_is_read() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    main (float[N] x) => (float[N] y, string[1] s)
    <string[1] words = {"a"}>
    {
        y = Neg(x)
        s = Identity(words)
    }
    """
    assert Interpreter(parser.parse_model(text))({"x": torch.ones(1)}, ["y"])["y"].item() == -1
    with pytest.raises(CannotInterpretError, match="Identity 's': PyTorch has no tensors of string"):
        run(text, {"x": torch.ones(1)})


def test_unsigned_64_bit_numbers_are_right_or_refused() -> None:
    """torch has few kernels for them; 2^64 − 1 is the largest."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    main (uint64[N] a, uint64[N] b) => (uint64[N] sum, bool[N] less)
    { sum = Add(a, b)  less = Less(a, b) }
    """
    interpreter = Interpreter(parser.parse_model(text))
    feeds = {
        "a": torch.tensor([2**64 - 1, 5], dtype=torch.uint64),
        "b": torch.tensor([3, 7], dtype=torch.uint64),
    }
    assert interpreter(feeds, ["sum"])["sum"].tolist() == [2, 12]
    with pytest.raises(CannotInterpretError, match=r"Less 'less': .*2\^63"):
        interpreter(feeds, ["less"])
    small = {name: value[1:] for name, value in feeds.items()}
    assert interpreter(small, ["less"])["less"].tolist() == [True]


# --- scopes -----------------------------------------------------------------------------------------------------

BODIES = """
<ir_version: 8, opset_import: ["" : 17]>
main (bool c, float[2] x) => (float[2] y)
<float[2] w = {2, 3}>
{
    early = Exp(x)
    y = If (c) <
        then_branch = then () => (float[2] t) {
            inner = If (c) <
                then_branch = deep () => (float[2] d) { d = Mul(early, w) },
                else_branch = other () => (float[2] e) { e = com.example.Missing(early) }
            >
            t = Neg(inner)
        },
        else_branch = else () => (float[2] x2) { x2 = Identity(x) }
    >
}
"""


def test_bodies_see_the_scopes_around_them() -> None:
    x = torch.tensor([0.5, 1.0])
    found = run(BODIES, {"c": torch.tensor(True), "x": x})
    torch.testing.assert_close(found["y"], -(x.exp() * torch.tensor([2.0, 3.0])))
    torch.testing.assert_close(run(BODIES, {"c": torch.tensor(False), "x": x})["y"], x)


def test_a_place_in_a_body_is_told_in_full() -> None:
    text = BODIES.replace("d = Mul(early, w)", "d = com.example.Missing(early)")
    with pytest.raises(CannotInterpretError) as caught:
        run(text, {"c": torch.tensor(True), "x": torch.ones(2)})
    assert "com.example::Missing 'd' in If 'y' then_branch / If 'inner' then_branch" in str(caught.value)


LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
main (int64 n, float[2] x) => (float[2] last, float[M, 2] all)
{
    yes = Constant <value = bool {1}> ()
    last, all = Loop (n, yes, x) <
        body = step (int64 i, bool go, float[2] state) => (bool go_on, float[2] next, float[2] each) {
            go_on = Identity(go)
            next = Mul(state, x)
            each = Identity(state)
        }
    >
}
"""


def test_gradients_go_through_loops() -> None:
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    found = run(LOOP, {"n": torch.tensor(3), "x": x})
    torch.testing.assert_close(found["last"], x.detach() ** 4)
    torch.testing.assert_close(found["all"], torch.stack([x.detach() ** k for k in (1, 2, 3)]))
    (found["last"].sum() + found["all"].sum()).backward()
    torch.testing.assert_close(x.grad, 4 * x.detach() ** 3 + 1 + 2 * x.detach() + 3 * x.detach() ** 2)


def test_a_loop_that_does_not_run_gives_nothing_of_the_declared_sizes() -> None:
    found = run(LOOP, {"n": torch.tensor(0), "x": torch.ones(2)})
    torch.testing.assert_close(found["last"], torch.ones(2))
    assert found["all"].shape == (0, 2)
    assert found["all"].dtype == torch.float32


FUNCTION = """
<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
main (float[2] x) => (float[2] y, float[2] z, float[2] w)
{
    y = local.Scaled <alpha: float = 2.0> (x)
    z = local.Scaled <alpha: float = 5.0> (x)
    w = local.Scaled (x)
}
<domain: "local", opset_import: ["" : 17, "local" : 1]>
Scaled <alpha: float = 3.0> (a) => (b)
{
    c = local.Inner <times: float = @alpha> (a)
    b = Neg(c)
}
<domain: "local", opset_import: ["" : 13]>
Inner <times> (a) => (b)
{
    k = Constant <value_float: float = @times> ()
    b = Mul(a, k)
}
"""


def test_functions_have_the_attributes_of_their_calls_or_defaults() -> None:
    x = torch.tensor([1.0, 2.0])
    found = run(FUNCTION, {"x": x})
    torch.testing.assert_close(found["y"], -2 * x)
    torch.testing.assert_close(found["z"], -5 * x)
    torch.testing.assert_close(found["w"], -3 * x)


def test_a_function_that_calls_itself_is_refused() -> None:
    text = FUNCTION.replace("k = Constant <value_float: float = @times> ()\n", "").replace(
        'opset_import: ["" : 13]', 'opset_import: ["" : 13, "local" : 1]'
    )
    text = text.replace("b = Mul(a, k)", "b = local.Inner <times: float = @times> (a)")
    with pytest.raises(CannotInterpretError, match="calls itself"):
        run(text, {"x": torch.ones(2)})


@pytest.mark.parametrize("opset", [11, 13])
def test_the_version_decides(opset: int) -> None:
    """Softmax over axis 1 of (1, 2, 2): below 13 it is over everything from there on."""
    text = f"""
    <ir_version: 8, opset_import: ["" : {opset}]>
    main (float[1, 2, 2] x) => (float[1, 2, 2] y) {{ y = Softmax <axis = 1> (x) }}
    """
    x = torch.tensor([[[0.0, 0.0], [1.0, 1.0]]])
    found = run(text, {"x": x})["y"].reshape(-1)
    whole = torch.softmax(x.reshape(-1), 0) if opset == 11 else torch.softmax(x, 1).reshape(-1)
    torch.testing.assert_close(found, whole)


# --- files and memory -------------------------------------------------------------------------------------------


def _weighted(size: int) -> onnx.ModelProto:
    w = np.arange(size, dtype=np.float32).reshape(2, -1)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("external", [False, True], ids=["inline", "external"])
def test_weights_that_stay_in_a_file_are_read_from_it(tmp_path: Path, external: bool) -> None:
    """Far above what a skeleton holds; the file is closed before the model runs."""
    path = tmp_path / "m.onnx"
    onnx.save(_weighted(4000), path, save_as_external_data=external, location="w.bin")
    with ModelFile.open(path) as file:
        assert file.is_withheld(file.model.graph.initializer[0]) is not external
        interpreter = Interpreter(file.model, file=file)
    found = interpreter({"x": torch.tensor([[1.0, 2.0]])})["y"]
    torch.testing.assert_close(found, (torch.arange(2000.0) + 2 * torch.arange(2000.0, 4000.0))[None])


def test_values_are_let_go_of_after_their_last_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a chain of ten, never more than two live at a time."""
    nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(10)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("v10", TensorProto.FLOAT, [3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0
    original = torch.neg

    def watched(x: torch.Tensor) -> torch.Tensor:
        nonlocal most
        made = original(x)
        alive.append(weakref.ref(made))
        most = max(most, sum(item() is not None for item in alive))
        return made

    from rewriter.interpret.operators import elementwise
    from rewriter.interpret.registry import Kernels

    replaced = Kernels()
    replaced.add("Neg", lambda _, x: watched(x))
    monkeypatch.setattr("rewriter.interpret.kernels.GROUPS", (replaced, elementwise.KERNELS))
    found = Interpreter(model)({"v0": torch.ones(3)})["v10"]
    torch.testing.assert_close(found, torch.ones(3))
    assert len(alive) == 10
    assert most == 2
