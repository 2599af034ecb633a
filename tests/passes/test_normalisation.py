"""Normalisations as PyTorch's exporter leaves them (aten nodes with positional inputs), and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper

from rewriter.decompose import decompose
from rewriter.errors import DecompositionError
from rewriter.execution.session import Session
from rewriter.placeholder import Selection
from rewriter.storage import ModelFile


def aten(name: str, *arguments: Any, outputs: int = 1) -> tuple[ModelProto, dict[str, Any]]:
    """One aten node with everything as an input, in the operator's schema order; tensors are the model's inputs."""
    inputs, constants, feeds = [], [], {}
    for number, argument in enumerate(arguments):
        value = f"v{number}" if argument is not None else ""
        inputs.append(value)
        if isinstance(argument, torch.Tensor):
            feeds[value] = argument.numpy()
        elif argument is not None:
            array = np.asarray(argument)
            array = array.astype(np.float32) if array.dtype.kind == "f" else array
            constants.append(numpy_helper.from_array(array, value))
    infos = [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in feeds.items()]
    names = [f"out{i}" for i in range(outputs)]
    node = helper.make_node(name, inputs, names, domain="org.pytorch.aten")
    graph = helper.make_graph(
        [node], "g", infos, [helper.make_empty_tensor_value_info(n) for n in names], constants
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("org.pytorch.aten", 1)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 8
    return model, feeds


def rewritten(pass_name: str, model: ModelProto, feeds: dict[str, Any], **options: Any) -> list[Any]:
    with ModelFile.from_proto(model) as file:
        decompose(file, Selection.load([pass_name]), **options)
        names = [output.name for output in model.graph.output]
        found = Session(file, file.model).run(feeds, names)
    return [found[name] for name in names]


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


X, WEIGHT, BIAS = draw(2, 6, 5), draw(6), draw(6) + 1
LAST = draw(5)
OPS = torch.ops.aten

#: Pass, operator, its arguments.
FORMS: list[tuple[str, Any, tuple[Any, ...], int]] = [
    ("layer_norm", OPS.layer_norm.default, (X, [5], LAST, LAST + 1, 1e-3, False), 1),
    ("layer_norm", OPS.native_layer_norm.default, (X, [5], LAST, None, 1e-3), 3),
    ("rms_norm", OPS.rms_norm.default, (X, [5], LAST, 1e-3), 1),
    ("rms_norm", OPS.rms_norm.default, (X, [5]), 1),
    ("rms_norm", OPS._fused_rms_norm.default, (X, [5], LAST, None), 2),
    ("group_norm", OPS.group_norm.default, (X, 3, WEIGHT, BIAS, 1e-3, False), 1),
    ("group_norm", OPS.native_group_norm.default, (X, WEIGHT, BIAS, 2, 6, 5, 2, 1e-3), 3),
    ("instance_norm", OPS.instance_norm.default, (X, WEIGHT, BIAS, None, None, True, 0.1, 1e-3, False), 1),
    ("instance_norm", OPS.instance_norm.default, (X, WEIGHT, BIAS, WEIGHT, BIAS.abs(), False, 0.1, 1e-3, False), 1),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form[1]}-{len(form[2])}")
def test_what_the_exporter_leaves(form: tuple[str, Any, tuple[Any, ...], int]) -> None:
    pass_name, operator, arguments, outputs = form
    name = operator.name().removeprefix("aten::")
    found = rewritten(pass_name, *aten(name, *arguments, outputs=outputs))
    made = operator(*arguments)
    expected = made if isinstance(made, tuple) else (made,)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("pass_name", "name", "arguments", "says"),
    [
        ("layer_norm", "layer_norm", (X, [6], WEIGHT), r"normalized_shape is \[6\] and the input has shape"),
        ("rms_norm", "rms_norm", (X, []), "normalized_shape is empty"),
        ("group_norm", "group_norm", (X, 4), "6 channels cannot be put into 4 groups"),
        (
            "instance_norm",
            "instance_norm",
            (X, None, None, None, None, False),
            "a running statistic is not given",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    pass_name: str, name: str, arguments: tuple[Any, ...], says: str
) -> None:
    with pytest.raises(DecompositionError, match=says):
        rewritten(pass_name, *aten(name, *arguments))
