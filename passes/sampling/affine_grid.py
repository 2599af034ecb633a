"""The grid of an affine map, as `torch.nn.functional.affine_grid` makes it for grid_sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes.sampling import _places as places
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, f32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Ints, Value


class AffineGrid(Placeholder):
    """`theta` (N, 2, 3) or (N, 3, 4) applied to the places of an output of `size`: (N, H, W, 2) or (N, D, H, W, 3)."""

    matches = ("AffineGrid", "aten::affine_grid_generator", "aten::affine_grid")

    def reference(self, theta: Any, size: Any, align_corners: bool = False) -> Any:
        import torch

        sizes = [int(s) for s in (size.tolist() if isinstance(size, torch.Tensor) else size)]
        # In half precision PyTorch rounds the base grid as well.
        fine = theta.float() if theta.dtype in (torch.float16, torch.bfloat16) else theta
        return torch.nn.functional.affine_grid(fine, sizes, align_corners).to(theta.dtype)

    def infer(self, theta: Value, size: Ints | Value, align_corners: bool = False) -> Any:
        if theta.type is None or not theta.has_rank:
            return None
        dims = theta.size(1)
        if isinstance(size, tuple):
            outer: tuple[Any, ...] = size[2:]
        elif size.sizes is not None:
            outer = size.sizes[2:]
        else:
            outer = (None,) * (dims or 0)
        return theta.type.with_shape((theta.shape[0], *outer, dims)) if outer else None

    def decompose(self, g: Builder, theta: Value, size: Ints | Value, align_corners: bool = False) -> Value:
        dims = _dims(g, theta, size)
        fine = g.cast(theta, places.wide(theta))
        outer = _outer(g, size, dims)
        batch = g.dim(theta, 0)
        shape = [batch, *outer, dims]
        if places.is_empty(*shape):
            return g.constant_of_shape(shape, 0.0, theta)
        # One row of the result is x·t₀ + t_D plus y·t₁ (plus z·t₂), each over all of the row: a product of matrices
        # with long rows, in place of one for each pixel.
        columns = g.split(g.transpose(fine, [0, 2, 1]), [1] * (dims + 1), 1)  # D + 1 of (N, 1, D)
        width = outer[-1]
        row = g.reshape(_centres(g, width, align_corners, fine), [width, 1]) * columns[0] + columns[-1]
        rows = [g.expand(column, [batch, width, dims]) for column in reversed(columns[1:-1])]
        length = g.product([width, dims])
        stacked = g.concat([g.reshape(r, [batch, 1, length]) for r in [*rows, row]], axis=1)
        grid = g.matmul(_coefficients(g, outer[:-1], align_corners, fine), stacked)
        known = [*theta.shape[:1], *[d if isinstance(d, int) else None for d in outer], dims]
        return g.cast(g.retyped(g.reshape(grid, shape), known), theta)

    def cases(self) -> Iterator[Case]:
        computed: Any = {"symbolic": False, "reason": "two or three dimensions: the length of size is known"}
        for align_corners in (False, True):
            yield Case(f32(2, 2, 3), size=[2, 1, 3, 4], align_corners=align_corners)
            yield Case(f32(2, 3, 4), size=[2, 1, 2, 3, 4], align_corners=align_corners)
            yield Case(f32(2, 2, 3), i64(4, value=(2, 1, 1, 5)), align_corners=align_corners, **computed)
        yield Case(f32(1, 3, 4), i64(5, value=(1, 2, 4, 1, 2)), **computed)
        yield Case(f32(1, 2, 3), size=[1, 1, 1, 1])
        yield Case(f32(1, 2, 3), size=[1, 1, 1, 2])
        inf, nan = float("inf"), float("nan")
        yield Case(f32(1, 2, 3, value=(1.0, inf, 0.0, 0.0, nan, 1.0)), size=[1, 1, 2, 2], dtypes=["float32"])
        yield Case(f32(1, 2, 3, value=(1.0, 2.0, inf, 0.0, 1.0, 1.0)), size=[1, 1, 3, 3], dtypes=["float32"])


def _dims(g: Builder, theta: Value, size: Ints | Value) -> int:
    if theta.rank != 3:
        raise UnsupportedParameter(f"theta has rank {theta.rank}, not 3", where=g.where)
    given = len(size) if isinstance(size, tuple) else size.size(0)
    dims = theta.size(1) or (None if given is None else given - 2)
    if dims not in (2, 3) or given not in (None, dims + 2):
        raise UnsupportedParameter(
            f"theta of shape {list(theta.shape)} and a size of {given} numbers are given",
            where=g.where,
            remedy="(N, 2, 3) goes with (N, C, H, W), (N, 3, 4) with (N, C, D, H, W); one of them must be known",
        )
    return dims


def _outer(g: Builder, size: Ints | Value, dims: int) -> list[int | Value]:
    if isinstance(size, tuple):
        return list(size[2:])
    known = size.sizes or (None,) * (dims + 2)
    return [
        d if isinstance(d, int) else g.gather(size, g.ints([i + 2]), axis=0) for i, d in enumerate(known[2:])
    ]


def _centres(g: Builder, size: int | Value, align_corners: bool, like: Value) -> Value:
    """Where the pixels of an axis lie between −1 and 1, (S,); the one pixel of an axis of size 1 at 0."""
    if isinstance(size, int):
        steps = 2.0 * np.arange(size) - (size - 1)
        return g.const(steps / (max(size - 1, 1) if align_corners else size), like)
    count = g.cast(size, like)
    index = g.cast(g.range(g.ints(0), g.squeeze(size, [0]), g.ints(1)), like)
    last = count - 1
    return (index * 2 - last) / (g.maximum(last, 1.0) if align_corners else count)


def _coefficients(g: Builder, outer: list[int | Value], align_corners: bool, like: Value) -> Value:
    """[z, y, 1] of every row of the grid, (D·H, 3), or [y, 1], (H, 2)."""
    axes = [_centres(g, size, align_corners, like) for size in outer]
    known = [np.asarray(axis.constant, np.float64) for axis in axes if axis.constant is not None]
    if len(known) == len(axes):
        rows = np.stack([m.reshape(-1) for m in np.meshgrid(*known, indexing="ij")], axis=1)
        return g.const(np.concatenate([rows, np.ones((len(rows), 1))], axis=1), like)
    count = g.product(outer)
    shaped = []
    for i, axis in enumerate(axes):
        around = [j for j in range(len(axes)) if j != i]
        shaped.append(g.reshape(g.expand(g.unsqueeze(axis, around), outer), [count, 1]))
    return g.concat([*shaped, g.constant_of_shape([count, 1], 1.0, like)], axis=1)
