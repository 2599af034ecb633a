"""Repetition of elements, each of them as often as wanted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.movement._data import EXACT, LONG_ROW_BYTES, MOVED, axis_of, by_signed, known, row_bytes
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Ints, Value

#: So many inputs of one Concat at most.
_MOST_COPIES = 16


class RepeatInterleave(Placeholder):
    """Each element of `x` along `dim` (flat without it) `repeats` times; the meaning of `torch.repeat_interleave`.

    `repeats` is one number, a list of one for each element, or computed; then the size of the result is known only
    where `output_size` says it.
    """

    matches = ("RepeatInterleave", "aten::repeat_interleave")
    shapes = "x: ...; repeats: _ | ()"
    aliases = {"axis": "dim"}  # noqa: RUF012
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, repeats: Any, dim: int | None = None, output_size: int | None = None) -> Any:
        import torch

        if not isinstance(repeats, torch.Tensor):
            repeats = torch.tensor(repeats)
        counts = repeats.long()
        return by_signed(x, lambda data: torch.repeat_interleave(data, counts, dim, output_size=output_size))

    @decomposition(
        when=lambda x, dim, **_: x.is_static and row_bytes(x, -1 if dim is None else dim) < LONG_ROW_BYTES,
        requires=lambda x, repeats, dim, **_: _can_stack(x, repeats, dim),
        reason="rows are too short for Gather: copies side by side",
    )
    def copies(self, g: Builder, x: Value, repeats: Ints | Value, dim: int | None, **_: Any) -> Value:
        assert isinstance(repeats, tuple)
        sizes = known(x.shape) or []
        axis = max(x.rank - 1, 0) if dim is None else axis_of(g, dim, max(x.rank, 1))
        sizes = sizes or [1]
        x = g.concat([g.unsqueeze(g.reshape(x, sizes), [axis + 1])] * repeats[0], axis + 1)
        if dim is None:
            return g.flatten(x)
        return g.reshape(x, [*sizes[:axis], sizes[axis] * repeats[0], *sizes[axis + 1 :]])

    @decomposition()
    def gather(
        self,
        g: Builder,
        x: Value,
        repeats: Ints | Value,
        dim: int | None = None,
        output_size: int | None = None,
    ) -> Value:
        x, axis = _as_asked(g, x, dim)
        size = g.dim(x, axis)
        if size == 0:
            return x
        if not isinstance(repeats, tuple):
            indices = _computed_rows(g, repeats, size, output_size)
        else:
            indices = _known_rows(g, size, repeats)
            if indices.size(0) == 0:
                # Not every runtime has a Gather of nothing.
                return _typed(g, g.slice(x, [0], [0], [axis]), x, axis)
        return _typed(g, g.gather(x, indices, axis), x, axis)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3), repeats=2)
        yield Case(f32(2, 3, 4), repeats=3, dim=1)
        yield Case(f32(2, 3, 4), repeats=2, dim=-1)
        yield Case(f32(2, 2, 32), repeats=2, dim=0)
        yield Case(f32(2, 3), repeats=0, dim=1)
        yield Case(f32(3), repeats=20, dim=0)
        yield Case(f32(), repeats=3)
        yield Case(f32(0, 3), repeats=2, dim=0)
        yield Case(f32(2, 0), repeats=2)
        yield Case(f32(3, 2), repeats=[2, 0, 1], dim=0)
        yield Case(f32(2, 3), repeats=[2, 0, 1], dim=1, output_size=3)
        yield Case(f32(3, value=(float("inf"), float("nan"), -0.0)), repeats=2, dim=0, dtypes=("float32",))
        # Repeats that are computed: the size of the result depends on them.
        yield Case(f32(3, 2), i64(3, value=(2, 0, 1)), dim=0)
        yield Case(f32(2, 3), i64(3, value=(0, 3, 1)), dim=-1, output_size=4)
        yield Case(f32(2, 2), i64(4, value=(1, 0, 2, 1)))
        yield Case(f32(3, 2), i64(1, value=(2,)), dim=0)
        yield Case(f32(3, 2), i64(3, value=(0, 0, 0)), dim=0)
        yield Case(f32(0, 2), i64(0, value=()), dim=0)


def _can_stack(x: Value, repeats: Any, dim: int | None) -> bool:
    if not isinstance(repeats, tuple) or len(repeats) != 1 or not 1 <= repeats[0] <= _MOST_COPIES:
        return False
    return (
        known(x.shape) is not None and 0 not in x.shape and (dim is None or -x.rank <= dim < max(x.rank, 1))
    )


def _as_asked(g: Builder, x: Value, dim: int | None) -> tuple[Value, int]:
    """``x`` and the axis to repeat along; flat where there is none."""
    if dim is not None and x.rank:
        return x, axis_of(g, dim, x.rank)
    sizes = known(x.shape)
    return (g.flatten(x) if sizes is None else g.reshape(x, [math.prod(sizes)])), 0


def _known_rows(g: Builder, size: int | Value, repeats: Ints) -> Value:
    if any(r < 0 for r in repeats):
        raise UnsupportedParameter(f"repeats are {list(repeats)}: negative", where=g.where)
    if len(repeats) == 1 and not isinstance(size, int):
        if repeats[0] == 0:
            return g.ints([])
        count = g.squeeze(size * repeats[0], [0])
        result: Value = g.op("Div", g.range(0, count), g.ints(repeats[0]))
        return result
    rows = len(repeats) if not isinstance(size, int) else size
    if len(repeats) not in (1, rows):
        raise UnsupportedParameter(f"{len(repeats)} repeats are given for {rows} elements", where=g.where)
    g.afford(sum(repeats) if len(repeats) > 1 else rows * repeats[0])
    return g.ints([int(i) for i in np.repeat(np.arange(rows), repeats if len(repeats) > 1 else repeats[0])])


def _computed_rows(g: Builder, repeats: Value, size: int | Value, output_size: int | None) -> Value:
    """Row i as often as repeats[i]: the i of every pair (i, j) with j < repeats[i], in order."""
    if repeats.rank > 1:
        raise UnsupportedParameter("repeats has more than one axis", where=g.where)
    counts = g.cast(repeats if repeats.rank else g.reshape(repeats, [1]), TensorProto.INT64)
    if counts.size(0) is None or counts.size(0) != size:
        # One number serves every element.
        counts = g.expand(counts, [size])
    # A 0 more, so that there is a largest of none, too.
    most = g.reduce_max(g.concat([counts, g.ints([0])], axis=0), [0], keepdims=False)
    pairs = g.less(g.unsqueeze(g.range(0, most), [0]), g.unsqueeze(counts, [1]))
    rows = g.gather(g.op("NonZero", pairs), 0, axis=0)
    return rows if output_size is None else g.retyped(rows, (output_size,))


def _typed(g: Builder, made: Value, x: Value, axis: int) -> Value:
    """The sizes of the other axes are those of ``x``, by name too."""
    shape = list(x.shape)
    shape[axis] = made.shape[axis]
    return g.retyped(made, shape)
