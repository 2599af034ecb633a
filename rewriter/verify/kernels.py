"""How far a runtime's kernels of transcendental functions are off, and what that makes of a result.

A kernel of Sigmoid is right to about 2e-7 in absolute terms, whatever its result: the small ones, far below zero, have
no correct digit.  In x · sigmoid(x) that error is multiplied by x.  A pass whose results rest on such a kernel says by
what the error is multiplied (:meth:`rewriter.placeholder.Placeholder.terms`).  This allows each element what follows
from it, at any number of elements, and nothing more.

Exp, Log and the like are right to a few units in the last place of their results: the relative tolerance covers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.errors import PassDefinitionError
from rewriter.execution.numbers import to_float64

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rewriter.execution.numbers import Array
    from rewriter.placeholder.contract import Placeholder

#: By ONNX operator, the absolute error of float32 kernels, as measured against float64, and what rounding the argument
#: adds.  onnxruntime: Sigmoid 1.7e-7, Tanh 3.3e-7, Erf 6e-8, Elu (or Exp less 1) 7e-8.  PyTorch is better, but for the
#: erf within its vectorised GELU: 6e-7.
ERRORS: Mapping[str, float] = {"Sigmoid": 2.5e-7, "Tanh": 5e-7, "Erf": 7e-7, "Elu": 1.5e-7}
#: Formats that runtimes compute these in float32 for.  Kernels of float64 are right to the last places.
_BY_FLOAT32 = ("float32", "float16", "bfloat16")


def allowance(
    placeholder: Placeholder, arguments: Callable[[], Mapping[str, Any]], expected: Array
) -> Array | None:
    """What each element of the result ``expected`` may be off by for the kernels' sake; None where nothing is said.

    ``arguments`` gives those of the reference by name, tensors as numpy arrays; it is asked only where the pass says
    something.  Where the pass's formula raises on them, nothing is said either.  PassDefinitionError where the pass
    names an operator of unknown error.
    """
    if not placeholder.has_terms or expected.dtype.name not in _BY_FLOAT32:
        return None
    given = {name: _widened(value) for name, value in arguments().items()}
    total = np.zeros(expected.shape)
    with np.errstate(all="ignore"):
        try:
            terms = placeholder.terms(**given)
        except (
            ValueError,
            IndexError,
            TypeError,
            ZeroDivisionError,
        ):  # arguments that the formula does not take
            return None
        for operator, factor in terms.items():
            if operator not in ERRORS:
                raise PassDefinitionError(
                    f"terms() names '{operator}'",
                    where=type(placeholder).__name__,
                    remedy=f"errors are known of {', '.join(sorted(ERRORS))}",
                )
            size = np.abs(np.asarray(factor, np.float64))
            if _broadcasts(size.shape, expected.shape):  # else it is of another result
                total += ERRORS[operator] * size
    return np.where(np.isfinite(total), total, 0.0)


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    tail = to[len(to) - len(shape) :]
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def _widened(value: Any) -> Any:
    """Floating-point arrays in float64, so that what is computed from them neither rounds nor overflows."""
    if isinstance(value, tuple):
        return tuple(_widened(item) for item in value)
    if isinstance(value, np.ndarray) and value.dtype.name in _BY_FLOAT32:
        return to_float64(value)
    return value
