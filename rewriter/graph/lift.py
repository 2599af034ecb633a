"""Opsets 11 to 13 read as opset 14, for inference only.

From opset 14 on, onnx's inference knows the rank of a Reshape to a computed shape, and follows sizes through the
operators that exporters compute shapes with; before, it knows neither, and a placeholder behind one would have no
rank.  Up to 14 the forms of four operators changed: their ``axes`` or ``split`` became an input.  What else changed
in between (a default axis of Softmax, attributes that became optional inputs of Dropout) has no influence on types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from rewriter.domains import MINIMUM_OPSET
from rewriter.graph.scopes import graphs_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

#: What older opsets are read as.
LIFTED = 14
_BECAME_INPUT = {"Squeeze": "axes", "Unsqueeze": "axes", "ReduceSum": "axes", "Split": "split"}


def lifted_version(domain: str, version: int) -> int:
    """The version at which inference reads what imports ``version`` of ``domain``."""
    return LIFTED if not domain and MINIMUM_OPSET <= version < LIFTED else version


def lift(model: ModelProto) -> None:
    """Rewrite ``model``, a copy made for inference, from opset 11, 12 or 13 to 14; others are left."""
    for item in model.opset_import:
        if item.domain in ("", "ai.onnx") and lifted_version("", item.version) != item.version:
            if item.version < 13:
                _attributes_to_inputs(model.graph, 0)
            item.version = LIFTED


def _attributes_to_inputs(graph: GraphProto, count: int) -> int:
    for node in graph.node:
        wanted = _BECAME_INPUT.get(node.op_type)
        if wanted is not None and node.domain in ("", "ai.onnx") and len(node.input) == 1:
            for attribute in node.attribute:
                if attribute.name == wanted:
                    values = list(attribute.ints)
                    name = f"rewriter.{wanted}.{count}"
                    count += 1
                    graph.initializer.append(
                        TensorProto(
                            name=name, data_type=TensorProto.INT64, dims=[len(values)], int64_data=values
                        )
                    )
                    node.input.append(name)
                    node.attribute.remove(attribute)
                    break
        for _, _, body in graphs_of(node):
            count = _attributes_to_inputs(body, count)
    return count
