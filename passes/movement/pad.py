"""Padding in PyTorch's four modes, with pads in its order: the last axis first, and negative ones crop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.movement._data import EXACT, MOVED, as_value, carried, filled, item_bytes, lacks_pad
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Ints, Value

#: PyTorch's modes and ONNX's.
_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
_KNOWN_MODES = "it is constant, reflect, replicate or circular"
_END = np.iinfo(np.int64).max


class Pad(Placeholder):
    """`x` with `pad` elements more at both ends of its last axes; the meaning of `torch.nn.functional.pad`."""

    matches = ("Pad", "ConstantPad", "ConstantPadNd", "aten::pad", "aten::constant_pad_nd")
    shapes = "x: ...; pad: _"
    aliases = {"padding": "pad"}  # noqa: RUF012
    schemas = {"aten::constant_pad_nd": ("x", "pad", "value")}  # noqa: RUF012
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
        return _reference(x, pad, mode, value)

    def infer(self, x: Value, pad: Ints | Value, **_: Any) -> Any:
        return _padded_type(x, pad)

    @decomposition(requires=lambda pad, **_: isinstance(pad, tuple))
    def known(
        self, g: Builder, x: Value, pad: Ints | Value, mode: str = "constant", value: float | None = None
    ) -> Value:
        if mode == "circular":
            return _circular_by_copies(g, x, pad)
        return _by_operator(g, x, pad, mode, value)

    @decomposition(
        opset=19,
        portable=False,
        when=lambda x, **_: _wraps_fast(x),
        requires=lambda x, pad, mode, **_: mode == "circular" and _can_wrap(x, pad),
        reason="Pad(wrap): half the time of copies for rows of at least 128 bytes",
    )
    def wrap(
        self, g: Builder, x: Value, pad: Ints | Value, mode: str = "constant", value: float | None = None
    ) -> Value:
        return _by_operator(g, x, pad, mode, value)

    # Some runtimes must know the pads of Pad.
    @decomposition(
        portable=False,
        requires=lambda pad, mode, **_: not isinstance(pad, tuple) and mode == "constant",
    )
    def computed(self, g: Builder, x: Value, pad: Ints | Value, value: float | None, **_: Any) -> Value:
        return _by_computed_pads(g, x, pad, value)

    @decomposition(requires=lambda pad, **_: not isinstance(pad, tuple))
    def gather(
        self, g: Builder, x: Value, pad: Ints | Value, mode: str = "constant", value: float | None = None
    ) -> Value:
        return _by_gather(g, x, pad, mode, value)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 4, 5), pad=[1, 2, 3, 0])
        yield Case(f32(2, 3), pad=[0, 1, 2, 0], value=-1.5, dtypes=("float16", "float32"))
        yield Case(f32(2, 3), pad=[1, 0], value=float("-inf"), dtypes=("float32",))
        # Negative pads crop.
        yield Case(f32(4, 5), pad=[-1, 2, -1, -2], value=1.0)
        yield Case(f32(4, 5), pad=[-5, 0])
        yield Case(f32(2, 3), pad=[])
        yield Case(f32(0, 3), pad=[1, 1])
        yield Case(f32(3, value=(float("inf"), float("nan"), -0.0)), pad=[1, 1], dtypes=("float32",))
        yield Case(f32(1, 2, 4, 5), pad=[1, 2, 3, -1], mode="reflect")
        yield Case(f32(1, 2, 4, 5), pad=[1, 2, 3, -1], mode="replicate")
        yield Case(f32(1, 2, 4, 5), pad=[1, 2, 3, -1], mode="circular")
        # Pads that are computed: how a network pads to a multiple of its window.
        yield Case(f32(2, 3, 4), i64(2, value=(1, 2)))
        yield Case(f32(2, 3, 4), i64(4, value=(0, 2, 1, -1)), value=2.0)
        yield Case(f32(1, 2, 3), i64(2, value=(-1, 1)), mode="reflect")


class CircularPad(Placeholder):
    """`x` repeated periodically at both ends of its last axes; `torch.nn.CircularPad1d` to `3d`."""

    matches = ("CircularPad", "CircularPad1d", "CircularPad2d", "CircularPad3d", "aten::_pad_circular")
    shapes = "x: ...; pad: _"
    aliases = {"padding": "pad"}  # noqa: RUF012
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, pad: Any) -> Any:
        return _reference(x, pad, "circular")

    def infer(self, x: Value, pad: Ints | Value) -> Any:
        return _padded_type(x, pad)

    @decomposition(
        opset=19,
        portable=False,
        when=lambda x, **_: _wraps_fast(x),
        requires=lambda x, pad: _can_wrap(x, pad),
        reason="Pad(wrap): half the time of copies for rows of at least 128 bytes",
    )
    def wrap(self, g: Builder, x: Value, pad: Ints | Value) -> Value:
        return _by_operator(g, x, pad, "circular")

    @decomposition(requires=lambda pad, **_: isinstance(pad, tuple))
    def copies(self, g: Builder, x: Value, pad: Ints | Value) -> Value:
        return _circular_by_copies(g, x, pad)

    @decomposition(requires=lambda pad, **_: not isinstance(pad, tuple))
    def gather(self, g: Builder, x: Value, pad: Ints | Value) -> Value:
        return _by_gather(g, x, pad, "circular")

    def cases(self) -> Iterator[Case]:
        yield Case(f32(1, 2, 4, 5), pad=[1, 2, 3, 0])
        yield Case(f32(2, 5), pad=[2, 0])
        yield Case(f32(1, 2, 4), pad=[0, 3])
        # As much as the axis has: the most that is defined.
        yield Case(f32(1, 2, 3, 4), pad=[4, 4, 3, 3])
        yield Case(f32(1, 1, 2, 3, 4), pad=[1, 1, 1, 1, 1, 1])
        # What is cropped is not repeated.
        yield Case(f32(1, 4, 5), pad=[-1, 2])
        yield Case(f32(1, 2, 4, 5), pad=[2, -2, -1, -1])
        yield Case(f32(1, 1, 1), pad=[1, 1])
        yield Case(f32(1, 1, 3), pad=[0, 0])
        yield Case(f32(0, 2, 3), pad=[1, 1])
        yield Case(
            f32(1, 4, value=(float("inf"), float("nan"), -0.0, float("-inf"))),
            pad=[1, 2],
            dtypes=("float32",),
        )
        yield Case(f32(1, 2, 4), i64(2, value=(1, 2)))
        yield Case(f32(1, 2, 4), i64(2, value=(3, -1)))


class ReflectionPad(Placeholder):
    """`x` mirrored at both ends of its last axes, the end itself not repeated; `torch.nn.ReflectionPad1d` to `3d`."""

    matches = (
        "ReflectionPad",
        "ReflectionPad1d",
        "ReflectionPad2d",
        "ReflectionPad3d",
        "aten::reflection_pad1d",
        "aten::reflection_pad2d",
        "aten::reflection_pad3d",
    )
    shapes = "x: ...; pad: _"
    aliases = {"padding": "pad"}  # noqa: RUF012
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, pad: Any) -> Any:
        return _reference(x, pad, "reflect")

    def infer(self, x: Value, pad: Ints | Value) -> Any:
        return _padded_type(x, pad)

    @decomposition(requires=lambda pad, **_: isinstance(pad, tuple))
    def operator(self, g: Builder, x: Value, pad: Ints | Value) -> Value:
        return _by_operator(g, x, pad, "reflect")

    @decomposition(requires=lambda pad, **_: not isinstance(pad, tuple))
    def gather(self, g: Builder, x: Value, pad: Ints | Value) -> Value:
        return _by_gather(g, x, pad, "reflect")

    def cases(self) -> Iterator[Case]:
        yield from _edge_cases()
        yield Case(f32(1, 2, 4), pad=[3, 3])


class ReplicationPad(Placeholder):
    """`x` with its ends repeated on its last axes; `torch.nn.ReplicationPad1d` to `3d`."""

    matches = (
        "ReplicationPad",
        "ReplicationPad1d",
        "ReplicationPad2d",
        "ReplicationPad3d",
        "aten::replication_pad1d",
        "aten::replication_pad2d",
        "aten::replication_pad3d",
    )
    shapes = "x: ...; pad: _"
    aliases = {"padding": "pad"}  # noqa: RUF012
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, pad: Any) -> Any:
        return _reference(x, pad, "replicate")

    def infer(self, x: Value, pad: Ints | Value) -> Any:
        return _padded_type(x, pad)

    @decomposition(requires=lambda pad, **_: isinstance(pad, tuple))
    def operator(self, g: Builder, x: Value, pad: Ints | Value) -> Value:
        return _by_operator(g, x, pad, "replicate")

    @decomposition(requires=lambda pad, **_: not isinstance(pad, tuple))
    def gather(self, g: Builder, x: Value, pad: Ints | Value) -> Value:
        return _by_gather(g, x, pad, "replicate")

    def cases(self) -> Iterator[Case]:
        yield from _edge_cases()
        yield Case(f32(1, 2, 3), pad=[7, 9])
        yield Case(f32(1, 1, 1), pad=[2, 3])


def _can_wrap(x: Value, pad: Ints | Value) -> bool:
    """onnxruntime's Pad knows no mode wrap where the tensor turns out to be empty."""
    return isinstance(pad, tuple) and x.is_static and 0 not in x.shape


def _wraps_fast(x: Value) -> bool:
    return bool(x.rank) and (x.size(-1) or 0) * item_bytes(x.dtype) >= 128


def _edge_cases() -> Iterator[Case]:
    yield Case(f32(1, 2, 4, 5), pad=[1, 2, 3, 0])
    yield Case(f32(1, 2, 4), pad=[0, 3])
    yield Case(f32(2, 4), pad=[2, 0])
    yield Case(f32(1, 1, 3, 4, 5), pad=[1, 1, 2, 0, 0, 2])
    # What is cropped is mirrored or repeated all the same: it is cropped last.
    yield Case(f32(1, 4, 5), pad=[-1, 2])
    yield Case(f32(1, 2, 4, 5), pad=[2, -2, -1, -1])
    yield Case(f32(1, 1, 3), pad=[0, 0])
    yield Case(
        f32(1, 4, value=(float("inf"), float("nan"), -0.0, float("-inf"))), pad=[2, 2], dtypes=("float32",)
    )
    yield Case(f32(1, 2, 4), i64(2, value=(1, 2)))
    yield Case(f32(1, 2, 4), i64(2, value=(3, -1)))


def _reference(x: Any, pad: Any, mode: str, value: float | None = None) -> Any:
    import torch

    if isinstance(pad, torch.Tensor):
        pad = pad.reshape(-1).tolist()
    plain = [int(p) for p in pad]
    if mode == "constant" or not plain:
        return torch.nn.functional.pad(x, plain, value=value)
    if x.dtype in (torch.float32, torch.float64) or not x.dtype.is_floating_point:
        # There are kernels for floats only; every int and bool is a float64 exactly, up to 2^53.
        wide = x if x.dtype.is_floating_point else x.double()
        return _in_rank(wide, plain, mode).to(x.dtype)
    return _in_rank(x.float(), plain, mode).to(x.dtype)


def _in_rank(x: Any, pad: list[int], mode: str) -> Any:
    """PyTorch takes the modes only for as many leading axes as a layer has: one or two."""
    import torch

    if mode == "circular":
        # PyTorch gives numbers that nobody wrote where more is asked for than cropping leaves.
        for size, before, after in zip(reversed(x.shape), pad[::2], pad[1::2], strict=False):
            left = size + min(before, 0) + min(after, 0)
            if max(before, after) > left:
                raise ValueError(f"padding {before}, {after} of {left} elements")
    extra = len(pad) // 2 + 2 - x.dim()
    wide = x.reshape((1,) * max(extra, 0) + tuple(x.shape))
    made = torch.nn.functional.pad(wide, pad, mode=mode)
    return made.reshape(made.shape[max(extra, 0) :])


def _ends(g: Builder, x: Value, pad: Ints, mode: str) -> tuple[list[int], list[int]]:
    """Pads before and after each axis, checked as PyTorch does."""
    if mode not in _MODES:
        raise UnsupportedParameter(f"mode is '{mode}'", where=g.where, remedy=_KNOWN_MODES)
    if len(pad) % 2 or len(pad) > 2 * x.rank:
        raise UnsupportedParameter(
            f"{len(pad)} pads are given for a tensor of rank {x.rank}",
            where=g.where,
            remedy="two for each of the last axes, the last axis first",
        )
    before, after = [0] * x.rank, [0] * x.rank
    for i in range(len(pad) // 2):
        before[x.rank - 1 - i], after[x.rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    for axis, (left, right) in enumerate(zip(before, after, strict=True)):
        size = x.size(axis)
        if size is None or (left == 0 and right == 0):
            continue
        kept = size + min(left, 0) + min(right, 0)
        if kept < 0 or size + left + right < 0:
            raise UnsupportedParameter(
                f"pads ({left}, {right}) crop more than the {size} elements of axis {axis}", where=g.where
            )
        most = {"reflect": size - 1, "circular": kept, "replicate": None if size else 0}.get(mode)
        if most is not None and max(left, right) > most:
            raise UnsupportedParameter(
                f"pads ({left}, {right}) of axis {axis} are more than its size allows",
                where=g.where,
                remedy=f"mode {mode} pads an axis of {size} by at most {max(most, 0)}",
            )
    return before, after


def _by_operator(g: Builder, x: Value, pad: Any, mode: str, value: float | None = None) -> Value:
    before, after = _ends(g, x, pad, mode)
    added = ([max(p, 0) for p in before], [max(p, 0) for p in after])
    cropped = ([min(p, 0) for p in before], [min(p, 0) for p in after])

    def made(data: Value) -> Value:
        return g.pad(data, *added, mode=_MODES[mode], value=value)

    lacking = lacks_pad(g)
    if mode in ("constant", "circular"):
        return carried(g, _crop(g, x, *cropped), lacking, made)
    return _crop(g, carried(g, x, lacking, made), *cropped)


def _crop(g: Builder, x: Value, before: list[int], after: list[int]) -> Value:
    axes = [i for i in range(x.rank) if before[i] or after[i]]
    if not axes:
        return x
    ends = []
    for axis in axes:
        size = x.size(axis)
        ends.append(size + after[axis] if size is not None else after[axis] or _END)
    return g.slice(x, [-before[axis] for axis in axes], ends, axes)


def _circular_by_copies(g: Builder, x: Value, pad: Any) -> Value:
    before, after = _ends(g, x, pad, "circular")
    x = _crop(g, x, [min(p, 0) for p in before], [min(p, 0) for p in after])
    # The last axis first: its pieces are short, and fewer before the others have grown.
    for axis in reversed(range(x.rank)):
        parts = [x]
        size = x.size(axis)
        if before[axis] > 0:
            start, end = (-before[axis], _END) if size is None else (size - before[axis], size)
            parts.insert(0, g.slice(x, [start], [end], [axis]))
        if after[axis] > 0:
            parts.append(g.slice(x, [0], [after[axis]], [axis]))
        x = g.concat(parts, axis)
    return x


def _computed_ends(g: Builder, x: Value, pad: Any) -> tuple[Value, int]:
    """The pads as they are given, as int64, and how many they are; all that there can be where that is not known."""
    count = pad.size(0) if pad.has_rank and pad.rank == 1 else None
    if count is not None and (count % 2 or count > 2 * x.rank):
        raise UnsupportedParameter(
            f"{count} pads are given for a tensor of rank {x.rank}",
            where=g.where,
            remedy="two for each of the last axes, the last axis first",
        )
    pad = g.cast(pad, TensorProto.INT64)
    if count is None:
        # The axes in front are padded by nothing.
        count = 2 * x.rank
        pad = g.slice(g.concat([pad, g.ints([0] * count)], axis=0), [0], [count], [0])
    return pad, count


def _by_computed_pads(g: Builder, x: Value, pad: Any, value: float | None) -> Value:
    pad, count = _computed_ends(g, x, pad)
    # (last, …, first) × (before, after) as ONNX wants it: all befores, then all afters, the first axis first.
    order = [2 * i + side for side in (0, 1) for i in reversed(range(count // 2))]
    leading = g.ints([0] * (x.rank - count // 2))
    sides = g.split(g.gather(pad, order, axis=0), [count // 2] * 2, axis=0)
    ends_in_order = g.concat([leading, sides[0], leading, sides[1]], axis=0)
    lacking = lacks_pad(g)

    def made(data: Value) -> Value:
        fill = None if value is None else g.const(value, data)
        result: Value = g.op("Pad", data, ends_in_order, fill, mode="constant")
        return result

    return carried(g, x, lacking, made)


def _by_gather(g: Builder, x: Value, pad: Any, mode: str, value: float | None = None) -> Value:
    if mode not in _MODES:
        raise UnsupportedParameter(f"mode is '{mode}'", where=g.where, remedy=_KNOWN_MODES)
    pad, count = _computed_ends(g, x, pad)
    for i in range(count // 2):
        axis = x.rank - 1 - i
        before, after = (g.gather(pad, [2 * i + side], axis=0) for side in (0, 1))
        source, outside = _sources(g, as_value(g, g.dim(x, axis)), before, after, mode)
        x = g.gather(x, source, axis)
        if outside is not None:
            x = filled(g, x, g.unsqueeze(outside, list(range(1, x.rank - axis))), value or 0.0)
    return x


def _sources(g: Builder, size: Value, before: Value, after: Value, mode: str) -> tuple[Value, Value | None]:
    """Where each element of a padded axis comes from, and which come from nowhere."""
    steps = g.range(0, g.squeeze(size + before + after, [0]))
    if mode == "circular":
        # What is cropped is not repeated.
        cropped = g.where_(g.less(before, 0), -before, 0)
        kept = size - cropped + g.where_(g.less(after, 0), after, 0)
        # One turn more: runtimes disagree about the remainder of a negative number.
        return g.mod(steps - (before + cropped) + kept, kept) + cropped, None
    position, last = steps - before, size - 1
    if mode == "reflect":
        return last - g.abs(last - g.abs(position)), None
    below, above = g.less(position, 0), g.greater(position, last)
    inside = g.where_(below, g.ints([0]), g.where_(above, last, position))
    return inside, g.or_(below, above) if mode == "constant" else None


def _padded_type(x: Value, pad: Any) -> Any:
    if x.type is None or x.type.shape is None:
        return None
    shape = list(x.type.shape)
    if not isinstance(pad, tuple):
        count = pad.size(0) if pad.has_rank and pad.rank == 1 else None
        keep = 0 if count is None else max(x.rank - count // 2, 0)
        return x.type.with_shape((*shape[:keep], *[None] * (x.rank - keep)))
    for i in range(min(len(pad) // 2, len(shape))):
        axis = len(shape) - 1 - i
        change = pad[2 * i] + pad[2 * i + 1]
        size = shape[axis]
        if isinstance(size, int):
            shape[axis] = max(size + change, 0)
        elif change:
            shape[axis] = None
    return x.type.with_shape(tuple(shape))
