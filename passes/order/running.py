"""Running maxima, minima, products, and sums of exponentials."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from passes.order._dtypes import DTYPES, torch_dtype
from passes.order._running import doubled, length_along, scanned, unrolled
from passes.order._running_extreme import RunningExtreme
from passes.order._sorting import FLOATING, SORTED, comparable, with_axis, without_axis
from rewriter.placeholder import Case, Placeholder, decomposition, f32
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rewriter.placeholder import Builder, Value

_INF, _NAN = float("inf"), float("nan")
#: Products up to this length are written out.
_UNROLLED = 64


class Cummax(RunningExtreme):
    """The largest element up to each one along `dim`, and its index; the meaning of `torch.cummax`."""

    matches = ("Cummax", "aten::cummax")
    shapes = "x: ..."
    largest = True

    def reference(self, x: Any, dim: int) -> Any:
        import torch

        return tuple(torch.cummax(x, dim))


class Cummin(RunningExtreme):
    """The smallest element up to each one along `dim`, and its index; the meaning of `torch.cummin`."""

    matches = ("Cummin", "aten::cummin")
    shapes = "x: ..."
    largest = False

    def reference(self, x: Any, dim: int) -> Any:
        import torch

        return tuple(torch.cummin(x, dim))


class Cumprod(Placeholder):
    """The product of all elements up to each one along `dim`; the meaning of `torch.cumprod`.

    `dtype` is PyTorch's number of the element type to compute in.  Products are made one after the other, as in
    PyTorch: another order overflows elsewhere.
    """

    matches = ("Cumprod", "aten::cumprod")
    shapes = "x: ..."
    aliases = {"axis": "dim"}  # noqa: RUF012
    dtypes = SORTED

    def reference(self, x: Any, dim: int, dtype: int | None = None) -> Any:
        import torch

        return torch.cumprod(x, dim, dtype=None if dtype is None else torch_dtype(dtype))

    def infer(self, x: Value, dtype: int | None = None, **_: Any) -> Any:
        return None if x.type is None else TensorType(_product_dtype(x, dtype), x.type.shape)

    @decomposition(
        when=lambda x, dim, **_: (length_along(x, dim) or _UNROLLED + 1) <= _UNROLLED,
        requires=lambda x, dim, **_: length_along(x, dim) is not None,
        reason="one Mul an element",
    )
    def unrolled(self, g: Builder, x: Value, dim: int, dtype: int | None = None) -> Any:
        data, axis = with_axis(g, x, dim)
        length = data.size(axis)
        assert length is not None
        factors = _factors(g, data, _product_dtype(x, dtype))
        (product,) = unrolled(g, [factors], axis, length, _times)
        return without_axis(g, (g.cast(product, _product_dtype(x, dtype)),), x)[0]

    @decomposition(portable=False, reason="any length; tract lacks Scan")
    def scan(self, g: Builder, x: Value, dim: int, dtype: int | None = None) -> Any:
        data, axis = with_axis(g, x, dim)
        factors = _factors(g, data, _product_dtype(x, dtype))
        (product,) = scanned(g, [factors], axis, (1,), _times)
        return without_axis(g, (g.cast(product, _product_dtype(x, dtype)),), x)[0]

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 5), dim=1)
        yield Case(f32(2, 70, 2, value=[1.01, -0.99, 1.0, 1.0] * 70), dim=-2)
        # PyTorch's own product of the first two is finite, in float64.
        yield Case(f32(5, value=(1e30, 1e30, 1e-30, 1e-30, 0)), dim=0, dtypes=("float32",))
        yield Case(f32(4, value=(2, _NAN, 0, _INF)), dim=0, dtypes=("float32",))
        yield Case(f32(2, 3), dim=0, dtype=7, dtypes=("float32", "int32", "bool"))
        yield Case(f32(), dim=0)
        yield Case(f32(2, 0), dim=1, symbolic=False)


def _product_dtype(x: Value, dtype: int | None) -> int:
    if dtype is not None:
        return DTYPES[dtype]
    return x.dtype if x.dtype in FLOATING else TensorProto.INT64


def _factors(g: Builder, x: Value, dtype: int) -> Value:
    """``x`` in the element type of the products: PyTorch keeps the running product of floats in float64."""
    x = g.cast(x, dtype)
    if dtype in FLOATING:
        return g.cast(x, TensorProto.DOUBLE)
    return g.cast(x, TensorProto.INT64)


def _times(g: Builder, before: Sequence[Value], now: Sequence[Value]) -> Sequence[Value]:  # noqa: ARG001
    return [before[0] * now[0]]


class Logcumsumexp(Placeholder):
    """The logarithm of the sum of the exponentials up to each element along `dim`: `torch.logcumsumexp`.

    It is combined from logarithms only, so that no exponential overflows.
    """

    matches = ("Logcumsumexp", "aten::logcumsumexp")
    shapes = "x: ..."
    aliases = {"axis": "dim"}  # noqa: RUF012
    dtypes = ("float16", "float32", "float64")

    def reference(self, x: Any, dim: int) -> Any:
        import torch

        return torch.logcumsumexp(x, dim)

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    @decomposition(requires=lambda x, dim: length_along(x, dim) is not None)
    def doubling(self, g: Builder, x: Value, dim: int) -> Any:
        data, axis = with_axis(g, x, dim)
        length = data.size(axis)
        assert length is not None
        (found,) = doubled(g, [comparable(g, data)], axis, length, _log_of_sum)
        return without_axis(g, (g.cast(found, x),), x)[0]

    @decomposition(portable=False, reason="any length; tract lacks Scan")
    def scan(self, g: Builder, x: Value, dim: int) -> Any:
        data, axis = with_axis(g, x, dim)
        (found,) = scanned(g, [comparable(g, data)], axis, (-math.inf,), _log_of_sum)
        return without_axis(g, (g.cast(found, x),), x)[0]

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 5), dim=1)
        yield Case(f32(2, 9, 3), dim=-2)
        yield Case(f32(6, value=(500, -500, 1000, 1000, -1000, 0)), dim=0)
        special = f32(8, value=(-_INF, -_INF, 1, -_INF, _INF, _INF, _NAN, -_INF))
        yield Case(special, dim=0)
        yield Case(f32(), dim=0)
        yield Case(f32(2, 0), dim=1, symbolic=False)


def _log_of_sum(g: Builder, before: Sequence[Value], now: Sequence[Value]) -> Sequence[Value]:
    """m + ln(1 + exp(−|a − b|)), m the larger one; equal infinities have no difference."""
    a, b = before[0], now[0]
    larger = g.where_(g.greater_equal(a, b), a, b)
    distance = g.where_(g.equal(a, b), 0.0, g.abs(a - b))
    # A NaN in either makes the distance NaN; what is added to an infinity does not count.
    return [larger + g.log(g.exp(-distance) + 1)]
