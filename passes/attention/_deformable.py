"""Rows and weights of the four neighbours of sampling points: multi-scale deformable attention by one Gather."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from passes.attention._shared import widened
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder.value import Array, Value

if TYPE_CHECKING:
    from rewriter.placeholder import Builder

#: Whole numbers up to here are exact in float32.
_EXACT = 1 << 24


@dataclass(frozen=True)
class Layout:
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
    ) -> Layout:
        like = widened(g, locations)
        shapes, starts = known(spatial_shapes), known(level_start_index)
        if not isinstance(shapes, Value):
            shapes = np.reshape(shapes, (-1, 2))
        heads, points = g.dim(value, 2), locations.size(4)
        if not isinstance(shapes, Value) and not isinstance(starts, Value):
            check(g, value, shapes, np.reshape(starts, -1), locations.size(3))
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


def known(x: Array | Value) -> Array | Value:
    """The numbers where they are constant, however they are given."""
    return x.constant if isinstance(x, Value) and x.constant is not None else x


def check(g: Builder, value: Value, shapes: Array, starts: Array, levels: int | None) -> None:
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
