"""Shifts with a fill, and shifts side by side, as speech and video models have them.

`time_shift`
    One shift along one axis. What moves in from outside is the fill: no wrapping around, unlike `roll`.
`shift_concat`
    Several shifts of `x`, concatenated: the input of a time-delay network.
`splice_frames`
    `shift_concat` in Kaldi's terms (`splice-feats`, src/feat/feature-functions.cc `SpliceFrames`): left and right
    context around each frame, the oldest first, where the first and the last frame stand for those outside.
`temporal_shift`
    The shift module of TSM (Lin et al., 2019, arXiv:1811.08383, `ops/temporal_shift.py`): of (N·T, C, H, W) one share
    of the channels comes from the next frame, one from the previous, the others stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.movement._data import (
    EXACT,
    LONG_ROW_BYTES,
    MOVED,
    as_value,
    axis_of,
    by_signed,
    carried,
    filled,
    lacks_pad,
    row_bytes,
)
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rewriter.placeholder import Builder, Ints, Value

_END = np.iinfo(np.int64).max


class TimeShift(Placeholder):
    """y[…, t, …] = x[…, t − shift, …] along `dim`, and `value` where that is outside; positive shifts delay."""

    matches = ("TimeShift",)
    shapes = "x: ...; shift: () | 1"
    aliases = {  # noqa: RUF012
        "shifts": "shift",
        "axis": "dim",
        "fill": "value",
        "fill_value": "value",
    }
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, shift: Any, dim: int = -1, value: float = 0.0) -> Any:
        return _shifted_reference(x, int(shift), dim, "constant", value)

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    @decomposition(requires=lambda shift, **_: isinstance(shift, int))
    def pad(self, g: Builder, x: Value, shift: int | Value, dim: int = -1, value: float = 0.0) -> Value:
        assert isinstance(shift, int)
        return _shift(g, x, shift, axis_of(g, dim, x.rank), value)

    @decomposition()
    def gather(self, g: Builder, x: Value, shift: int | Value, dim: int = -1, value: float = 0.0) -> Value:
        axis = axis_of(g, dim, x.rank)
        if x.size(axis) == 0:
            return x
        given = g.ints([shift]) if isinstance(shift, int) else g.reshape(shift, [1])
        amount = g.cast(given, TensorProto.INT64)
        size = g.dim(x, axis)
        source = g.range(0, size if isinstance(size, int) else g.squeeze(size, [0])) - amount
        last = as_value(g, size) - 1
        below, above = g.less(source, 0), g.greater(source, last)
        inside = g.where_(below, g.ints([0]), g.where_(above, last, source))
        outside = g.unsqueeze(g.or_(below, above), list(range(1, x.rank - axis)))
        return filled(g, g.gather(x, inside, axis), outside, value)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 4), shift=1)
        yield Case(f32(2, 3, 4), shift=-2, dim=1)
        yield Case(f32(2, 3), shift=1, dim=0, value=1.0)
        yield Case(f32(2, 3), shift=0)
        for shift in (3, 7, -7):
            yield Case(f32(2, 3), shift=shift)
        yield Case(f32(2, 0), shift=1)
        yield Case(f32(2, 1), shift=-1)
        yield Case(
            f32(4, value=(float("inf"), float("nan"), -0.0, 1.0)), shift=1, value=2.0, dtypes=("float32",)
        )
        yield Case(f32(2, 3, 4), i64(value=2), dim=1)
        yield Case(f32(2, 3), i64(1, value=(-5,)), value=1.0)


class ShiftConcat(Placeholder):
    """`time_shift` of `x` by each of `shifts` along `dim`, concatenated along `concat_dim`.

    `mode` is "constant" (`value` outside) or "replicate" (the first and the last element of `dim`).
    """

    matches = ("ShiftConcat", "ShiftAndConcat", "ShiftConcatenate")
    shapes = "x: ..."
    aliases = {"axis": "dim", "concat_axis": "concat_dim", "fill": "value"}  # noqa: RUF012
    dtypes = MOVED
    tolerances = EXACT

    def reference(
        self,
        x: Any,
        shifts: Any,
        dim: int = -2,
        concat_dim: int = -1,
        mode: str = "constant",
        value: float = 0.0,
    ) -> Any:
        import torch

        return torch.cat([_shifted_reference(x, s, dim, mode, value) for s in shifts], concat_dim)

    def infer(self, x: Value, shifts: Ints, concat_dim: int, **_: Any) -> Any:
        return _concatenated_type(x, len(shifts), concat_dim)

    # Frames of features: whole rows move.
    @decomposition(
        when=lambda x, dim, **_: row_bytes(x, dim) >= LONG_ROW_BYTES,
        requires=lambda x, dim, concat_dim, mode, **_: _rows_apply(x, dim, concat_dim, mode),
        reason="frames are long enough for one Gather",
    )
    def one_gather(self, g: Builder, x: Value, shifts: Ints, mode: str, value: float, **_: Any) -> Value:
        return _by_gather(g, x, shifts, mode, value)

    @decomposition()
    def slices(
        self,
        g: Builder,
        x: Value,
        shifts: Ints,
        dim: int = -2,
        concat_dim: int = -1,
        mode: str = "constant",
        value: float = 0.0,
    ) -> Value:
        return _by_slices(g, x, shifts, dim, concat_dim, mode, value)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 4, 3), shifts=[1, 0, -1])
        yield Case(f32(2, 4, 16), shifts=[2, 0, -3], value=1.0)
        yield Case(f32(2, 4, 16), shifts=[1, 1], mode="replicate")
        yield Case(f32(2, 4, 3), shifts=[-1, -3], mode="replicate")
        yield Case(f32(2, 3, 4), shifts=[0, 1], dim=-1, concat_dim=1)
        yield Case(f32(3, 2), shifts=[-9, 9, 0], dim=0, concat_dim=1)
        yield Case(f32(3, 2), shifts=[0], dim=0)
        yield Case(f32(0, 3, 2), shifts=[1, 2])


class SpliceFrames(Placeholder):
    """Frames t − left_context … t + right_context of (…, T, F) side by side as (…, T, (left + 1 + right)·F).

    Kaldi's `splice-feats`: before the first frame stands the first, behind the last one the last.
    """

    matches = ("SpliceFrames", "Splice", "SpliceFeats")
    shapes = "x: ..."
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, left_context: int = 4, right_context: int = 4) -> Any:
        import torch

        last = x.shape[-2] - 1
        frames = torch.arange(x.shape[-2])
        parts = [
            x[..., (frames + offset).clamp(0, last), :] for offset in range(-left_context, right_context + 1)
        ]
        return torch.cat(parts, -1)

    def infer(self, x: Value, left_context: int = 4, right_context: int = 4) -> Any:
        return _concatenated_type(x, left_context + 1 + right_context, -1)

    @decomposition(
        when=lambda x, **_: row_bytes(x, -2) >= LONG_ROW_BYTES,
        requires=lambda x, **_: _rows_apply(x, -2, -1, "replicate"),
        reason="frames are long enough for one Gather",
    )
    def one_gather(self, g: Builder, x: Value, left_context: int = 4, right_context: int = 4) -> Value:
        return _by_gather(g, x, _context(g, left_context, right_context), "replicate", 0.0)

    @decomposition()
    def slices(self, g: Builder, x: Value, left_context: int = 4, right_context: int = 4) -> Value:
        return _by_slices(g, x, _context(g, left_context, right_context), -2, -1, "replicate", 0.0)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 5, 3), left_context=1, right_context=2)
        yield Case(f32(2, 5, 16), left_context=2, right_context=0)
        yield Case(f32(6, 3))
        yield Case(f32(1, 2, 3), left_context=0, right_context=0)
        yield Case(f32(1, 16), left_context=2, right_context=1)


class TemporalShift(Placeholder):
    """Of (N·T, C, …) the first C/fold_div channels from the next frame, as many from the previous, the rest as is."""

    matches = ("TemporalShift",)
    shapes = "x: NT C ..."
    aliases = {"num_segments": "n_segment", "shift_div": "fold_div"}  # noqa: RUF012
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, n_segment: int, fold_div: int = 8) -> Any:
        import torch

        frames = x.reshape(-1, n_segment, *x.shape[1:])
        fold = x.shape[1] // fold_div
        out = torch.zeros_like(frames)
        out[:, :-1, :fold] = frames[:, 1:, :fold]
        out[:, 1:, fold : 2 * fold] = frames[:, :-1, fold : 2 * fold]
        out[:, :, 2 * fold :] = frames[:, :, 2 * fold :]
        return out.reshape(x.shape)

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    def decompose(self, g: Builder, x: Value, n_segment: int, fold_div: int = 8) -> Value:
        channels = x.size(1) if x.rank > 1 else None
        if channels is None or n_segment < 1 or fold_div < 1:
            raise UnsupportedParameter(
                f"n_segment is {n_segment}, fold_div {fold_div}, and the number of channels "
                f"{'unknown' if channels is None else channels}",
                where=g.where,
                remedy="all three must be known, and positive",
            )
        fold = channels // fold_div
        if fold == 0:
            return x
        shape = [g.dim(x, i) for i in range(x.rank)]
        many = x.size(0)
        if many is not None and many % n_segment:
            raise UnsupportedParameter(f"{many} frames are no multiple of {n_segment}", where=g.where)
        # (N, T, C, H·W): as few axes as tell the frames and the channels apart.
        inner = g.product(shape[2:])
        frames = g.reshape(x, [-1 if many is None else many // n_segment, n_segment, channels, inner])
        ends = [0, fold, min(2 * fold, channels), channels]
        parts = []
        for shift, start, end in zip((-1, 1, 0), ends, ends[1:], strict=False):
            if start < end:
                part = g.slice(frames, [start], [end], [2])
                parts.append(_shift(g, part, shift, 1, 0.0) if shift else part)
        return g.reshape(g.concat(parts, 2), shape)

    def cases(self) -> Iterator[Case]:
        reason = "the number of channels must be known"
        yield Case(f32(6, 8, 2, 2), n_segment=3, fold_div=4, symbolic=False, reason=reason)
        yield Case(f32(4, 8, 1, 2), n_segment=2, symbolic=False, reason=reason)
        yield Case(f32(2, 3, 2), n_segment=1, fold_div=1, symbolic=False, reason=reason)
        yield Case(f32(2, 3, 2, 2), n_segment=2, symbolic=False, reason=reason)


def _shifted_reference(x: Any, shift: int, dim: int, mode: str, value: float) -> Any:
    import torch

    size = x.shape[dim]
    source = torch.arange(size) - shift
    moved = by_signed(x, lambda data: data.index_select(dim, source.clamp(0, max(size - 1, 0))))
    if mode == "replicate":
        return moved
    shape = [1] * x.dim()
    shape[dim] = size
    outside = ((source < 0) | (source >= size)).reshape(shape)
    return by_signed(moved, lambda data: data.masked_fill(outside, value))


def _shift(g: Builder, x: Value, shift: int, axis: int, value: float) -> Value:
    size = x.size(axis)
    if shift == 0 or size == 0:
        return x
    before, after = [0] * x.rank, [0] * x.rank
    (before if shift > 0 else after)[axis] = abs(shift)

    def padded(data: Value) -> Value:
        return carried(
            g, data, lacks_pad(g), lambda d: g.pad(d, before, after, value=value if value != 0.0 else None)
        )

    if size is not None and abs(shift) < size:
        kept = ([0], [size - shift]) if shift > 0 else ([-shift], [size])
        return padded(g.slice(x, *kept, [axis]))
    # Padded first, it is right for an axis shorter than the shift, too.
    start, end = ([0], [-shift]) if shift > 0 else ([-shift], [_END])
    if size is not None:
        start, end = ([0], [size]) if shift > 0 else ([-shift], [size - shift])
    return g.retyped(g.slice(padded(x), start, end, [axis]), x.shape)


def _context(g: Builder, left: int, right: int) -> tuple[int, ...]:
    if left < 0 or right < 0:
        raise UnsupportedParameter(f"the context is ({left}, {right}): negative", where=g.where)
    g.afford(left + right + 1)
    return tuple(range(left, -right - 1, -1))


def _rows_apply(x: Value, dim: int, concat_dim: int, mode: str) -> bool:
    """Whether the axis of the features follows that of the frames, both of known size and at the end."""
    return (
        x.rank >= 2
        and dim % x.rank == x.rank - 2
        and concat_dim % x.rank == x.rank - 1
        and x.size(-1) is not None
        and (x.size(-2) or 0) > 0
        and 0 not in x.shape
        and mode in ("constant", "replicate")
    )


def _by_gather(g: Builder, x: Value, shifts: Sequence[int], mode: str, value: float) -> Value:
    """(…, T, F) → (…, T, k, F) by whole frames, and the last two as one."""
    frames, features = int(x.shape[-2] or 0), int(x.shape[-1] or 0)
    source = np.arange(frames)[:, None] - np.asarray(shifts)[None, :]
    if mode == "constant":
        # The fill is a frame of its own, behind the last.
        source = np.where((source < 0) | (source >= frames), frames, source)
        if (source == frames).any():
            before, after = [0] * x.rank, [0] * (x.rank - 2) + [1, 0]
            x = carried(g, x, lacks_pad(g), lambda d: g.pad(d, before, after, value=value if value else None))
    else:
        source = np.clip(source, 0, frames - 1)
    moved = g.gather(x, [int(i) for i in source.reshape(-1)], x.rank - 2)
    leading = [d if isinstance(d, int) else 0 for d in x.shape[:-2]]
    return g.reshape_keeping(moved, [*leading, frames, len(shifts) * features])


def _by_slices(
    g: Builder, x: Value, shifts: Sequence[int], dim: int, concat_dim: int, mode: str, value: float
) -> Value:
    axis, joined = axis_of(g, dim, x.rank), axis_of(g, concat_dim, x.rank, "concat_dim")
    if mode not in ("constant", "replicate") or not shifts:
        raise UnsupportedParameter(
            f"shifts are {list(shifts)}, mode is '{mode}'",
            where=g.where,
            remedy="there is at least one shift, and the mode is constant or replicate",
        )
    size = x.size(axis)
    if size is not None:
        # What is farther away than the axis is long is all outside.
        shifts = [max(min(s, size), -size) for s in shifts]
    first, last = max(0, *shifts), max(0, *(-s for s in shifts))
    before, after = [0] * x.rank, [0] * x.rank
    before[axis], after[axis] = first, last

    def padded(data: Value) -> Value:
        if mode == "replicate":
            return g.pad(data, before, after, mode="edge")
        return g.pad(data, before, after, value=value if value else None)

    wide = x if size == 0 else carried(g, x, lacks_pad(g), padded)
    parts = []
    for shift in shifts:
        start, behind = first - shift, last + shift
        end = start + size if size is not None else -behind or _END
        parts.append(wide if (start, behind) == (0, 0) else g.slice(wide, [start], [end], [axis]))
    return g.concat(parts, joined)


def _concatenated_type(x: Value, count: int, concat_dim: int) -> Any:
    if x.type is None or x.type.shape is None or not -x.rank <= concat_dim < x.rank:
        return None
    shape = list(x.type.shape)
    size = shape[concat_dim]
    shape[concat_dim] = size * count if isinstance(size, int) else size if count == 1 else None
    return x.type.with_shape(tuple(shape))
