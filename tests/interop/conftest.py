"""Models with one placeholder, and what the exporters' and a user's own code look like."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import rewriter

Shape = Sequence[int | str | None]


def model_of(
    operator: str,
    inputs: Mapping[str, tuple[str, Shape]],
    *,
    opset: int,
    arguments: Sequence[str] | None = None,
    constants: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    output_types: Mapping[str, tuple[str, Shape]] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model that is one placeholder.

    ``inputs``: name → (dtype, shape).  ``arguments``: the placeholder's inputs, among them those of ``constants``,
    which become Constant nodes as the exporters' fall-through writes them.
    """
    domain, _, op_type = operator.rpartition("::")
    nodes = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value)))
        for name, value in (constants or {}).items()
    ]
    nodes.append(
        helper.make_node(
            op_type, list(arguments or inputs), list(outputs), domain=domain, name="it", **attributes
        )
    )
    infos = [helper.make_tensor_value_info(n, _dtype(d), list(s)) for n, (d, s) in inputs.items()]
    first = next(iter(inputs.values()))
    results = []
    for name in outputs:
        dtype, shape = (output_types or {}).get(name, (first[0], None))
        results.append(
            helper.make_tensor_value_info(name, _dtype(dtype), None if shape is None else list(shape))
        )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(domain, 1)]
    graph = helper.make_graph(nodes, "net", infos, results)
    return helper.make_model(
        graph, opset_imports=imports, ir_version=max(8, helper.find_min_ir_version_for(imports[:1]))
    )


def _dtype(name: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(name)))


def rewrite(model: onnx.ModelProto, *passes: Any, **options: Any) -> onnx.ModelProto:
    """Rewritten and verified; unsimplified unless asked for, so that the nodes are those that the pass made."""
    options.setdefault("simplify", False)
    report = rewriter.rewrite(model, passes=list(passes), **options)
    assert report.model is not None
    assert {item.domain for item in report.model.opset_import} == {""}
    return report.model


def run(model: onnx.ModelProto, **feeds: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, {name: np.asarray(value) for name, value in feeds.items()}))


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def line(function: Callable[..., Any], marker: str = "# refused") -> str:
    """``file:line`` of the line of ``function`` that ends with ``marker``."""
    function = inspect.unwrap(function)
    lines, first = inspect.getsourcelines(function)
    (offset,) = [i for i, text in enumerate(lines) if text.rstrip().endswith(marker)]
    return f"{function.__code__.co_filename}:{first + offset}"
