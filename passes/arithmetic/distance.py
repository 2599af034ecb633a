"""Distances between the rows of matrices, in any p-norm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from passes.special._series import widened
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

#: With more rows than so many on either side, PyTorch takes Euclidean distances from a matrix product.
_BY_PRODUCT = 25
#: Its modes: by that rule, always, and never.
_ALWAYS, _NEVER = 1, 2


class Cdist(Placeholder):
    """The p-norm of each row of `x1` less each row of `x2`; the meaning of `torch.cdist`."""

    matches = ("Cdist", "aten::cdist", "aten::_cdist_forward")
    shapes = "x1: ... P M; x2: ... R M"
    # Sums, and roots of sums that lose a digit where the difference of two products is small.
    tolerances = {"float32": (1e-4, 1e-4)}  # noqa: RUF012

    def reference(self, x1: Any, x2: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
        import torch

        narrow = x1.dtype in (torch.float16, torch.bfloat16)  # PyTorch has no kernel of it
        a, b = (x1.float(), x2.float()) if narrow else (x1, x2)
        return torch.ops.aten.cdist(a, b, p, compute_mode).to(x1.dtype)

    @decomposition(
        requires=lambda x1, x2, p, compute_mode, **_: p == 2 and _is_by_product(x1, x2, compute_mode),
        reason="many rows: the distances are taken from one product, as in PyTorch",
    )
    def product(self, g: Builder, x1: Value, x2: Value, **_: Any) -> Value:
        a, b = widened(g, x1), widened(g, x2)
        order = [*range(b.rank - 2), b.rank - 1, b.rank - 2]
        ones = g.reduce_sum(a * a, [a.rank - 1]), g.transpose(g.reduce_sum(b * b, [b.rank - 1]), order)
        square = ones[0] + ones[1] - g.matmul(a, g.transpose(b, order)) * 2
        return g.cast(g.sqrt(g.where_(g.less(square, 0.0), 0.0, square)), x1)

    @decomposition()
    def differences(
        self, g: Builder, x1: Value, x2: Value, p: float = 2.0, compute_mode: int | None = None
    ) -> Value:
        a, b = widened(g, x1), widened(g, x2)
        size = g.abs(g.unsqueeze(a, [a.rank - 1]) - g.unsqueeze(b, [b.rank - 2]))
        return g.cast(_norm(g, size, p), x1)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(5, 4), f32(6, 4))
        yield Case(f32(2, 5, 3), f32(6, 3), p=1.0)
        yield Case(f32(3, 1, 2, 4), f32(2, 6, 4), p=math.inf, symbolic=False)
        yield Case(f32(5, 4), f32(6, 4), p=0.5, symbolic=False)
        equal = (0.0, 1.0, 0.0, 2.0, 1.0, 1.0)
        yield Case(f32(3, 2, value=equal), f32(3, 2, value=equal), p=0.0, symbolic=False)
        yield Case(f32(26, 4), f32(3, 4), symbolic=False)
        yield Case(f32(3, 0), f32(2, 0), p=3.0, symbolic=False)


class Pdist(Placeholder):
    """The p-norms of the differences of the rows of a matrix, of each pair once; the meaning of `torch.pdist`."""

    matches = ("Pdist", "aten::pdist", "aten::_pdist_forward")
    shapes = "x: N M"
    tolerances = {"float32": (4e-6, 1e-6)}  # noqa: RUF012

    def reference(self, x: Any, p: float = 2.0) -> Any:
        import torch

        narrow = x.dtype in (torch.float16, torch.bfloat16)  # PyTorch has no kernel of it
        return torch.nn.functional.pdist(x.float() if narrow else x, p).to(x.dtype)

    def decompose(self, g: Builder, x: Value, p: float = 2.0) -> Value:
        wide = widened(g, x)
        rows = g.dim(x, 0)
        if isinstance(rows, int):
            g.afford(rows * (rows - 1))
            first, second = (g.const(part.astype(np.int64)) for part in np.triu_indices(rows, 1))
        else:
            numbers = g.range(0, g.squeeze(rows, [0]))
            pairs = g.op("NonZero", g.less(g.unsqueeze(numbers, [1]), g.unsqueeze(numbers, [0])))
            first, second = g.gather(pairs, 0, axis=0), g.gather(pairs, 1, axis=0)
        size = g.abs(g.gather(wide, first, axis=0) - g.gather(wide, second, axis=0))
        return g.cast(_norm(g, size, p), x)

    def cases(self) -> Iterator[Case]:
        for p in (2.0, 1.0, 0.0, math.inf, 3.0):
            yield Case(f32(5, 3), p=p, symbolic=p == 2.0)
        yield Case(f32(1, 3), symbolic=False)


def _is_by_product(x1: Value, x2: Value, mode: int | None) -> bool:
    if mode in (_ALWAYS, _NEVER):
        return mode == _ALWAYS
    rows = x1.shape[-2], x2.shape[-2]
    return any(not isinstance(count, int) or count > _BY_PRODUCT for count in rows)


def _norm(g: Builder, size: Value, p: float) -> Value:
    """The p-norm of numbers that are not negative, over the last axis."""
    axis = [size.rank - 1]
    if p < 0:
        raise UnsupportedParameter(f"p is {p}, which makes no norm", where=g.where)
    if p == 0:
        return g.reduce_sum(g.where_(g.greater(size, 0.0), 1.0, size), axis, keepdims=False)
    if p == 1:
        return g.reduce_sum(size, axis, keepdims=False)
    if p == 2:
        return g.sqrt(g.reduce_sum(size * size, axis, keepdims=False))
    if math.isinf(p):
        # Of nothing, 0.
        widths = [1 if i == axis[0] else 0 for i in range(size.rank)]
        empty = size.size(axis[0]) == 0
        return g.reduce_max(g.pad(size, [0] * size.rank, widths, value=0.0) if empty else size, axis, False)
    return g.pow(g.reduce_sum(g.pow(size, p), axis, keepdims=False), 1 / p)
