"""Fused operators: what is folded, the selective scan against transformers' own, and what is refused."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from passes.fused.selective_scan import SelectiveScan
from rewriter.decompose import decompose
from rewriter.errors import DecompositionError
from rewriter.execution.session import Session
from rewriter.placeholder import Selection
from rewriter.storage import ModelFile

NAMES = ("weight", "bias", "bn_weight", "bn_bias", "running_mean", "running_var")


def weights(rng: np.random.Generator) -> dict[str, Any]:
    found = {name: rng.standard_normal(4).astype(np.float32) for name in NAMES[1:]}
    found["running_var"] = np.abs(found["running_var"]) + np.float32(0.5)
    # Larger than what storage leaves in the file.
    return {"weight": rng.standard_normal((4, 32, 3, 3)).astype(np.float32), **found}


def test_weights_in_the_model_become_one_convolution() -> None:
    rng = np.random.default_rng(0)
    given = weights(rng)
    x = rng.standard_normal((2, 32, 6, 6)).astype(np.float32)
    node = helper.make_node("ConvBnRelu", ["x", *NAMES], ["y"], domain="mylib", stride=[2, 2], padding=[1, 1])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32, "h", "w"])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(value, name) for name, value in given.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("mylib", 1)]
    )
    model.ir_version = 8
    with ModelFile.from_proto(model) as file:
        assert any(file.is_withheld(tensor) for tensor in file.model.graph.initializer)
        decompose(file, Selection.load(["conv_bn_relu"]))
        assert [n.op_type for n in file.model.graph.node] == ["Conv", "Relu"]
        found = Session(file, file.model).run({"x": x}, ["y"])["y"]
    exact = {name: torch.from_numpy(value).double() for name, value in given.items()}
    made = torch.nn.functional.conv2d(torch.from_numpy(x).double(), exact["weight"], exact["bias"], 2, 1)
    made = torch.nn.functional.batch_norm(
        made, exact["running_mean"], exact["running_var"], exact["bn_weight"], exact["bn_bias"]
    )
    np.testing.assert_allclose(found, made.relu().numpy(), rtol=1e-5, atol=1e-5)


def scan_arguments(length: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    return {
        "u": normal(2, 6, length),
        "delta": normal(2, 6, length) - 2,
        "A": -torch.exp(normal(6, 4)),
        "B": normal(2, 4, length),
        "C": normal(2, 4, length),
        "D": normal(6),
        "z": normal(2, 6, length),
        "delta_bias": normal(6),
    }


def test_the_selective_scan_is_that_of_transformers() -> None:
    mamba = importlib.import_module("transformers.models.mamba.modeling_mamba")
    given = scan_arguments(11)
    theirs = dict(given)
    u, dt, *matrices = (theirs.pop(name) for name in ("u", "delta", "A", "B", "C"))
    result, state = mamba.mamba_selective_scan(
        u, dt, *matrices, **theirs, delta_softplus=True, return_last_state=True
    )
    found, last = SelectiveScan().reference(**given, delta_softplus=True)
    torch.testing.assert_close(found, result)
    torch.testing.assert_close(last, state)


def scan_model(length: int | str) -> Any:
    given = scan_arguments(8)
    infos = []
    for name, value in given.items():
        shape = [
            length if name in ("u", "delta", "B", "C", "z") and i == 2 else d
            for i, d in enumerate(value.shape)
        ]
        infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    node = helper.make_node("SelectiveScan", list(given), ["y"], domain="com.example", delta_softplus=1)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    imports = [helper.make_opsetid("", 13), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def operators(length: int | str, **options: Any) -> Counter[str]:
    with ModelFile.from_proto(scan_model(length)) as file:
        decompose(file, Selection.load(["selective_scan"]), **options)
        return Counter(n.op_type for n in file.model.graph.node)


def test_the_selective_scan_is_written_out_for_other_runtimes() -> None:
    assert operators(256)["Scan"] == operators("length")["Scan"] == 1
    assert operators(48, portable=True)["Scan"] == 0
    assert operators(1024, portable=True)["Mul"] < 200, "not in blocks"
    with pytest.raises(DecompositionError, match="portable"):
        operators("length", portable=True)
