"""What an end-to-end test asks of a rewritten model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnx import ModelProto, TypeProto


def operator_domains(model: ModelProto) -> set[str]:
    """Domains of every node that is no call of a model-local function: main graph, bodies and functions."""
    found: set[str] = set()
    functions = {(function.domain, function.name) for function in model.functions}
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        if (node.domain, node.op_type) not in functions:
            found.add("" if node.domain == "ai.onnx" else node.domain)
        for attribute in node.attribute:
            for graph in [attribute.g] if attribute.HasField("g") else list(attribute.graphs):
                waiting += graph.node
    return found


def interface(model: ModelProto) -> list[tuple[str, str, int, list[str | int | None]]]:
    """Name, dtype and dims of the graph's inputs and outputs, in order; None is a size without a name."""

    def dims(value: TypeProto) -> list[str | int | None]:
        return [
            d.dim_value if d.HasField("dim_value") else d.dim_param or None
            for d in value.tensor_type.shape.dim
        ]

    return [
        (kind, value.name, value.type.tensor_type.elem_type, dims(value.type))
        for kind, values in (("input", model.graph.input), ("output", model.graph.output))
        for value in values
    ]


def session(model: ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def worst_error(model: ModelProto, module: nn.Module, samples: Iterable[tuple[Tensor, ...]]) -> float:
    """max|a−b| / max|b| over all outputs and samples, b being PyTorch's; AssertionError where shape or dtype differ."""
    running = session(model)
    names = [value.name for value in running.get_inputs()]
    worst = 0.0
    for sample in samples:
        with torch.no_grad():
            result = module.eval()(*sample)
        expected = [result] if isinstance(result, Tensor) else list(result)
        found = running.run(None, {n: t.numpy() for n, t in zip(names, sample, strict=True)})
        assert len(found) == len(expected)
        for a, b in zip(found, (t.numpy() for t in expected), strict=True):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            assert np.isfinite(a).all()
            worst = max(worst, float(np.abs(a - b).max() / np.abs(b).max()))
    return worst
