"""Multi-scale deformable attention (Zhu et al., 2021, arXiv:2010.04159), as mmcv's operator has it.

All levels lie behind each other in one table of rows, so that one Gather fetches the four neighbours of every
sampling point, and one batched MatMul sums them up with their weights.  A neighbour outside of its level is a row of
zeros at the end of the table: a weight of 0 would not do, as 0 times an infinity is no number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.attention._shared import widened
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32, i64
from rewriter.placeholder.value import Array, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder

_INF = float("inf")
#: Whole numbers up to here are exact in float32.
_EXACT = 1 << 24
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

    def infer(
        self,
        value: Value,
        spatial_shapes: Array | Value,
        level_start_index: Array | Value,
        sampling_locations: Value,
        attention_weights: Value,
        im2col_step: int = 64,
    ) -> Any:
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
        layout = _Layout.of(g, value, spatial_shapes, level_start_index, sampling_locations)
        made = self.infer(value, spatial_shapes, level_start_index, sampling_locations, attention_weights)
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
        im2col_step: int = 64,
    ) -> Value:
        shapes, starts = (_known(x) for x in (spatial_shapes, level_start_index))
        assert not isinstance(shapes, Value) and not isinstance(starts, Value)  # noqa: PT018
        levels = np.reshape(shapes, (-1, 2)).tolist()
        _check(g, value, np.reshape(shapes, (-1, 2)), np.reshape(starts, -1), sampling_locations.size(3))
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


@dataclass(frozen=True)
class _Layout:
    """How the sampling points are laid out while their neighbours are found.

    Where heads, levels and points are known, (N·Q, M·L·P) with whole rows of constants; else (N, Q, M, L, P).
    """

    g: Builder
    #: The type that coordinates are computed in.
    like: Value
    flat: bool
    batch: int | Value
    length: int | Value
    heads: int | Value
    points: int | None
    #: Widths, then heights, (2, 1, M·L·P) or (2, 1, 1, 1, L, 1), and widths and starts without the first axis.
    sizes: Value
    widths: Value
    starts: Value

    @classmethod
    def of(
        cls,
        g: Builder,
        value: Value,
        spatial_shapes: Array | Value,
        level_start_index: Array | Value,
        locations: Value,
    ) -> _Layout:
        like = widened(g, locations)
        shapes, starts = _known(spatial_shapes), _known(level_start_index)
        if not isinstance(shapes, Value):
            shapes = np.reshape(shapes, (-1, 2))
        heads, points = g.dim(value, 2), locations.size(4)
        if not isinstance(shapes, Value) and not isinstance(starts, Value):
            _check(g, value, shapes, np.reshape(starts, -1), locations.size(3))
            if isinstance(heads, int) and points is not None:
                width, height, start = (
                    np.tile(np.repeat(np.asarray(v, np.float64), points), heads)[None]
                    for v in (shapes[:, 1], shapes[:, 0], np.reshape(starts, -1))
                )
                constants = (np.stack([width, height]), width[None], start[None])
                size, across, begin = (g.const(v, like) for v in constants)
                return cls(
                    g, like, True, g.dim(value, 0), g.dim(value, 1), heads, points, size, across, begin
                )
        pairs = g.const(shapes, like) if not isinstance(shapes, Value) else g.cast(shapes, like)
        begins = (
            g.const(np.reshape(starts, -1), like) if not isinstance(starts, Value) else g.cast(starts, like)
        )
        columns = g.transpose(g.gather(g.reshape(pairs, [-1, 2]), [1, 0], axis=1), [1, 0])
        size = g.reshape(columns, [2, 1, 1, 1, -1, 1])
        across = g.slice(size, [0], [1], [0])
        begin = g.reshape(begins, [1, 1, 1, 1, -1, 1])
        return cls(g, like, False, g.dim(value, 0), g.dim(value, 1), heads, points, size, across, begin)

    def table(self, value: Value) -> Value:
        """(N·(S + 1)·M, D): the values with a position of zeros behind each image's."""
        g = self.g
        if value.is_static:
            n, _, m, d = (int(size or 0) for size in value.shape)
            longer = g.concat([value, g.const(np.zeros((n, 1, m, d)), value)], axis=1)
        else:
            longer = g.pad(value, [0, 0, 0, 0], [0, 1, 0, 0])
        return g.reshape(longer, [-1, g.dim(value, 3)])

    def neighbours(self, locations: Value, attention: Value) -> tuple[Value, Value]:
        """Rows of the table and weights of the four neighbours of each point, both (…, M, 4·L·P)."""
        g = self.g
        position = self._apart(widened(g, locations)) * self.sizes - 0.5
        # Outside of the level, and where it is no number: beyond the last row of the table.
        inside = g.and_(g.greater(position, -1.0), g.less(position, self.sizes))
        far = self._float(g.product([2, self.length + 2]))
        position = g.where_(inside, position, far)
        first = g.floor(position)
        second_share = position - first
        lower = g.where_(g.less(first, 0.0), far, first)
        upper = g.where_(g.less(first, self.sizes - 1.0), first, far)
        rows = self._rows(lower, upper)
        left_share, top_share = g.split(1.0 - second_share, [1, 1], 0)
        right_share, bottom_share = g.split(second_share, [1, 1], 0)
        weight = g.cast(self._level(widened(g, attention)), second_share)
        top, bottom = weight * top_share, weight * bottom_share
        weights = [top * left_share, top * right_share, bottom * left_share, bottom * right_share]
        return rows, self._joined(weights)

    def _rows(self, lower: Value, upper: Value) -> Value:
        """From columns and rows of the nearer neighbours and of those before the farther ones."""
        g = self.g
        exact = isinstance(self.length, int) and isinstance(self.heads, int)
        if exact and self.like.dtype == TensorProto.FLOAT:
            exact = (int(str(self.length)) + 1) * int(str(self.heads)) < _EXACT
        kind = self.like.dtype if exact else int(TensorProto.INT64)
        heads = self._number(self.heads, kind)
        width = self._times(g.cast(self.widths, kind), heads)
        start = self._times(g.cast(self.starts, kind), heads) + self._head_offsets(kind)
        left, top = g.split(g.cast(lower, kind), [1, 1], 0)
        right, bottom = g.split(g.cast(upper, kind), [1, 1], 0)
        left, right = (self._times(x, heads) for x in (left, right))
        right = right + heads
        top, bottom = top * width + start, bottom * width + (start + width)
        rows = self._joined([top + left, top + right, bottom + left, bottom + right])
        beyond = self._number(g.product([self.length, self.heads]), kind)
        if kind == TensorProto.INT64 and g.opset < 12:
            rows = g.where_(g.less(rows, beyond), rows, beyond)
        else:
            rows = g.minimum(rows, beyond)
        return self._of_image(g.cast(rows, TensorProto.INT64))

    def _of_image(self, rows: Value) -> Value:
        """The rows of each image of the batch behind those of the one before."""
        g = self.g
        if self.batch == 1:
            return rows
        each = g.product([self.length + 1, self.heads])
        count = self.batch if isinstance(self.batch, int) else g.squeeze(self.batch, [0])
        offsets = g.range(0, count) * each
        if not self.flat:
            return rows + g.reshape(offsets, [-1, 1, 1, 1])
        by_image = g.reshape(rows, [self.batch, -1, *(int(d or 0) for d in rows.shape[1:])])
        moved = by_image + g.reshape(offsets, [-1, 1, 1, 1])
        return g.reshape(moved, [-1, *(int(d or 0) for d in rows.shape[1:])])

    # --- laying out -----------------------------------------------------------------------------------------

    def _apart(self, locations: Value) -> Value:
        """Coordinates in the layout, all x before all y."""
        if not self.flat:
            return self.g.transpose(locations, [5, 0, 1, 2, 3, 4])
        pairs = self.g.transpose(self.g.reshape(locations, [-1, 2]), [1, 0])
        return self.g.reshape(pairs, [2, -1, int(self.sizes.shape[-1] or 0)])

    def _level(self, attention: Value) -> Value:
        """Weights in the layout."""
        if not self.flat:
            return self.g.unsqueeze(attention, [0])
        return self.g.reshape(attention, [1, -1, int(self.sizes.shape[-1] or 0)])

    def together(self, result: Value, value: Value, locations: Value) -> Value:
        """(…, M, 1, D) as (N, Q, M·D)."""
        g = self.g
        channels = g.product([self.heads, g.dim(value, 3)])
        if not self.flat:
            return g.op("Reshape", result, g.sizes([0, 0, channels]))  # type: ignore[no-any-return]
        queries = locations.size(1)
        return g.reshape(result, [self.batch, -1 if queries is None else queries, channels])

    def _joined(self, corners: list[Value]) -> Value:
        """The four neighbours next to each other, by head."""
        g = self.g
        if self.flat:
            assert isinstance(self.heads, int)
            each = int(self.sizes.shape[-1] or 0) // self.heads
            return g.concat([g.reshape(c, [-1, self.heads, each]) for c in corners], axis=2)
        joined = g.squeeze(g.concat(corners, axis=5), [0])
        size = g.product([g.dim(joined, 3), g.dim(joined, 4)])
        return g.retyped(g.op("Reshape", joined, g.sizes([0, 0, 0, size])), (*joined.shape[:3], None))

    def _head_offsets(self, kind: int) -> Value:
        g = self.g
        if self.flat:
            assert isinstance(self.heads, int)
            each = int(self.sizes.shape[-1] or 0) // self.heads
            return g.const(np.repeat(np.arange(self.heads), each)[None, None], kind)
        count = self.heads if isinstance(self.heads, int) else g.squeeze(self.heads, [0])
        return g.cast(g.reshape(g.range(0, count), [-1, 1, 1]), kind)

    def _number(self, size: int | Value, kind: int) -> Value:
        return self.g.const(size, kind) if isinstance(size, int) else self.g.cast(size, kind)

    def _float(self, size: int | Value) -> Value:
        return self._number(size, self.like.dtype)

    def _times(self, x: Value, y: Value) -> Value:
        """A product of which one factor may be 1, or both constants."""
        if y.constant is not None and y.constant.size == 1 and y.constant.item() == 1:
            return x
        return x * y


def _sampler_takes(
    value: Value, spatial_shapes: Array | Value, level_start_index: Array | Value, locations: Value
) -> bool:
    """Levels and all sizes but those of batch and queries known, one of these two at least; float32 at most."""
    if any(isinstance(_known(x), Value) for x in (spatial_shapes, level_start_index)):
        return False
    known = None not in (value.size(2), value.size(3), locations.size(4))
    nonempty = 0 not in (*value.shape, *locations.shape)
    return known and nonempty and value.dtype != TensorProto.DOUBLE


def _sampler_pays(value: Value, locations: Value) -> bool:
    """GridSample copies each level twice before it samples, a Gather copies four rows for each sample (measured with
    benchmarks/operators.py: with 32 features the two meet below eight samples to a position, with 16 at about one)."""
    sizes = [*(locations.size(i) for i in (1, 3, 4)), value.size(1), value.size(3)]
    if None in sizes:
        return False
    queries, levels, points, length, channels = (int(s or 0) for s in sizes)
    return queries * levels * points >= (8 if channels > _FEW_CHANNELS else 1) * length


def _known(x: Array | Value) -> Array | Value:
    """The numbers where they are constant, however they are given."""
    return x.constant if isinstance(x, Value) and x.constant is not None else x


def _check(g: Builder, value: Value, shapes: Array, starts: Array, levels: int | None) -> None:
    if len(shapes) != len(starts) or levels not in (None, len(shapes)):
        raise UnsupportedParameter(
            f"{len(shapes)} spatial_shapes, {len(starts)} in level_start_index, {levels} levels of sampling_locations",
            where=g.where,
            remedy="give one of each for every level",
        )
    length = value.size(1)
    ends = [int(start) + int(h) * int(w) for (h, w), start in zip(shapes, starts, strict=True)]
    if length is not None and max(ends, default=0) > length:
        raise UnsupportedParameter(
            f"the levels take {max(ends)} positions, and value has {length}",
            where=g.where,
            remedy="level_start_index counts positions of value's axis 1",
        )


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
