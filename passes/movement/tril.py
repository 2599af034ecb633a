"""Triangles of the last two axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from passes.movement._data import EXACT, MOVED, NO_WHERE, by_signed, carried
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

#: What Trilu has kernels for.
_TRILU = frozenset(
    {
        TensorProto.FLOAT16,
        TensorProto.FLOAT,
        TensorProto.DOUBLE,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.BOOL,
    }
)
#: Larger constant masks would weigh more in the file than the comparison that they save.
_MOST_ELEMENTS = 1 << 16


class Tril(Placeholder):
    """`x` on and below the `diagonal` of its last two axes, 0 above it; the meaning of `torch.tril`."""

    matches = ("Tril", "aten::tril")
    standard = {  # noqa: RUF012
        "Trilu": lambda op: None if op.get("upper") else {"x": op.x, "diagonal": op.number(1, 0)}
    }
    shapes = "x: ... _ _; diagonal: () | 1"
    aliases = {"k": "diagonal"}  # noqa: RUF012
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, diagonal: Any = 0) -> Any:
        import torch

        return by_signed(x, lambda data: torch.tril(data, int(diagonal)))

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    @decomposition(opset=14, portable=False, requires=lambda x, **_: x.dtype in _TRILU)
    def trilu(self, g: Builder, x: Value, diagonal: int | Value = 0) -> Value:
        return _by_trilu(g, x, diagonal, upper=False)

    @decomposition()
    def where(self, g: Builder, x: Value, diagonal: int | Value = 0) -> Value:
        return _by_mask(g, x, diagonal, upper=False)

    def cases(self) -> Iterator[Case]:
        yield from _cases()


class Triu(Placeholder):
    """`x` on and above the `diagonal` of its last two axes, 0 below it; the meaning of `torch.triu`."""

    matches = ("Triu", "aten::triu")
    standard = {  # noqa: RUF012
        "Trilu": lambda op: {"x": op.x, "diagonal": op.number(1, 0)} if op.get("upper") else None
    }
    shapes = "x: ... _ _; diagonal: () | 1"
    aliases = {"k": "diagonal"}  # noqa: RUF012
    dtypes = MOVED
    tolerances = EXACT

    def reference(self, x: Any, diagonal: Any = 0) -> Any:
        import torch

        return by_signed(x, lambda data: torch.triu(data, int(diagonal)))

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    @decomposition(opset=14, portable=False, requires=lambda x, **_: x.dtype in _TRILU)
    def trilu(self, g: Builder, x: Value, diagonal: int | Value = 0) -> Value:
        return _by_trilu(g, x, diagonal, upper=True)

    @decomposition()
    def where(self, g: Builder, x: Value, diagonal: int | Value = 0) -> Value:
        return _by_mask(g, x, diagonal, upper=True)

    def cases(self) -> Iterator[Case]:
        yield from _cases()


def _cases() -> Iterator[Case]:
    inf, nan = float("inf"), float("nan")
    yield Case(f32(3, 4))
    yield Case(f32(4, 3), diagonal=1)
    yield Case(f32(2, 3, 3), diagonal=-1)
    yield Case(f32(2, 3), diagonal=-7)
    yield Case(f32(2, 3), diagonal=7)
    yield Case(f32(2, 3, 0), diagonal=1)
    # 0 × ∞ would be NaN: the elements that go must not be computed with.
    yield Case(f32(2, 2, value=(inf, nan, nan, -0.0)), dtypes=("float32",))
    yield Case(f32(2, 2, value=(-inf, nan, inf, -inf)), diagonal=-1, dtypes=("float32",))
    yield Case(f32(3, 4), i64(value=-1))


def _by_trilu(g: Builder, x: Value, diagonal: int | Value, *, upper: bool) -> Value:
    _check(g, x)
    k = g.ints(diagonal) if isinstance(diagonal, int) else _scalar(g, diagonal)
    result: Value = g.op("Trilu", x, None if diagonal == 0 else k, upper=int(upper))
    return result


def _by_mask(g: Builder, x: Value, diagonal: int | Value, *, upper: bool) -> Value:
    """Where(column − row ≤ diagonal, x, 0), or ≥."""
    _check(g, x)
    rows, columns = g.dim(x, -2), g.dim(x, -1)
    if (
        isinstance(diagonal, int)
        and isinstance(rows, int)
        and isinstance(columns, int)
        and rows * columns <= _MOST_ELEMENTS
    ):
        offsets = np.arange(columns)[None, :] - np.arange(rows)[:, None]
        kept = g.const(offsets >= diagonal if upper else offsets <= diagonal)
    else:
        along, down = (
            g.range(0, size if isinstance(size, int) else g.squeeze(size, [0])) for size in (columns, rows)
        )
        limit = down + (g.ints(diagonal) if isinstance(diagonal, int) else _scalar(g, diagonal))
        limit = g.unsqueeze(limit, [1])
        kept = g.greater_equal(along, limit) if upper else g.less_equal(along, limit)
    if x.dtype == TensorProto.BOOL:
        return g.and_(x, kept)
    return carried(g, x, NO_WHERE, lambda data: g.where_(kept, data, 0))


def _scalar(g: Builder, diagonal: Value) -> Value:
    return g.cast(g.reshape(diagonal, []), TensorProto.INT64)


def _check(g: Builder, x: Value) -> None:
    if x.rank < 2:
        raise UnsupportedParameter(
            f"a tensor of rank {x.rank} has no triangle", where=g.where, remedy="it has at least two axes"
        )
