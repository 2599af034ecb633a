"""Which initializers hold which parameters, after an exporter and the simplifier were at them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from rewriter.interpret import Interpreter, correspond, with_parameters


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_names_are_not_needed() -> None:
    """Transposed, its axes in another order, reshaped, and read at indices."""
    weight, kernel, table, bias = drawn(4, 3), drawn(2, 3, 5, seed=1), drawn(6, 2, seed=2), drawn(4, seed=3)
    parameters = {"weight": weight, "kernel": kernel, "table": table, "bias": bias}
    index = torch.tensor([[0, 5, 2], [2, 1, 0]])
    graph = {
        "a": weight.T.contiguous(),
        "b": kernel.permute(2, 0, 1).reshape(5, 1, 6),
        "c": table[index.reshape(-1)].reshape(2, 3, 2).permute(2, 0, 1)[None],
        "d": bias[None, :, None],
        "e": torch.tensor(0.5),
    }
    found = correspond(graph, parameters)
    assert {name: source.parameter for name, source in found.sources.items()} == {
        "a": "weight",
        "b": "kernel",
        "c": "table",
        "d": "bias",
    }
    assert (found.missing, found.others, found.merged) == ((), ("e",), {})
    for name, value in found.values(parameters).items():
        assert torch.equal(value, graph[name])


def test_values_are_differentiable_functions_of_the_parameters() -> None:
    """Of a table of which row 0 is read twice and row 1 never."""
    table = drawn(3, 2)
    graph = {"rows": table[torch.tensor([0, 2, 0])]}
    leaf = table.double().requires_grad_()
    correspond(graph, {"table": table}).values({"table": leaf})["rows"].sum().backward()
    assert torch.equal(leaf.grad, torch.tensor([[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]], dtype=torch.float64))


def test_equal_parameters_are_told_apart_by_name() -> None:
    ones = torch.ones(3)
    parameters = {"first": ones, "second": ones.clone()}
    found = correspond({"second": ones.clone(), "first": ones.clone()}, parameters)
    assert {name: source.parameter for name, source in found.sources.items()} == {
        "first": "first",
        "second": "second",
    }
    assert found.merged == {}


def test_equal_parameters_that_were_merged_are_said() -> None:
    zero = torch.zeros(3)
    parameters = {"first": zero, "second": zero.clone(), "other": drawn(3)}
    found = correspond({"first": zero.clone(), "renamed": drawn(3)}, parameters)
    assert found.merged == {"first": ("first", "second")}
    assert found.sources["renamed"].parameter == "other"
    assert found.missing == ()


def test_one_parameter_may_be_held_twice() -> None:
    """A tied embedding: read as it is, and multiplied by as its transpose."""
    table = drawn(5, 3)
    found = correspond({"embedding": table.clone(), "head": table.T.contiguous()}, {"embedding": table})
    assert {name: source.parameter for name, source in found.sources.items()} == {
        "embedding": "embedding",
        "head": "embedding",
    }


def test_what_was_computed_with_is_missing() -> None:
    """A weight that a scale was multiplied into, as folding of a batch normalisation does."""
    weight = drawn(4, 3)
    found = correspond({"weight": weight * 1.25}, {"weight": weight})
    assert found.sources == {}
    assert (found.missing, found.others) == (("weight",), ("weight",))


def test_a_constant_is_no_evidence() -> None:
    """A number that is by chance one of the parameter's; and a tensor of elements that the parameter has twice."""
    parameter = torch.tensor([0.5, 0.5, 1.0, 2.0])
    found = correspond({"half": torch.tensor(0.5), "pair": torch.tensor([0.5, 1.0])}, {"p": parameter})
    assert found.sources == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_values_that_the_export_rounded_are_found(dtype: torch.dtype) -> None:
    weight = drawn(4, 3)
    found = correspond({"w": weight.to(dtype).T}, {"weight": weight})
    assert found.sources["w"].parameter == "weight"
    wide = {"w": weight.to(dtype).T.double()}  # as an interpreter in float64 holds it
    assert correspond(wide, {"weight": weight.to(dtype)}).sources["w"].parameter == "weight"


def test_trained_values_go_back_into_a_model() -> None:
    weights = {"w": drawn(3, 2).numpy(), "h": drawn(2, seed=1).numpy().astype(np.float16)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Cast", ["h"], ["b"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["a", "b"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    interpreter = Interpreter(model, dtype=torch.float64)
    with torch.no_grad():
        for value in interpreter.parameters.values():
            value.mul_(2)
    trained = with_parameters(model, interpreter.parameters)
    for before, after in zip(model.graph.initializer, trained.graph.initializer, strict=True):
        assert (after.name, after.data_type) == (before.name, before.data_type)
        expected = weights[before.name].astype(np.float64) * 2
        np.testing.assert_array_equal(
            numpy_helper.to_array(after), expected.astype(weights[before.name].dtype)
        )
        np.testing.assert_array_equal(numpy_helper.to_array(before), weights[before.name])
