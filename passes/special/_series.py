"""Chebyshev series in ONNX, and the dtype that special functions are computed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from onnx import TensorProto

from rewriter.placeholder import Placeholder
from rewriter.types import TensorType

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value

#: Terms below this share of the largest coefficient are left out: a tenth of the last place.
_NEGLIGIBLE: dict[int, float] = {TensorProto.FLOAT: 6e-9, TensorProto.DOUBLE: 1e-17}

_FLOATING = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


@dataclass(frozen=True)
class Fit:
    """A function on [low, high] as a series of Chebyshev polynomials."""

    low: float
    high: float
    coefficients: tuple[float, ...]

    def powers(self, dtype: int) -> list[float]:
        """The coefficients of 1, s, s², … where s runs from −1 to 1; as many as ``dtype`` has digits for."""
        least = _NEGLIGIBLE[dtype] * max(map(abs, self.coefficients))
        count = max(i for i, value in enumerate(self.coefficients) if abs(value) > least) + 1
        return [float(value) for value in np.polynomial.chebyshev.cheb2poly(self.coefficients[:count])]


def series(fit: Fit, t: Value) -> Value:
    """The function of ``fit`` at ``t``, which lies in its interval."""
    half = (fit.high - fit.low) / 2
    middle = (fit.high + fit.low) / 2
    s = t if middle == 0.0 else t - middle
    s = s if half == 1.0 else s * (1 / half)
    *rest, last = fit.powers(t.dtype)
    result = s * last
    for value in reversed(rest[1:]):
        result = (result + value) * s
    return result + rest[0]


def widened(g: Builder, x: Value) -> Value:
    """``x`` in the dtype to compute in: float64 stays, all else becomes float32, as in PyTorch."""
    return x if x.dtype == TensorProto.DOUBLE else g.cast(x, TensorProto.FLOAT)


def restored(g: Builder, result: Value, x: Value) -> Value:
    """``result`` in the dtype of ``x``, or float32 where that is an integer's, and with its sizes."""
    if x.dtype in _FLOATING:
        result = g.cast(result, x)
    return g.retyped(result, x.shape) if x.has_rank else result


class Unary(Placeholder):
    """A function of one real number, applied elementwise; subclasses give :meth:`formula`."""

    #: Of the operator in ``torch.ops.aten``.
    operator: ClassVar[str]

    def reference(self, x: Any) -> Any:
        import torch

        operator = getattr(torch.ops.aten, self.operator)
        try:
            return operator(x)
        except NotImplementedError:  # PyTorch has few of these in the narrow dtypes
            return operator(x.float()).to(x.dtype)

    def infer(self, x: Value) -> Any:
        if x.type is None or x.dtype in _FLOATING:
            return x.type
        return TensorType(TensorProto.FLOAT, x.type.shape)

    def decompose(self, g: Builder, x: Value) -> Value:
        return restored(g, self.formula(g, widened(g, x)), x)

    def formula(self, g: Builder, x: Value) -> Value:
        """The function of ``x``, which is float32 or float64."""
        raise NotImplementedError
