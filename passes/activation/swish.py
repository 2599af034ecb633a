"""Swish, of which SiLU is the case β = 1 (Ramachandran et al., 2017, arXiv:1710.05941)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.placeholder import ELEMENTWISE, Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class Swish(Placeholder):
    """x · sigmoid(β·x), elementwise; β = 1 is `torch.nn.functional.silu`."""

    matches = ("Swish", "SiLU", "MySwish", "CustomSwish", "aten::silu", "aten::silu_")
    standard = {"Swish": lambda op: {"x": op.x, "beta": op.get("alpha")}}  # noqa: RUF012
    shapes = "x: ...; beta: ..."

    tolerances = ELEMENTWISE

    def reference(self, x: Any, beta: Any = 1.0) -> Any:
        import torch

        if isinstance(beta, float) and beta == 1.0:
            # Not x * sigmoid(x): torch computes it in float32 for float16, and so keeps the tails.
            return torch.nn.functional.silu(x)
        return x * torch.sigmoid(beta * x)

    def terms(self, x: Any, beta: Any = 1.0) -> Any:
        return {"Sigmoid": x}

    def infer(self, x: Value, beta: float | Value = 1.0) -> Any:
        return x.type if isinstance(beta, float) or _is_scalar(beta) else None

    def decompose(self, g: Builder, x: Value, beta: float | Value = 1.0) -> Value:
        scaled = x if isinstance(beta, float) and beta == 1.0 else x * beta
        return x * g.sigmoid(scaled)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 8))
        yield Case(f32(2, 3, 8), beta=1.5)
        yield Case(f32(4, 5), beta=-0.5)
        yield Case(f32(2, 3, 8), f32(1, value=(0.75,)))
        yield Case(f32(2, 3, 8), f32(8))
        yield Case(f32(7), f32())
        yield Case(f32())
        yield Case(f32(0, 3))
        # Both tails, and the values that have no neighbours.  At −inf torch itself gives NaN (−inf · 0).
        yield Case(f32(8, value=(-100.0, -20.0, -1e-3, -0.0, 0.0, 20.0, 100.0, float("nan"))))
        yield Case(f32(2, value=(float("inf"), float("-inf"))))


def _is_scalar(value: Value) -> bool:
    return value.type is not None and value.type.shape == ()
