"""Tensors and attributes of a model as PyTorch and Python have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from onnx import AttributeProto, TensorProto

from rewriter.errors import CannotInterpretError
from rewriter.execution.values import to_torch
from rewriter.types import dtype_name

if TYPE_CHECKING:
    from torch import Tensor

    from rewriter.storage import ModelFile


@dataclass(frozen=True)
class Unavailable:
    """In the place of a tensor that PyTorch cannot hold."""

    error: CannotInterpretError


@dataclass(frozen=True)
class Reader:
    """Reads from a file; ``floating`` stands for every floating-point type, None keeps them."""

    file: ModelFile
    floating: torch.dtype | None

    def tensor(self, proto: TensorProto) -> Tensor:
        """The elements, of the type that stands for theirs."""
        array = np.asarray(self.file.array(proto))
        try:
            value: Tensor = to_torch(array)
        except TypeError as error:
            name = "strings" if proto.data_type == TensorProto.STRING else dtype_name(proto.data_type)
            raise CannotInterpretError(
                f"PyTorch has no tensors of {name}", where=f"tensor '{proto.name}'"
            ) from error
        if self.floating is not None and value.is_floating_point():
            return value.to(self.floating)
        return value

    def available(self, proto: TensorProto) -> Any:
        """The same, or the reason why PyTorch cannot hold it, which is raised where it is read."""
        try:
            return self.tensor(proto)
        except CannotInterpretError as error:
            return Unavailable(error)

    def sparse(self, proto: Any) -> Tensor:
        values, indices = self.tensor(proto.values), self.tensor(proto.indices)
        dense = torch.zeros(list(proto.dims), dtype=values.dtype)
        at = (
            torch.unravel_index(indices, tuple(proto.dims)) if indices.ndim == 1 else tuple(indices.unbind(1))
        )
        return dense.index_put(at, values)

    def attribute(self, proto: AttributeProto) -> Any:
        kind = proto.type
        if kind == AttributeProto.FLOAT:
            return proto.f
        if kind == AttributeProto.INT:
            return proto.i
        if kind == AttributeProto.STRING:
            return proto.s.decode("utf-8", "surrogateescape")
        if kind == AttributeProto.TENSOR:
            return self.available(proto.t)
        if kind == AttributeProto.SPARSE_TENSOR:
            return self.sparse(proto.sparse_tensor)
        if kind == AttributeProto.FLOATS:
            return list(proto.floats)
        if kind == AttributeProto.INTS:
            return list(proto.ints)
        if kind == AttributeProto.STRINGS:
            return [item.decode("utf-8", "surrogateescape") for item in proto.strings]
        return proto


def attribute_named(attribute: AttributeProto, name: str) -> AttributeProto:
    """The same value under another name."""
    if attribute.name == name:
        return attribute
    copy = AttributeProto()
    copy.CopyFrom(attribute)
    copy.name = name
    return copy
