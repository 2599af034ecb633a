"""A standard operator, run as the model came: what a region that replaced it is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from rewriter.execution.reference import ReferenceRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Operators whose results differ from run to run.
RANDOM = frozenset(
    {"Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
)


def run_node(node: NodeProto, version: int, arrays: Sequence[Any]) -> list[Any]:
    """The results of ``node``, meant at opset ``version``, for inputs by position (None where left out).

    onnxruntime where it has the kernel, else onnx's reference evaluator.  ReferenceRefused where both refuse.
    """
    model = _model(node, version, arrays)
    feeds = {f"x{i}": np.asarray(array) for i, array in enumerate(arrays) if array is not None}
    problems = []
    for run in (_by_onnxruntime, _by_evaluator):
        try:
            found = run(model, feeds)
        except Exception as error:  # noqa: BLE001  (either raises whatever it likes)
            problems.append(f"{type(error).__name__}: {error}".split("\n")[0])
            continue
        results = iter(found)
        return [next(results) if name else None for name in node.output]
    raise ReferenceRefused("; ".join(problems))


def _model(node: NodeProto, version: int, arrays: Sequence[Any]) -> ModelProto:
    """``node`` alone, under names of its own."""
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.input[:], copy.output[:]
    copy.input.extend("" if array is None else f"x{i}" for i, array in enumerate(arrays))
    copy.output.extend(f"y{i}" if name else "" for i, name in enumerate(node.output))
    graph = GraphProto(name="node", node=[copy])
    for i, array in enumerate(arrays):
        if array is not None:
            kind = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
            graph.input.append(helper.make_tensor_value_info(f"x{i}", kind, np.asarray(array).shape))
    graph.output.extend(ValueInfoProto(name=name) for name in copy.output if name)
    return ModelProto(
        ir_version=10, graph=graph, opset_import=[helper.make_opsetid("", version)], producer_name="reference"
    )


def _by_onnxruntime(model: ModelProto, feeds: dict[str, Any]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feeds))


def _by_evaluator(model: ModelProto, feeds: dict[str, Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(model).run(None, feeds))
