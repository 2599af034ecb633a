"""Softplus and log-sigmoid, by the form that neither overflows nor loses the tails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from rewriter.placeholder import ELEMENTWISE, Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

#: ln(1 + e^-t) is below the rounding of t from here on, for float32 and narrower.
_NEGLIGIBLE = 17.0


class Softplus(Placeholder):
    """ln(1 + exp(β·x)) / β, and x where β·x > threshold; the meaning of `torch.nn.functional.softplus`."""

    matches = ("Softplus", "aten::softplus")
    shapes = "x: ..."
    tolerances = ELEMENTWISE

    def reference(self, x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
        import torch

        return torch.nn.functional.softplus(x, beta, threshold)

    def terms(self, x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
        # The logarithm of a Sigmoid of 1/2 at least.
        return {"Sigmoid": 2 / beta}

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    @decomposition(
        portable=False, reason="two operators fewer than by Exp: 5 to 15 % less time in onnxruntime"
    )
    def by_sigmoid(self, g: Builder, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
        # tract's Sigmoid does not let NaN through.
        scaled = x if beta == 1.0 else x * beta
        return _unscaled(g, x, scaled, g.relu(scaled) - _log_sigmoid_of_magnitude(g, scaled), beta, threshold)

    @decomposition()
    def by_exp(self, g: Builder, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
        scaled = x if beta == 1.0 else x * beta
        rest = g.log(g.exp(-g.abs(scaled)) + 1)
        return _unscaled(g, x, scaled, g.maximum(scaled, 0.0) + rest, beta, threshold)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 8))
        yield Case(f32(2, 3), beta=2.0)
        yield Case(f32(2, 3), beta=-1.5)
        yield Case(f32(16), beta=0.5, threshold=0.25)
        yield Case(f32(6, value=(19.0, 19.9, 20.1, 21.0, 25.0, 9.0)), beta=1.0, threshold=20.0)
        yield Case(f32())
        yield Case(f32(0, 3))
        yield Case(f32(7, value=(-200.0, -90.0, -0.0, 0.0, 90.0, 200.0, 60000.0)))
        yield Case(f32(3, value=(float("inf"), float("-inf"), float("nan"))))


class LogSigmoid(Placeholder):
    """ln(1 / (1 + exp(−x))), elementwise; the meaning of `torch.nn.functional.logsigmoid`.

    The second output is the buffer that PyTorch keeps for the backward on a CPU: exp(−|x|).
    """

    matches = ("LogSigmoid", "aten::log_sigmoid", "aten::log_sigmoid_forward")
    shapes = "x: ..."
    name = "logsigmoid"
    outputs = ("output", "buffer")
    auxiliary = ("buffer",)
    tolerances = ELEMENTWISE

    def reference(self, x: Any) -> Any:
        import torch

        return torch.ops.aten.log_sigmoid_forward(x)

    def terms(self, x: Any) -> Any:
        return {"Sigmoid": 2.0}

    def infer(self, x: Value) -> Any:
        return [x.type, x.type]

    # Log(Sigmoid(x)) would be −∞ from about −16 on, and lose its digits well before.
    @decomposition(
        portable=False, reason="two operators fewer than by Exp: 5 to 15 % less time in onnxruntime"
    )
    def by_sigmoid(self, g: Builder, x: Value) -> Any:
        result = g.minimum(x, 0.0) + _log_sigmoid_of_magnitude(g, x)
        return result, g.exp(-g.abs(x)) if g.wants("buffer") else None

    @decomposition()
    def by_exp(self, g: Builder, x: Value) -> Any:
        decayed = g.exp(-g.abs(x))
        return g.minimum(x, 0.0) - g.log(decayed + 1), decayed

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 8))
        yield Case(f32())
        yield Case(f32(0, 3))
        yield Case(f32(7, value=(-60000.0, -200.0, -90.0, -0.0, 0.0, 90.0, 200.0)))
        yield Case(f32(3, value=(float("inf"), float("-inf"), float("nan"))))


def _log_sigmoid_of_magnitude(g: Builder, x: Value) -> Value:
    """−ln(1 + exp(−|x|)), between −ln 2 and 0."""
    return g.log(g.sigmoid(g.abs(x)))


def _unscaled(g: Builder, x: Value, scaled: Value, result: Value, beta: float, threshold: float) -> Value:
    """Softplus of ``scaled`` = β·x as one of x."""
    if beta != 1.0:
        result = result / beta
    if threshold < _NEGLIGIBLE or x.dtype == TensorProto.DOUBLE:
        result = g.where_(g.greater(scaled, threshold), x, result)
    return result
