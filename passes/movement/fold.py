"""Columns of sliding blocks added up to an image (col2im)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from passes.movement._data import known, pair
from passes.movement.pixel import shuffle
from passes.movement.unfold import Window
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rewriter.placeholder import Builder, Ints, Value

_COL2IM = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})


class Fold(Placeholder):
    """(N, C·kh·kw, L) → (N, C, H, W), overlapping blocks added up; the meaning of `torch.nn.functional.fold`."""

    matches = ("Fold", "Col2Im", "aten::col2im")
    shapes = "x: N CK L | CK L"
    aliases = {  # noqa: RUF012
        "kernel": "kernel_size",
        "strides": "stride",
        "dilations": "dilation",
        "image_shape": "output_size",
    }

    def reference(
        self,
        x: Any,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = (1,),
        padding: Any = (0,),
        stride: Any = (1,),
    ) -> Any:
        import torch

        both = [
            (p, p) if isinstance(p, int) else (p[0], p[-1])
            for p in (output_size, kernel_size, dilation, padding, stride)
        ]
        return torch.nn.functional.fold(x, *both)

    def infer(self, x: Value, output_size: Ints, kernel_size: Ints, **_: Any) -> Any:
        if x.type is None or x.type.shape is None or x.rank not in (2, 3):
            return None
        *n, rows, _columns = x.shape
        block = kernel_size[0] * kernel_size[-1]
        c = rows // block if isinstance(rows, int) and block else None
        return x.type.with_shape((*n, c, output_size[0], output_size[-1]))

    @decomposition(
        opset=18,
        portable=False,
        requires=lambda x, **_: x.dtype in _COL2IM,
        reason="onnxruntime's own kernel",
    )
    def col2im(
        self,
        g: Builder,
        x: Value,
        output_size: Ints,
        kernel_size: Ints,
        dilation: Ints = (1,),
        padding: Ints = (0,),
        stride: Ints = (1,),
    ) -> Value:
        size, window, _ = _checked(g, x, output_size, kernel_size, dilation, padding, stride)
        batch = g.unsqueeze(x, [0]) if x.rank == 2 else x
        image: Value = g.op(
            "Col2Im",
            batch,
            g.ints(size),
            g.ints(window.kernel),
            dilations=list(window.dilation),
            pads=[*window.padding, *window.padding],
            strides=list(window.stride),
        )
        return g.squeeze(image, [0]) if x.rank == 2 else image

    # Twice the time of Col2Im, a third of added tiles'.
    @decomposition(
        requires=lambda output_size, kernel_size, dilation, padding, stride, **_: _blocks_meet(
            output_size, kernel_size, dilation, padding, stride
        ),
        reason="blocks that neither overlap nor leave gaps: nothing to add up",
    )
    def shuffle(
        self,
        g: Builder,
        x: Value,
        output_size: Ints,
        kernel_size: Ints,
        dilation: Ints = (1,),
        padding: Ints = (0,),
        stride: Ints = (1,),
    ) -> Value:
        _, window, counts = _checked(g, x, output_size, kernel_size, dilation, padding, stride)
        c = _channels(g, x, window)
        n = [] if x.rank == 2 else [g.dim(x, 0)]
        return shuffle(g, x, [*n, c], counts, window.kernel)

    # Axis by axis: kh + kw terms instead of kh·kw.
    @decomposition()
    def added_tiles(
        self,
        g: Builder,
        x: Value,
        output_size: Ints,
        kernel_size: Ints,
        dilation: Ints = (1,),
        padding: Ints = (0,),
        stride: Ints = (1,),
    ) -> Value:
        size, window, counts = _checked(g, x, output_size, kernel_size, dilation, padding, stride)
        sizes, block = known(x.shape), [*window.kernel, *counts]
        blocks = g.reshape(x, [-1 if sizes is None else math.prod(sizes) // math.prod(block), *block])
        # (N·C, kh, kw, oh, ow) → (N·C, kh, oh, W) → (N·C, H, W)
        rows = _overlap(g, blocks, window, 1, size[1], kernel_axis=2, axis=4)
        image = _overlap(g, rows, window, 0, size[0], kernel_axis=1, axis=2)
        n = [] if x.rank == 2 else [g.dim(x, 0)]
        return g.reshape(image, [*n, _channels(g, x, window), *size])

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 12, 4), output_size=[4, 3], kernel_size=[3, 2])
        yield Case(f32(2, 18, 9), output_size=[3, 3], kernel_size=[3], padding=[1])
        yield Case(
            f32(1, 6, 9),
            output_size=[7, 6],
            kernel_size=[3, 2],
            dilation=[2, 1],
            padding=[1, 2],
            stride=[2, 3],
        )
        yield Case(f32(1, 9, 6), output_size=[6, 7], kernel_size=[3], stride=[2], padding=[0])
        yield Case(f32(1, 4, 9), output_size=[8, 8], kernel_size=[2], stride=[4], padding=[1])
        yield Case(f32(8, 6), output_size=[4, 6], kernel_size=[2], stride=[2])
        yield Case(f32(2, 12, 4), output_size=[4, 6], kernel_size=[2, 3], stride=[2, 3])
        yield Case(f32(1, 2, 4), output_size=[1, 1], kernel_size=[1, 2], padding=[1], stride=[2, 1])
        # ∞ stays where it is.
        yield Case(
            f32(1, 4, 2, value=(float("inf"), 1.0, 2.0, 3.0, float("nan"), 0.0, -0.0, float("-inf"))),
            output_size=[2, 3],
            kernel_size=[2],
            dtypes=("float32",),
        )
        yield Case(f32(0, 4, 2), output_size=[2, 3], kernel_size=[2], symbolic=False, reason=_EMPTY)


_EMPTY = "below opset 14 a Reshape cannot make an axis that is empty at run time only"


def _blocks_meet(size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> bool:
    """Whether the blocks lie side by side and cover the image."""
    (kh, kw), (h, w) = (kernel[0], kernel[-1]), (size[0], size[-1])
    return (
        (stride[0], stride[-1]) == (kh, kw)
        and min(kh, kw) >= 1
        and h % kh == w % kw == 0
        and (set(dilation) == {1} or kh == kw == 1)
        and set(padding) == {0}
    )


def _checked(
    g: Builder, x: Value, output_size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> tuple[tuple[int, int], Window, tuple[int, int]]:
    """Sizes of the image, the window, and its positions in both directions."""
    size = pair(g, "output_size", output_size)
    window = Window.of(g, kernel, dilation, padding, stride)
    counts = (window.count(size[0], 0) or 0, window.count(size[1], 1) or 0)
    if x.rank not in (2, 3):
        raise UnsupportedParameter(
            f"a tensor of rank {x.rank} is given",
            where=g.where,
            remedy="it is (N, C·kh·kw, L) or (C·kh·kw, L)",
        )
    places, rows = x.size(-1), x.size(-2)
    if min(counts) < 1 or places not in (None, math.prod(counts)):
        raise UnsupportedParameter(
            f"{places} columns are given, an image of {size} has {counts[0]}·{counts[1]} blocks",
            where=g.where,
        )
    if rows is not None and rows % math.prod(window.kernel):
        raise UnsupportedParameter(
            f"{rows} rows are no multiple of a block of {window.kernel}", where=g.where
        )
    return size, window, counts


def _channels(g: Builder, x: Value, window: Window) -> int | Value:
    rows, block = g.dim(x, -2), math.prod(window.kernel)
    if isinstance(rows, int):
        return rows // block
    result: Value = g.op("Div", rows, g.ints([block]))
    return result


def _overlap(
    g: Builder, t: Value, window: Window, which: int, size: int, *, kernel_axis: int, axis: int
) -> Value:
    """The axis of the block's elements and the axis of its places, which is behind it, as one axis of the image."""
    kernel, dilation, padding, stride = (
        p[which] for p in (window.kernel, window.dilation, window.padding, window.stride)
    )
    count = int(t.shape[axis] or 0)
    if stride == 1:
        pieces = [
            _placed(g, t, i * dilation - padding, size, axis, lone=(kernel_axis, i)) for i in range(kernel)
        ]
        return _sum(pieces) or _nothing(
            g, g.squeeze(g.slice(t, [0], [1], [kernel_axis]), [kernel_axis]), size, axis - 1
        )
    if dilation > 1:
        # The block with its gaps: the element behind the last is 0.
        gaps = [kernel] * ((kernel - 1) * dilation + 1)
        gaps[::dilation] = list(range(kernel))
        before = [0] * t.rank
        t = g.gather(g.pad(t, before, [int(i == kernel_axis) for i in range(t.rank)]), gaps, kernel_axis)
        kernel = len(gaps)
    order = [i for i in range(t.rank) if i != kernel_axis]
    order.insert(axis, kernel_axis)
    t = g.transpose(t, order)
    merged = [int(d) if isinstance(d, int) else -1 for d in t.shape]
    merged[axis - 1 : axis + 1] = [count * stride]
    pieces = []
    for start in range(0, kernel, stride):
        # As much of each block as is moved by at once: these do not overlap.
        part = g.slice(t, [start], [min(start + stride, kernel)], [axis]) if kernel > stride else t
        lacking = start + stride - min(start + stride, kernel)
        if lacking:
            part = g.pad(part, [0] * t.rank, [lacking if i == axis else 0 for i in range(t.rank)])
        pieces.append(_placed(g, g.reshape(part, merged), start - padding, size, axis - 1))
    return _sum(pieces) or _nothing(g, g.reshape(part, merged), size, axis - 1)


def _placed(
    g: Builder,
    t: Value,
    offset: int,
    size: int,
    axis: int,
    lone: tuple[int, int] | None = None,
) -> Value | None:
    """``t`` from ``offset`` on along an axis of ``size``, 0 around it; of ``lone`` axis, that element only."""
    length = int(t.shape[axis] or 0)
    start, end = max(0, -offset), min(length, size - offset)
    if start >= end:
        # Nothing of it is in the image.
        return None
    starts, ends, axes = ([start], [end], [axis]) if (start, end) != (0, length) else ([], [], [])
    if lone is not None:
        starts, ends, axes = [*starts, lone[1]], [*ends, lone[1] + 1], [*axes, lone[0]]
    part = g.slice(t, starts, ends, axes) if axes else t
    if lone is not None:
        part, axis = g.squeeze(part, [lone[0]]), axis - 1
    before, after = [0] * part.rank, [0] * part.rank
    before[axis] = max(offset, 0)
    after[axis] = size - before[axis] - (end - start)
    return g.pad(part, before, after)


def _sum(pieces: Sequence[Value | None]) -> Value | None:
    total: Value | None = None
    for piece in pieces:
        if piece is not None:
            total = piece if total is None else total + piece
    return total


def _nothing(g: Builder, t: Value, size: int, axis: int) -> Value:
    """Zeros along an axis of which the image sees no block at all."""
    before = [size if i == axis else 0 for i in range(t.rank)]
    return g.slice(g.pad(t, before, [0] * t.rank), [0], [size], [axis])
