"""A tensor in the graph under construction, as a decomposition sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rewriter.errors import NeedsRank

if TYPE_CHECKING:
    from rewriter.placeholder.builder import Builder
    from rewriter.types import Dim, TensorType

Array = npt.NDArray[np.generic]
Scalar = int | float | bool


@dataclass(frozen=True, eq=False)
class Value:
    """One tensor: an input of the placeholder, a constant, or the result of an operator that was built.

    Arithmetic with another value or a Python number builds the operator; the number takes this value's dtype,
    so that a float16 graph gets float16 constants.  Two values are equal only if they are the same object.
    """

    builder: Builder = field(repr=False)
    name: str
    type: TensorType | None = None
    #: The value itself where it is known before anything runs.
    constant: Array | None = field(default=None, repr=False)
    #: For a 1-D integer tensor that holds sizes: what is known of each element.
    sizes: tuple[Dim, ...] | None = field(default=None, repr=False)

    @property
    def dtype(self) -> int:
        """``TensorProto.DataType`` of the elements; NeedsRank when shape inference could not tell."""
        if self.type is None:
            raise self._unknown("dtype")
        return self.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The sizes: an int where known, a name or None where not; NeedsRank when not even the rank is known."""
        if self.type is None or self.type.shape is None:
            raise self._unknown("rank")
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def has_rank(self) -> bool:
        return self.type is not None and self.type.shape is not None

    @property
    def is_static(self) -> bool:
        """Whether every size is a number."""
        return self.type is not None and self.type.is_static

    def size(self, axis: int) -> int | None:
        """The size of ``axis`` where it is a number, else None."""
        dim = self.shape[axis]
        return dim if isinstance(dim, int) else None

    def _unknown(self, what: str) -> NeedsRank:
        return NeedsRank(
            f"the {what} of '{self.name}' is needed and shape inference could not tell it",
            where=self.builder.where,
            remedy="declare the type of the model's inputs, or of this value, when exporting",
        )

    def __add__(self, other: Value | Scalar) -> Value:
        return self.builder.binary("Add", self, other)

    def __radd__(self, other: Scalar) -> Value:
        return self.builder.binary("Add", other, self)

    def __sub__(self, other: Value | Scalar) -> Value:
        return self.builder.binary("Sub", self, other)

    def __rsub__(self, other: Scalar) -> Value:
        return self.builder.binary("Sub", other, self)

    def __mul__(self, other: Value | Scalar) -> Value:
        return self.builder.binary("Mul", self, other)

    def __rmul__(self, other: Scalar) -> Value:
        return self.builder.binary("Mul", other, self)

    def __truediv__(self, other: Value | Scalar) -> Value:
        return self.builder.binary("Div", self, other)

    def __rtruediv__(self, other: Scalar) -> Value:
        return self.builder.binary("Div", other, self)

    def __matmul__(self, other: Value) -> Value:
        return self.builder.binary("MatMul", self, other)

    def __neg__(self) -> Value:
        result: Value = self.builder.op("Neg", self)
        return result
