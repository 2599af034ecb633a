"""The vocabulary that all parts share: what is known of a tensor before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx import TensorProto, TypeProto, helper

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Every ``TensorProto.DataType`` that the installed onnx knows, UNDEFINED (0) among them.
ELEMENT_TYPES = frozenset(TensorProto.DataType.values())

#: A size known as a number, known by name (``"batch"``), or not known.
Dim = int | str | None

#: Element types of whole numbers.
INTEGERS = frozenset(
    getattr(TensorProto, name)
    for name in ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "INT4", "UINT4")
)


@dataclass(frozen=True)
class TensorType:
    """Element type (a ``TensorProto.DataType`` value) and shape of a tensor; ``shape is None`` is an unknown rank."""

    dtype: int
    shape: tuple[Dim, ...] | None = None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every size is a number."""
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    def with_shape(self, shape: Iterable[Dim] | None) -> TensorType:
        return TensorType(self.dtype, None if shape is None else tuple(shape))

    @classmethod
    def from_proto(cls, proto: TypeProto | None) -> TensorType | None:
        """The tensor type in ``proto``; None where it is absent, undefined, unknown to onnx, or not a dense tensor."""
        if proto is None or not proto.HasField("tensor_type"):
            return None
        tensor = proto.tensor_type
        if tensor.elem_type == TensorProto.UNDEFINED or tensor.elem_type not in ELEMENT_TYPES:
            return None
        if not tensor.HasField("shape"):
            return cls(tensor.elem_type)
        dims: list[Dim] = []
        for dim in tensor.shape.dim:
            if dim.WhichOneof("value") == "dim_value":
                # A negative size is some exporters' way to say unknown.
                dims.append(dim.dim_value if dim.dim_value >= 0 else None)
            else:
                dims.append(dim.dim_param or None)
        return cls(tensor.elem_type, tuple(dims))

    def to_proto(self) -> TypeProto:
        """A size that 64 bits do not hold, which no tensor has, is left open."""
        shape = self.shape and [None if isinstance(d, int) and d >= 1 << 63 else d for d in self.shape]
        return helper.make_tensor_type_proto(self.dtype, shape)

    def __str__(self) -> str:
        name = dtype_name(self.dtype)
        if self.shape is None:
            return f"{name}[…]"
        return f"{name}[{', '.join('?' if d is None else str(d) for d in self.shape)}]"


def dtype_name(dtype: int) -> str:
    """``1`` → ``"float32"``; the names are numpy's, with ONNX's own for what numpy lacks (``"bfloat16"``)."""
    name = str(TensorProto.DataType.Name(dtype)).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def dtype_from_name(name: str) -> int:
    """The inverse of :func:`dtype_name`; ``"half"`` is not a name."""
    return int(TensorProto.DataType.Value({"float32": "FLOAT", "float64": "DOUBLE"}.get(name, name.upper())))
