"""A tensor with a view of it overwritten: a diagonal, or what sizes and strides describe."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from passes.movement._data import EXACT, axis_of, known
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Ints, Value

_WRITTEN = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool")


class DiagonalScatter(Placeholder):
    """`x` with `src` on its diagonal over `dim1` and `dim2`, `offset` above the main one: `torch.diagonal_scatter`."""

    matches = ("DiagonalScatter", "aten::diagonal_scatter")
    shapes = "x: ...; src: ..."
    dtypes = _WRITTEN
    tolerances = {name: EXACT[name] for name in _WRITTEN}  # noqa: RUF012

    def reference(self, x: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
        import torch

        return torch.diagonal_scatter(x, src, offset, dim1, dim2)

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    def decompose(
        self, g: Builder, x: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
    ) -> Value:
        first, second = (axis_of(g, dim, x.rank, "dim") for dim in (dim1, dim2))
        sizes = known((x.shape[first], x.shape[second]))
        if sizes is None or first == second:
            raise UnsupportedParameter(
                "a diagonal needs two axes of known sizes",
                where=g.where,
                remedy="export with fixed sizes of these axes",
            )
        rows, columns = np.arange(sizes[0]), np.arange(sizes[0]) + offset
        inside = (columns >= 0) & (columns < sizes[1])
        g.afford(2 * int(inside.sum()))
        if not inside.any() or 0 in x.shape:
            return x
        places = g.const(np.stack([rows[inside], columns[inside]], 1).astype(np.int64))
        perm = [first, second, *(i for i in range(x.rank) if i not in (first, second))]
        # The diagonal is the last axis of what is written, and the first of what ScatterND takes.
        updates = g.transpose(src, [src.rank - 1, *range(src.rank - 1)])
        written = g.op("ScatterND", g.transpose(x, perm), places, updates)
        return g.retyped(g.transpose(written, [perm.index(i) for i in range(x.rank)]), x.shape)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 4), f32(3), symbolic=False)
        yield Case(f32(3, 4), f32(2), offset=2, symbolic=False)
        yield Case(f32(2, 4, 3), f32(2, 2), offset=-2, dim1=1, dim2=-1, symbolic=False)
        yield Case(f32(3, 2, 4), f32(2, 3), dim1=2, dim2=0, symbolic=False)
        yield Case(f32(2, 3), f32(0), offset=3, symbolic=False)


class AsStridedScatter(Placeholder):
    """`x`, laid out flat, with `src` at the places that `size`, `stride` and `storage_offset` describe.

    It is the meaning of `torch.as_strided_scatter` of a contiguous tensor; ONNX knows no other.
    """

    matches = ("AsStridedScatter", "aten::as_strided_scatter")
    shapes = "x: ...; src: ..."
    dtypes = _WRITTEN
    tolerances = {name: EXACT[name] for name in _WRITTEN}  # noqa: RUF012

    def reference(self, x: Any, src: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
        import torch

        # Not PyTorch's own operator: its gradient is not the derivative (gradcheck).
        numbers = torch.arange(x.numel())
        places = torch.as_strided(numbers, tuple(size), tuple(stride), storage_offset or 0)
        flat = torch.scatter(x.reshape(-1), 0, places.reshape(-1), src.reshape(-1))
        return flat.reshape(x.shape)

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    def decompose(
        self, g: Builder, x: Value, src: Value, size: Ints, stride: Ints, storage_offset: int | None = None
    ) -> Value:
        sizes = known(x.shape)
        if len(size) != len(stride):
            raise UnsupportedParameter(
                f"{len(size)} sizes are given for {len(stride)} strides", where=g.where
            )
        g.afford(math.prod(size))
        places = np.full(size, storage_offset or 0, dtype=np.int64)
        for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
            shape = [count if i == axis else 1 for i in range(len(size))]
            places = places + (np.arange(count) * step).reshape(shape)
        if not places.size:
            return x
        if sizes is not None and (places.min() < 0 or places.max() >= math.prod(sizes)):
            raise UnsupportedParameter("size and stride reach outside the tensor", where=g.where)
        flat = g.flatten(x)
        written = g.op("ScatterElements", flat, g.const(places.reshape(-1)), g.flatten(src), axis=0)
        return g.reshape(written, [g.dim(x, i) for i in range(x.rank)])

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 4), f32(2, 2), size=[2, 2], stride=[4, 1], storage_offset=1)
        yield Case(f32(2, 3, 2), f32(3), size=[3], stride=[3])
        yield Case(f32(4), f32(), size=[], stride=[], storage_offset=2)
        yield Case(f32(4), f32(0), size=[0], stride=[1], symbolic=False)
