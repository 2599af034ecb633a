"""The small arithmetic on shapes and parameters that exporters write as operators, done in numpy.

A value of which only some elements are known (the shape of a tensor with a dynamic size) is an object array with
None for the others; operators that only move elements keep those, all others give such a value up.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onnx import AttributeProto, NodeProto

Array = npt.NDArray[Any]

#: Largest value that is computed; inputs of a computation may have as many elements together.
MAX_ELEMENTS = 4096
#: Largest rank of a value that is computed: numpy has no more than 64, and each costs time.
_MAX_RANK = 32


def evaluate(node: NodeProto, inputs: Sequence[Array | None]) -> Array | None:
    """The only result of ``node`` (a default-domain operator); None where it is not one of those handled here, or
    malformed.

    ``inputs`` are by position, None where omitted.  What the result would be larger than :data:`MAX_ELEMENTS` is not
    computed at all.
    """
    if len(node.output) != 1 or not inputs or inputs[0] is None:
        return None
    if sum(value.size for value in inputs if value is not None) > MAX_ELEMENTS:
        return None
    partial = any(value is not None and value.dtype == object for value in inputs)
    handler = _MOVES.get(node.op_type) or (None if partial else _COMPUTES.get(node.op_type))
    if handler is None:
        return None
    try:
        with np.errstate(all="ignore"):
            result = handler(inputs, {attribute.name: attribute for attribute in node.attribute})
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError, AttributeError):
        return None
    return None if result is None or result.size > MAX_ELEMENTS else settled(result)


def settled(value: Array) -> Array:
    """A partial value that turned out to be known in full, as the int64 that it is."""
    if value.dtype == object and all(isinstance(item, int) for item in value.flat):
        return value.astype(np.int64)
    return value


def is_known(value: Array | None) -> bool:
    return value is not None and value.dtype != object


def _axes(inputs: Sequence[Array | None], attributes: Mapping[str, AttributeProto]) -> tuple[int, ...] | None:
    """Of Squeeze and Unsqueeze: an input since opset 13, an attribute before."""
    if "axes" in attributes:
        return tuple(attributes["axes"].ints)
    axes = inputs[1] if len(inputs) > 1 else None
    return None if axes is None else tuple(axes.tolist())


def _gather(inputs: Sequence[Any], attributes: Mapping[str, AttributeProto]) -> Array | None:
    axis = attributes["axis"].i if "axis" in attributes else 0
    data, indices = inputs
    if not data.size or data.size // data.shape[axis] * indices.size > MAX_ELEMENTS:
        return None
    return np.asarray(np.take(inputs[0], inputs[1], axis=axis))


def _concat(inputs: Sequence[Any], attributes: Mapping[str, AttributeProto]) -> Array:
    return np.concatenate(list(inputs), axis=attributes["axis"].i)


def _unsqueeze(inputs: Sequence[Any], attributes: Mapping[str, AttributeProto]) -> Array | None:
    axes = _axes(inputs, attributes)
    return None if axes is None else np.expand_dims(inputs[0], axes)


def _squeeze(inputs: Sequence[Any], attributes: Mapping[str, AttributeProto]) -> Array:
    return np.asarray(np.squeeze(inputs[0], axis=_axes(inputs, attributes)))


def _reshape(inputs: Sequence[Any], attributes: Mapping[str, AttributeProto]) -> Array | None:
    if "allowzero" in attributes and attributes["allowzero"].i:
        return None
    shape = [inputs[0].shape[k] if size == 0 else size for k, size in enumerate(inputs[1].tolist())]
    result: Array = inputs[0].reshape(shape)
    return result


def _slice(inputs: Sequence[Any], _: Mapping[str, AttributeProto]) -> Array | None:
    if len(inputs) < 3:
        return None
    data, starts, ends = inputs[0], inputs[1].tolist(), inputs[2].tolist()
    axes = inputs[3].tolist() if len(inputs) > 3 and inputs[3] is not None else list(range(len(starts)))
    steps = inputs[4].tolist() if len(inputs) > 4 and inputs[4] is not None else [1] * len(starts)
    cut: list[slice] = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        stop: int | None = end
        if step < 0 and end < -data.shape[axis]:
            stop = None
        cut[axis] = slice(start, stop, step)
    result: Array = data[tuple(cut)]
    return result


def _transpose(inputs: Sequence[Any], attributes: Mapping[str, AttributeProto]) -> Array:
    return np.transpose(inputs[0], list(attributes["perm"].ints) if "perm" in attributes else None)


def _cast(inputs: Sequence[Any], attributes: Mapping[str, AttributeProto]) -> Array | None:
    to = attributes["to"].i
    value: Array = inputs[0]
    if value.dtype == object:
        return value if to == TensorProto.INT64 else None
    return value.astype(helper.tensor_dtype_to_np_dtype(to))


def _constant_of_shape(inputs: Sequence[Any], attributes: Mapping[str, AttributeProto]) -> Array | None:
    from onnx import numpy_helper

    fill = numpy_helper.to_array(attributes["value"].t) if "value" in attributes else np.zeros(1, np.float32)
    shape = inputs[0].tolist()
    return np.full(shape, fill.reshape(())) if _is_small(shape) else None


def _div(inputs: Sequence[Any], _: Mapping[str, AttributeProto]) -> Array | None:
    left, right = inputs
    if not _is_small(_broadcast(inputs)):
        return None
    if left.dtype.kind not in "iu":
        return np.asarray(left / right)
    # ONNX rounds towards zero, numpy down: the same for what is not negative.
    return np.asarray(left // right) if (left >= 0).all() and (right > 0).all() else None


def _mod(inputs: Sequence[Any], attributes: Mapping[str, AttributeProto]) -> Array | None:
    left, right = inputs
    if not _is_small(_broadcast(inputs)) or (right == 0).any():
        return None
    return np.asarray(
        np.fmod(left, right) if "fmod" in attributes and attributes["fmod"].i else np.mod(left, right)
    )


def _range(inputs: Sequence[Any], _: Mapping[str, AttributeProto]) -> Array | None:
    start, limit, delta = (value.item() for value in inputs)
    if not delta or not abs((limit - start) / delta) <= MAX_ELEMENTS:
        return None
    return np.arange(start, limit, delta, dtype=inputs[0].dtype)


def _elementwise(function: Callable[..., Any]) -> Callable[[Any, Any], Array | None]:
    def compute(inputs: Any, _: Any) -> Array | None:
        # Small inputs may have a large result: (4096, 1) and (1, 4096) have one of 16 million elements.
        return np.asarray(function(*inputs)) if _is_small(_broadcast(inputs)) else None

    return compute


def _broadcast(inputs: Sequence[Any]) -> list[int]:
    """The shape of what elementwise operators make of ``inputs``."""
    rank = max(value.ndim for value in inputs)
    shapes = [(1,) * (rank - value.ndim) + value.shape for value in inputs]
    return [max(sizes) if min(sizes) else 0 for sizes in zip(*shapes, strict=True)]


def _is_small(shape: Sequence[int]) -> bool:
    return len(shape) <= _MAX_RANK and math.prod(shape) <= MAX_ELEMENTS and min(shape, default=0) >= 0


#: Operators that only move elements.
_MOVES: dict[str, Callable[[Any, Any], Array | None]] = {
    "Identity": lambda inputs, _: inputs[0],
    "Gather": _gather,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Slice": _slice,
    "Transpose": _transpose,
    "Cast": _cast,
}
#: Operators that need every element.
_COMPUTES: dict[str, Callable[[Any, Any], Array | None]] = {
    "ConstantOfShape": _constant_of_shape,
    "Add": _elementwise(np.add),
    "Sub": _elementwise(np.subtract),
    "Mul": _elementwise(np.multiply),
    "Div": _div,
    "Mod": _mod,
    "Neg": _elementwise(np.negative),
    "Abs": _elementwise(np.abs),
    "Floor": _elementwise(np.floor),
    "Ceil": _elementwise(np.ceil),
    "Min": _elementwise(lambda *values: functools.reduce(np.minimum, values)),
    "Max": _elementwise(lambda *values: functools.reduce(np.maximum, values)),
    "Equal": _elementwise(np.equal),
    "Less": _elementwise(np.less),
    "Greater": _elementwise(np.greater),
    "LessOrEqual": _elementwise(np.less_equal),
    "GreaterOrEqual": _elementwise(np.greater_equal),
    "Not": _elementwise(np.logical_not),
    "And": _elementwise(np.logical_and),
    "Or": _elementwise(np.logical_or),
    "Where": _elementwise(np.where),
    "Range": _range,
}
OPERATORS = frozenset(_MOVES) | frozenset(_COMPUTES)
