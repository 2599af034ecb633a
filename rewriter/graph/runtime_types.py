"""Operators of runtimes whose result has the type of their first input, so that types get past them.

onnx's inference knows no operator of a runtime's own domain and stops there; a placeholder behind one would not even
know its rank.  Only what the runtime's own schema promises for every input is listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TypeProto

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx.shape_inference import InferenceContext

#: By domain; first result and first input only (``SkipLayerNormalization`` has more results).
SAME_AS_FIRST_INPUT: Mapping[str, frozenset[str]] = {
    # Operators of ONNX itself whose type its own inference does not tell.
    "": frozenset({"GroupNormalization", "MeanVarianceNormalization"}),
    "com.microsoft": frozenset(
        {
            "BiasAdd",
            "BiasDropout",
            "BiasGelu",
            "BiasSoftmax",
            "BitmaskBiasDropout",
            "BitmaskDropout",
            "FastGelu",
            "Gelu",
            "GroupNorm",
            "Inverse",
            "MoE",
            "QLinearLeakyRelu",
            "QLinearSigmoid",
            "QLinearSoftmax",
            "QMoE",
            "QuickGelu",
            "RotaryEmbedding",
            "SkipGroupNorm",
            "SkipLayerNormalization",
            "SkipSimplifiedLayerNormalization",
            "Trilu",
        }
    ),
}


def infer(context: InferenceContext) -> None:
    """A hook (see :mod:`rewriter.graph.hooks`) for the operators of the table."""
    if not context.get_num_inputs() or not context.get_num_outputs():
        return
    first = context.get_input_type(0)
    if isinstance(first, TypeProto) and first.WhichOneof("value"):
        context.set_output_type(0, first)
