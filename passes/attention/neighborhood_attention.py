"""Neighbourhood attention (Hassani et al., 2023, arXiv:2204.07143), dilated too (arXiv:2209.15001), as NATTEN has it.

Tiles of neighbouring queries share one window of keys, which is gathered once for all of them; what is a neighbour of
some of them only is masked for the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from passes.attention._shared import scaled, transposed, widened
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Ints, Value
    from rewriter.placeholder.value import Array

_INF = float("inf")


class NeighborhoodAttention(Placeholder):
    """softmax(query·keyᵀ·scale)·value, each query attending to the kernel_size keys nearest to it along each axis.

    query, key (B, *spatial, heads, E) and value (B, *spatial, heads, Ev), with one, two or three spatial axes of known
    sizes; the meaning of `natten.na1d`, `na2d` and `na3d`.  Windows are centred where there is room and moved inwards
    at the edges, so that each query has as many keys; with `dilation` they take every d-th position, of those that lie
    a multiple of d away; along an axis with `is_causal` they end at the query, and are shorter at the beginning.
    """

    matches = ("NeighborhoodAttention", "NeighbourhoodAttention", "na1d", "na2d", "na3d")
    shapes = "query: N ... M D; key: N ... M D; value: N ... M _"

    def reference(
        self,
        query: Any,
        key: Any,
        value: Any,
        kernel_size: Any,
        stride: Any = (1,),
        dilation: Any = (1,),
        is_causal: Any = (0,),
        scale: float | None = None,
    ) -> Any:
        import torch

        sizes = query.shape[1:-2]
        axes = len(sizes)
        kernel, dilated, causal = (
            tuple(p) * axes if len(p) == 1 else tuple(p) for p in (kernel_size, dilation, is_causal)
        )
        result = torch.zeros(*query.shape[:-1], value.shape[-1], dtype=query.dtype)
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        for position in np.ndindex(*sizes):
            # NATTEN's definition (its documentation, "Neighborhood Attention"): by axis, within the residue class.
            windows = []
            for i, n, k, d, c in zip(position, sizes, kernel, dilated, causal, strict=True):
                same = list(range(i % d, n, d))
                at = same.index(i)
                first = max(at - k + 1, 0) if c else min(max(at - k // 2, 0), len(same) - k)
                windows.append(same[first : at + 1] if c else same[first : first + k])
            seen = torch.meshgrid(*(torch.tensor(w) for w in windows), indexing="ij")
            keys, values = (t[(slice(None), *seen)].flatten(1, axes).transpose(1, 2) for t in (key, value))
            own = query[(slice(None), *position)]
            scores = (keys.float() if keys.dtype == torch.float16 else keys) @ own.to(
                torch.float32 if own.dtype == torch.float16 else own.dtype
            )[..., None]
            weights = (scores * scale).softmax(-2).to(scores.dtype)
            made = (weights * values.to(weights.dtype)).sum(-2).to(query.dtype)
            result[(slice(None), *position)] = made
        return result

    def infer(self, query: Value, value: Value, **_: Any) -> Any:
        if query.type is None or not (query.has_rank and value.has_rank):
            return None
        return query.type.with_shape((*query.shape[:-1], value.shape[-1]))

    def decompose(
        self,
        g: Builder,
        query: Value,
        key: Value,
        value: Value,
        kernel_size: Ints,
        stride: Ints = (1,),
        dilation: Ints = (1,),
        is_causal: Ints = (0,),
        scale: float | None = None,
    ) -> Value:
        tiling = _tiling(g, (query, key, value), kernel_size, stride, dilation, is_causal)
        # (B, heads, positions, E)
        q, k, v = (_flat(g, widened(g, x)) for x in (query, key, value))
        rows = g.gather(scaled(g, q, scale), g.const(tiling.queries), axis=2)
        keys, values = (g.gather(x, g.const(tiling.keys), axis=2) for x in (k, v))
        scores = g.matmul(rows, transposed(g, keys))
        made = _attended(g, scores, values, tiling.allowed)
        count = tiling.queries.size
        channels = value.size(-1)
        flat = g.reshape_keeping(made, [0, 0, count, -1 if channels is None else channels])
        found = g.gather(g.transpose(flat, [0, 2, 1, 3]), g.const(tiling.where), axis=1)
        return g.cast(found, query)

    def cases(self) -> Iterator[Case]:
        static: dict[str, Any] = {"symbolic": False, "reason": "the spatial sizes must be known"}
        line = (f32(2, 7, 2, 3),) * 3
        yield Case(*line, kernel_size=[3], **static)
        yield Case(
            f32(1, 11, 1, 2),
            f32(1, 11, 1, 2),
            f32(1, 11, 1, 4),
            kernel_size=[5],
            dilation=[2],
            scale=0.375,
            **static,
        )
        yield Case(*line, kernel_size=[3], dilation=[2], is_causal=[1], **static)
        # The window is the whole axis; a single key.
        yield Case(*line, kernel_size=[7], **static)
        yield Case(*line, kernel_size=[1], **static)
        plane = (f32(1, 5, 6, 2, 3),) * 3
        yield Case(*plane, kernel_size=[3], **static)
        yield Case(*plane, kernel_size=[3, 5], **static)
        yield Case(*plane, kernel_size=[3, 3], dilation=[1, 2], is_causal=[0, 1], **static)
        yield Case(*(f32(1, 3, 3, 4, 1, 2),) * 3, kernel_size=[3], **static)
        # An infinity reaches those whose neighbour it is, and nobody else.
        yield Case(
            f32(1, 9, 1, 2), f32(1, 9, 1, 2), f32(1, 9, 1, 2, draw=_infinite), kernel_size=[3], **static
        )


def _infinite(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    values = rng.standard_normal(shape)
    values[0, 2, 0, 1] = np.inf
    return values


@dataclass(frozen=True)
class _Axis:
    """Positions of an axis by tile: (tiles, T) queries, (tiles, W) keys, and which see which, (tiles, T, W)."""

    queries: Array
    keys: Array
    allowed: Array


@dataclass(frozen=True)
class _Tiling:
    """The same over all axes, positions counted row by row."""

    queries: Array
    keys: Array
    allowed: Array
    #: Where among the tiles' queries each position is.
    where: Array


def _tiling(
    g: Builder,
    tensors: tuple[Value, ...],
    kernel_size: Ints,
    stride: Ints,
    dilation: Ints,
    is_causal: Ints,
) -> _Tiling:
    query = tensors[0]
    if query.rank not in (4, 5, 6):
        raise UnsupportedParameter(
            f"query has rank {query.rank}",
            where=g.where,
            remedy="it is (B, *spatial, heads, E) with one to three spatial axes",
        )
    axes = query.rank - 3
    parameters = []
    for name, given in (
        ("kernel_size", kernel_size),
        ("stride", stride),
        ("dilation", dilation),
        ("is_causal", is_causal),
    ):
        if len(given) not in (1, axes):
            raise UnsupportedParameter(
                f"{name} has {len(given)} elements for {axes} spatial axes", where=g.where
            )
        parameters.append(given * axes if len(given) == 1 else given)
    kernel, strides, dilated, causal = parameters
    if any(s != 1 for s in strides):
        raise UnsupportedParameter(
            f"stride is {strides}",
            where=g.where,
            remedy="only neighbourhoods of each query by itself: stride=1",
        )
    sizes = []
    for axis in range(1, 1 + axes):
        found = {x.size(axis) for x in tensors}
        if None in found:
            raise UnsupportedParameter(
                f"the size of axis {axis} is not known, and neighbourhoods depend on it",
                where=g.where,
                remedy="export with fixed spatial sizes (dynamic batch and heads are fine)",
            )
        if len(found) != 1:
            raise UnsupportedParameter(
                f"query, key and value differ in the size of axis {axis}", where=g.where
            )
        sizes.append(int(found.pop() or 0))
    for n, k, d in zip(sizes, kernel, dilated, strict=True):
        if k < 1 or k % 2 == 0 or d < 1 or k * d > n:
            raise UnsupportedParameter(
                f"kernel_size {k} with dilation {d} on an axis of {n}",
                where=g.where,
                remedy="kernel_size is odd, and kernel_size·dilation at most the size of the axis",
            )
    found_axes = [_axis(*numbers) for numbers in zip(sizes, kernel, dilated, causal, strict=True)]
    queries, keys, allowed = found_axes[0].queries, found_axes[0].keys, found_axes[0].allowed
    for axis_, size in zip(found_axes[1:], sizes[1:], strict=True):
        queries = _crossed(queries * size, axis_.queries)
        keys = _crossed(keys * size, axis_.keys)
        both = np.logical_and(allowed[:, None, :, None, :, None], axis_.allowed[None, :, None, :, None, :])
        allowed = both.reshape(len(queries), queries.shape[1], keys.shape[1])
    where = np.zeros(math.prod(sizes), np.int64)
    where[queries.reshape(-1)] = np.arange(queries.size)
    return _Tiling(queries, keys, allowed, where.reshape(sizes))


def _crossed(first: Any, second: Any) -> Any:
    """(A, I) and (B, J) to (A·B, I·J), sums of all pairs."""
    sums = first[:, None, :, None] + second[None, :, None, :]
    return sums.reshape(len(first) * len(second), -1)


def _axis(n: int, kernel: int, dilation: int, causal: int) -> _Axis:
    """Tiles of one axis, by residue class; about as many queries to a tile as the kernel has keys, up to 8."""
    classes = [np.arange(r, n, dilation) for r in range(min(dilation, n))]
    rows = min(max(kernel, 4), 8, min(map(len, classes)))
    # Fewest tiles, of queries as even as they come.
    rows = -(-max(map(len, classes)) // -(-max(map(len, classes)) // rows))
    rows = min(rows, min(map(len, classes)))
    width = min(rows + kernel - 1, max(map(len, classes)))
    queries, keys, allowed = [], [], []
    for members in classes:
        length = len(members)
        for start in range(0, length, rows):
            # The last tile overlaps the one before it.
            at = np.arange(min(start, length - rows), min(start, length - rows) + rows)
            if causal:
                first, last = at - kernel + 1, at
            else:
                first = np.clip(at - kernel // 2, 0, length - kernel)
                last = first + kernel - 1
            window = max(0, min(int(first[0]), length - width)) + np.arange(width)
            inside = window < length
            seen = (window >= first[:, None]) & (window <= last[:, None]) & inside
            queries.append(members[at])
            keys.append(members[np.where(inside, window, length - 1)])
            allowed.append(seen)
    return _Axis(np.stack(queries), np.stack(keys), np.stack(allowed))


def _flat(g: Builder, x: Value) -> Value:
    """(B, *spatial, heads, E) as (B, heads, positions, E)."""
    count = math.prod(int(d or 0) for d in (x.size(i) for i in range(1, x.rank - 2)))
    dims = [g.dim(x, 0), count, g.dim(x, x.rank - 2), g.dim(x, x.rank - 1)]
    return g.transpose(g.reshape(x, dims), [0, 2, 1, 3])


def _attended(g: Builder, scores: Value, values: Value, allowed: Array) -> Value:
    """softmax(scores)·values of what is allowed; scores (…, tiles, T, W), values (…, tiles, W, E)."""
    if allowed.all():
        return g.matmul(g.softmax(scores, -1), values)
    patterns, which = np.unique(allowed, axis=0, return_inverse=True)
    which = np.reshape(which, -1)
    mask = g.const(patterns)
    if len(patterns) > 1:
        mask = g.gather(mask, [int(i) for i in which], axis=0)
    # A key that is not a neighbour is replaced, whatever it is.
    weights = g.softmax(g.where_(mask, scores, -_INF), -1)
    # Of the values this holds for finite ones only: 0 times infinity is no number.
    finite = g.cast(g.less(g.abs(values), _INF), scores)
    usual, special = g.body(), g.body()
    product = usual.matmul(weights, values)
    each = special.unsqueeze(weights, [weights.rank]) * special.unsqueeze(values, [values.rank - 2])
    kept = special.where_(special.unsqueeze(mask, [mask.rank]), each, 0.0)
    summed = special.reduce_sum(kept, [kept.rank - 2], keepdims=False)
    made: Value = g.op(
        "If",
        g.greater(g.reduce_min(finite, list(range(values.rank)), keepdims=False), 0.5),
        then_branch=g.subgraph("finite", usual, [], [product]),
        else_branch=g.subgraph("special", special, [], [summed]),
    )
    return made
