"""Sorting, stable, with indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from passes.order._sorting import EXACT, SORTED, ordered, values_and_indices, with_axis, without_axis
from rewriter.placeholder import Bound, Case, Placeholder, Site, bind, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

_INF, _NAN = float("inf"), float("nan")


class Sort(Placeholder):
    """The elements of `x` along `dim` in order, and their indices; the meaning of `torch.sort(…, stable=True)`.

    NaN is larger than all numbers.  PyTorch's own order of equal elements is not defined without `stable`; this one is.
    """

    matches = ("Sort", "aten::sort")
    shapes = "x: ..."
    outputs = ("values", "indices")
    aliases = {"axis": "dim"}  # noqa: RUF012
    dtypes = SORTED
    tolerances = EXACT

    def reference(self, x: Any, dim: int = -1, descending: bool = False) -> Any:
        import torch

        return tuple(torch.sort(x, stable=True, dim=dim, descending=descending))

    def bound_at(self, site: Site) -> Bound | None:
        # aten::sort.stable has a flag before the axis.
        if site.node.domain == "org.pytorch.aten" and len(site.node.input) == 4:
            return bind(self.signature, site, schema=("x", "-", "dim", "descending"))
        return None

    def infer(self, x: Value, **_: Any) -> Any:
        return values_and_indices(x)

    def decompose(self, g: Builder, x: Value, dim: int = -1, descending: bool = False) -> Any:
        data, axis = with_axis(g, x, dim)
        return without_axis(g, ordered(g, data, axis, descending), x)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 4))
        yield Case(f32(2, 7, 3), dim=1, descending=True)
        # Equal elements keep their order, also in descending order.
        ties = f32(9, value=(1, 0, 1, 0, 1, 0, 0, 1, 1))
        yield Case(ties)
        yield Case(ties, dim=0, descending=True)
        special = f32(2, 5, value=(_NAN, _INF, 1, _NAN, -_INF, _INF, _NAN, -0.0, 0.0, _INF))
        yield Case(special, dtypes=("float16", "float32", "float64"))
        yield Case(special, dim=-1, descending=True, dtypes=("float16", "float32", "float64"))
        yield Case(f32())
        yield Case(f32(2, 0), dim=1)
        yield Case(f32(0, 3), dim=1, symbolic=False)
