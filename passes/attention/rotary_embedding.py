"""Rotary position embedding (Su et al., 2021, arXiv:2104.09864): pairs of features turned by an angle that grows with
the position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

_INF = float("inf")


class RotaryEmbedding(Placeholder):
    """Each pair (a, b) of features becomes (a·cos − b·sin, b·cos + a·sin), with the angle of its position.

    x (B, H, S, D), or (B, S, H·D) with num_heads.  Pairs are elements of the two halves (GPT-NeoX, Llama), or
    neighbours where `interleaved` (GPT-J, RoFormer); of the first R = rotary_embedding_dim features, 0 being all.  The
    caches are those of ONNX RotaryEmbedding-23: (positions, R/2) looked up by position_ids (B, S), or (B, S, R/2) as
    they stand, and (S, R/2) for every batch; or of R in place of R/2, a value for each feature (transformers'
    `apply_rotary_pos_emb`).  Without caches the angles are position·base^(−2i/R), at position_ids or 0, 1, 2, ….
    """

    matches = ("RotaryEmbedding", "RotaryPosEmb", "ApplyRotaryPosEmb", "ApplyRotaryEmb", "RoPE")
    shapes = "x: N _ _ _ | N _ _; cos_cache: _ D | N _ D; sin_cache: _ D | N _ D; position_ids: N _"
    aliases = {  # noqa: RUF012
        "cos": "cos_cache",
        "sin": "sin_cache",
        "theta": "base",
        "rotary_dim": "rotary_embedding_dim",
        "input": "x",
    }

    def reference(
        self,
        x: Any,
        cos_cache: Any = None,
        sin_cache: Any = None,
        position_ids: Any = None,
        interleaved: bool = False,
        num_heads: int = 0,
        rotary_embedding_dim: int = 0,
        base: float = 10000.0,
    ) -> Any:
        import torch

        given = x
        if x.dim() == 3:
            x = x.unflatten(-1, (num_heads, -1)).transpose(1, 2)
        size = rotary_embedding_dim or x.shape[-1]
        if cos_cache is None:
            positions = torch.arange(x.shape[-2])[None] if position_ids is None else position_ids
            frequencies = base ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
            angles = positions.float()[..., None] * frequencies
            cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        elif position_ids is not None:
            cos, sin = cos_cache[position_ids], sin_cache[position_ids]
        else:
            cos, sin = cos_cache, sin_cache
        if cos.dim() < 4:
            cos, sin = cos.unsqueeze(-3), sin.unsqueeze(-3)
        turned, rest = x[..., :size], x[..., size:]
        if cos.shape[-1] == size // 2:
            cos, sin = (
                t.repeat_interleave(2, -1)
                if interleaved
                else t.repeat(1, 1, 1, 2)
                if t.dim() == 4
                else t.repeat(1, 1, 2)
                for t in (cos, sin)
            )
        if interleaved:
            other = torch.stack((-turned[..., 1::2], turned[..., ::2]), -1).flatten(-2)
        else:
            a, b = turned.chunk(2, -1)
            other = torch.cat((-b, a), -1)
        result = torch.cat((turned * cos + other * sin, rest), -1)
        return result.transpose(1, 2).reshape(given.shape) if given.dim() == 3 else result

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    @decomposition(
        opset=23,
        portable=False,
        requires=lambda x, cos_cache, position_ids, num_heads, rotary_embedding_dim, **_: _native_takes(
            x, cos_cache, position_ids, num_heads, rotary_embedding_dim
        ),
        when=lambda **_: True,
        reason="one pass over the features: 0.5 to 0.6 of the other's time",
    )
    def native(
        self,
        g: Builder,
        x: Value,
        cos_cache: Value | None,
        sin_cache: Value | None,
        position_ids: Value | None,
        interleaved: bool,
        num_heads: int,
        rotary_embedding_dim: int,
        **_: Any,
    ) -> Value:
        _check(g, x, cos_cache, sin_cache, num_heads, rotary_embedding_dim)
        made: Value = g.op(
            "RotaryEmbedding",
            x,
            cos_cache,
            sin_cache,
            position_ids,
            interleaved=int(interleaved),
            num_heads=num_heads,
            rotary_embedding_dim=rotary_embedding_dim,
        )
        return made

    @decomposition()
    def products(
        self,
        g: Builder,
        x: Value,
        cos_cache: Value | None = None,
        sin_cache: Value | None = None,
        position_ids: Value | None = None,
        interleaved: bool = False,
        num_heads: int = 0,
        rotary_embedding_dim: int = 0,
        base: float = 10000.0,
    ) -> Value:
        _check(g, x, cos_cache, sin_cache, num_heads, rotary_embedding_dim)
        by_head = x if x.rank == 4 else _split_heads(g, x, num_heads)
        features = by_head.size(3)
        size = rotary_embedding_dim or features
        turned = by_head
        rest = []
        if rotary_embedding_dim and rotary_embedding_dim != features:
            turned = g.slice(by_head, [0], [rotary_embedding_dim], [3])
            rest = [g.slice(by_head, [rotary_embedding_dim], [features or np.iinfo(np.int64).max], [3])]
        cos, sin = _angles(g, x, cos_cache, sin_cache, position_ids, size, base)
        if cos.rank < 4 and not (x.rank == 4 and _spread_over_heads(cos)):
            cos, sin = (g.unsqueeze(t, [cos.rank - 2 if x.rank == 4 else cos.rank - 1]) for t in (cos, sin))
        first, second = _pairs(g, turned, size, interleaved)
        if size is not None and cos.size(-1) == size:
            other = _joined(g, g.op("Neg", second), first, size, interleaved)
            result = turned * cos + other * sin
        else:
            left, right = first * cos - second * sin, second * cos + first * sin
            if not interleaved:
                return _as_given(g, g.concat([left, right, *rest], axis=3), x)
            result = _joined(g, left, right, size, interleaved)
        return _as_given(g, g.concat([result, *rest], axis=3), x)

    def cases(self) -> Iterator[Case]:
        # Looked up, as they stand, and for every batch alike.
        ids = i64(2, 3, value=(0, 1, 2, 4, 3, 0))
        for interleaved in (False, True):
            yield Case(f32(2, 2, 3, 4), f32(5, 2), f32(5, 2), ids, interleaved=interleaved)
            yield Case(f32(2, 3, 12), f32(2, 3, 2), f32(2, 3, 2), None, interleaved=interleaved, num_heads=3)
            # A part of the features.
            yield Case(
                f32(2, 2, 3, 6), f32(3, 2), f32(3, 2), None, interleaved=interleaved, rotary_embedding_dim=4
            )
            # A value for each feature.
            yield Case(
                f32(2, 2, 3, 4),
                f32(2, 3, 4),
                f32(2, 3, 4),
                None,
                interleaved=interleaved,
                symbolic=False,
                reason="the caches' size tells whether they are of halves",
            )
        # Angles by position.
        computed: dict[str, Any] = {"dtypes": ("float32", "float16"), "rotary_embedding_dim": 4}
        yield Case(f32(1, 2, 3, 4), None, None, None, base=100.0, **computed)
        yield Case(f32(2, 3, 12), None, None, ids, num_heads=2, interleaved=True, **computed)
        yield Case(f32(2, 2, 0, 4), f32(0, 2), f32(0, 2), None)
        special = (_INF, 1, 2, 3, float("nan"), 1, -0.0, 0.0)
        yield Case(f32(1, 1, 2, 4, value=special), *[f32(1, 2, 2, value=(1, 0.6, 0, -1))] * 2, None)


def _check(
    g: Builder,
    x: Value,
    cos_cache: Value | None,
    sin_cache: Value | None,
    num_heads: int,
    rotary_embedding_dim: int,
) -> None:
    if x.rank not in (3, 4):
        raise UnsupportedParameter(
            f"x has rank {x.rank}",
            where=g.where,
            remedy="it is (B, heads, S, features) or (B, S, heads·features)",
        )
    if x.rank == 3 and num_heads < 1:
        raise UnsupportedParameter(
            "x is (B, S, heads·features) and num_heads is not given",
            where=g.where,
            remedy="give num_heads, or an x of rank 4",
        )
    if (cos_cache is None) != (sin_cache is None):
        raise UnsupportedParameter("only one of cos_cache and sin_cache is given", where=g.where)
    size = x.size(-1)
    features = None if size is None else size // num_heads if x.rank == 3 else size
    turned = rotary_embedding_dim or features
    if turned is not None and (turned % 2 or (features is not None and turned > features)):
        raise UnsupportedParameter(
            f"{turned} of {features} features cannot be turned in pairs", where=g.where
        )


def _native_takes(
    x: Value, cos_cache: Value | None, position_ids: Value | None, num_heads: int, rotary_embedding_dim: int
) -> bool:
    """Caches of halves, in the layouts that ONNX has."""
    if cos_cache is None or x.dtype not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        return False
    if cos_cache.rank != (3 if position_ids is None else 2):
        return False
    features = x.size(-1)
    if features is not None and x.rank == 3:
        features //= max(num_heads, 1)
    size = rotary_embedding_dim or features
    return size is not None and cos_cache.size(-1) == size // 2


def _spread_over_heads(cos: Value) -> bool:
    """Whether (S, R), or (1, S, R), meets (B, H, S, R) as it stands."""
    return cos.rank == 2 or (cos.rank == 3 and cos.size(0) == 1)


def _split_heads(g: Builder, x: Value, heads: int) -> Value:
    size = x.size(2)
    return g.reshape_keeping(x, [0, 0, heads, -1 if size is None else size // heads])


def _as_given(g: Builder, result: Value, x: Value) -> Value:
    if x.rank == 4:
        return result
    size = x.size(2)
    return g.reshape_keeping(result, [0, 0, -1 if size is None else size])


def _angles(
    g: Builder,
    x: Value,
    cos_cache: Value | None,
    sin_cache: Value | None,
    position_ids: Value | None,
    size: int | None,
    base: float,
) -> tuple[Value, Value]:
    """Cosines and sines by batch, position and pair (or feature), or by position and pair."""
    if cos_cache is not None and sin_cache is not None:
        if position_ids is None:
            return cos_cache, sin_cache
        return g.gather(cos_cache, position_ids, axis=0), g.gather(sin_cache, position_ids, axis=0)
    if size is None:
        raise UnsupportedParameter(
            "without caches the number of features must be known",
            where=g.where,
            remedy="give rotary_embedding_dim, or declare the sizes when exporting",
        )
    float32 = int(TensorProto.FLOAT)
    if position_ids is None:
        length = g.dim(x, 2 if x.rank == 4 else 1)
        positions = g.range(0, length if isinstance(length, int) else g.squeeze(length, [0]))
    else:
        positions = position_ids
    frequencies = base ** (-np.arange(0, size, 2, dtype=np.float32) / size)
    angles = g.unsqueeze(g.cast(positions, float32), [positions.rank]) * g.const(frequencies, float32)
    return g.cast(g.cos(angles), x), g.cast(g.sin(angles), x)


def _pairs(g: Builder, x: Value, size: int | None, interleaved: bool) -> tuple[Value, Value]:
    """First and second features of the pairs of (B, ·, ·, R)."""
    half = -1 if size is None else size // 2
    if interleaved:
        # Two Transposes move whole tensors, where a Slice of every second element or a Gather does one at a time.
        apart = g.transpose(g.reshape_keeping(x, [0, 0, 0, half, 2]), [0, 1, 2, 4, 3])
    elif size is not None:
        first, second = g.split(x, [half, half], 3)
        return first, second
    else:
        features = g.dim(x, 3)
        assert not isinstance(features, int)
        middle = g.binary("Div", features, 2)
        return g.slice(x, [0], middle, [3]), g.slice(x, middle, [np.iinfo(np.int64).max], [3])
    first, second = (g.squeeze(part, [3]) for part in g.split(apart, [1, 1], 3))
    return first, second


def _joined(g: Builder, first: Value, second: Value, size: int | None, interleaved: bool) -> Value:
    """The inverse of :func:`_pairs`."""
    halves = g.concat([first, second], axis=3)
    if not interleaved:
        return halves
    half = -1 if size is None else size // 2
    pairs = g.transpose(g.reshape_keeping(halves, [0, 0, 0, 2, half]), [0, 1, 2, 4, 3])
    return g.reshape_keeping(pairs, [0, 0, 0, -1 if size is None else size])
