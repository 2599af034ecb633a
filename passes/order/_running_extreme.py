"""What running maxima and minima share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from onnx import TensorProto

from passes.order._running import doubled, length_along, scanned
from passes.order._sorting import (
    EXACT,
    FLOATING,
    SORTED,
    comparable,
    is_nan,
    positions,
    values_and_indices,
    with_axis,
    without_axis,
)
from rewriter.placeholder import Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rewriter.placeholder import Builder, Value

_INF, _NAN = float("inf"), float("nan")


class RunningExtreme(Placeholder):
    outputs = ("values", "indices")
    aliases = {"axis": "dim"}  # noqa: RUF012
    dtypes = SORTED
    tolerances = EXACT
    largest: ClassVar[bool]

    def infer(self, x: Value, **_: Any) -> Any:
        return values_and_indices(x)

    @decomposition(requires=lambda x, dim: length_along(x, dim) is not None)
    def doubling(self, g: Builder, x: Value, dim: int) -> Any:
        data, axis = with_axis(g, x, dim)
        length = data.size(axis)
        assert length is not None
        return self._finished(g, x, data, doubled(g, self._streams(g, data, axis), axis, length, self._later))

    @decomposition(portable=False, reason="any length; tract lacks Scan")
    def scan(self, g: Builder, x: Value, dim: int) -> Any:
        data, axis = with_axis(g, x, dim)
        streams = self._streams(g, data, axis)
        least = -math.inf if self.largest else math.inf
        if streams[0].dtype not in FLOATING:
            width = 31 if streams[0].dtype == TensorProto.INT32 else 63
            least = -(1 << width) if self.largest else (1 << width) - 1
        return self._finished(g, x, data, scanned(g, streams, axis, (least, 0), self._later))

    def _streams(self, g: Builder, x: Value, axis: int) -> Sequence[Value]:
        places = g.expand(positions(g, x, axis), [g.dim(x, i) for i in range(x.rank)])
        return comparable(g, x), g.retyped(places, x.shape)

    def _later(self, g: Builder, before: Sequence[Value], now: Sequence[Value]) -> Sequence[Value]:
        """The later of two equal elements is taken, and NaN stays once it has come."""
        compare = g.greater_equal if self.largest else g.less_equal
        taken = compare(now[0], before[0])
        was_nan, comes_nan = is_nan(g, before[0]), is_nan(g, now[0])
        if was_nan is not None and comes_nan is not None:
            taken = g.or_(comes_nan, g.and_(taken, g.not_(was_nan)))
        return [g.where_(taken, new, old) for new, old in zip(now, before, strict=True)]

    def _finished(self, g: Builder, x: Value, data: Value, found: Sequence[Value]) -> Any:
        values, indices = g.retyped(g.cast(found[0], x.dtype), data.shape), found[1]
        return without_axis(g, (values, indices), x)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 11, 3), dim=-2)
        # Of equal elements the last one is told.
        yield Case(f32(8, value=(1, 0, 1, 0, 0, 1, 2, 2)), dim=0)
        special = (1, _INF, -_INF, _NAN, _INF, _NAN, 2, 0, -_INF, -_INF, 3, _INF, 0, -0.0)
        yield Case(f32(2, 7, value=special), dim=1, dtypes=("float16", "float32", "float64"))
        yield Case(f32(), dim=0)
        yield Case(f32(2, 0), dim=1, symbolic=False)
