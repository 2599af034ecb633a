"""ELU (Clevert et al., 2015, arXiv:1511.07289) and its relatives CELU and SELU.

All three are max(x, 0) + a·(exp(min(x, 0)·b) − 1), which needs no comparison.  onnxruntime's own kernels of Elu and
Celu are slower than these operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from rewriter.placeholder import ELEMENTWISE, Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

from rewriter.placeholder import Builder, Value

# Klambauer et al., 2017, arXiv:1706.02515, as torch has them.
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


class Elu(Placeholder):
    """scale·x where x > 0, else scale·α·(exp(input_scale·x) − 1); the meaning of `aten::elu`."""

    matches = ("Elu", "aten::elu", "aten::elu_")
    standard = {"Elu": lambda op: {"x": op.x, "alpha": op.get("alpha")}}  # noqa: RUF012
    shapes = "x: ..."
    tolerances = ELEMENTWISE

    def reference(self, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
        import torch

        return torch.ops.aten.elu(x, alpha, scale, input_scale)

    def terms(self, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
        return {"Elu": scale * alpha}

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    def decompose(
        self, g: Builder, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
    ) -> Value:
        return _elu(g, x, scale, scale * alpha, input_scale)

    def cases(self) -> Iterator[Case]:
        yield from _cases()
        yield Case(f32(2, 3, 8), alpha=0.5)
        yield Case(f32(2, 3, 8), alpha=-2.0)
        yield Case(f32(2, 3, 8), alpha=1.5, scale=1.25, input_scale=0.5)


class Celu(Placeholder):
    """max(x, 0) + min(0, α·(exp(x/α) − 1)); the meaning of `torch.nn.functional.celu` (arXiv:1704.07483)."""

    matches = ("Celu", "aten::celu", "aten::celu_")
    standard = {"Celu": lambda op: {"x": op.x, "alpha": op.get("alpha")}}  # noqa: RUF012
    shapes = "x: ..."
    tolerances = ELEMENTWISE

    def reference(self, x: Any, alpha: float = 1.0) -> Any:
        import torch

        return torch.nn.functional.celu(x, alpha)

    def terms(self, x: Any, alpha: float = 1.0) -> Any:
        return {"Elu": alpha}

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    def decompose(self, g: Builder, x: Value, alpha: float = 1.0) -> Value:
        return _elu(g, x, 1.0, alpha, 1 / alpha)

    def cases(self) -> Iterator[Case]:
        yield from _cases()
        yield Case(f32(2, 3, 8), alpha=0.5)
        yield Case(f32(2, 3, 8), alpha=3.0)


class Selu(Placeholder):
    """ELU with the constants of self-normalising networks; the meaning of `torch.nn.functional.selu`."""

    matches = ("Selu", "aten::selu", "aten::selu_")
    shapes = "x: ..."
    tolerances = ELEMENTWISE

    def reference(self, x: Any) -> Any:
        import torch

        return torch.nn.functional.selu(x)

    def terms(self, x: Any) -> Any:
        return {"Elu": _SELU_SCALE * _SELU_ALPHA}

    def infer(self, x: Value) -> Any:
        return x.type

    # The operator's constants are float32.  With two factors to apply, one kernel beats seven (0.6 of the time).
    @decomposition(
        requires=lambda x: x.dtype != TensorProto.DOUBLE,
        reason="one kernel instead of seven operators",
    )
    def native(self, g: Builder, x: Value) -> Value:
        result: Value = g.op("Selu", x)
        return result

    @decomposition()
    def formula(self, g: Builder, x: Value) -> Value:
        return _elu(g, x, _SELU_SCALE, _SELU_SCALE * _SELU_ALPHA, 1.0)

    def cases(self) -> Iterator[Case]:
        yield from _cases()


def _elu(g: Builder, x: Value, positive: float, negative: float, inside: float) -> Value:
    """positive·max(x, 0) + negative·(exp(inside·min(x, 0)) − 1)."""
    below = g.minimum(x, 0.0)
    if positive == 1.0 and 0.0 <= negative <= 1.0 and inside == 1.0:
        # a·(exp(x) − 1) ≥ x below zero where a ≤ 1, and is 0 above: one Max serves both sides.
        low = g.exp(below) - 1
        return g.maximum(x, low if negative == 1.0 else low * negative)
    if inside != 1.0:
        below = below * inside
    below = g.exp(below) - 1
    above = g.maximum(x, 0.0)
    above = above if positive == 1.0 else above * positive
    return above + (below if negative == 1.0 else below * negative)


def _cases() -> Iterator[Case]:
    yield Case(f32(2, 3, 8))
    yield Case(f32())
    yield Case(f32(0, 3))
    yield Case(f32(6, value=(-200.0, -20.0, -0.0, 0.0, 20.0, 60000.0)))
    yield Case(f32(3, value=(float("inf"), float("-inf"), float("nan"))))
