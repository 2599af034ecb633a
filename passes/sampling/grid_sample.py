"""Sampling at the places of a grid, as `torch.nn.functional.grid_sample` does.

The arithmetic is that of PyTorch's own kernels (aten/src/ATen/native/cpu/GridSamplerKernel.cpp, and GridSampler.h for
volumes), step by step: what nearest takes at a tie depends on it, and so does what comes of NaN and infinities.
Places are computed in float32 at least: float16 cannot tell neighbouring pixels of a large image apart.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from passes.sampling import _places as places
from passes.sampling._grid_gathers import REFLECTION, ZEROS, by_gathers, sizes_of
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

_MODES = {"bilinear": 0, "linear": 0, "nearest": 1, "bicubic": 2, "cubic": 2}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}
_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2

#: Where the sum of a grid's magnitudes is below, all of it is finite, and the kernel's integers do not overflow.
_SANE = 1e12

#: Rows that are shorter are joined, where the grid's height is known; longer ones would weigh too much in the file.
_SHORT_ROW = 64
_LONGEST_ROW = 4096


class GridSample(Placeholder):
    """`x` (N, C, H, W or D, H, W) read at the places of `grid` (N, …, 2 or 3), which run from −1 to 1, x first."""

    finite = True
    matches = (
        "GridSample",
        "aten::grid_sampler",
        "aten::grid_sampler_2d",
        "aten::grid_sampler_3d",
        "aten::_grid_sampler_2d_cpu_fallback",
        "aten::cudnn_grid_sampler",
        "aten::grid_sample",
        "GridSampler",
        "mmcv::grid_sampler",
        "mmdeploy::grid_sampler",
    )
    standard = {  # noqa: RUF012
        "GridSample": lambda op: {
            "x": op.x,
            "grid": op.input(1),
            "mode": op.get("mode"),
            "padding_mode": op.get("padding_mode"),
            "align_corners": bool(op.get("align_corners")),
        }
    }
    shapes = "x: N C H W | N C D H W; grid: N _ _ 2 | N _ _ _ 3"
    aliases = {  # noqa: RUF012
        "interpolation_mode": "mode",
    }
    schemas = {  # noqa: RUF012
        "aten::cudnn_grid_sampler": ("x", "grid", "mode=0", "padding_mode=0", "align_corners=1"),
    }

    def reference(
        self,
        x: Any,
        grid: Any,
        mode: int | str = "bilinear",
        padding_mode: int | str = "zeros",
        align_corners: bool = False,
    ) -> Any:
        import torch

        mode = {0: "bilinear", 1: "nearest", 2: "bicubic"}[_code(mode, _MODES)]
        padding_mode = {code: name for name, code in _PADDINGS.items()}[_code(padding_mode, _PADDINGS)]
        if x.dtype in (torch.float16, torch.bfloat16):
            # PyTorch's own kernel rounds the places to half precision at each step.
            return torch.nn.functional.grid_sample(
                x.float(), grid.float(), mode, padding_mode, align_corners
            ).to(x.dtype)
        return torch.nn.functional.grid_sample(x, grid, mode, padding_mode, align_corners)

    def infer(self, x: Value, grid: Value, **_: Any) -> Any:
        if x.type is None or not x.has_rank or not grid.has_rank:
            return None
        return x.type.with_shape((*x.shape[:2], *grid.shape[1:-1]))

    @decomposition(
        opset=16,
        portable=False,
        requires=lambda x, mode, **_: (
            x.rank == 4 and _code(mode, _MODES) == _BILINEAR and places.has_kernel(x)
        ),
        # The gathers' time over the kernel's (16384 places): 1.0 to 1.15 with one channel, 1.2 with 3, 1.8 with 8, and
        # 2.4 and more from 16 on.
        reason="GridSample has a fast path for linear, zeros and align_corners=0, and the grid is mapped to it",
    )
    def kernel(
        self,
        g: Builder,
        x: Value,
        grid: Value,
        mode: int | str = "bilinear",
        padding_mode: int | str = "zeros",
        align_corners: bool = False,
    ) -> Value:
        _check(g, x, grid, mode)
        padding = _code(padding_mode, _PADDINGS)
        data, fine = g.cast(x, places.wide(x)), g.cast(grid, places.wide(x))
        if padding == ZEROS:

            def sampled(inner: Builder, image: Value, at: Value) -> Value:
                return _zeros_by_kernel(inner, image, at, align_corners)

            result = _guarded(g, data, fine, _BILINEAR, padding, align_corners, sampled)
        else:
            result = _clamped_by_kernel(g, data, fine, padding, align_corners)
        shape = (*x.shape[:2], *grid.shape[1:-1])
        return g.cast(g.retyped(result, shape), x)

    @decomposition(
        opset=16,
        portable=False,
        requires=lambda x, mode, **_: (
            x.rank == 4
            and _code(mode, _MODES) == _BICUBIC
            and not places.rows_pay(x, 16)
            and places.has_kernel(x)
        ),
        reason="with few channels GridSample's own cubic is faster than sixteen gathers",
    )
    def kernel_cubic(
        self,
        g: Builder,
        x: Value,
        grid: Value,
        mode: int | str = "bilinear",
        padding_mode: int | str = "zeros",
        align_corners: bool = False,
    ) -> Value:
        _check(g, x, grid, mode)
        padding = _code(padding_mode, _PADDINGS)
        data, fine = g.cast(x, places.wide(x)), g.cast(grid, places.wide(x))

        def sampled(inner: Builder, image: Value, at: Value) -> Value:
            made: Value = inner.op(
                "GridSample",
                image,
                at,
                mode="cubic" if inner.opset >= 20 else "bicubic",
                padding_mode={code: name for name, code in _PADDINGS.items()}[padding],
                align_corners=int(align_corners),
            )
            return made

        result = _guarded(g, data, fine, _BICUBIC, padding, align_corners, sampled)
        return g.cast(g.retyped(result, (*x.shape[:2], *grid.shape[1:-1])), x)

    @decomposition()
    def gathers(
        self,
        g: Builder,
        x: Value,
        grid: Value,
        mode: int | str = "bilinear",
        padding_mode: int | str = "zeros",
        align_corners: bool = False,
    ) -> Value:
        _check(g, x, grid, mode)
        data, fine = g.cast(x, places.wide(x)), g.cast(grid, places.wide(x))
        result = by_gathers(g, data, fine, _code(mode, _MODES), _code(padding_mode, _PADDINGS), align_corners)
        return g.cast(g.retyped(result, (*x.shape[:2], *grid.shape[1:-1])), x)

    def cases(self) -> Iterator[Case]:
        inf, nan = float("inf"), float("nan")
        # Most of what follows does not depend on the opset: it is run where only the gathers exist, or where both
        # forms do.
        gathers: Any = {"opsets": (13, 13), "dtypes": ["float32", "float64"]}
        both: Any = {"opsets": (16, 16), "dtypes": ["float32", "float64"]}

        def grid(rng: Any, shape: Any) -> Any:
            return rng.uniform(-1.4, 1.4, shape)

        def image(**options: Any) -> Case:
            return Case(f32(2, 3, 5, 4), f32(2, 3, 2, 2, draw=grid), **options)

        def volume(**options: Any) -> Case:
            return Case(f32(1, 2, 3, 2, 4), f32(1, 2, 1, 3, 3, draw=grid), **options)

        yield image(mode="bilinear", padding_mode="zeros", align_corners=False)
        yield image(
            mode="bicubic", padding_mode="reflection", align_corners=True, dtypes=["float32", "float64"]
        )
        yield volume(
            mode="bilinear", padding_mode="border", align_corners=False, dtypes=["float32", "float64"]
        )
        for padding_mode in ("zeros", "border", "reflection"):
            for align_corners in (False, True):
                yield image(padding_mode=padding_mode, align_corners=align_corners, **both)
        for padding_mode, align_corners in (("zeros", False), ("border", True), ("reflection", False)):
            yield image(mode="nearest", padding_mode=padding_mode, align_corners=align_corners, **gathers)
        for padding_mode, align_corners in (("zeros", True), ("border", False)):
            yield image(mode="bicubic", padding_mode=padding_mode, align_corners=align_corners, **both)
        for mode, padding_mode, align_corners in (
            ("bilinear", "zeros", True),
            ("bilinear", "reflection", True),
            ("nearest", "zeros", False),
            ("nearest", "reflection", False),
        ):
            yield volume(mode=mode, padding_mode=padding_mode, align_corners=align_corners, **gathers)
        # A plane that is not square, under a wide grid.
        for padding_mode, align_corners in (("zeros", True), ("border", False), ("reflection", True)):
            yield Case(
                f32(1, 2, 3, 5),
                f32(1, 2, 32, 2, draw=grid),
                padding_mode=padding_mode,
                align_corners=align_corners,
                opsets=(16, 16),
                dtypes=["float32"],
            )
        # Enough channels for rows; parameters as aten has them.
        yield Case(f32(2, 40, 3, 4), f32(2, 2, 3, 2, draw=grid), padding_mode="reflection", **gathers)
        yield Case(f32(2, 16, 3, 4), f32(2, 2, 3, 2, draw=grid), mode=2, padding_mode=1, **gathers)
        # A plane of one pixel, and no images, places or channels.
        for padding_mode in ("zeros", "reflection"):
            yield Case(
                f32(1, 2, 1, 1),
                f32(1, 3, 3, 2, draw=grid),
                padding_mode=padding_mode,
                align_corners=True,
                **both,
            )
        yield Case(f32(0, 2, 3, 3), f32(0, 2, 2, 2), **both)
        yield Case(f32(1, 2, 3, 3), f32(1, 0, 2, 2), **both)
        yield Case(
            f32(1, 0, 3, 3), f32(1, 2, 2, 2), symbolic=False, reason="weights know their channels", **both
        )
        # Infinities in the image stay where they are.
        both["dtypes"] = gathers["dtypes"] = ["float32"]
        values = [0.5, inf, 1.0, -2.0, 3.0, 4.0, -inf, 0.25, 1.5, nan, 2.0, 1.0]
        for padding_mode in ("zeros", "border", "reflection"):
            # At the very border the weight of the next pixel is zero or a rounding error, and zero times infinity NaN.
            draw = grid if padding_mode == "zeros" else lambda rng, shape: rng.uniform(-0.6, 0.6, shape)
            yield Case(
                f32(1, 1, 3, 4, value=values),
                f32(1, 4, 5, 2, draw=draw),
                padding_mode=padding_mode,
                seed=3,
                **both,
            )
        corners = [-1.0, -1.0, 1.0, 1.0, 1.0, -1.0, 0.0, 0.0]
        yield Case(
            f32(1, 1, 3, 4, value=values),
            f32(1, 2, 2, 2, value=corners),
            padding_mode="border",
            align_corners=True,
            **both,
        )
        # Places that are nowhere, and far outside.
        wild = [nan, 0.1, inf, 0.1, -inf, 0.1, 0.1, nan, 1e10, 0.1, -1e10, 0.1, 0.1, 3e38, 0.1, -3.3]
        strange = [nan, 0.1, inf, 0.1, 0.1, -inf, 1.4, 8.25, -250.25, 0.5]
        for mode, padding_mode, places_, where in (
            ("bilinear", "zeros", wild, both),
            ("bilinear", "border", wild, both),
            ("nearest", "zeros", wild, gathers),
            ("nearest", "border", wild, gathers),
            ("bilinear", "reflection", strange, both),
            ("nearest", "reflection", strange, gathers),
            ("bicubic", "reflection", strange, both),
        ):
            yield Case(
                f32(1, 2, 3, 4),
                f32(1, 1, len(places_) // 2, 2, value=places_),
                mode=mode,
                padding_mode=padding_mode,
                **where,
            )
        nowhere = [nan, 0.1, 0.1, inf, 0.1, 0.1, 0.1, -inf, 0.1, 0.1, 0.1, 1e10]
        for padding_mode in ("zeros", "border", "reflection"):
            yield Case(
                f32(1, 2, 2, 3, 4), f32(1, 1, 1, 4, 3, value=nowhere), padding_mode=padding_mode, **gathers
            )


def _code(given: int | str, names: dict[str, int]) -> int:
    return names.get(given, -1) if isinstance(given, str) else given


def _check(g: Builder, x: Value, grid: Value, mode: int | str) -> None:
    if x.rank not in (4, 5) or grid.rank != x.rank:
        raise UnsupportedParameter(
            f"ranks {x.rank} and {grid.rank} are given, where input and grid both have rank 4 or both rank 5",
            where=g.where,
        )
    code = _code(mode, _MODES)
    if code not in (0, 1, 2) or (code == _BICUBIC and x.rank == 5):
        raise UnsupportedParameter(
            f"mode {mode!r} does not exist for an input of rank {x.rank}",
            where=g.where,
            remedy="bilinear and nearest take images and volumes, bicubic takes images",
        )


def _guarded(
    g: Builder, x: Value, grid: Value, mode: int, padding: int, align_corners: bool, sampled: Any
) -> Value:
    """By the kernel where the whole grid is finite, else by gathers.

    The kernel takes places that are not finite for the first pixel, where PyTorch gives NaN.  To look at the grid costs
    one pass over it, some hundredths of the sampling (ReduceL1, ReduceSumSquare and ReduceMax alike; a MatMul more).
    """
    branches = []
    for name in ("kernel", "gathers"):
        inner = g.body()
        image, at = (dataclasses.replace(value, builder=inner) for value in (x, grid))
        if name == "kernel":
            made = sampled(inner, image, at)
        else:
            made = by_gathers(inner, image, at, mode, padding, align_corners)
        branches.append(g.subgraph(name, inner, [], [made]))
    sane = g.less(_magnitude(g, grid), _SANE)
    result: Value = g.op("If", sane, then_branch=branches[0], else_branch=branches[1])
    return result


def _magnitude(g: Builder, grid: Value) -> Value:
    axes = list(range(grid.rank))
    if g.opset >= 18:
        total: Value = g.op("ReduceL1", grid, g.ints(axes), keepdims=0)
    else:
        total = g.op("ReduceL1", grid, axes=axes, keepdims=0)
    return total


# --- by onnxruntime's kernel ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Mapped:
    """A grid to be computed with, laid out so that operands that differ by axis are long.

    To broadcast along a last axis of two elements takes onnxruntime 20 times as long as to go through a row.
    """

    g: Builder
    x: Value
    grid: Value
    #: How many pairs of coordinates make a row; 0: one does, as the grid has it.
    pairs: int

    @classmethod
    def of(cls, g: Builder, x: Value, grid: Value) -> _Mapped:
        sizes = x.shape[2:]
        if not all(isinstance(size, int) for size in sizes) or len(set(sizes)) == 1:
            return cls(g, x, grid, 0)
        wide, high = grid.size(2), grid.size(1)
        pairs = wide or 0
        if pairs * 2 < _SHORT_ROW and high and wide:
            pairs = high * wide
        if not 1 < pairs <= _LONGEST_ROW:
            return cls(g, x, grid, 0)
        dims = [0, 0, 2 * pairs] if pairs == wide else [0, 2 * pairs]
        return cls(g, x, g.reshape_keeping(grid, dims), pairs)

    def of_sizes(self, formula: Any) -> Value:
        """A formula of the sizes, to be broadcast over the grid."""
        sizes = sizes_of(self.g, self.x)
        if not all(isinstance(size, int) for size in sizes):
            return self.g.reshape(places.per_axis(self.g, sizes, formula, self.grid), [2])
        values = np.asarray(formula(np.asarray(sizes, np.float64)))
        if values[0] == values[1]:
            return self.g.const(values[0], self.grid)
        return self.g.const(np.tile(values, max(self.pairs, 1)), self.grid)

    def back(self, mapped: Value, grid: Value) -> Value:
        """As the grid was laid out."""
        if not self.pairs:
            return mapped
        wide = int(grid.size(2) or 0)
        return self.g.reshape_keeping(mapped, [0, 0 if self.pairs == wide else self.pairs // wide, wide, 2])


def _sample(g: Builder, x: Value, grid: Value) -> Value:
    mode = "linear" if g.opset >= 20 else "bilinear"
    result: Value = g.op("GridSample", x, grid, mode=mode, padding_mode="zeros", align_corners=0)
    return result


def _zeros_by_kernel(g: Builder, x: Value, grid: Value, align_corners: bool) -> Value:
    if align_corners:
        mapped = _Mapped.of(g, x, grid)
        grid = mapped.back(mapped.grid * mapped.of_sizes(_outermost), grid)
    return _sample(g, x, grid)


def _outermost(size: Any) -> Any:
    """Where the centre of the last pixel is; that of the first is as far below 0."""
    return (size - 1) / size


def _clamped_by_kernel(g: Builder, x: Value, grid: Value, padding: int, align_corners: bool) -> Value:
    """Border and reflection by a grid that does not leave the centres of the outermost pixels, ±(S − 1)/S."""
    mapped = _Mapped.of(g, x, grid)
    place, last, first = mapped.grid, mapped.of_sizes(_outermost), mapped.of_sizes(lambda s: -_outermost(s))
    if align_corners:
        place = place * last
    if padding == REFLECTION:
        # A triangle wave; about the centres where corners are aligned, else about the edges of the pixels.
        low = first if align_corners else g.const(-1.0, grid)
        span = mapped.of_sizes(lambda s: _outermost(s) * 4) if align_corners else g.const(4.0, grid)
        away = g.abs(place - low)
        if align_corners:
            # In a plane of one pixel there is nowhere to go.
            span = g.maximum(span, 1e-6)
        away = away - g.floor(away / span) * span
        place = g.minimum(away, span - away) + low
    place = g.minimum(places.at_least(g, place, first), last)
    return _sample(g, x, mapped.back(place, grid))


# --- by gathers -------------------------------------------------------------------------------------------------
