"""What the attention passes have in common."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.placeholder import Builder, Value
    from rewriter.placeholder.value import Array
    from rewriter.types import Dim

_NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def widened(g: Builder, x: Value) -> Value:
    """float16 and bfloat16 as float32, which PyTorch's attention kernels compute in: scores overflow float16, and
    lose most of their digits in it before they are exponentiated."""
    return g.cast(x, TensorProto.FLOAT) if x.dtype in _NARROW else x


def scaled(g: Builder, query: Value, scale: float | None) -> Value:
    """The query times ``scale``, by default 1/√E: L·E products, where scaling the scores takes L·S."""
    if scale is not None:
        return query * scale
    size = query.size(-1)
    if size is not None:
        # Without features the scores are 0 whatever the scale.
        return query * (1 / math.sqrt(size)) if size else query
    features = g.dim(query, -1)
    assert not isinstance(features, int)
    return query / g.sqrt(g.cast(features, query))


def transposed(g: Builder, key: Value) -> Value:
    """The last two axes swapped."""
    rank = key.rank
    return g.transpose(key, [*range(rank - 2), rank - 1, rank - 2])


def minus_infinity(g: Builder, allowed: Value, like: Value) -> Value:
    """0 where ``allowed`` (boolean), else −∞: what is added to the scores."""
    return g.where_(allowed, g.const(0.0, like), g.const(-np.inf, like))


def any_allowed(g: Builder, allowed: Value, like: Value) -> Value:
    """Whether a row of ``allowed`` (…, L, S) has a true element, as (…, L, 1)."""
    return g.greater(g.reduce_sum(g.cast(allowed, like), [allowed.rank - 1]), 0.5)


def broadcast(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape of shapes broadcast together, as far as it is known."""
    result: list[Dim] = []
    for position in range(1, max(map(len, shapes), default=0) + 1):
        dims = {shape[-position] for shape in shapes if len(shape) >= position}
        numbers = {d for d in dims if isinstance(d, int) and d != 1}
        others = dims - numbers - {1}
        if numbers:
            result.insert(0, numbers.pop())
        else:
            result.insert(0, 1 if not others else others.pop() if len(others) == 1 else None)
    return tuple(result)


def dense(g: Builder, query: Value, key: Value, value: Value, allowed: Array | None) -> Value:
    """softmax(query·keyᵀ)·value over the last two axes, all scaled and widened already; (…, R, Q, E) by (…, R, K, E).

    ``allowed`` (R, Q, K) says where attention is paid, None everywhere; rows without any give 0.
    """
    scores = g.matmul(query, transposed(g, key))
    if allowed is None or allowed.all():
        return g.matmul(g.softmax(scores, -1), value)
    shared = allowed[:1] if (allowed == allowed[:1]).all() else allowed
    weights = g.softmax(scores + g.const(np.where(shared, 0.0, -np.inf), scores), -1)
    result = g.matmul(weights, value)
    some = allowed.any(axis=-1, keepdims=True)
    return result if some.all() else g.where_(g.const(some), result, g.const([0.0], result))
