"""Cases: the inputs and parameters on which a pass is tested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.types import dtype_from_name

if TYPE_CHECKING:
    from rewriter.placeholder.value import Array

Draw = Callable[[np.random.Generator, tuple[int, ...]], Any]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor input of a case: its shape, its element type, and how its values are drawn."""

    shape: tuple[int, ...]
    #: numpy's name of the element type, or ``"bfloat16"``.
    dtype: str = "float32"
    #: Whether the case is repeated with the other dtypes of the pass in place of this one.
    varies: bool = False
    #: Given a generator and the shape, the values; None draws from N(0, 1), or small integers, or coin flips.
    draw: Draw | None = None
    #: Values as they stand, instead of drawn ones.
    value: tuple[Any, ...] | Any = None

    def sample(self, rng: np.random.Generator) -> Array:
        """An array of the declared shape and dtype."""
        from onnx import helper

        dtype = helper.tensor_dtype_to_np_dtype(dtype_from_name(self.dtype))
        if self.value is not None:
            return np.asarray(self.value).reshape(self.shape).astype(dtype)
        if self.draw is not None:
            return np.asarray(self.draw(rng, self.shape)).reshape(self.shape).astype(dtype)
        if self.dtype == "bool":
            return np.asarray(rng.integers(0, 2, self.shape)).astype(dtype)
        if self.dtype.startswith(("int", "uint")):
            low = 0 if self.dtype.startswith("uint") else -5
            return np.asarray(rng.integers(low, 6, self.shape)).astype(dtype)
        if self.dtype.startswith("complex"):
            return np.asarray(rng.standard_normal(self.shape) + 1j * rng.standard_normal(self.shape)).astype(
                dtype
            )
        return np.asarray(rng.standard_normal(self.shape)).astype(dtype)

    def with_dtype(self, dtype: str) -> TensorSpec:
        return replace(self, dtype=dtype)


def f32(*shape: int, draw: Draw | None = None, value: Any = None) -> TensorSpec:
    """A floating-point input; float32, and every other dtype of the pass in turn."""
    return TensorSpec(shape, "float32", varies=True, draw=draw, value=value)


def i64(*shape: int, low: int = 0, high: int = 10, value: Any = None) -> TensorSpec:
    """An int64 input with values in [low, high)."""
    return TensorSpec(shape, "int64", draw=lambda rng, s: rng.integers(low, high, s), value=value)


def b8(*shape: int, value: Any = None) -> TensorSpec:
    """A boolean input."""
    return TensorSpec(shape, "bool", value=value)


class Case:
    """One combination of inputs and parameters.

    Positional arguments are the operator's first parameters in order, keyword arguments the others by name; tensors
    are :class:`TensorSpec` (None where omitted), everything else is a parameter.  ``dtypes`` and ``opsets`` restrict
    where the case is run, ``symbolic=False`` keeps its sizes static, ``reason`` says why.
    """

    def __init__(
        self,
        *inputs: Any,
        dtypes: Sequence[str] | None = None,
        opsets: tuple[int, int] | None = None,
        symbolic: bool = True,
        seed: int = 0,
        reason: str = "",
        **parameters: Any,
    ) -> None:
        self.inputs = inputs
        self.parameters = parameters
        self.dtypes = None if dtypes is None else tuple(dtypes)
        self.opsets = opsets
        self.symbolic = symbolic
        self.seed = seed
        self.reason = reason

    def arguments(self, names: Sequence[str]) -> dict[str, Any]:
        """The arguments by parameter name; those beyond ``names`` belong to a variadic last parameter."""
        bound: dict[str, Any] = dict(zip(names, self.inputs, strict=False))
        extra = self.inputs[len(names) :]
        if extra:
            bound[names[-1]] = (bound[names[-1]], *extra)
        return bound | self.parameters

    def __repr__(self) -> str:
        parts = [_show(item) for item in self.inputs]
        parts += [f"{name}={_show(item)}" for name, item in self.parameters.items()]
        return f"Case({', '.join(parts)})"


def _show(item: Any) -> str:
    if isinstance(item, TensorSpec):
        return f"{item.dtype}{list(item.shape)}"
    if isinstance(item, np.ndarray) and item.ndim:
        return f"constant {item.dtype}{list(item.shape)}"
    return repr(item)
