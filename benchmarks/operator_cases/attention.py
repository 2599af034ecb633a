"""Rows for the passes of passes/attention/; see the package's docstring."""

from typing import Any

import numpy as np
import torch

from operator_cases import Row
from rewriter.placeholder import Case, b8, f32


def _sdpa(query: Any, key: Any, value: Any, attn_mask: Any = None, **options: Any) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask, **options)


def _heads(batch: int, heads: int, length: int, size: int) -> tuple[Any, Any, Any]:
    return (f32(batch, heads, length, size),) * 3


def _rotary(
    x: torch.Tensor, cos_cache: torch.Tensor, sin_cache: torch.Tensor, interleaved: bool = False
) -> torch.Tensor:
    """As transformers has it in modeling_llama and, interleaved, in modeling_gptj."""
    if interleaved:
        cos, sin = (t.repeat_interleave(2, -1)[:, None] for t in (cos_cache, sin_cache))
        other = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    else:
        cos, sin = (torch.cat((t, t), -1)[:, None] for t in (cos_cache, sin_cache))
        half = x.shape[-1] // 2
        other = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos + other * sin


def _deform(
    value: torch.Tensor,
    sampling_locations: torch.Tensor,
    attention_weights: torch.Tensor,
    spatial_shapes: Any,
    **_: Any,
) -> torch.Tensor:
    """The form that transformers and mmcv have in PyTorch: grid_sample by level (mmcv.ops.multi_scale_deform_attn)."""
    n, _, m, d = value.shape
    q, levels, points = sampling_locations.shape[1], sampling_locations.shape[3], sampling_locations.shape[4]
    shapes = [(int(h), int(w)) for h, w in np.reshape(spatial_shapes, (-1, 2))]
    grids = 2 * sampling_locations - 1
    sampled = []
    for level, (part, (h, w)) in enumerate(
        zip(value.split([h * w for h, w in shapes], 1), shapes, strict=True)
    ):
        image = part.flatten(2).transpose(1, 2).reshape(n * m, d, h, w)
        grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)
        sampled.append(torch.nn.functional.grid_sample(image, grid, align_corners=False))
    weights = attention_weights.transpose(1, 2).reshape(n * m, 1, q, levels * points)
    summed = (torch.stack(sampled, -2).flatten(-2) * weights).sum(-1)
    return summed.view(n, m * d, q).transpose(1, 2)


def _blocks(length: int, size: int) -> torch.Tensor:
    block = torch.arange(length) // size
    return ((block[:, None] - block).abs() <= 1) | (block == 0) | (block[:, None] == 0)


_PATTERN = {length: _blocks(length, 64) for length in (512, 2048)}


def _masked(query: Any, key: Any, value: Any, **_: Any) -> torch.Tensor:
    """The pattern as a mask of the whole square."""
    mask = _PATTERN[query.shape[-2]]
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)


def _biased(scores: torch.Tensor, slopes: Any) -> torch.Tensor:
    position = torch.arange(scores.shape[-1])
    return scores + torch.tensor(slopes)[:, None, None] * (position - position[:, None])


def _levels(
    shapes: list[tuple[int, int]], queries: int, batch: int = 1, heads: int = 8, size: int = 32
) -> Case:
    sizes = [h * w for h, w in shapes]
    return Case(
        f32(batch, sum(sizes), heads, size),
        spatial_shapes=[size for shape in shapes for size in shape],
        level_start_index=[sum(sizes[:i]) for i in range(len(sizes))],
        sampling_locations=f32(
            batch, queries, heads, len(shapes), 4, 2, draw=lambda rng, s: rng.uniform(-0.05, 1.05, s)
        ),
        attention_weights=f32(
            batch, queries, heads, len(shapes), 4, draw=lambda rng, s: rng.uniform(0, 1, s)
        ),
    )


ROWS: tuple[Row, ...] = (
    Row("scaled_dot_product_attention", "ViT 1x12x197x64", Case(*_heads(1, 12, 197, 64)), _sdpa),
    Row("scaled_dot_product_attention", "8x4x64x32", Case(*_heads(8, 4, 64, 32)), _sdpa),
    Row(
        "scaled_dot_product_attention",
        "causal 1x8x256x64",
        Case(*_heads(1, 8, 256, 64), is_causal=True),
        _sdpa,
    ),
    Row(
        "scaled_dot_product_attention",
        "causal 1x4x1024x64",
        Case(*_heads(1, 4, 1024, 64), is_causal=True),
        _sdpa,
    ),
    Row(
        "scaled_dot_product_attention",
        "mask 2x8x128x64",
        Case(*_heads(2, 8, 128, 64), b8(2, 1, 1, 128, value=np.arange(256) % 128 < 100)),
        _sdpa,
    ),
    Row(
        "scaled_dot_product_attention",
        "4 queries to a key head, 1x8x128x64",
        Case(f32(1, 8, 128, 64), f32(1, 2, 128, 64), f32(1, 2, 128, 64), enable_gqa=True),
        _sdpa,
    ),
    Row(
        "ms_deform_attn",
        "encoder of 40x40 to 5x5",
        _levels([(40, 40), (20, 20), (10, 10), (5, 5)], queries=2125),
        _deform,
        builtin=False,
    ),
    Row(
        "ms_deform_attn",
        "decoder of 80x80 to 20x20",
        _levels([(80, 80), (40, 40), (20, 20)], queries=300),
        _deform,
        builtin=False,
    ),
    Row(
        "ms_deform_attn",
        "2 of 16x16",
        _levels([(16, 16)], queries=100, batch=2, heads=4, size=16),
        _deform,
        builtin=False,
    ),
    Row(
        "rotary_embedding",
        "1x8x256x64",
        Case(f32(1, 8, 256, 64), f32(1, 256, 32), f32(1, 256, 32)),
        _rotary,
        builtin=False,
    ),
    Row(
        "rotary_embedding",
        "one position, 1x32x1x128",
        Case(f32(1, 32, 1, 128), f32(1, 1, 64), f32(1, 1, 64)),
        _rotary,
        builtin=False,
    ),
    Row(
        "rotary_embedding",
        "interleaved 1x8x256x64",
        Case(f32(1, 8, 256, 64), f32(1, 256, 32), f32(1, 256, 32), interleaved=True),
        _rotary,
        builtin=False,
    ),
    Row(
        "sparse_attention",
        "1x4x512x64, blocks of 64",
        Case(*_heads(1, 4, 512, 64), block_size=64, window=1, global_tokens=1),
        _masked,
        builtin=False,
    ),
    Row(
        "sparse_attention",
        "1x4x2048x64, blocks of 64",
        Case(*_heads(1, 4, 2048, 64), block_size=64, window=1, global_tokens=1),
        _masked,
        builtin=False,
    ),
    Row(
        "neighborhood_attention",
        "14x14, 4x32, kernel 7",
        Case(*(f32(1, 14, 14, 4, 32),) * 3, kernel_size=[7]),
    ),
    Row(
        "alibi",
        "1x8x256x256",
        Case(f32(1, 8, 256, 256), slopes=[2.0**-i for i in range(1, 9)]),
        _biased,
        builtin=False,
    ),
)
