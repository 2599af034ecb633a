"""The dtype that PyTorch computes an operator of several arguments in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value

FLOATING = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE)
#: Signed integers, the narrow ones first.
_SIGNED = (TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64)


def promoted(g: Builder, *operands: Value | float, to_float: bool = False) -> tuple[Value, ...]:
    """The operands as values of their common dtype, by PyTorch's rules; with ``to_float``, integers as float32.

    1. bool < integers < floating point; of the highest of these, the widest tensor's dtype.
    2. A tensor without axes, and a number, count only where they are of a higher one of the three.
    """
    target = common_dtype(*operands)
    if to_float and target not in FLOATING:
        target = TensorProto.FLOAT
    return tuple(
        g.const(item, target) if isinstance(item, (bool, int, float)) else g.cast(item, target)
        for item in operands
    )


def common_dtype(*operands: Value | float) -> int:
    with_axes, scalars, numbers = None, None, None
    for item in operands:
        if isinstance(item, bool):
            numbers = _wider(numbers, TensorProto.BOOL)
        elif isinstance(item, (int, float)):
            numbers = _wider(numbers, TensorProto.INT64 if isinstance(item, int) else TensorProto.FLOAT)
        elif item.rank:
            with_axes = _wider(with_axes, item.dtype)
        else:
            scalars = _wider(scalars, item.dtype)
    found = None
    for dtype in (with_axes, scalars, numbers):
        if dtype is not None and (found is None or _category(dtype) > _category(found)):
            found = dtype
    assert found is not None
    return found


def _category(dtype: int) -> int:
    return 0 if dtype == TensorProto.BOOL else 2 if dtype in FLOATING else 1


def _wider(a: int | None, b: int) -> int:
    if a is None or a == b:
        return b
    if _category(a) != _category(b):
        return a if _category(a) > _category(b) else b
    if _category(a) == 2:
        # The two half formats have no common one but float32.
        return TensorProto.FLOAT if {a, b} <= set(FLOATING[:2]) else max(a, b, key=FLOATING.index)
    if TensorProto.UINT8 in (a, b):
        other = b if a == TensorProto.UINT8 else a
        return TensorProto.INT16 if other == TensorProto.INT8 else other
    return max(a, b, key=_SIGNED.index)


def in_int64(g: Builder, *values: Value) -> tuple[Value, ...]:
    """Integers in the dtype that every runtime compares, chooses and divides them in."""
    return tuple(g.cast(value, TensorProto.INT64) for value in values)
