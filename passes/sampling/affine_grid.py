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
    standard = {  # noqa: RUF012
        "AffineGrid": lambda op: {
            "theta": op.x,
            "size": op.known(1),
            "align_corners": bool(op.get("align_corners")),
        }
    }
    shapes = "theta: N 2 3 | N 3 4; size: _"

    def reference(self, theta: Any, size: Any, align_corners: bool = False) -> Any:
        import torch

        sizes = [int(s) for s in (size.tolist() if isinstance(size, torch.Tensor) else size)]
        # In half precision PyTorch rounds the base grid as well.
        fine = theta.float() if theta.dtype in (torch.float16, torch.bfloat16) else theta
        return torch.nn.functional.affine_grid(fine, sizes, align_corners).to(theta.dtype)

    def infer(self, theta: Value, size: Ints | Value, **_: Any) -> Any:
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
        # Each row of the result is x·t₀ + t_D, and y·t₁ (and z·t₂) over all of it: sums of long rows, in place of a
        # product with three numbers for each pixel.
        columns = g.split(g.transpose(fine, [0, 2, 1]), [1] * (dims + 1), 1)  # D + 1 of (N, 1, D)
        *others, x = (_centres(g, size, align_corners, fine) for size in outer)
        along, ones = g.unsqueeze(x, [1]), g.unsqueeze(_ones(g, x), [1])
        length = g.product([outer[-1], dims])

        def row(value: Value) -> Value:
            return g.reshape(value, [batch, 1, length])

        y_row = row(ones * columns[1])
        grid = g.unsqueeze(others[-1], [1]) * y_row + row(along * columns[0] + columns[-1])  # (N, H, W·D)
        if dims == 3:
            z_row = g.unsqueeze(others[0], [1]) * row(ones * columns[2])  # (N, D, W·D)
            grid = g.unsqueeze(z_row, [2]) + g.unsqueeze(grid, [1])
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
        g.afford(size)
        steps = 2.0 * np.arange(size) - (size - 1)
        return g.const(steps / (max(size - 1, 1) if align_corners else size), like)
    count = g.cast(size, like)
    index = g.cast(g.range(g.ints(0), g.squeeze(size, [0]), g.ints(1)), like)
    last = count - 1
    return (index * 2 - last) / (g.maximum(last, 1.0) if align_corners else count)


def _ones(g: Builder, x: Value) -> Value:
    """Ones in the shape of what is finite."""
    return g.const(np.ones(x.constant.shape), x) if x.constant is not None else x * 0 + 1
