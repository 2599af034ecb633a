"""What ONNX's own operators require of the values of their inputs: indices, lengths, boxes, probabilities.

An operator's page in ONNX's documentation says it in words; a runtime that gets other values refuses them, or worse.
One row an input, in :data:`REQUIRED`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnx import NodeProto

    from rewriter.types import Dim


@dataclass(frozen=True)
class Limit:
    """``low <= n <= high``, or ``low <= n < size + more`` where ``size`` is that of a dim (None: unknown)."""

    low: float = 0
    high: float | None = None
    size: Dim = None
    more: int = 0


@dataclass(frozen=True)
class Boxes:
    """Corners (x1, y1, x2, y2) in order, within a map of ``height`` and ``width`` over ``scale``."""

    height: Dim
    width: Dim
    scale: float = 1.0


#: First and last column (along the last axis) that something is required of; None: the whole tensor.
Columns = tuple[int, int] | None
Requirement = tuple[Limit | Boxes, Columns]


@dataclass(frozen=True)
class View:
    """What is known around a node."""

    shape_of: Callable[[str], tuple[Dim, ...] | None]
    constant_of: Callable[[str], Any]

    def dim(self, node: NodeProto, index: int, axis: int) -> Dim:
        """A size of an input; None where it is unknown."""
        shape = self.shape_of(node.input[index]) if index < len(node.input) else None
        return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None


def required(node: NodeProto, index: int, view: View, *, whole: bool) -> list[Requirement]:
    """What the node, an operator of the default domain, requires of its input; ``whole``: the input holds integers."""
    rule = REQUIRED.get((node.op_type, index))
    if rule is None or (not whole and (node.op_type, index) in _OF_INTEGERS):
        return []
    found = rule(node, view)
    return [item if isinstance(item, tuple) else (item, None) for item in found]


def int_of(node: NodeProto, name: str, default: int) -> int:
    """An integer attribute."""
    return next((int(a.i) for a in node.attribute if a.name == name), default)


def _float_of(node: NodeProto, name: str, default: float) -> float:
    return next((float(a.f) for a in node.attribute if a.name == name), default)


def _along_axis(default: int) -> Callable[[NodeProto, View], list[Limit]]:
    return lambda node, view: [Limit(size=view.dim(node, 0, int_of(node, "axis", default)))]


def _up_to_axis(node: NodeProto, view: View) -> list[Limit]:
    return [Limit(size=view.dim(node, 0, int_of(node, "axis", -1)))]


def _points(node: NodeProto, view: View) -> list[Limit]:
    data, indices = view.shape_of(node.input[0]), view.shape_of(node.input[1])
    batch = int_of(node, "batch_dims", 0)
    count = indices[-1] if indices else None
    if data is None:
        return [Limit()]
    return [
        Limit(size=dim) for dim in (data[batch : batch + count] if isinstance(count, int) else data[batch:])
    ]


def _depth(node: NodeProto, view: View) -> list[Limit]:
    depth = view.constant_of(node.input[1])
    return [Limit() if depth is None else Limit(size=int(np.ravel(depth)[0]))]


def _regions(node: NodeProto, view: View) -> list[Boxes]:
    scale = _float_of(node, "spatial_scale", 1.0)
    return [Boxes(view.dim(node, 0, 2), view.dim(node, 0, 3), scale)]


def _regions_with_index(node: NodeProto, view: View) -> list[Requirement]:
    return [(Limit(size=view.dim(node, 0, 0)), (0, 0)), *((boxes, (1, 4)) for boxes in _regions(node, view))]


def _steps(node: NodeProto, view: View) -> list[Limit]:
    return [Limit(1, size=view.dim(node, 0, 1 if int_of(node, "layout", 0) else 0), more=1)]


def _rank(node: NodeProto, view: View) -> list[Limit]:
    shape = view.shape_of(node.input[0])
    return [Limit(0, 0 if shape is None else max(len(shape) - 1, 0))]


def _between(low: float, high: float) -> Callable[[NodeProto, View], list[Limit]]:
    return lambda node, view: [Limit(low, high)]  # noqa: ARG005


#: By operator and input, what it requires: sizes in the order of ONNX's documentation.
REQUIRED: Mapping[tuple[str, int], Callable[[NodeProto, View], Any]] = {
    ("Gather", 1): _along_axis(0),
    ("GatherElements", 1): _along_axis(0),
    ("ScatterElements", 1): _along_axis(0),
    ("Scatter", 1): _along_axis(0),
    ("GatherND", 1): _points,
    ("ScatterND", 1): _points,
    ("OneHot", 0): _depth,
    ("OneHot", 1): _between(1, 7),
    ("TopK", 1): _up_to_axis,
    ("NegativeLogLikelihoodLoss", 1): lambda node, view: [Limit(size=view.dim(node, 0, 1))],
    ("SoftmaxCrossEntropyLoss", 1): lambda node, view: [Limit(size=view.dim(node, 0, 1))],
    ("RoiAlign", 1): _regions,
    ("RoiAlign", 2): lambda node, view: [Limit(size=view.dim(node, 0, 0))],
    ("MaxRoiPool", 1): _regions_with_index,
    ("RNN", 4): _steps,
    ("GRU", 4): _steps,
    ("LSTM", 4): _steps,
    ("ReverseSequence", 1): lambda node, view: [
        Limit(1, size=view.dim(node, 0, int_of(node, "time_axis", 0)), more=1)
    ],
    ("RotaryEmbedding", 3): lambda node, view: [Limit(size=view.dim(node, 1, 0))],
    ("CumSum", 1): _rank,
    ("Div", 1): _between(1, 7),
    ("Mod", 1): _between(1, 7),
    ("Range", 2): _between(1, 3),
    ("Tile", 1): _between(1, 3),
    ("ConstantOfShape", 0): _between(1, 4),
    ("Pad", 1): _between(0, 2),
    ("Slice", 4): _between(1, 2),
    ("BitShift", 1): _between(0, 7),
    ("Resize", 2): _between(1, 2),
    ("Resize", 3): _between(1, 7),
    ("Upsample", 1): _between(1, 2),
    ("NonMaxSuppression", 2): _between(1, 7),
    ("NonMaxSuppression", 3): _between(0, 1),
    ("BatchNormalization", 4): _between(0.125, 2),
    ("QuantizeLinear", 1): _between(0.015625, 0.5),
    ("Dropout", 1): _between(0, 0.5),
}
#: Those that hold for integers only.
_OF_INTEGERS = frozenset({("Div", 1), ("Mod", 1), ("Range", 2)})
