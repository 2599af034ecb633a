"""What the passes that move data share: element types, axes, and kernels that runtimes lack."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from rewriter.errors import UnsupportedParameter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from rewriter.placeholder import Builder, Value

FLOATS = ("float16", "float32", "float64", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
#: Everything that onnxruntime can move.
MOVED = (*FLOATS, *INTEGERS, "bool")
#: Data is moved, never computed.
EXACT = dict.fromkeys(MOVED, (0.0, 0.0))

#: From rows of this many bytes on, Gather runs at about the speed of a copy.
LONG_ROW_BYTES = 64

#: Element types for which onnxruntime has no kernel of Pad, at any opset.
NO_PAD = frozenset({TensorProto.BFLOAT16, TensorProto.INT16, TensorProto.UINT16})
#: … nor of Where.
NO_WHERE = NO_PAD | {TensorProto.UINT64, TensorProto.BOOL}

#: A type that holds every value of another: a Cast there and back changes nothing.
_CARRIERS: dict[int, int] = {
    TensorProto.BOOL: TensorProto.UINT8,
    TensorProto.INT16: TensorProto.INT32,
    TensorProto.UINT16: TensorProto.INT32,
    TensorProto.UINT64: TensorProto.INT64,
    TensorProto.BFLOAT16: TensorProto.FLOAT,
}


def carried(g: Builder, x: Value, lacking: Collection[int], move: Callable[[Value], Value]) -> Value:
    """``move(x)``, by way of another element type where the kernels that it needs are ``lacking`` for this one."""
    if x.dtype not in lacking:
        return move(x)
    return g.cast(move(g.cast(x, _CARRIERS[x.dtype])), x.dtype)


def by_signed(x: Any, move: Callable[[Any], Any]) -> Any:
    """``move(x)`` in PyTorch, which has few kernels for unsigned integers: their bits as signed ones."""
    import torch

    views = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
    if x.dtype not in views:
        return move(x)
    return move(x.view(views[x.dtype])).view(x.dtype)


def lacks_pad(g: Builder) -> frozenset[int]:
    """Element types that Pad does not take, or that onnxruntime has no kernel of it for."""
    return NO_PAD if g.opset >= 13 else NO_PAD | {TensorProto.BOOL}


def filled(g: Builder, x: Value, outside: Value, value: float) -> Value:
    """``x``, and ``value`` where ``outside`` says so; it broadcasts."""
    if x.dtype == TensorProto.BOOL:
        return g.or_(x, outside) if value else g.and_(x, g.not_(outside))
    return carried(g, x, NO_WHERE, lambda data: g.where_(outside, value, data))


def axis_of(g: Builder, dim: int, rank: int, name: str = "dim") -> int:
    """``dim`` counted from the front; UnsupportedParameter where the tensor has no such axis."""
    if not -rank <= dim < rank:
        raise UnsupportedParameter(f"{name} {dim} is outside a tensor of rank {rank}", where=g.where)
    return dim % rank


def row_bytes(x: Value, axis: int) -> int:
    """Bytes that lie together behind one index of ``axis``; 0 where that is not known."""
    behind = x.shape[axis % max(x.rank, 1) + 1 :]
    if not all(isinstance(d, int) for d in behind):
        return 0
    return math.prod(int(d or 0) for d in behind) * item_bytes(x.dtype)


def item_bytes(dtype: int) -> int:
    return int(np.dtype(helper.tensor_dtype_to_np_dtype(dtype)).itemsize)


def known(sizes: Sequence[int | str | None]) -> list[int] | None:
    """The sizes where all are numbers."""
    numbers = [d for d in sizes if isinstance(d, int)]
    return numbers if len(numbers) == len(sizes) else None


def as_value(g: Builder, size: int | Value) -> Value:
    """A size as a 1-D value of one element."""
    return g.ints([size]) if isinstance(size, int) else size


def pair(g: Builder, name: str, values: Sequence[int], least: int = 1) -> tuple[int, int]:
    """A parameter that is one number for both axes, or one for each."""
    if len(values) not in (1, 2) or any(v < least for v in values):
        raise UnsupportedParameter(
            f"{name} is {list(values)}", where=g.where, remedy=f"it is one or two numbers of at least {least}"
        )
    return values[0], values[-1]
