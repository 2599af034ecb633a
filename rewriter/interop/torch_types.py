# ruff: noqa: N802  (the names are torch's)
"""The types of values as `torch.onnx` symbolics read them: ``x.type().sizes()``, ``.dim()``, ``.scalarType()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from rewriter.types import Dim, TensorType, dtype_from_name, dtype_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TensorProto

_SCALAR_TYPES = {
    T.FLOAT: "Float",
    T.DOUBLE: "Double",
    T.FLOAT16: "Half",
    T.BFLOAT16: "BFloat16",
    T.INT64: "Long",
    T.INT32: "Int",
    T.INT16: "Short",
    T.INT8: "Char",
    T.UINT8: "Byte",
    T.BOOL: "Bool",
    T.COMPLEX64: "ComplexFloat",
    T.COMPLEX128: "ComplexDouble",
}


class TorchType:
    """Answers as a ``torch._C.TensorType`` does; what is not known is None, as there."""

    __slots__ = ("_refuse", "known")

    def __init__(self, known: TensorType | None, refuse: Callable[[str], Exception]) -> None:
        self.known = known
        self._refuse = refuse

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # `isinstance` is how torch.onnx.symbolic_helper tells what it is given
        from torch import _C

        return _C.TensorType

    def sizes(self) -> list[int] | None:
        """The sizes where each is a number, else None."""
        varying = self.varyingSizes()
        return None if varying is None or any(size is None for size in varying) else varying  # type: ignore[return-value]

    def varyingSizes(self) -> list[int | None] | None:
        """The sizes, None for each that is no number; None where not even the rank is known."""
        if self.known is None or self.known.shape is None:
            return None
        return [size if isinstance(size, int) else None for size in self.known.shape]

    def dim(self) -> int | None:
        return None if self.known is None else self.known.rank

    def scalarType(self) -> str | None:
        return None if self.known is None else _SCALAR_TYPES.get(self.known.dtype)  # type: ignore[call-overload]

    def dtype(self) -> Any:
        """The ``torch.dtype``, or None."""
        import torch

        return None if self.known is None else getattr(torch, dtype_name(self.known.dtype), None)

    def kind(self) -> str:
        return "TensorType"

    def isSubtypeOf(self, other: Any) -> bool:
        from torch import _C

        return isinstance(other, _C.TensorType)

    def with_sizes(self, sizes: Iterable[int | None] | None) -> TorchType:
        """The same element type in other sizes."""
        if self.known is None:
            return self
        shape: tuple[Dim, ...] | None = (
            None if sizes is None else tuple(None if s is None else int(s) for s in sizes)
        )
        return TorchType(self.known.with_shape(shape), self._refuse)

    def with_dtype(self, dtype: Any) -> TorchType:
        made = dtype_from_name(str(dtype).removeprefix("torch."))
        return TorchType(TensorType(made, None if self.known is None else self.known.shape), self._refuse)

    def __str__(self) -> str:
        return "Tensor" if self.known is None else str(self.known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._refuse(f"type().{name}")
