"""grid_sample by gathers: the pixels around each place are looked up, and weighed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes.sampling import _places as places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.placeholder import Builder, Value

#: The ways to go on outside of the image, by PyTorch's own numbers.
ZEROS, BORDER, REFLECTION = 0, 1, 2


def sizes_of(g: Builder, x: Value) -> list[int | Value]:
    """x first."""
    return [g.dim(x, axis) for axis in range(x.rank - 1, 1, -1)]


def by_gathers(g: Builder, x: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> Value:
    dims = x.rank - 2
    batch, outer = g.dim(x, 0), [g.dim(grid, axis) for axis in range(1, grid.rank - 1)]
    target = [batch, g.dim(x, 1), *outer]
    if places.is_empty(*target):
        return g.constant_of_shape(target, 0.0, x)
    flat = g.transpose(g.reshape(grid, [batch, g.product(outer), dims]), [0, 2, 1])
    sampler = _Sampler(g, x, padding, align_corners)
    place = sampler.unnormalised(flat)
    found, before, after = (sampler.linear, sampler.nearest, sampler.cubic)[mode](place)
    return g.reshape(places.read(g, x, found, before, after), target)


class _Sampler:
    """Grid places of one tensor, as numbers of pixels."""

    def __init__(self, g: Builder, x: Value, padding: int, align_corners: bool) -> None:
        self.g, self.x = g, x
        self.padding, self.align_corners = padding, align_corners
        self.sizes = sizes_of(g, x)
        self.dims = x.rank - 2

    def of_sizes(self, formula: Any) -> Value:
        return places.per_axis(self.g, self.sizes, formula, self.x)

    def unnormalised(self, grid: Value) -> Value:
        if self.dims == 3:
            if self.align_corners:
                return (grid + 1) / 2 * self.of_sizes(lambda s: s - 1)
            return ((grid + 1) * self.of_sizes(lambda s: s + 0) - 1) / 2
        if self.align_corners:
            return (grid + 1) * self.of_sizes(lambda s: (s - 1) / 2)
        return (grid + 1) * self.of_sizes(lambda s: s / 2) - 0.5

    def reflected(self, place: Value) -> Value:
        """Back and forth between the first and last pixel, or between their outer edges."""
        g = self.g
        if self.align_corners:
            span = self.of_sizes(lambda s: (s - 1) * 2)
            # In a plane of one pixel there is nowhere to go; what comes out is clipped.
            divisor = g.maximum(span, 1.0)
            away = g.abs(place)
        else:
            span = divisor = self.of_sizes(lambda s: s * 2)
            away = g.abs(place + 0.5)
        away = away - g.floor(away / divisor) * divisor
        # Not by Min, which in older versions of onnxruntime passes over NaN.
        folded = places.at_most(g, away, span - away)
        return folded if self.align_corners else folded - 0.5

    def inside(self, place: Value) -> Value:
        """Border and reflection: clipped to the pixels.  NaN becomes the first pixel, in volumes the last."""
        g = self.g
        if self.padding == REFLECTION:
            place = self.reflected(place)
        last = self.of_sizes(lambda s: s - 1)
        if self.dims == 3:
            return g.maximum(places.at_most(g, place, last), 0.0)
        return g.minimum(places.at_least(g, place, 0.0), last)

    def outside(self, pixel: Value, low: float) -> Value:
        """Zeros: pixels beyond the padding moved into it."""
        g = self.g
        return g.minimum(places.at_least(g, pixel, low), self.of_sizes(lambda s: s + 0))

    def padded(self, more: int) -> Sequence[int | Value]:
        return [places.plus(size, more) for size in self.sizes]

    def linear(self, place: Value) -> tuple[places.Neighbours, int, int]:
        g = self.g
        if self.padding == ZEROS:
            if self.dims == 3:
                return places.linear_zeros(g, place, self.sizes), 2, 2
            # The fraction is taken before clipping: what is not finite gives NaN, as PyTorch has it.
            low = g.floor(place)
            fraction = place - low
            return places.linear(g, self.outside(low, -2.0) + 2, fraction, self.padded(4)), 2, 2
        place = self.inside(place)
        low = g.floor(place)
        return places.linear(g, low, place - low, self.padded(1)), 0, 1

    def nearest(self, place: Value) -> tuple[places.Neighbours, int, int]:
        g = self.g
        if self.padding == ZEROS:
            pixel = self.outside(g.round(place), -1.0) + 1
            more = 1
        else:
            pixel = g.round(self.inside(place))
            more = 0
        position = places.flat(g, places.split_axes(g, pixel, self.dims), self.padded(2 * more))
        return places.Neighbours(position, None, 1), more, more

    def cubic(self, place: Value) -> tuple[places.Neighbours, int, int]:
        """4 × 4 neighbours, each clipped or reflected by itself."""
        g = self.g
        low = g.floor(place)
        fraction = place - low
        column = g.const(np.asarray([-1.0, 0.0, 1.0, 2.0]).reshape(4, 1, 1, 1), place)
        pixel = g.unsqueeze(low, [0]) + column  # (4, N, D, P)
        if self.padding == ZEROS:
            pixel = self.outside(pixel, -1.0) + 1
            more = 1
        else:
            pixel = self.inside(pixel)
            more = 0
        pixel = g.transpose(pixel, [1, 2, 0, 3])
        x, y = places.split_axes(g, pixel, 2)  # (N, 1, 4, P)
        wx, wy = places.split_axes(g, self._cubic_weights(fraction), 2)
        sizes = self.padded(2 * more)
        position = places.flat(g, [x, g.transpose(y, [0, 2, 1, 3])], sizes)  # (N, 4, 4, P)
        weight = g.transpose(wy, [0, 2, 1, 3]) * wx
        batch, count = g.dim(place, 0), g.dim(place, 2)
        return (
            places.Neighbours(
                g.reshape(position, [batch, 16, count]), g.reshape(weight, [batch, 16, count]), 16
            ),
            more,
            more,
        )

    def _cubic_weights(self, t: Value) -> Value:
        """Of Keys' kernel with A = −0.75: (N, D, P) → (N, D, 4, P)."""
        g, a = self.g, -0.75

        def outer(x: Value) -> Value:
            return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a

        def inner(x: Value) -> Value:
            return (x * (a + 2) - (a + 3)) * x * x + 1

        u = 1 - t
        weights = [outer(t + 1), inner(t), inner(u), outer(u + 1)]
        return g.concat([g.unsqueeze(w, [2]) for w in weights], axis=2)
