"""Why a file differs from PyTorch at a node: causes with the sign by which each is told, and what to do.

The signs are read from the node at which values part, and from its values.  They are asked in the order of
:data:`CAUSES`; the first that shows is named.  Where none shows, nothing is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, numpy_helper

from rewriter.domains import is_standard_domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onnx import ModelProto

    from rewriter.execution.values import Data
    from rewriter.verify.blame import Blame

#: Largest constant whose elements are looked at, and largest size that one is taken for.
_ELEMENTS, _SIZES = 16, 20_000
#: Operators of ONNX and usual placeholders that choose among values, where equal ones may come in any order.
_CHOOSING = frozenset(
    ["TopK", "ArgMax", "ArgMin", "NonMaxSuppression", "Sort", "Argsort", "Nms", "BatchedNms", "CumMax"]
)
#: Operators whose meaning in PyTorch needs an opset: what is missing below it.
_SINCE: Mapping[str, tuple[int, str]] = {
    "RoiAlign": (16, "coordinate_transformation_mode, so `aligned` is lost"),
    "Softmax": (13, "softmax over one axis of several"),
    "LogSoftmax": (13, "log_softmax over one axis of several"),
    "Hardmax": (13, "hardmax over one axis of several"),
    "ScatterElements": (16, "reductions"),
    "ScatterND": (16, "reductions"),
    "AveragePool": (19, "dilations, and ceil_mode as PyTorch counts"),
    "Resize": (13, "the transformations that PyTorch uses"),
    "Pad": (19, "the mode 'wrap'"),
}


@dataclass(frozen=True)
class Evidence:
    """What is known of the node at which values part."""

    #: The model as it came, and the node; None where it is not known.
    model: ModelProto
    node: NodeProto | None
    #: The value in the file and in PyTorch, and those that the node reads; absent where they are not known.
    found: Data | None = None
    expected: Data | None = None
    inputs: Mapping[str, Data] = field(default_factory=dict)
    #: Sizes of the open dims in this sample.
    sizes: Mapping[str, int] = field(default_factory=dict)
    #: Whether the expected values were recorded, and not computed now.
    recorded: bool = False
    #: Whether what the node reads is known to be right.
    certain: bool = True
    #: Why the runtime refuses the node, where it does.
    refusal: str = ""

    @property
    def opset(self) -> int:
        return next((item.version for item in self.model.opset_import if item.domain in ("", "ai.onnx")), 0)

    def constants(self) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """The small constants that the node reads, and those that they are made of, by name."""
        if self.node is None:
            return
        tensors: dict[str, TensorProto] = {tensor.name: tensor for tensor in self.model.graph.initializer}
        producers = {name: node for node in self.model.graph.node for name in node.output}
        for node in self.model.graph.node:
            if node.op_type == "Constant":
                tensors.update(
                    (node.output[0], a.t) for a in node.attribute if a.type == AttributeProto.TENSOR
                )
        waiting, seen = [name for name in self.node.input if name], set()
        while waiting:
            name = waiting.pop(0)
            if name in seen:
                continue
            seen.add(name)
            value = _array(tensors.get(name))
            if value is not None:
                yield name, value
            elif name in producers and producers[name].op_type in ("Concat", "Cast", "Unsqueeze", "Identity"):
                waiting += producers[name].input


@dataclass(frozen=True)
class Cause:
    """One cause: its name, its sign (a clause that says what shows it; None where it does not show), the remedy."""

    name: str
    sign: Callable[[Evidence], str | None]
    remedy: str


def cause_of(evidence: Evidence) -> tuple[Cause, str] | None:
    """The first cause whose sign shows, and the clause; None where none does."""
    for cause in CAUSES:
        clause = cause.sign(evidence)
        if clause is not None:
            return cause, clause
    return None


def explained(blame: Blame, evidence: Evidence) -> Blame:
    """``blame`` with the cause that ``evidence`` shows, if any."""
    found = cause_of(evidence)
    if found is None:
        return blame
    cause, clause = found
    return replace(
        blame, detail=f"{blame.detail}; {clause}", cause=cause.name, remedy=f"{clause}: {cause.remedy}"
    )


# --- signs ----------------------------------------------------------------------------------------------------


def _trip_count(evidence: Evidence) -> str | None:
    node = evidence.node
    if node is None or node.op_type != "Loop" or not evidence.sizes or not node.input[0]:
        return None
    for name, value in evidence.constants():
        if name == node.input[0] and value.size == 1 and 0 < int(value.item()) < 1 << 40:
            return f"the Loop runs {int(value.item())} times whatever the sizes are"
    return None


def _frozen_size(evidence: Evidence) -> str | None:
    if evidence.node is None or not evidence.sizes:
        return None
    open_sizes = {size for size in evidence.sizes.values() if size > 1}
    for _, value in evidence.constants():
        if value.dtype.kind in "iu" and evidence.node.op_type in _SHAPING and _parts_in_shape(evidence):
            held = [int(item) for item in value.reshape(-1) if item > 1 and int(item) not in open_sizes]
            if held:
                return f"the node holds the size {held[-1]} as a constant, recorded with the example's inputs"
        if value.dtype.kind == "f" and value.size == 1:
            sizes = _recorded_sizes(float(value.item()), _ratio(evidence), open_sizes)
            if sizes:
                which = " or ".join(map(str, sizes))
                return f"its constant {float(value.item()):.6g} follows from the size {which} of the example's inputs"
    return None


#: Operators that make a shape of the numbers that they read.
_SHAPING = frozenset(
    ["Reshape", "Expand", "Slice", "Resize", "Tile", "Pad", "ConstantOfShape", "Range", "Split", "Upsample"]
)


def _parts_in_shape(evidence: Evidence) -> bool:
    found, expected = evidence.found, evidence.expected
    if evidence.refusal:
        return True
    return (
        isinstance(found, np.ndarray) and isinstance(expected, np.ndarray) and found.shape != expected.shape
    )


def _ratio(evidence: Evidence) -> float | None:
    """What every element of the file's value must be multiplied with to be PyTorch's; None where that differs."""
    found, expected = evidence.found, evidence.expected
    if (
        not isinstance(found, np.ndarray)
        or not isinstance(expected, np.ndarray)
        or found.shape != expected.shape
    ):
        return None
    if found.dtype.kind != "f" or not found.size:
        return None
    a, b = found.astype(np.float64).reshape(-1), np.asarray(expected, np.float64).reshape(-1)
    large = np.abs(a) > 1e-3 * np.abs(a).max(initial=0)
    if not large.any():
        return None
    ratios = b[large] / a[large]
    middle = float(np.median(ratios))
    return middle if np.isfinite(middle) and np.allclose(ratios, middle, rtol=1e-3) else None


#: How models turn a size into a number.
_FORMS: tuple[Callable[[float], float], ...] = (
    lambda n: n,
    lambda n: n - 1,
    lambda n: 1 / n,
    lambda n: 1 / max(n - 1, 1),
    lambda n: 2 / n,
    lambda n: 2 / max(n - 1, 1),
    lambda n: n**0.5,
    lambda n: n**-0.5,
)


def _recorded_sizes(constant: float, ratio: float | None, sizes: set[int]) -> list[int]:
    """The sizes that ``constant`` may be a form of, where that form of a size of this sample explains ``ratio``."""
    if not ratio or not constant:
        return []
    then = np.arange(2, _SIZES)
    found: set[int] = set()
    for form in _FORMS:
        # The constant is a factor of the value, or a divisor.
        if any(np.isclose(form(now), constant * by, rtol=1e-3) for now in sizes for by in (ratio, 1 / ratio)):
            made = np.array([form(float(size)) for size in then])
            found |= {int(size) for size in then[np.isclose(made, constant, rtol=1e-5)]}
    return sorted(found - sizes)


def _ties(evidence: Evidence) -> str | None:
    node = evidence.node
    if node is None or node.op_type not in _CHOOSING:
        return None
    for value in evidence.inputs.values():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size > 1:
            finite = value[np.isfinite(value)]
            if np.unique(finite).size < finite.size:
                return f"{node.op_type} chooses among values of which some are equal"
    return None


def _below_its_opset(evidence: Evidence) -> str | None:
    node = evidence.node
    if node is None or node.op_type not in _SINCE or not is_standard_domain(node.domain):
        return None
    since, lacks = _SINCE[node.op_type]
    return f"{node.op_type} at opset {evidence.opset} lacks {lacks}" if evidence.opset < since else None


def _training(evidence: Evidence) -> str | None:
    if evidence.node is None:
        return None
    flags = {a.name: a.i for a in evidence.node.attribute if a.type == AttributeProto.INT}
    if flags.get("training_mode") or flags.get("use_input_stats"):
        return f"{evidence.node.op_type} computes as in training"
    return None


def _reference(evidence: Evidence) -> str | None:
    if evidence.node is None or is_standard_domain(evidence.node.domain) or evidence.refusal:
        return None
    return (
        "the pass's reference and its decomposition agree with one another, and not with the PyTorch program"
    )


def _weights(evidence: Evidence) -> str | None:
    if evidence.node is None or evidence.refusal or not evidence.certain:
        return None
    weights = {tensor.name for tensor in evidence.model.graph.initializer if tensor.data_type in _FLOATS}
    held = [name for name in evidence.node.input if name in weights]
    return f"the node reads '{held[0]}', whose values stand in the file" if held else None


_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def _recorded(evidence: Evidence) -> str | None:
    return "the expected values were recorded in an earlier run of PyTorch" if evidence.recorded else None


_SIZES_REMEDY = (
    "take the size from the tensor in the model's code (x.shape[i], not a Python number), name the dim in "
    "dynamic_shapes or dynamic_axes, and export again; or fix the size with --dim where only that one is used"
)

#: Causes in the order in which they are asked.
CAUSES: tuple[Cause, ...] = (
    Cause(
        "constant trip count",
        _trip_count,
        "write the loop so that its count is a tensor (torch.jit.script with dynamo=False, or while_loop with "
        "dynamo=True), and export again; or fix the size with --dim where only that one is used",
    ),
    Cause("size frozen by tracing", _frozen_size, _SIZES_REMEDY),
    Cause(
        "ties",
        _ties,
        "equal values may come in any order: --compare INDICES=topk:VALUES compares such outputs, --inputs gives "
        "inputs without equal values",
    ),
    Cause("operator below its opset", _below_its_opset, "export at a later opset"),
    Cause("training mode", _training, "call model.eval(), and export again"),
    Cause(
        "the pass's reference",
        _reference,
        "correct the reference and the decomposition of the pass; or the node's inputs are in another order: --bind",
    ),
    Cause(
        "recorded values",
        _recorded,
        "record them again from the model that was exported, in evaluation mode; or compare with the model itself: "
        "--against ./models.py:build",
    ),
    Cause(
        "other weights",
        _weights,
        "export it again, from the same weights and in evaluation mode",
    ),
)


def _array(tensor: TensorProto | None) -> np.ndarray[Any, Any] | None:
    if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
        return None
    count = 1
    for size in tensor.dims:
        count *= size
    if not 0 < count <= _ELEMENTS:
        return None
    try:
        value: np.ndarray[Any, Any] = numpy_helper.to_array(tensor)
    except Exception:  # noqa: BLE001  (a tensor without its payload has no value to look at)
        return None
    return value
