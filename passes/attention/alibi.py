"""Attention with linear biases (Press et al., 2022, arXiv:2108.12409): scores fall with the distance of the key."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Floats, Value

_INF = float("inf")


def slopes_of(heads: int) -> list[float]:
    """Each head's slope, as the paper's code and BLOOM have them.

    A power of two, n: 2^(−8/n), 2^(−16/n), …; else those of the power of two below it, and of every other head of twice
    as many.
    """
    power = 1 << max(heads.bit_length() - 1, 0)
    found = [2 ** (-8 * (i + 1) / power) for i in range(min(power, heads))]
    return found + [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - len(found))]


class Alibi(Placeholder):
    """scores + slope·(position of the key − position of the query), the slope being the head's.

    scores (…, heads, Q, K), the last query standing at the last key.  `slopes` are given, or else those of the paper.
    The mode is "distance" (the paper's, which masks the keys behind the query), "symmetric" (minus the distance on
    either side, for encoders) or "key" (without the query's position, as BLOOM has it: the same after the softmax).
    With is_causal, keys behind the query are masked with −∞.
    """

    matches = ("Alibi", "AlibiBias", "AddAlibi", "ALiBi")
    shapes = "scores: ... H Q K"

    def reference(
        self,
        scores: Any,
        slopes: Any = (),
        mode: str = "distance",
        is_causal: bool = False,
    ) -> Any:
        import torch

        heads, queries, keys = scores.shape[-3:]

        # The paper's own code: github.com/ofirpress/attention_with_linear_biases, fairseq/models/transformer.py.
        def power_of_two(n: int) -> list[float]:
            start = 2 ** (-(2 ** -(math.log2(n) - 3)))
            return [start * start**i for i in range(n)]

        def paper(n: int) -> list[float]:
            if math.log2(n).is_integer():
                return power_of_two(n)
            closest = 2 ** math.floor(math.log2(n))
            return power_of_two(closest) + paper(2 * closest)[0::2][: n - closest]

        given = list(slopes) or (paper(heads) if heads else [])
        # With one slope per head; float16 scores are biased in float32.
        wide = torch.float32 if scores.dtype == torch.float16 else scores.dtype
        slope = torch.tensor(given, dtype=wide).reshape(-1, 1, 1)
        query = torch.arange(keys - queries, keys)[:, None]
        key = torch.arange(keys)
        relative = {"distance": key - query, "symmetric": -(key - query).abs(), "key": key + 0 * query}[mode]
        result = scores.to(wide) + slope * relative.to(wide)
        if is_causal:
            result = result.masked_fill(key > query, -_INF)
        return result.to(scores.dtype)

    def infer(self, scores: Value, **_: Any) -> Any:
        return scores.type

    def decompose(
        self, g: Builder, scores: Value, slopes: Floats = (), mode: str = "distance", is_causal: bool = False
    ) -> Value:
        if mode not in ("distance", "symmetric", "key"):
            raise UnsupportedParameter(
                f"mode is '{mode}'", where=g.where, remedy="it is 'distance', 'symmetric' or 'key'"
            )
        if scores.rank < 3:
            raise UnsupportedParameter(
                f"scores has rank {scores.rank}", where=g.where, remedy="it is (…, heads, queries, keys)"
            )
        if scores.is_static and 0 in scores.shape:
            return scores
        dtype = scores.dtype
        narrow = dtype in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
        wide = g.cast(scores, TensorProto.FLOAT) if narrow else scores
        slope = _slopes(g, scores, slopes, wide)
        key, query = _positions(g, scores)
        numbers = key if mode == "key" else key - query
        relative = g.cast(numbers, wide)
        if mode == "symmetric":
            relative = g.op("Neg", g.abs(relative))
        result = wide + slope * relative
        if is_causal:
            result = g.where_(g.greater(key, query), g.const(-np.inf, result), result)
        return g.cast(result, dtype)

    def cases(self) -> Iterator[Case]:
        static: dict[str, Any] = {
            "symbolic": False,
            "reason": "the number of heads must be known, or the slopes",
        }
        # Powers of two, and others.
        for heads in (4, 1, 3, 6, 12):
            yield Case(f32(1, heads, 2, 3), **static)
        slopes = [0.5, 0.125]
        yield Case(f32(2, 2, 3, 4), slopes=slopes)
        yield Case(f32(1, 2, 2, 5), slopes=slopes, mode="symmetric")
        yield Case(f32(2, 1, 5), slopes=slopes, mode="key")
        yield Case(f32(2, 2, 3, 3), slopes=slopes, is_causal=True)
        yield Case(f32(1, 2, 0, 3), slopes=slopes)
        yield Case(f32(1, 1, 2, 2, value=(_INF, -_INF, float("nan"), -0.0)), slopes=[1.0])


def _slopes(g: Builder, scores: Value, slopes: Floats, like: Value) -> Value:
    heads = scores.size(-3)
    if slopes:
        if heads not in (None, len(slopes)):
            raise UnsupportedParameter(f"{len(slopes)} slopes are given for {heads} heads", where=g.where)
    elif heads is None:
        raise UnsupportedParameter(
            "the number of heads is not known, and the slopes follow from it",
            where=g.where,
            remedy="declare it when exporting, or give slopes",
        )
    return g.const(np.reshape(slopes or slopes_of(int(heads or 0)), (-1, 1, 1)), like)


def _positions(g: Builder, scores: Value) -> tuple[Value, Value]:
    """Of the keys, (K,), and of the queries, (Q, 1)."""
    queries, keys = g.dim(scores, scores.rank - 2), g.dim(scores, scores.rank - 1)
    if isinstance(queries, int) and isinstance(keys, int):
        return g.range(0, keys), g.const(np.arange(keys - queries, keys, dtype=np.int64)[:, None])
    until = keys if isinstance(keys, int) else g.squeeze(keys, [0])
    count = queries if isinstance(queries, int) else g.squeeze(queries, [0])
    key = g.range(0, until)
    behind = _scalar(g, until) - _scalar(g, count)
    return key, g.unsqueeze(g.range(0, count) + behind, [1])


def _scalar(g: Builder, size: int | Value) -> Value:
    return g.ints(size) if isinstance(size, int) else size
