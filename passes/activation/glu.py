"""Gated linear units: one half of an axis gates the other (Dauphin et al., 2017; Shazeer, 2020, arXiv:2002.05202)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes.activation.gelu import gelu, gelu_terms
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import ELEMENTWISE, Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class Glu(Placeholder):
    """a · sigmoid(b), where a and b are the halves of `x` along `dim`; the meaning of `torch.nn.functional.glu`."""

    matches = ("Glu", "aten::glu")
    shapes = "x: ..."
    aliases = {"axis": "dim"}  # noqa: RUF012
    tolerances = ELEMENTWISE

    def reference(self, x: Any, dim: int = -1) -> Any:
        import torch

        return torch.nn.functional.glu(x, dim)

    def terms(self, x: Any, dim: int = -1) -> Any:
        value, _ = np.split(x, 2, dim)
        return {"Sigmoid": value}

    def decompose(self, g: Builder, x: Value, dim: int = -1) -> Value:
        value, gate = _halves(g, x, dim)
        return value * g.sigmoid(gate)

    def cases(self) -> Iterator[Case]:
        yield from _cases()


class SwiGlu(Placeholder):
    """silu(a) · b, where a and b are the halves of `x` along `dim` (Shazeer, 2020)."""

    matches = ("SwiGlu",)
    shapes = "x: ..."
    name = "swiglu"
    aliases = {"axis": "dim"}  # noqa: RUF012
    tolerances = ELEMENTWISE

    def reference(self, x: Any, dim: int = -1) -> Any:
        import torch

        gate, value = x.chunk(2, dim)
        return torch.nn.functional.silu(gate) * value

    def terms(self, x: Any, dim: int = -1) -> Any:
        gate, value = np.split(x, 2, dim)
        return {"Sigmoid": gate * value}

    def decompose(self, g: Builder, x: Value, dim: int = -1) -> Value:
        gate, value = _halves(g, x, dim)
        return gate * g.sigmoid(gate) * value

    def cases(self) -> Iterator[Case]:
        yield from _cases()


class GeGlu(Placeholder):
    """gelu(a) · b, where a and b are the halves of `x` along `dim` (Shazeer, 2020).

    Libraries differ in which half is the gate: `gate` says "first" (the paper) or "last" (diffusers).
    """

    matches = ("GeGlu",)
    shapes = "x: ..."
    name = "geglu"
    aliases = {"axis": "dim"}  # noqa: RUF012
    dtypes = ("float16", "float32")  # onnxruntime has no float64 kernel of Erf
    tolerances = ELEMENTWISE

    def reference(self, x: Any, dim: int = -1, approximate: str = "none", gate: str = "first") -> Any:
        import torch

        first, last = x.chunk(2, dim)
        if gate == "last":
            first, last = last, first
        return torch.nn.functional.gelu(first, approximate=approximate) * last

    def terms(self, x: Any, dim: int = -1, approximate: str = "none", gate: str = "first") -> Any:
        first, last = np.split(x, 2, dim)
        return gelu_terms(first * last, approximate)

    def decompose(
        self, g: Builder, x: Value, dim: int = -1, approximate: str = "none", gate: str = "first"
    ) -> Value:
        if gate not in ("first", "last"):
            raise UnsupportedParameter(f"gate is '{gate}'", where=g.where, remedy="it is 'first' or 'last'")
        first, last = _halves(g, x, dim)
        if gate == "last":
            first, last = last, first
        return gelu(g, first, approximate) * last

    def cases(self) -> Iterator[Case]:
        yield from _cases()
        yield Case(f32(2, 6), approximate="tanh")
        yield Case(f32(2, 6), gate="last")


def _halves(g: Builder, x: Value, dim: int) -> tuple[Value, Value]:
    if not -x.rank <= dim < x.rank:
        raise UnsupportedParameter(f"dim {dim} is outside a tensor of rank {x.rank}", where=g.where)
    axis = dim % x.rank
    size = g.dim(x, axis)
    if isinstance(size, int):
        if size % 2:
            raise UnsupportedParameter(
                f"axis {dim} has {size} elements, which cannot be halved", where=g.where
            )
        first, last = g.split(x, [size // 2, size // 2], axis)
        return first, last
    half: Value = g.op("Div", size, g.ints([2]))
    return g.slice(x, [0], half, [axis]), g.slice(x, half, [np.iinfo(np.int64).max], [axis])


def _cases() -> Iterator[Case]:
    yield Case(f32(2, 6))
    yield Case(f32(2, 4, 3), dim=1)
    yield Case(f32(2, 4, 3), dim=-3)
    yield Case(f32(0, 4))
    yield Case(f32(3, 0))
    yield Case(f32(4, value=(float("-inf"), float("nan"), 2.0, 3.0)))
