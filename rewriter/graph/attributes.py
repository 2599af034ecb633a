"""Values of standard operators' attributes that ONNX does not define: a TopK whose ``largest`` is −3.

onnx's schemas hold such lists only in their text, so they are written down here.  Runtimes take other values for one of
the list, each for another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import AttributeProto

from rewriter.errors import AttributeValueError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import NodeProto

    from rewriter.graph.scopes import Scope

_FLAG = (0, 1)
_AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_WINDOW: Mapping[str, tuple[int | str, ...]] = {"auto_pad": _AUTO_PAD, "ceil_mode": _FLAG}
_RECURRENT: Mapping[str, tuple[int | str, ...]] = {
    "direction": ("forward", "reverse", "bidirectional"),
    "layout": _FLAG,
    "linear_before_reset": _FLAG,
    "input_forget": _FLAG,
}
_REDUCTION: Mapping[str, tuple[int | str, ...]] = {"keepdims": _FLAG, "noop_with_empty_axes": _FLAG}
_SCATTER: Mapping[str, tuple[int | str, ...]] = {"reduction": ("none", "add", "mul", "max", "min")}
_LOSS: Mapping[str, tuple[int | str, ...]] = {"reduction": ("none", "sum", "mean")}

_ARG: Mapping[str, tuple[int | str, ...]] = {"keepdims": _FLAG, "select_last_index": _FLAG}
_REDUCES = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"

#: Per operator the attributes that have a list, and the list.
_VALUES: Mapping[str, Mapping[str, tuple[int | str, ...]]] = {
    **{f"Reduce{name}": _REDUCTION for name in _REDUCES.split()},
    **{f"Arg{name}": _ARG for name in ("Max", "Min")},
    **dict.fromkeys(("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "LpPool"), _WINDOW),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _RECURRENT),
    **dict.fromkeys(("ScatterND", "ScatterElements"), _SCATTER),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _LOSS),
    "AffineGrid": {"align_corners": _FLAG},
    "AveragePool": {**_WINDOW, "count_include_pad": _FLAG},
    "BatchNormalization": {"training_mode": _FLAG},
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    "Cast": {"saturate": _FLAG},
    "CumSum": {"exclusive": _FLAG, "reverse": _FLAG},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "Gelu": {"approximate": ("none", "tanh")},
    "Gemm": {"transA": _FLAG, "transB": _FLAG},
    "GridSample": {
        "align_corners": _FLAG,
        "mode": ("bilinear", "nearest", "bicubic", "linear", "cubic"),
        "padding_mode": ("zeros", "border", "reflection"),
    },
    "MaxPool": {**_WINDOW, "storage_order": _FLAG},
    "NonMaxSuppression": {"center_point_box": _FLAG},
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "Reshape": {"allowzero": _FLAG},
    "Resize": {"mode": ("nearest", "linear", "cubic"), "exclude_outside": _FLAG, "antialias": _FLAG},
    "RoiAlign": {
        "mode": ("avg", "max"),
        "coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
    },
    "TopK": {"largest": _FLAG, "sorted": _FLAG},
    "Trilu": {"upper": _FLAG},
    "Unique": {"sorted": _FLAG},
    "Upsample": {"mode": ("nearest", "linear")},
}


def check_attributes(scope: Scope, node: NodeProto) -> None:
    """AttributeValueError where an attribute of ``node``, an operator that :func:`has_list`, has another value."""
    values = _VALUES[node.op_type]
    for attribute in node.attribute:
        allowed = values.get(attribute.name)
        if allowed is None or attribute.ref_attr_name:
            continue
        given = (
            attribute.s.decode("utf-8", "replace") if attribute.type == AttributeProto.STRING else attribute.i
        )
        if given not in allowed:
            raise AttributeValueError(
                f"attribute '{attribute.name}' is {given!r}, and ONNX defines {' and '.join(map(repr, allowed))}",
                where=scope.where(node),
                remedy="the file is wrong as it came: runtimes differ in what they make of it. Correct the symbolic or "
                "the exporter that wrote the node, and export again",
            )


def has_list(op_type: str) -> bool:
    """Whether an attribute of the operator has a list of values."""
    return op_type in _VALUES
