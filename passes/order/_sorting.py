"""A stable sort in PyTorch's order, NaN above all numbers, and what passes that sort share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from rewriter.errors import UnsupportedParameter
from rewriter.types import TensorType

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value

INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
#: What PyTorch sorts.
SORTED = ("float16", "float32", "float64", *INTEGERS, "bool")
#: Data is moved, never computed.
EXACT = dict.fromkeys(SORTED, (0.0, 0.0))

FLOATING = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE)
#: Element types that every runtime orders and compares, and the narrowest of them for each other type.
_KEYS: dict[int, int] = {
    TensorProto.FLOAT16: TensorProto.FLOAT,
    TensorProto.BFLOAT16: TensorProto.FLOAT,
    TensorProto.BOOL: TensorProto.INT32,
    TensorProto.INT8: TensorProto.INT32,
    TensorProto.INT16: TensorProto.INT32,
    TensorProto.UINT8: TensorProto.INT32,
    TensorProto.UINT16: TensorProto.INT32,
    TensorProto.UINT32: TensorProto.INT64,
}


def comparable(g: Builder, x: Value) -> Value:
    """``x`` in an element type that every runtime compares; no value changes."""
    return g.cast(x, _KEYS.get(x.dtype, x.dtype))


def is_nan(g: Builder, key: Value) -> Value | None:
    """Where ``key`` is NaN; None where its type has none.  Not every runtime has IsNaN of float64."""
    return g.not_(g.equal(key, key)) if key.dtype in FLOATING else None


def with_axis(g: Builder, x: Value, dim: int | None) -> tuple[Value, int]:
    """``x`` with an axis at least, and ``dim`` counted from the front; flat where ``dim`` is None."""
    if dim is None:
        return g.flatten(x), 0
    rank = max(x.rank, 1)
    if not -rank <= dim < rank:
        raise UnsupportedParameter(f"dim {dim} is outside a tensor of rank {x.rank}", where=g.where)
    return (x if x.rank else g.reshape(x, [1])), dim % rank


def without_axis(g: Builder, results: tuple[Value, ...], x: Value) -> tuple[Value, ...]:
    """Results as large as ``x``, without the axis that :func:`with_axis` added."""
    return results if x.rank else tuple(g.reshape(result, []) for result in results)


def positions(g: Builder, x: Value, axis: int) -> Value:
    """0, 1, 2, … along ``axis``, of size 1 along the others."""
    size = g.dim(x, axis)
    numbers = g.range(0, size if isinstance(size, int) else g.squeeze(size, [0]))
    return g.unsqueeze(numbers, [i for i in range(x.rank) if i != axis])


def order(g: Builder, x: Value, axis: int, descending: bool = False) -> Value:
    """The indices that sort ``x`` along ``axis``; of equal elements the earlier one comes first.

    TopK keeps the order of equal elements, and its order of NaN is undefined.  NaN is sorted as infinity; then all NaN
    are moved behind the infinities, or before them.
    """
    size = g.dim(x, axis)
    if size == 0:
        return g.cast(x, TensorProto.INT64)
    key = comparable(g, x)
    nan = is_nan(g, key)
    if nan is not None:
        key = g.where_(nan, math.inf, key)
    _, indices = g.top_k(key, size, axis, largest=descending)
    indices = g.retyped(indices, x.shape)
    if nan is None:
        return indices
    is_last = g.gather_elements(g.cast(nan, TensorProto.INT64), indices, axis)
    before = g.cumsum(is_last, axis, exclusive=True)
    count = g.reduce_sum(is_last, [axis])
    place = positions(g, x, axis)
    if descending:
        target = g.where_(g.equal(is_last, 1), before, place - before + count)
    else:
        end = size if isinstance(size, int) else g.reshape(size, [1] * x.rank)
        target = g.where_(g.equal(is_last, 1), before - count + end, place - before)
    moved: Value = g.op("ScatterElements", indices, target, indices, axis=axis)
    return g.retyped(moved, x.shape)


def ordered(g: Builder, x: Value, axis: int, descending: bool = False) -> tuple[Value, Value]:
    """``x`` sorted along ``axis``, and the indices that its elements had."""
    indices = order(g, x, axis, descending)
    return g.retyped(g.gather_elements(x, indices, axis), x.shape), indices


def values_and_indices(x: Value, **_: Any) -> list[TensorType] | None:
    """The types of values and indices as large as ``x``."""
    return None if x.type is None else [x.type, TensorType(TensorProto.INT64, x.type.shape)]


def picked_alike(
    actual: tuple[Any, ...], expected: tuple[Any, ...], data: Any, dim: int | None, keepdim: bool
) -> str | None:
    """What is wrong with values and indices, where the index may be that of any element of the same value."""
    if len(actual) == 0 or not np.array_equal(actual[0], expected[0], equal_nan=actual[0].dtype.kind == "f"):
        return "the values differ"
    if len(actual) == 1:
        return None
    axis = 0 if dim is None else dim
    rows = np.asarray(data).reshape(-1) if dim is None or not np.ndim(data) else np.asarray(data)
    shape = expected[0].shape
    values, indices = (
        part if keepdim and part.ndim == rows.ndim else np.expand_dims(part, axis)
        for part in (expected[0], actual[1])
    )
    if indices.size and not (indices.min() >= 0 and indices.max() < rows.shape[axis]):
        return f"an index is outside the axis of {rows.shape[axis]} elements"
    found = np.take_along_axis(rows, indices, axis)
    same = (found == values) | ((found != found) & (values != values))
    return None if bool(np.all(same)) else f"an index of shape {list(shape)} is that of another value"
