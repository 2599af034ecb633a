"""softmax(Q·Kᵀ·scale + mask)·V, all of `torch.nn.functional.scaled_dot_product_attention` but dropout.

Exporters get it wrong for rows that are masked throughout: PyTorch gives 0 there, a mask of −∞ gives NaN and a large
negative one the mean of all values.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.attention._shared import (
    any_allowed,
    broadcast,
    minus_infinity,
    scaled,
    transposed,
    widened,
)
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, b8, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

_INF = float("inf")
#: The causal form leaves out keys in at most so many blocks of queries, of at least so many rows each (measured: 0.6 of
#: the dense form's time at 256 rows, 0.4 at 1024).
_CAUSAL_BLOCKS = 8
_CAUSAL_ROWS = 32
#: Larger masks would weigh in the file; they are computed when the model is loaded.
_SMALL = 1024


class ScaledDotProductAttention(Placeholder):
    """softmax(query·keyᵀ·scale + attn_mask)·value; the meaning of `F.scaled_dot_product_attention`.

    query (…, L, E), key (…, S, E), value (…, S, Ev); attn_mask broadcasts to (…, L, S): true where attention is paid,
    or a number that is added.  Rows without any key to attend to give 0.

    Of PyTorch's kernels (`aten::_scaled_dot_product_…`) the first result is made; the others serve their backward pass.
    """

    finite = True
    matches = (
        "ScaledDotProductAttention",
        "SDPA",
        "aten::scaled_dot_product_attention",
        "aten::_scaled_dot_product_attention_math",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_fused_attention_overrideable",
    )
    shapes = "query: ... L E; key: ... S E; value: ... S _; attn_mask: ... _ _"
    aliases = {  # noqa: RUF012
        "mask": "attn_mask",
        "attention_mask": "attn_mask",
        "attn_bias": "attn_mask",
        "causal": "is_causal",
    }
    schemas = {  # noqa: RUF012
        "aten::_scaled_dot_product_attention_math": (
            "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "-", "scale", "enable_gqa",
        ),
        "aten::_scaled_dot_product_flash_attention": (
            "query", "key", "value", "dropout_p", "is_causal", "-", "scale",
        ),
        "aten::_scaled_dot_product_flash_attention_for_cpu": (
            "query", "key", "value", "dropout_p", "is_causal", "attn_mask", "scale",
        ),
        "aten::_scaled_dot_product_efficient_attention": (
            "query", "key", "value", "attn_mask", "-", "dropout_p", "is_causal", "scale",
        ),
        "aten::_scaled_dot_product_cudnn_attention": (
            "query", "key", "value", "attn_mask", "-", "dropout_p", "is_causal", "-", "scale",
        ),
        "aten::_scaled_dot_product_fused_attention_overrideable": (
            "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "-", "-", "scale",
        ),
    }  # fmt: skip

    def reference(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        import torch

        if is_causal and attn_mask is not None:
            # Of PyTorch's kernels some take both, and some refuse.
            causal = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
            attn_mask = (
                attn_mask & causal if attn_mask.dtype == torch.bool else attn_mask.masked_fill(~causal, -_INF)
            )
            is_causal = False
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )

    def infer(
        self, query: Value, key: Value, value: Value, attn_mask: Value | None, enable_gqa: bool, **_: Any
    ) -> Any:
        if query.type is None or not (query.has_rank and key.has_rank and value.has_rank):
            return None
        q, k, v = query.shape, key.shape, value.shape
        # With shared heads, the query's count.
        batch = (
            (*broadcast(q[:-3], k[:-3], v[:-3]), q[-3]) if enable_gqa else broadcast(q[:-2], k[:-2], v[:-2])
        )
        if attn_mask is not None:
            if not attn_mask.has_rank:
                return None
            batch = broadcast(batch, attn_mask.shape[:-2])
        return query.type.with_shape((*batch, q[-2], v[-1]))

    @decomposition(
        requires=lambda query, key, attn_mask, is_causal, **_: (
            is_causal and attn_mask is None and _blocks(query, key) > 1
        ),
        when=lambda query, key, attn_mask, is_causal, **_: (
            is_causal and attn_mask is None and _blocks(query, key) > 1
        ),
        reason="blocks of queries leave out most of the keys that lie behind them",
    )
    def causal_blocks(
        self,
        g: Builder,
        query: Value,
        key: Value,
        value: Value,
        dropout_p: float,
        scale: float | None,
        enable_gqa: bool,
        **_: Any,
    ) -> Value:
        _check(g, dropout_p)
        length = query.size(-2)
        assert length is not None
        count = _blocks(query, key)
        cuts = [length * i // count for i in range(count + 1)]
        parts = []
        for start, end in itertools.pairwise(cuts):
            rows = g.slice(query, [start], [end], [query.rank - 2])
            seen, values = (g.slice(x, [0], [end], [x.rank - 2]) for x in (key, value))
            parts.append(_attend(g, rows, seen, values, None, start, scale, enable_gqa))
        return g.concat(parts, axis=parts[0].rank - 2)

    @decomposition()
    def dense(
        self,
        g: Builder,
        query: Value,
        key: Value,
        value: Value,
        attn_mask: Value | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Value:
        _check(g, dropout_p)
        return _attend(g, query, key, value, attn_mask, 0 if is_causal else None, scale, enable_gqa)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 4), f32(2, 5, 4), f32(2, 5, 6), scale=0.25)
        yield Case(f32(3, 4), f32(5, 4), f32(5, 2))
        yield Case(f32(1, 2, 3, 4), f32(2, 1, 5, 4), f32(1, 1, 5, 4))
        # Masks: which keys, which of them by number, and a row of which nothing is left.
        allowed = (1, 0, 1, 0, 0, 0, 1, 1, 1)
        numbers = (0.5, -1.0, -_INF, -_INF, -_INF, -_INF, -_INF, 0.0, 2.0)
        yield Case(f32(1, 2, 3, 4), f32(1, 2, 3, 4), f32(1, 2, 3, 4), b8(3, 3, value=allowed))
        yield Case(f32(1, 2, 3, 4), f32(1, 2, 3, 4), f32(1, 2, 3, 4), f32(3, 3, value=numbers))
        yield Case(f32(2, 2, 3, 4), f32(2, 2, 2, 4), f32(2, 2, 2, 4), b8(2, 1, 1, 2, value=(1, 0, 0, 0)))
        # Causal: more queries than keys, and fewer.
        for length, keys in ((4, 2), (2, 4), (1, 3)):
            yield Case(f32(2, length, 4), f32(2, keys, 4), f32(2, keys, 3), is_causal=True)
        yield Case(f32(1, 64, 2), f32(1, 64, 2), f32(1, 64, 2), is_causal=True)
        yield Case(
            f32(1, 3, 4),
            f32(1, 3, 4),
            f32(1, 3, 4),
            b8(3, 3, value=(0, 1, 1, 1, 0, 1, 0, 1, 1)),
            is_causal=True,
        )
        yield Case(f32(1, 2, 4), f32(1, 3, 4), f32(1, 3, 4), f32(1, 1, 3), is_causal=True)
        # Several query heads to a key head, or to a value head.
        grouped = (f32(2, 4, 3, 4), f32(2, 2, 5, 4), f32(2, 2, 5, 3))
        yield Case(*grouped, enable_gqa=True)
        yield Case(*grouped, f32(2, 4, 3, 5), enable_gqa=True)
        yield Case(f32(4, 3, 4), f32(1, 3, 4), f32(4, 3, 2), is_causal=True, enable_gqa=True)
        # Scores beyond float16 and beyond what Exp takes.
        yield Case(f32(1, 2, 4, draw=_large), f32(1, 3, 4, draw=_large), f32(1, 3, 4))
        # Nothing to ask, nothing to attend to.
        yield Case(f32(2, 0, 4), f32(2, 3, 4), f32(2, 3, 4))
        yield Case(f32(2, 3, 4), f32(2, 0, 4), f32(2, 0, 4))
        # A NaN or infinity stays in its row, and one among the values in its column.
        special = f32(3, 2, value=(_INF, 1, 1, 1, float("nan"), 1))
        yield Case(special, f32(2, 2, value=(1, 1, 1, 1)), f32(2, 2, value=(1, 2, _INF, 3)))


def _large(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return 300 * rng.standard_normal(shape)


def _check(g: Builder, dropout_p: float) -> None:
    if dropout_p:
        raise UnsupportedParameter(
            f"dropout_p is {dropout_p:g}, and its random zeros are for training only",
            where=g.where,
            remedy="call model.eval(), and pass dropout_p=0.0 outside of training",
        )


def _blocks(query: Value, key: Value) -> int:
    """How many blocks of queries the causal form takes: measured with benchmarks/operators.py."""
    length, keys = query.size(-2), key.size(-2)
    if length is None or keys != length:
        return 1
    return min(_CAUSAL_BLOCKS, length // _CAUSAL_ROWS)


def _attend(
    g: Builder,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None,
    first: int | None,
    scale: float | None,
    enable_gqa: bool,
) -> Value:
    """The formula; with ``first``, causal, the query's first row being that of all."""
    dtype = query.dtype
    made = ScaledDotProductAttention().infer(query, key, value, attn_mask, enable_gqa=enable_gqa)
    if made is not None and made.is_static and key.size(-2) == 0:
        # Without keys the result is 0, and not every runtime has a Softmax or a product of nothing.
        return g.constant_of_shape(made.shape, 0.0, dtype)
    q, k, v = (widened(g, x) for x in (query, key, value))
    of_keys, of_values = (_Heads.of(g, q, x) if enable_gqa else None for x in (k, v))
    q = scaled(g, q, scale)
    scores = g.matmul(q if of_keys is None else of_keys.grouped(q), transposed(g, k))
    bias, keep = _mask(g, scores, query, key, attn_mask, first)
    apart = of_keys is not None and (bias is not None or of_values is None or not of_keys.same(of_values))
    if of_keys is not None and apart:
        scores = of_keys.apart(scores)
    if bias is not None:
        scores = scores + bias
    weights = g.softmax(scores, -1)
    if of_values is None:
        result = g.matmul(weights, v)
    else:
        stacked = weights if of_keys is not None and not apart else of_values.grouped(weights)
        result = of_values.apart(g.matmul(stacked, v))
    if keep is not None:
        result = g.where_(keep, result, g.const([0.0], result))
    return g.cast(result, dtype)


class _Heads:
    """Query heads in groups that share a key head: a group's queries are stacked, so that keys are read once."""

    def __init__(self, g: Builder, query_heads: int | Value, key_heads: int | Value) -> None:
        self.g, self.query_heads, self.key_heads = g, query_heads, key_heads

    @classmethod
    def of(cls, g: Builder, q: Value, x: Value) -> _Heads | None:
        """How the heads of ``q`` share those of ``x``; None where there is one for each."""
        if min(q.rank, x.rank) < 3:
            raise UnsupportedParameter("enable_gqa takes tensors of rank 3 at least", where=g.where)
        queries, own = q.size(-3), x.size(-3)
        if queries is not None and own is not None:
            if own == 0 or queries % own:
                raise UnsupportedParameter(f"{queries} query heads cannot share {own} heads", where=g.where)
            if queries == own:
                return None
        return cls(g, g.dim(q, -3), g.dim(x, -3))

    def same(self, other: _Heads) -> bool:
        return isinstance(self.key_heads, int) and self.key_heads == other.key_heads

    def grouped(self, x: Value) -> Value:
        """(…, Hq, L, ·) → (…, Hk, Hq/Hk·L, ·)."""
        return self._heads(x, self.key_heads)

    def apart(self, x: Value) -> Value:
        """(…, Hk, Hq/Hk·L, ·) → (…, Hq, L, ·)."""
        return self._heads(x, self.query_heads)

    def _heads(self, x: Value, heads: int | Value) -> Value:
        before, rows, last = x.shape[-3:]
        known = heads if isinstance(heads, int) else None
        middle: list[int | Value] = [heads, -1]
        if isinstance(before, int) and isinstance(rows, int) and known is not None:
            rows = before * rows // known
            middle = [known, rows]
        else:
            rows = None
        # 0 keeps the size of an axis that stays where it is.
        leading = [d if isinstance(d, int) and d else 0 for d in x.shape[:-3]]
        sizes = self.g.sizes([*leading, *middle, last if isinstance(last, int) and last else 0])
        return self.g.retyped(self.g.op("Reshape", x, sizes), (*x.shape[:-3], known, rows, last))


def _mask(
    g: Builder, scores: Value, query: Value, key: Value, attn_mask: Value | None, first: int | None
) -> tuple[Value | None, Value | None]:
    """What is added to the scores, and which rows have a key to attend to; None where there is nothing to do."""
    causal = None if first is None else _causal(g, scores, query, key, first)
    if attn_mask is None:
        # The first key is behind no query.
        return causal, None
    is_bool = attn_mask.dtype == TensorProto.BOOL
    if causal is not None:
        bias = causal + (minus_infinity(g, attn_mask, scores) if is_bool else g.cast(attn_mask, scores))
        return bias, any_allowed(g, g.not_(g.equal(bias, -np.inf)), scores)
    if attn_mask.constant is not None:
        allowed = attn_mask.constant if is_bool else attn_mask.constant != -np.inf
        whole = bool(np.asarray(allowed).any(axis=-1).all())
        bias = g.const(np.where(allowed, 0.0, -np.inf), scores) if is_bool else g.cast(attn_mask, scores)
        return bias, None if whole else g.const(np.asarray(allowed).any(axis=-1, keepdims=True))
    if is_bool:
        return minus_infinity(g, attn_mask, scores), any_allowed(g, attn_mask, scores)
    bias = g.cast(attn_mask, scores)
    return bias, any_allowed(g, g.not_(g.equal(bias, -np.inf)), scores)


def _causal(g: Builder, scores: Value, query: Value, key: Value, first: int) -> Value | None:
    """−∞ for the keys behind each query, both counted from the first; ``first`` is 0 where sizes are not known."""
    length, keys = query.size(-2), key.size(-2)
    if length is not None and keys is not None:
        allowed = np.tri(length, keys, first, dtype=bool)
        if allowed.all():
            return None
        if allowed.size <= _SMALL:
            return g.const(np.where(allowed, 0.0, -np.inf), scores)
        rows, columns = g.range(first, first + length), g.range(0, keys)
    else:
        rows = g.range(0, _scalar(g, g.dim(query, -2)))
        columns = g.range(0, _scalar(g, g.dim(key, -2)))
    return g.where_(
        g.less(g.unsqueeze(rows, [1]), g.unsqueeze(columns, [0])),
        g.const(-np.inf, scores),
        g.const(0.0, scores),
    )


def _scalar(g: Builder, size: int | Value) -> int | Value:
    return size if isinstance(size, int) else g.squeeze(size, [0])
