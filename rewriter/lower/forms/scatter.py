"""Scattering with a reduction, into a cache, with negative axes; gathering in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from rewriter.lower.forms.table import form

if TYPE_CHECKING:
    from rewriter.lower.writer import Writer
    from rewriter.placeholder.standard import Call
    from rewriter.placeholder.value import Value


@form("ScatterND")
def scatter_nd(g: Writer, call: Call) -> Value | None:
    """Updates that meet are reduced: rows of the data, each with the updates that go there."""
    data, indices, updates = call.inputs
    assert data is not None
    assert indices is not None
    assert updates is not None
    reduction = call.get("reduction", "none")
    deep = indices.size(indices.rank - 1)
    if reduction == "none" or deep is None:
        return None
    sizes = g.op("Shape", data)
    outer = [g.gather(sizes, [i], 0) for i in range(deep)]
    flat = _flat(g, indices, outer, deep)
    rows = g.op("Reshape", data, g.concat([g.ints([-1]), _rest(g, sizes, deep, data.rank)], 0))
    news = g.op("Reshape", updates, g.concat([g.ints([-1]), _rest(g, sizes, deep, data.rank)], 0))
    count = g.product(outer)
    assert not isinstance(count, int)
    made = _reduced(g, reduction, rows, flat, news, count)
    return g.one("Reshape", made, sizes)


def _rest(g: Writer, sizes: Value, deep: int, rank: int) -> Value:
    """The sizes of a row, as one number."""
    if deep == rank:
        return g.ints([1])
    return g.reduce_prod(g.slice(sizes, [deep], [2**62], [0]), [0])


def _flat(g: Writer, indices: Value, outer: list[Value], deep: int) -> Value:
    """The number of the row that each index names, 1-D; negative ones count from the end."""
    flat: Value | None = None
    for i in range(deep):
        part = g.gather(indices, g.ints(i), indices.rank - 1)
        part = g.mod(part + outer[i], outer[i])
        flat = part if flat is None else flat * outer[i] + part
    assert flat is not None
    return g.one("Reshape", flat, g.ints([-1]))


def _reduced(g: Writer, reduction: str, rows: Value, flat: Value, news: Value, count: Value) -> Value:
    """``rows`` (N, K) with ``news`` (M, K) reduced into the rows that ``flat`` (M) names."""
    x = rows
    neutral = _neutral(reduction, x.dtype)
    places = g.op("Range", g.ints(0), g.op("Reshape", count, g.ints([])), g.ints(1))
    hit = g.equal(g.unsqueeze(places, [1]), g.unsqueeze(flat, [0]))  # (N, M)
    table = g.where_(g.unsqueeze(hit, [2]), g.unsqueeze(news, [0]), g.const(neutral, x))  # (N, M, K)
    if reduction == "add":
        return x + g.reduce_sum(table, [1], keepdims=False)
    if reduction == "mul":
        return x * g.reduce_prod(table, [1], keepdims=False)
    if reduction == "max":
        return g.one("Max", x, g.reduce_max(table, [1], keepdims=False))
    return g.one("Min", x, g.reduce_min(table, [1], keepdims=False))


def _neutral(reduction: str, dtype: int) -> float:
    if reduction in ("add", "mul"):
        return 0 if reduction == "add" else 1
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(dtype))
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return int(limits.min if reduction == "max" else limits.max)
    return float("-inf") if reduction == "max" else float("inf")


@form("ScatterElements", "Scatter")
def scatter_elements(g: Writer, call: Call) -> Value | None:
    """Every element is a row of one, whose place follows from its own and its index."""
    data, indices, updates = call.inputs
    assert data is not None
    assert indices is not None
    reduction, axis = call.get("reduction", "none"), call.get("axis", 0) % data.rank
    if call.op_type == "Scatter":
        return g.one("ScatterElements", data, indices, updates, axis=axis)
    if reduction == "none":
        return None
    rank = data.rank
    sizes, inner = g.op("Shape", data), g.op("Shape", indices)
    flat: Value | None = None
    for i in range(rank):
        size = g.gather(sizes, [i], 0)
        if i == axis:
            part = g.mod(g.cast(indices, T.INT64) + size, size)
        else:
            length = g.gather(inner, g.ints(i), 0)
            part = g.op("Range", g.ints(0), length, g.ints(1))
            part = g.op("Reshape", part, g.ints([-1 if k == i else 1 for k in range(rank)]))
        flat = part if flat is None else flat * size + part
    assert flat is not None
    column = g.ints([-1, 1])
    count = g.op("Size", data)
    made = _reduced(
        g,
        reduction,
        g.op("Reshape", data, column),
        g.op("Reshape", flat, g.ints([-1])),
        g.op("Reshape", updates, column),
        count,
    )
    return g.one("Reshape", made, sizes)


@form("TensorScatter")
def tensor_scatter(g: Writer, call: Call) -> Value:
    """A row of updates each batch, from its own place on; round the end where the cache is circular."""
    cache, update, starts = call.x, call.inputs[1], call.input(2)
    assert update is not None
    rank = cache.rank
    axis = call.get("axis", -2) % rank
    sizes = g.op("Shape", update)
    steps = g.op("Range", g.ints(0), g.gather(sizes, g.ints(axis), 0), g.ints(1))
    places = g.op("Reshape", steps, g.ints([-1 if i == axis else 1 for i in range(rank)]))
    if starts is not None:
        first = g.op("Reshape", g.cast(starts, T.INT64), g.ints([-1] + [1] * (rank - 1)))
        places = places + first
    if call.get("mode", "linear") == "circular":
        places = g.mod(places, g.gather(g.op("Shape", cache), [axis], 0))
    wide = g.op("Expand", places, sizes)
    return g.one("ScatterElements", cache, wide, update, axis=axis)


@form("GatherND")
def gather_nd(g: Writer, call: Call) -> Value | None:
    """batch_dims: the numbers of the batches before the indices."""
    x, indices, batches = call.x, call.inputs[1], call.get("batch_dims", 0)
    assert indices is not None
    if not batches:
        return g.one("GatherND", x, indices)
    sizes = g.op("Shape", indices)
    single = g.concat([g.slice(sizes, [0], [indices.rank - 1], [0]), g.ints([1])], 0)
    parts = []
    for i in range(batches):
        places = g.op("Range", g.ints(0), g.gather(sizes, g.ints(i), 0), g.ints(1))
        shaped = g.op("Reshape", places, g.ints([-1 if k == i else 1 for k in range(indices.rank)]))
        parts.append(g.op("Expand", shaped, single))
    return g.one("GatherND", x, g.concat([*parts, indices], indices.rank - 1))


@form("TopK")
def top_k(g: Writer, call: Call) -> object:
    """The number as an attribute below opset 10, an input since."""
    if not call.has("k"):
        return None
    return g.op("TopK", call.x, g.ints([call.get("k")]), axis=call.get("axis", -1), outputs=2)
