"""Running results along an axis: what each element makes of all before it, in three ways.

1. :func:`doubled`: every element is combined with the one 1, 2, 4, … before it.  It needs an operation that may be
   bracketed in any way.
2. :func:`unrolled`: one element after the other, written out.
3. :func:`scanned`: the same as an ONNX Scan, for any length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rewriter.types import TensorType

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value

#: From what was before and what comes now to both together.
Combine = Callable[["Builder", "Sequence[Value]", "Sequence[Value]"], "Sequence[Value]"]


def length_along(x: Value, dim: int) -> int | None:
    """The size of the axis, where it is known and the axis exists."""
    if not x.rank:
        return 1
    return x.size(dim) if -x.rank <= dim < x.rank else 1


def doubled(
    g: Builder, streams: Sequence[Value], axis: int, length: int, combine: Combine
) -> Sequence[Value]:
    """⌈log₂ length⌉ steps, each over all elements."""
    reach = 1
    while reach < length:
        before = [g.slice(x, [0], [length - reach], [axis]) for x in streams]
        now = [g.slice(x, [reach], [length], [axis]) for x in streams]
        heads = [g.slice(x, [0], [reach], [axis]) for x in streams]
        made = combine(g, before, now)
        streams = [
            g.retyped(g.concat([head, rest], axis), x.shape)
            for head, rest, x in zip(heads, made, streams, strict=True)
        ]
        reach *= 2
    return streams


def unrolled(
    g: Builder, streams: Sequence[Value], axis: int, length: int, combine: Combine
) -> Sequence[Value]:
    """One step an element."""
    if length <= 1:
        return streams
    columns = list(zip(*(g.split(x, [1] * length, axis) for x in streams), strict=True))
    results = [columns[0]]
    for column in columns[1:]:
        results.append(tuple(combine(g, results[-1], column)))
    return [
        g.retyped(g.concat(parts, axis), x.shape)
        for parts, x in zip(zip(*results, strict=True), streams, strict=True)
    ]


def scanned(
    g: Builder, streams: Sequence[Value], axis: int, start: Sequence[float], combine: Combine
) -> Sequence[Value]:
    """A Scan from ``start``, which changes nothing that it is combined with.

    The axis is moved to the front, and a row of ``start`` is put before it: onnxruntime divides by zero where another
    axis is scanned, or none at all, and the tensor is empty.
    """
    rank = streams[0].rank
    to_front = [axis, *(i for i in range(rank) if i != axis)]
    initial: list[Value] = []
    rows: list[Value] = []
    for x, value in zip(streams, start, strict=True):
        x = g.transpose(x, to_front)
        row = [g.dim(x, i) for i in range(1, rank)]
        none = g.constant_of_shape(row, value, x) if row else g.const(value, x)
        initial.append(g.retyped(none, x.shape[1:]))
        rows.append(g.concat([g.unsqueeze(initial[-1], [0]), x], 0))
    body = g.body()
    before = [body.fresh_input(TensorType(x.dtype, x.shape)) for x in initial]
    now = [body.fresh_input(TensorType(x.dtype, x.shape)) for x in initial]
    made = [
        body.retyped(result, x.shape) for result, x in zip(combine(body, before, now), initial, strict=True)
    ]
    kept = [body.identity(result) for result in made]
    graph = g.subgraph("step", body, [*before, *now], [*made, *kept])
    count = len(streams)
    results = g.op("Scan", *initial, *rows, body=graph, num_scan_inputs=count, outputs=2 * count)[count:]
    back = [to_front.index(i) for i in range(rank)]
    end = np.iinfo(np.int64).max
    return [
        g.retyped(g.transpose(g.slice(result, [1], [end], [0]), back), x.shape)
        for result, x in zip(results, streams, strict=True)
    ]
