"""Multi-scale deformable attention (Zhu et al., 2021, arXiv:2010.04159), as mmcv's operator has it.

All levels lie behind each other in one table of rows, so that one Gather fetches the four neighbours of every
sampling point, and one batched MatMul sums them up with their weights.  A neighbour outside of its level is a row of
zeros at the end of the table: a weight of 0 would not do, as 0 times an infinity is no number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.attention._deformable import Layout, check, known
from passes.attention._shared import widened
from rewriter.placeholder import Case, Placeholder, decomposition, f32, i64
from rewriter.placeholder.value import Array, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder

_INF = float("inf")
_FEW_CHANNELS = 16


class MsDeformAttn(Placeholder):
    """Σ over levels and points of weight · the level's bilinear value there; 0 outside of the level.

    value (N, S, M, D) holds the levels one behind the other, spatial_shapes (L, 2) their heights and widths,
    level_start_index (L,) where each begins; sampling_locations (N, Q, M, L, P, 2) are (x, y) in units of the level,
    attention_weights (N, Q, M, L, P).  The result is (N, Q, M·D).

    The meaning is that of mmcv's kernel (mmcv/ops/csrc/common/cuda/ms_deform_attn_cuda_kernel.cuh): pixel centres at
    (i + ½)/size, and a point that is not within one pixel of the level, or is no number, contributes nothing.
    """

    name = "ms_deform_attn"
    finite = True
    matches = (
        "MultiScaleDeformableAttention",
        "MMCVMultiScaleDeformableAttention",
        "MultiScaleDeformableAttn",
        "MultiScaleDeformableAttnFunction",
        "MultiscaleDeformableAttnPlugin_TRT",
        "MSDeformAttn",
        "MSDeformAttnFunction",
        "ms_deform_attn_forward",
    )
    shapes = (
        "value: N S M D; spatial_shapes: L 2; level_start_index: L; "
        "sampling_locations: N Q M L P 2; attention_weights: N Q M L P"
    )
    aliases = {  # noqa: RUF012
        "value_spatial_shapes": "spatial_shapes",
        "value_level_start_index": "level_start_index",
        "sampling_loc": "sampling_locations",
        "attn_weight": "attention_weights",
    }

    def reference(
        self,
        value: Any,
        spatial_shapes: Any,
        level_start_index: Any,
        sampling_locations: Any,
        attention_weights: Any,
        im2col_step: int = 64,
    ) -> Any:
        import torch

        dtype = value.dtype
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        value, locations, weights = (t.to(wide) for t in (value, sampling_locations, attention_weights))
        n, _, m, d = value.shape
        q = locations.shape[1]
        shapes = torch.as_tensor(spatial_shapes).reshape(-1, 2).tolist()
        starts = torch.as_tensor(level_start_index).reshape(-1).tolist()
        batch = torch.arange(n).reshape(n, 1, 1, 1)
        head = torch.arange(m).reshape(1, 1, m, 1)
        result = torch.zeros(n, q, m, d, dtype=wide)
        for level, ((height, width), start) in enumerate(zip(shapes, starts, strict=True)):
            x = locations[:, :, :, level, :, 0] * width - 0.5
            y = locations[:, :, :, level, :, 1] * height - 0.5
            inside = (x > -1) & (x < width) & (y > -1) & (y < height)
            x, y = (torch.where(inside, c, torch.zeros_like(c)) for c in (x, y))
            left, top = torch.floor(x), torch.floor(y)
            for dx in (0, 1):
                for dy in (0, 1):
                    column, row = (left + dx).long(), (top + dy).long()
                    valid = inside & (column >= 0) & (column < width) & (row >= 0) & (row < height)
                    at = start + row * width + column
                    rows = value[batch, torch.where(valid, at, torch.zeros_like(at)), head]
                    rows = torch.where(valid[..., None], rows, torch.zeros_like(rows))
                    share = (1 - (x - left - dx).abs()) * (1 - (y - top - dy).abs())
                    result = result + (rows * (share * weights[:, :, :, level])[..., None]).sum(3)
        return result.reshape(n, q, m * d).to(dtype)

    def infer(self, value: Value, sampling_locations: Value, **_: Any) -> Any:
        if value.type is None or not (value.has_rank and sampling_locations.has_rank):
            return None
        heads, channels = value.size(2), value.size(3)
        joined = None if heads is None or channels is None else heads * channels
        return value.type.with_shape((value.shape[0], sampling_locations.shape[1], joined))

    @decomposition()
    def one_gather(
        self,
        g: Builder,
        value: Value,
        spatial_shapes: Array | Value,
        level_start_index: Array | Value,
        sampling_locations: Value,
        attention_weights: Value,
        im2col_step: int = 64,
    ) -> Value:
        layout = Layout.of(g, value, spatial_shapes, level_start_index, sampling_locations)
        made = self.infer(value, sampling_locations)
        if made is not None and made.is_static and 0 in made.shape:
            return g.constant_of_shape(made.shape, 0.0, value)
        rows, weights = layout.neighbours(sampling_locations, attention_weights)
        found = widened(g, g.gather(layout.table(value), rows, axis=0))
        # (…, M, 1, 4·L·P) by (…, M, 4·L·P, D).
        result = g.matmul(g.unsqueeze(weights, [weights.rank - 1]), found)
        return g.cast(layout.together(result, value, sampling_locations), value)

    @decomposition(
        opset=16,
        requires=lambda value, spatial_shapes, level_start_index, sampling_locations, **_: _sampler_takes(
            value, spatial_shapes, level_start_index, sampling_locations
        ),
        when=lambda value, sampling_locations, **_: _sampler_pays(value, sampling_locations),
        reason="many samples to a position: 0.6 to 0.9 of the time of one Gather",
    )
    def grid_sample(
        self,
        g: Builder,
        value: Value,
        spatial_shapes: Array | Value,
        level_start_index: Array | Value,
        sampling_locations: Value,
        attention_weights: Value,
        **_: Any,
    ) -> Value:
        shapes, starts = (known(x) for x in (spatial_shapes, level_start_index))
        assert not isinstance(shapes, Value) and not isinstance(starts, Value)  # noqa: PT018
        levels = np.reshape(shapes, (-1, 2)).tolist()
        check(g, value, np.reshape(shapes, (-1, 2)), np.reshape(starts, -1), sampling_locations.size(3))
        heads, channels, points = (int(d or 0) for d in (*value.shape[2:], sampling_locations.shape[4]))
        batch, queries = g.dim(value, 0), g.dim(sampling_locations, 1)
        images = batch * heads if isinstance(batch, int) else -1
        # (N, M·D, S)
        wide = widened(g, value)
        planes = g.transpose(g.reshape(wide, [batch, g.dim(value, 1), heads * channels]), [0, 2, 1])
        # (N·M, L, P, Q, 2): far outside, and where it is no number, at two sizes' distance.
        mixed, many = heads * len(levels) * points, len(levels)
        at = g.cast(widened(g, sampling_locations), wide)
        at = g.transpose(g.reshape(at, [batch, queries, mixed, 2]), [0, 2, 1, 3])
        at = g.minimum(g.where_(g.greater(at, -1.0), at, -1.0), 2.0) * 2.0 - 1.0
        at = g.reshape(at, [images, many, points, queries, 2])
        weights = g.cast(widened(g, attention_weights), wide)
        weights = g.transpose(g.reshape(weights, [batch, queries, mixed]), [0, 2, 1])
        weights = g.reshape(weights, [images, many, points, queries])
        each = [1] * many
        parts = zip(
            levels,
            np.reshape(starts, -1).tolist(),
            g.split(at, each, 1),
            g.split(weights, each, 1),
            strict=True,
        )
        summed: Value | None = None
        for (height, width), start, grid, weight in parts:
            end = start + height * width
            plane = planes if planes.size(2) == end - start else g.slice(planes, [start], [end], [2])
            sampled = g.op(
                "GridSample",
                g.reshape(plane, [images, channels, height, width]),
                g.reshape(grid, [images, points, queries, 2]),
                mode="linear" if g.opset >= 20 else "bilinear",
                padding_mode="zeros",
                align_corners=0,
            )
            share = sampled * g.reshape(weight, [images, 1, points, queries])
            # Along an axis that is not the last one a sum takes whole rows.
            of_level = g.reduce_sum(share, [2], keepdims=False)
            summed = of_level if summed is None else summed + of_level
        assert summed is not None
        result = g.transpose(g.reshape(summed, [batch, heads * channels, queries]), [0, 2, 1])
        return g.cast(result, value)

    def cases(self) -> Iterator[Case]:
        yield _case([(3, 4), (2, 2)])
        yield _case([(3, 4)], heads=1, points=1)
        # Levels of one pixel, one row, one column.
        yield _case([(1, 1), (1, 3), (4, 1)], batch=1)
        # Shapes as the attribute that custom functions write, and computed ones.
        yield _case([(2, 3), (1, 2)], flat=True)
        yield _case([(2, 3), (1, 2)], computed=True)
        yield _case(
            [(2, 2)],
            queries=0,
            symbolic=False,
            reason="onnxruntime makes −1 of a computed size in a Reshape, which is no size beside 0",
        )
        # Far outside, without end, no number; and infinities in the values, at a corner and inside.
        special = (
            0.5,
            0.5,
            -6e4,
            0.5,
            0.5,
            6e4,
            _INF,
            0.5,
            float("nan"),
            0.5,
            0.5,
            -_INF,
            1.3,
            1.3,
            -0.05,
            1.02,
        )
        yield Case(
            f32(1, 9, 1, 2, draw=_with_infinities),
            spatial_shapes=[3, 3],
            level_start_index=[0],
            sampling_locations=f32(1, 4, 1, 1, 2, 2, value=special),
            attention_weights=f32(1, 4, 1, 1, 2),
        )


def _sampler_takes(
    value: Value, spatial_shapes: Array | Value, level_start_index: Array | Value, locations: Value
) -> bool:
    """Levels and all sizes but those of batch and queries known, one of these two at least; float32 at most."""
    if any(isinstance(known(x), Value) for x in (spatial_shapes, level_start_index)):
        return False
    sizes_known = None not in (value.size(2), value.size(3), locations.size(4))
    nonempty = 0 not in (*value.shape, *locations.shape)
    return sizes_known and nonempty and value.dtype != TensorProto.DOUBLE


def _sampler_pays(value: Value, locations: Value) -> bool:
    """GridSample copies each level twice before it samples, a Gather copies four rows for each sample (measured with
    benchmarks/operators.py: with 32 features the two meet below eight samples to a position, with 16 at about one)."""
    sizes = [*(locations.size(i) for i in (1, 3, 4)), value.size(1), value.size(3)]
    if None in sizes:
        return False
    queries, levels, points, length, channels = (int(s or 0) for s in sizes)
    return queries * levels * points >= (8 if channels > _FEW_CHANNELS else 1) * length


def _case(
    shapes: list[tuple[int, int]],
    *,
    batch: int = 2,
    queries: int = 5,
    heads: int = 2,
    points: int = 2,
    channels: int = 3,
    flat: bool = False,
    computed: bool = False,
    **options: Any,
) -> Case:
    sizes = [h * w for h, w in shapes]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    levels = len(shapes)
    tensors = (
        f32(batch, queries, heads, levels, points, 2, draw=lambda rng, s: rng.uniform(-0.3, 1.3, s)),
        f32(batch, queries, heads, levels, points, draw=lambda rng, s: rng.uniform(0, 1, s)),
    )
    value = f32(batch, sum(sizes), heads, channels)
    if computed:
        numbers = (i64(levels, 2, value=shapes), i64(levels, value=starts))
        return Case(value, *numbers, *tensors)
    given = np.asarray(shapes, np.int64)
    return Case(
        value,
        spatial_shapes=[int(i) for i in given.reshape(-1)] if flat else given,
        level_start_index=starts if flat else np.asarray(starts, np.int64),
        sampling_locations=tensors[0],
        attention_weights=tensors[1],
        **options,
    )


def _with_infinities(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    values = rng.standard_normal(shape)
    values[0, 0, 0, 0] = np.inf
    values[0, 8, 0, 1] = np.nan
    return values
