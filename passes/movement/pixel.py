"""Sub-pixel rearrangement: pixel_shuffle and pixel_unshuffle (Shi et al., 2016, arXiv:1609.05158)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from passes.movement._data import EXACT, MOVED, by_signed, known
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rewriter.placeholder import Builder, Value
    from rewriter.types import Dim

#: What SpaceToDepth and DepthToSpace have kernels for.
KERNELS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})


class PixelShuffle(Placeholder):
    """(…, C·r², H, W) → (…, C, H·r, W·r); the meaning of `torch.nn.functional.pixel_shuffle`."""

    matches = ("PixelShuffle", "aten::pixel_shuffle")
    shapes = "x: ... C H W"
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, upscale_factor: int) -> Any:
        import torch

        return by_signed(x, lambda data: torch.nn.functional.pixel_shuffle(data, upscale_factor))

    def infer(self, x: Value, upscale_factor: int) -> Any:
        if x.type is None or x.type.shape is None or x.rank < 3:
            return None
        r, (c, h, w) = upscale_factor, x.shape[-3:]
        return x.type.with_shape((*x.shape[:-3], _over(c, r * r), _times(h, r), _times(w, r)))

    # A 5-D Transpose moves single elements; two that move one axis each take 0.2 of its time, and 0.4 to 0.7 of
    # DepthToSpace's.
    @decomposition()
    def transposes(self, g: Builder, x: Value, upscale_factor: int) -> Value:
        _check(g, x, upscale_factor)
        r = upscale_factor
        if r == 1:
            return x
        *leading, c, h, w = (g.dim(x, i) for i in range(x.rank))
        return shuffle(g, x, [*leading, over(g, c, r * r)], (h, w), (r, r))

    @decomposition(
        when=lambda x, **_: not x.is_static,
        requires=lambda x, **_: x.rank == 4 and x.dtype in KERNELS and 0 not in x.shape,
        reason="no arithmetic on sizes",
    )
    def depth_to_space(self, g: Builder, x: Value, upscale_factor: int) -> Value:
        _check(g, x, upscale_factor)
        if upscale_factor == 1:
            return x
        result: Value = g.op("DepthToSpace", x, blocksize=upscale_factor, mode="CRD")
        return result

    def cases(self) -> Iterator[Case]:
        yield Case(f32(1, 8, 2, 3), upscale_factor=2)
        yield Case(f32(2, 18, 3, 2), upscale_factor=3)
        yield Case(f32(1, 4, 1, 1), upscale_factor=2)
        yield Case(f32(8, 2, 3), upscale_factor=2)
        yield Case(f32(2, 3, 4, 2, 1), upscale_factor=2)
        yield Case(f32(2, 3, 2, 2), upscale_factor=1)
        yield Case(f32(0, 4, 2, 2), upscale_factor=2, symbolic=False, reason=_EMPTY)
        yield Case(f32(2, 4, 0, 3), upscale_factor=2, symbolic=False, reason=_EMPTY)
        yield Case(
            f32(1, 4, 1, 1, value=(float("inf"), float("nan"), -0.0, float("-inf"))),
            upscale_factor=2,
            dtypes=("float32",),
        )


class PixelUnshuffle(Placeholder):
    """(…, C, H·r, W·r) → (…, C·r², H, W); the meaning of `torch.nn.functional.pixel_unshuffle`."""

    matches = ("PixelUnshuffle", "aten::pixel_unshuffle")
    shapes = "x: ... C H W"
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, downscale_factor: int) -> Any:
        import torch

        if x.numel() == 0:
            # On a CPU it gives back an empty tensor as it is, against its own shape function.
            meta = torch.nn.functional.pixel_unshuffle(x.to("meta"), downscale_factor)
            return x.new_empty(meta.shape)
        return by_signed(x, lambda data: torch.nn.functional.pixel_unshuffle(data, downscale_factor))

    def infer(self, x: Value, downscale_factor: int) -> Any:
        if x.type is None or x.type.shape is None or x.rank < 3:
            return None
        r, (c, h, w) = downscale_factor, x.shape[-3:]
        return x.type.with_shape((*x.shape[:-3], _times(c, r * r), _over(h, r), _over(w, r)))

    # As fast as two Transposes or faster, and no arithmetic on sizes.
    @decomposition(
        when=lambda **_: True,
        requires=lambda x, **_: x.dtype in KERNELS and _keeps_places(x),
        reason="SpaceToDepth of single channels: a fifth of the time of a 6-D Transpose",
    )
    def space_to_depth(self, g: Builder, x: Value, downscale_factor: int) -> Value:
        _check(g, x, 1)
        return x if downscale_factor == 1 else unshuffle_by_space_to_depth(g, x, downscale_factor)

    @decomposition()
    def transposes(self, g: Builder, x: Value, downscale_factor: int) -> Value:
        _check(g, x, 1)
        return x if downscale_factor == 1 else _unshuffle(g, x, downscale_factor)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(1, 2, 4, 6), downscale_factor=2)
        yield Case(f32(2, 1, 6, 3), downscale_factor=3)
        yield Case(f32(2, 4, 6), downscale_factor=2)
        yield Case(f32(2, 3, 1, 4, 2), downscale_factor=2)
        yield Case(f32(2, 3, 2, 2), downscale_factor=1)
        yield Case(f32(0, 1, 2, 2), downscale_factor=2, symbolic=False, reason=_EMPTY)
        yield Case(f32(2, 1, 0, 4), downscale_factor=2, symbolic=False, reason=_EMPTY)
        yield Case(
            f32(1, 1, 2, 2, value=(float("inf"), float("nan"), -0.0, float("-inf"))),
            downscale_factor=2,
            dtypes=("float32",),
        )


_EMPTY = "below opset 14 a Reshape cannot make an axis that is empty at run time only"


def _times(dim: Dim, factor: int) -> Dim:
    return dim * factor if isinstance(dim, int) else dim if factor == 1 else None


def _over(dim: Dim, factor: int) -> Dim:
    return dim // factor if isinstance(dim, int) else dim if factor == 1 else None


def _check(g: Builder, x: Value, factor: int) -> None:
    if x.rank < 3:
        raise UnsupportedParameter(
            f"a tensor of rank {x.rank} is given", where=g.where, remedy="it is (…, C, H, W)"
        )
    if factor < 1 or (x.size(-3) or 0) % (factor * factor):
        raise UnsupportedParameter(
            f"{x.size(-3)} channels are no multiple of the square of {factor}", where=g.where
        )


def _keeps_places(x: Value) -> bool:
    """Whether the Reshapes around SpaceToDepth need no sizes that must be computed."""
    # Empty images crash onnxruntime 1.15's kernels.
    return 0 not in x.shape and (known(x.shape) is not None or (x.rank == 4 and x.size(1) is not None))


def shuffle(
    g: Builder,
    x: Value,
    images: Sequence[int | Value],
    places: Sequence[int | Value],
    block: Sequence[int],
) -> Value:
    """(images · rh · rw, h · w) in row-major order → (*images, h · rh, w · rw), by two Transposes."""
    (h, w), (rh, rw) = places, block
    many = g.product(images)
    x = g.reshape(x, [g.product([many, rh]), rw, g.product([h, w])])
    x = g.reshape(g.transpose(x, [0, 2, 1]), [many, rh, h, g.product([w, rw])])
    x = g.transpose(x, [0, 2, 1, 3])
    return g.reshape(x, [*images, g.product([h, rh]), g.product([w, rw])])


def _unshuffle(g: Builder, x: Value, r: int) -> Value:
    sizes = [g.dim(x, i) for i in range(x.rank)]
    *leading, c, tall, wide = sizes
    h, w = (over(g, d, r) for d in (tall, wide))
    blocks = g.product([*leading, c])
    x = g.transpose(g.reshape(x, [blocks, h, r, wide]), [0, 2, 1, 3])
    x = g.transpose(g.reshape(x, [g.product([blocks, r]), g.product([h, w]), r]), [0, 2, 1])
    return g.reshape(x, [*leading, g.product([c, r * r]), h, w])


def unshuffle_by_space_to_depth(g: Builder, x: Value, r: int) -> Value:
    """(…, C, H·r, W·r) → (…, C·r², H, W); of one channel, SpaceToDepth has PyTorch's order."""
    sizes = known(x.shape)
    if sizes is None:
        # 0 keeps the size of an axis, whatever it is at run time.
        n, c = x.size(0), int(x.shape[1] or 0)
        x = g.reshape_keeping(x, [-1 if n is None else n * c, 1, 0, 0])
        x = g.op("SpaceToDepth", x, blocksize=r)
        return g.reshape_keeping(x, [-1 if n is None else n, c * r * r, 0, 0])
    *leading, c, tall, wide = sizes
    h, w = over(g, tall, r), over(g, wide, r)
    x = g.reshape(x, [math.prod([*leading, c]), 1, tall, wide])
    x = g.op("SpaceToDepth", x, blocksize=r)
    return g.reshape(x, [*leading, c * r * r, h, w])


def over(g: Builder, size: int | Value, divisor: int) -> int | Value:
    """A size divided by a number that it must be a multiple of."""
    if divisor == 1:
        return size
    if isinstance(size, int):
        if size % divisor:
            raise UnsupportedParameter(f"a size of {size} is no multiple of {divisor}", where=g.where)
        return size // divisor
    result: Value = g.op("Div", size, g.ints([divisor]))
    return result
