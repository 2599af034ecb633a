"""Hard-Swish and Hard-Sigmoid (Howard et al., 2019, arXiv:1905.02244)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class HardSigmoid(Placeholder):
    """min(max(x + 3, 0), 6) / 6, elementwise; the meaning of `torch.nn.functional.hardsigmoid`."""

    # Not in the default domain: ONNX's own HardSigmoid has other constants.
    matches = ("HardSigmoid", "aten::hardsigmoid", "aten::hardsigmoid_")
    shapes = "x: ..."
    name = "hardsigmoid"

    def reference(self, x: Any) -> Any:
        import torch

        return torch.nn.functional.hardsigmoid(x)

    def infer(self, x: Value) -> Any:
        return x.type

    def decompose(self, g: Builder, x: Value) -> Value:
        return _hard_sigmoid(g, x)

    def cases(self) -> Iterator[Case]:
        yield from _cases()


class HardSwish(Placeholder):
    """x · hardsigmoid(x), elementwise; the meaning of `torch.nn.functional.hardswish`."""

    matches = ("HardSwish", "HSwish", "aten::hardswish", "aten::hardswish_")
    standard = {"HardSwish": lambda op: {"x": op.x}}  # noqa: RUF012
    shapes = "x: ..."
    name = "hardswish"

    def reference(self, x: Any) -> Any:
        import torch

        return torch.nn.functional.hardswish(x)

    def infer(self, x: Value) -> Any:
        return x.type

    def decompose(self, g: Builder, x: Value) -> Value:
        # ONNX's HardSwish has no kernel in onnxruntime, which expands it into these two.
        return x * _hard_sigmoid(g, x)

    def cases(self) -> Iterator[Case]:
        yield from _cases()


def _hard_sigmoid(g: Builder, x: Value) -> Value:
    if x.dtype == TensorProto.DOUBLE:
        # The operator's attributes are float32, in which 1/6 is wrong from the eighth digit on.
        return g.clip(x / 6 + 0.5, 0.0, 1.0)
    result: Value = g.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)
    return result


def _cases() -> Iterator[Case]:
    yield Case(f32(2, 3, 8))
    yield Case(f32())
    yield Case(f32(0, 3))
    yield Case(f32(9, value=(-100.0, -3.0, -2.999, -0.0, 0.0, 1.5, 2.999, 3.0, 100.0)))
    yield Case(f32(3, value=(float("inf"), float("-inf"), float("nan"))))
