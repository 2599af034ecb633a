"""Attention over the blocks of a fixed pattern: a local window, global tokens, or any layout of blocks.

The patterns of Longformer (Beltagy et al., 2020, arXiv:2004.05150), BigBird (Zaheer et al., 2020, arXiv:2007.14062) and
of block-sparse kernels.  Only the blocks of the pattern are multiplied, so that time and memory follow their number and
not the square of the length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from passes.attention._shared import dense, scaled, widened
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Ints, Value
    from rewriter.placeholder.value import Array


class SparseAttention(Placeholder):
    """softmax(query·keyᵀ·scale)·value, each block of queries attending to some blocks of keys.

    query, key (…, L, E) and value (…, L, Ev), of one length L that must be known; the last block may be shorter.
    Block i attends to block j where |i − j| ≤ window, and where i or j holds one of the first global_tokens tokens; or,
    in place of both, where layout, block rows one behind the other, has a 1.  With is_causal also only to keys that are
    not behind the query.  Queries that are left without keys give 0.
    """

    finite = True
    matches = ("SparseAttention", "BlockSparseAttention", "LocalAttention", "SlidingWindowAttention")
    shapes = "query: ... L E; key: ... S E; value: ... S _"

    def reference(
        self,
        query: Any,
        key: Any,
        value: Any,
        block_size: int = 64,
        window: int = 1,
        global_tokens: int = 0,
        is_causal: bool = False,
        layout: Any = (),
        scale: float | None = None,
    ) -> Any:
        import torch

        length = query.shape[-2]
        at = torch.arange(length)
        row, column = at[:, None] // block_size, at // block_size
        if len(layout):
            count = -(-length // block_size)
            allowed = torch.tensor(layout).reshape(count, count).bool()[row, column]
        else:
            last = -(-global_tokens // block_size)
            allowed = ((row - column).abs() <= window) | (row < last) | (column < last)
        if is_causal:
            allowed = allowed & (at[:, None] >= at)
        # Block by block: a key that is outside of the pattern is not read, whatever it is.
        parts = []
        for rows in torch.split(at, block_size):
            seen = allowed[rows].any(0)
            parts.append(
                torch.nn.functional.scaled_dot_product_attention(
                    query[..., rows, :],
                    key[..., seen, :],
                    value[..., seen, :],
                    allowed[rows][:, seen],
                    scale=scale,
                )
            )
        return torch.cat(parts, -2) if parts else query.new_zeros(*query.shape[:-1], value.shape[-1])

    def decompose(
        self,
        g: Builder,
        query: Value,
        key: Value,
        value: Value,
        block_size: int = 64,
        window: int = 1,
        global_tokens: int = 0,
        is_causal: bool = False,
        layout: Ints = (),
        scale: float | None = None,
    ) -> Value:
        length = _length(g, query, key, value)
        if block_size < 1 or window < 0 or global_tokens < 0:
            raise UnsupportedParameter(
                f"block_size={block_size}, window={window}, global_tokens={global_tokens}",
                where=g.where,
                remedy="block_size is at least 1, the others are not negative",
            )
        blocks = _pattern(g, length, block_size, window, global_tokens, layout)
        dtype, axis = query.dtype, query.rank - 2
        q, k, v = (widened(g, x) for x in (query, key, value))
        q = scaled(g, q, scale)
        parts, order = [], []
        for group in _groups(blocks, length, block_size, is_causal):
            order += group.queries.reshape(-1).tolist()
            parts.append(_of_group(g, group, q, k, v, axis))
        if not parts:
            return g.constant_of_shape(
                [*(g.dim(query, i) for i in range(axis + 1)), g.dim(value, -1)], 0.0, dtype
            )
        result = g.concat(parts, axis=axis)
        if order != sorted(order):
            result = g.gather(result, [int(i) for i in np.argsort(order)], axis=axis)
        return g.cast(result, dtype)

    def cases(self) -> Iterator[Case]:
        static: dict[str, Any] = {"symbolic": False, "reason": "the length must be known"}
        three = (f32(2, 2, 8, 4),) * 3
        yield Case(*three, block_size=2, **static)
        yield Case(*three, block_size=2, window=1, global_tokens=1, scale=0.75, **static)
        yield Case(*three, block_size=2, window=0, global_tokens=3, is_causal=True, **static)
        # A shorter last block; a window beyond the length.
        yield Case(f32(7, 3), f32(7, 3), f32(7, 2), block_size=3, window=1, is_causal=True, **static)
        yield Case(*(f32(1, 5, 2),) * 3, block_size=8, window=4, **static)
        # Any layout; a block of queries without keys, and one that sees only what is behind it.
        layout = [1, 0, 1, 0, 0, 0, 1, 1, 0]
        yield Case(*(f32(2, 6, 4),) * 3, block_size=2, layout=layout, **static)
        yield Case(*(f32(2, 5, 4),) * 3, block_size=2, layout=layout, is_causal=True, **static)
        # What is outside of the pattern has no effect.
        yield Case(f32(6, 2), f32(6, 2), f32(6, 1, draw=_infinite), block_size=2, window=0, **static)
        yield Case(*(f32(2, 0, 4),) * 3, block_size=2, **static)


def _infinite(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    values = rng.standard_normal(shape)
    values[0] = np.inf
    return values


@dataclass(frozen=True)
class _Group:
    """Blocks of as many queries and as many keys."""

    #: Tokens, (R, Q) and (R, K).
    queries: Array
    keys: Array
    #: (R, Q, K); None: everywhere.
    allowed: Array | None


def _length(g: Builder, *tensors: Value) -> int:
    sizes = {x.size(-2) for x in tensors}
    if None in sizes:
        raise UnsupportedParameter(
            "the length is not known, and the pattern's blocks are laid out by it",
            where=g.where,
            remedy="export with a fixed length (dynamic batch and heads are fine), padded to what is needed at most",
        )
    if len(sizes) != 1:
        raise UnsupportedParameter(
            f"query, key and value have lengths {sorted(int(s or 0) for s in sizes)}",
            where=g.where,
            remedy="the pattern is one of self-attention, where they are equal",
        )
    return int(sizes.pop() or 0)


def _pattern(g: Builder, length: int, size: int, window: int, global_tokens: int, layout: Ints) -> Array:
    """Which block of keys each block of queries attends to, (B, B)."""
    count = -(-length // size)
    if layout:
        if len(layout) != count * count:
            raise UnsupportedParameter(
                f"layout has {len(layout)} elements for {count} blocks of {size} in a length of {length}",
                where=g.where,
                remedy=f"give {count * count} of them",
            )
        return np.array(np.reshape(layout, (count, count)), dtype=bool)
    row, column = np.arange(count)[:, None], np.arange(count)
    last = -(-global_tokens // size)
    found: Array = (np.abs(row - column) <= window) | (row < last) | (column < last)
    return found


def _groups(blocks: Array, length: int, size: int, is_causal: bool) -> list[_Group]:
    """Blocks of queries by what they attend to; runs of neighbours where that takes hardly more of them."""
    tokens = [np.arange(i * size, min((i + 1) * size, length)) for i in range(len(blocks))]
    found: list[tuple[tuple[int, int], int, Array]] = []
    for i, row in enumerate(blocks):
        seen = [j for j in np.flatnonzero(row) if not is_causal or j <= i]
        keys = np.concatenate([tokens[j] for j in seen]) if seen else np.zeros(0, np.int64)
        found.append(((len(tokens[i]), len(keys)), i, keys))
    runs: list[list[tuple[tuple[int, int], int, Array]]] = []
    for item in found:
        if runs and runs[-1][0][0] == item[0]:
            runs[-1].append(item)
        else:
            runs.append([item])
    kinds = list(dict.fromkeys(kind for kind, _, _ in found))
    if len(runs) > len(kinds) + 4:
        runs = [[item for item in found if item[0] == kind] for kind in kinds]
    groups = []
    for run in runs:
        queries = np.stack([tokens[i] for _, i, _ in run])
        keys = np.stack([k for _, _, k in run])
        allowed = queries[:, :, None] >= keys[:, None, :] if is_causal else None
        groups.append(_Group(queries, keys, allowed))
    return groups


def _of_group(g: Builder, group: _Group, q: Value, k: Value, v: Value, axis: int) -> Value:
    count, rows = group.queries.shape
    channels = v.size(-1)
    if not group.keys.size:
        leading = [g.dim(q, i) for i in range(axis)]
        return g.constant_of_shape([*leading, count * rows, g.dim(v, -1)], 0.0, v)
    ours = g.gather(q, g.const(group.queries), axis=axis)
    keys, values = (g.gather(x, g.const(group.keys), axis=axis) for x in (k, v))
    result = dense(g, ours, keys, values, group.allowed)
    return g.reshape_keeping(result, [*[0] * axis, count * rows, -1 if channels is None else channels])
