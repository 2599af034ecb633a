"""Sliding blocks of an image as columns (im2col)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from passes.movement._data import EXACT, MOVED, carried, known, lacks_pad, pair
from passes.movement.pixel import KERNELS, unshuffle_by_space_to_depth
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32
from rewriter.placeholder.contract import COMMON_DOMAINS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Ints, Value
    from rewriter.types import Dim

_END = np.iinfo(np.int64).max
#: Larger tables of indices would weigh more in the file than the operators that they save.
_MOST_ROWS = 1 << 16


class Unfold(Placeholder):
    """(N, C, H, W) → (N, C·kh·kw, L), a column for each position of the block; `torch.nn.functional.unfold`.

    Not `aten::unfold`, which is `Tensor.unfold`: sliding windows of one axis.
    """

    matches = ("Unfold", "Im2Col", "aten::im2col")
    shapes = "x: N C H W | C H W"
    domains = tuple(d for d in COMMON_DOMAINS if d not in ("aten", "org.pytorch.aten"))
    # Of `Tensor.unfold` the parameters must not be taken for ours, even where this pass is asked for by name.
    schemas = {"aten::unfold": ("x",)}  # noqa: RUF012
    aliases = {"kernel": "kernel_size", "strides": "stride", "dilations": "dilation"}  # noqa: RUF012
    dtypes = MOVED
    tolerances = EXACT

    def reference(
        self, x: Any, kernel_size: Any, dilation: Any = (1,), padding: Any = (0,), stride: Any = (1,)
    ) -> Any:
        import torch

        # There are kernels for floats only; every int and bool is a float64 exactly, up to 2^53.
        wide = x if x.dtype.is_floating_point else x.double()
        both = [_twice(p) for p in (kernel_size, dilation, padding, stride)]
        return torch.nn.functional.unfold(wide, *both).to(x.dtype)

    def infer(
        self, x: Value, kernel_size: Ints, dilation: Ints = (1,), padding: Ints = (0,), stride: Ints = (1,)
    ) -> Any:
        if x.type is None or x.type.shape is None or x.rank not in (3, 4):
            return None
        *n, c, h, w = x.shape
        window = Window.plain(kernel_size, dilation, padding, stride)
        columns = c * math.prod(window.kernel) if isinstance(c, int) else None
        counts = known([window.count(size, i) for i, size in enumerate((h, w))])
        return x.type.with_shape((*n, columns, None if counts is None else math.prod(counts)))

    @decomposition(
        when=lambda **_: True,
        requires=lambda x, kernel_size, dilation, padding, stride: _blocks_meet(
            x, kernel_size, dilation, padding, stride
        ),
        reason="blocks that neither overlap nor leave gaps: SpaceToDepth",
    )
    def space_to_depth(
        self,
        g: Builder,
        x: Value,
        kernel_size: Ints,
        dilation: Ints = (1,),
        padding: Ints = (0,),
        stride: Ints = (1,),
    ) -> Value:
        window = Window.of(g, kernel_size, dilation, padding, stride)
        batch, size = window.batch(g, x), kernel_size[0]
        # A rest that no block covers.
        sizes = {i: int(batch.shape[i] or 0) for i in (2, 3)}
        axes = [i for i, d in sizes.items() if d % size]
        if axes:
            batch = g.slice(batch, [0] * len(axes), [sizes[i] // size * size for i in axes], axes)
        return window.columns(g, unshuffle_by_space_to_depth(g, batch, size), x)

    # Instead of kh·kw slices.
    @decomposition(
        when=lambda **_: True,
        requires=lambda x, kernel_size, dilation, padding, stride: (
            _row_table(x, kernel_size, dilation, padding, stride) is not None
        ),
        reason="one Gather of rows",
    )
    def rows(
        self,
        g: Builder,
        x: Value,
        kernel_size: Ints,
        dilation: Ints = (1,),
        padding: Ints = (0,),
        stride: Ints = (1,),
    ) -> Value:
        table = _row_table(x, kernel_size, dilation, padding, stride)
        assert table is not None
        window = Window.of(g, kernel_size, dilation, padding, stride)
        # (N, C, kw·H, ow): the image once for each column of the block, shifted.
        shifted = g.concat(window.slices(g, window.batch(g, x), 1), axis=2)
        return window.columns(g, g.gather(shifted, table, axis=2), x)

    @decomposition()
    def slices(
        self,
        g: Builder,
        x: Value,
        kernel_size: Ints,
        dilation: Ints = (1,),
        padding: Ints = (0,),
        stride: Ints = (1,),
    ) -> Value:
        window = Window.of(g, kernel_size, dilation, padding, stride)
        across = g.concat([g.unsqueeze(s, [2]) for s in window.slices(g, window.batch(g, x), 1)], axis=2)
        # (N, C, kh, kw, oh, ow)
        blocks = g.concat([g.unsqueeze(s, [2]) for s in window.slices(g, across, 0)], axis=2)
        return window.columns(g, blocks, x)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 4, 5), kernel_size=[3, 2])
        yield Case(f32(1, 2, 5, 6), kernel_size=[3], padding=[1])
        yield Case(f32(1, 2, 7, 6), kernel_size=[3, 2], dilation=[2, 1], padding=[1, 2], stride=[2, 3])
        yield Case(f32(2, 4, 5), kernel_size=[2], stride=[2])
        # Blocks side by side, and a rest that no block covers.
        yield Case(f32(2, 3, 4, 6), kernel_size=[2, 2], stride=[2])
        yield Case(f32(1, 1, 7, 8), kernel_size=[3], stride=[3], dtypes=("float32", "int64"))
        yield Case(f32(1, 2, 3, 3), kernel_size=[1])
        yield Case(f32(1, 2, 3, 4), kernel_size=[3, 4])
        yield Case(f32(0, 2, 3, 3), kernel_size=[2])
        yield Case(
            f32(1, 1, 2, 3, value=(float("inf"), float("nan"), -0.0, 1.0, float("-inf"), 2.0)),
            kernel_size=[2, 2],
            padding=[1],
            dtypes=("float32",),
        )


@dataclass(frozen=True)
class Window:
    """A block and how it moves, each as (height, width)."""

    kernel: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]
    stride: tuple[int, int]

    @classmethod
    def of(cls, g: Builder, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Window:
        return cls(
            pair(g, "kernel_size", kernel),
            pair(g, "dilation", dilation),
            pair(g, "padding", padding, least=0),
            pair(g, "stride", stride),
        )

    @classmethod
    def plain(cls, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Window:
        """Unchecked."""
        return cls(*((p[0], p[-1]) for p in (kernel, dilation, padding, stride)))

    def count(self, size: Dim, axis: int) -> int | None:
        """Positions along the height (0) or width (1) of a given size."""
        if not isinstance(size, int):
            return None
        reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        return (size + 2 * self.padding[axis] - reach) // self.stride[axis] + 1

    def batch(self, g: Builder, x: Value) -> Value:
        """(N, C, H, W), padded."""
        if x.rank not in (3, 4):
            raise UnsupportedParameter(
                f"a tensor of rank {x.rank} is given", where=g.where, remedy="it is (N, C, H, W) or (C, H, W)"
            )
        for axis in (0, 1):
            count = self.count(x.shape[axis - 2], axis)
            if count is not None and count < 1:
                raise UnsupportedParameter(
                    f"a block of {self.kernel} does not fit an image of {list(x.shape[-2:])}", where=g.where
                )
        image = g.unsqueeze(x, [0]) if x.rank == 3 else x
        if not any(self.padding):
            return image
        around = [0, 0, *self.padding]
        return carried(g, image, lacks_pad(g), lambda data: g.pad(data, around, around))

    def slices(self, g: Builder, x: Value, axis: int) -> list[Value]:
        """What each row (0) or column (1) of the block sees."""
        at = x.rank - 2 + axis
        size = x.size(at)
        made = []
        for i in range(self.kernel[axis]):
            start, behind = i * self.dilation[axis], (self.kernel[axis] - 1 - i) * self.dilation[axis]
            # Right for every length without arithmetic on it: what the rest of the block covers is left over.
            end = size - behind if size is not None else -behind or _END
            made.append(g.slice(x, [start], [end], [at], [self.stride[axis]]))
        return made

    def columns(self, g: Builder, blocks: Value, x: Value) -> Value:
        """(N, C, …) with all of the blocks behind, as (N, C·kh·kw, L); without the first axis as ``x`` is."""
        lone = x.rank == 3
        c = g.dim(x, -3)
        rows = g.product([c, math.prod(self.kernel)])
        counts = known([self.count(size, i) for i, size in enumerate(x.shape[-2:])])
        places: int | Value = -1
        if counts is not None:
            places = math.prod(counts)
        elif not lone and not x.size(0):
            # What is left (-1) is not defined of an empty batch.
            places = g.product([g.dim(blocks, -2), g.dim(blocks, -1)])
        if lone:
            return g.reshape(blocks, [rows, places])
        n = x.size(0)
        if n is None and isinstance(rows, int) and isinstance(places, int):
            return g.reshape_keeping(blocks, [0, rows, places])
        return g.reshape(blocks, [g.dim(x, 0), rows, places])


def _twice(parameter: Any) -> tuple[int, int]:
    return (parameter, parameter) if isinstance(parameter, int) else (parameter[0], parameter[-1])


def _blocks_meet(x: Value, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> bool:
    """Whether square blocks lie side by side, in an image of known size."""
    return (
        x.rank in (3, 4)
        and x.dtype in KERNELS
        and known(x.shape[-3:]) is not None
        and 0 not in x.shape
        and len(set(kernel)) == 1
        and set(stride) == set(kernel)
        and (set(dilation) == {1} or set(kernel) == {1})
        and set(padding) == {0}
    )


def _row_table(x: Value, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> list[int] | None:
    """Row of the shifted images that each row of the result is: (kh, kw, oh), where the sizes are known."""
    sizes = known(x.shape[-2:]) if x.rank in (3, 4) else None
    if sizes is None or min(*kernel, *dilation, *stride) < 1:
        return None
    window = Window.plain(kernel, dilation, padding, stride)
    count = window.count(sizes[0], 0)
    if count is None or count < 1 or count * math.prod(window.kernel) > _MOST_ROWS:
        return None
    (kh, kw), tall = window.kernel, sizes[0] + 2 * window.padding[0]
    down = np.arange(kh)[:, None, None] * window.dilation[0]
    across = np.arange(kw)[None, :, None] * tall
    places = np.arange(count)[None, None, :] * window.stride[0]
    return [int(i) for i in (down + across + places).reshape(-1)]
