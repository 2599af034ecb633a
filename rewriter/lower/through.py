"""Operators of which only a type is missing: computed in one that holds every value, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto as T

from rewriter.lower import schemas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rewriter.lower.writer import Writer
    from rewriter.placeholder.standard import Call
    from rewriter.placeholder.value import Value

#: Types that hold every value of another, the nearest first.  What is computed in one and cast back is right: floats
#: are rounded once more, integers wrap around as they do in the narrow type.
WIDER: Mapping[int, tuple[int, ...]] = {
    T.BFLOAT16: (T.FLOAT, T.DOUBLE),
    T.FLOAT16: (T.FLOAT, T.DOUBLE),
    T.FLOAT: (T.DOUBLE,),
    T.INT8: (T.INT32, T.INT64),
    T.INT16: (T.INT32, T.INT64),
    T.UINT8: (T.INT32, T.INT64),
    T.UINT16: (T.INT32, T.INT64),
    T.INT32: (T.INT64,),
    T.UINT32: (T.INT64,),
}

#: Types that hold every value, but not the results of arithmetic on them: these wrap around or are cut off otherwise.
_HOLDS: Mapping[int, tuple[int, ...]] = {
    T.INT8: (T.FLOAT, T.DOUBLE),
    T.INT16: (T.FLOAT, T.DOUBLE),
    T.UINT8: (T.FLOAT, T.DOUBLE),
    T.UINT16: (T.FLOAT, T.DOUBLE),
    T.INT32: (T.DOUBLE,),
    T.UINT32: (T.DOUBLE,),
    T.BOOL: (T.UINT8, T.INT32, T.FLOAT),
}

#: Operators that move values.
_MOVING = frozenset(
    {
        "Compress",
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Pad",
        "Reshape",
        "ReverseSequence",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    }
)

#: Operators that compare values, or choose among them.
_CHOOSING = frozenset(
    {
        "ArgMax",
        "ArgMin",
        "Clip",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Max",
        "MaxPool",
        "Min",
        "NonZero",
        "OneHot",
        "ReduceMax",
        "ReduceMin",
        "Relu",
        "Sign",
        "TopK",
        "Unique",
    }
)

#: Operators that compute by the residue of 2⁶⁴: the result's bits are the same for signed and unsigned numbers.
_MODULAR = frozenset(
    ["Add", "CumSum", "Equal", "MatMul", "Mul", "Neg", "ReduceProd", "ReduceSum", "Sub", "Sum"]
)


def wider(op_type: str, dtype: int) -> tuple[int, ...]:
    """Types in which ``op_type`` gives what it gives in ``dtype``, the nearest first.

    1. Any operator may be computed in a float or an integer type that is wider.
    2. Small integers, and booleans, may be floats where values are moved, compared or chosen only.
    3. uint64 may be int64 where its bits alone count.  It is never so where order counts.
    4. int64 has no wider type.  Pow alone is computed in double: onnxruntime's kernel does so, too.
    """
    found = WIDER.get(dtype, ())
    if op_type in _MOVING or op_type in _CHOOSING:
        found += _HOLDS.get(dtype, ())
    if dtype == T.UINT64 and (op_type in _MOVING or op_type in _MODULAR):
        found += (T.INT64,)
    if op_type == "Pow" and dtype in (T.INT32, T.INT64, T.UINT32):
        found += (T.DOUBLE,)
    return found


#: Operators that are about types, or carry other nodes.
_NOT = frozenset(
    {"Cast", "CastLike", "Identity", "Constant", "ConstantOfShape", "Loop", "If", "Scan", "BitCast"}
)


def through(g: Writer, call: Call) -> tuple[Value, ...] | None:
    """Cast in, run the operator, cast back; None where no type serves."""
    there = schemas.schema(call.op_type, g.opset)
    if not call.reason.startswith("type ") or there is None or call.op_type in _NOT:
        return None
    lacking = g.absent.types_of(call.op_type)
    allowed = {
        name: types - lacking
        for name, types in schemas.allowed_types(call.op_type, there.since_version).items()
    }
    chosen: dict[str, int] = {}

    def wanted(formals: object, position: int, dtype: int | None) -> int | None:
        """The type that this input or result needs instead of ``dtype``; None where it may stay."""
        name = formals[min(position, len(formals) - 1)].type_str  # type: ignore[arg-type,index]
        if dtype is None or dtype in allowed[name]:
            return None
        found = next((w for w in wider(call.op_type, dtype) if w in allowed[name]), 0)
        return chosen.setdefault(name, found)

    needs = [
        wanted(there.inputs, i, None if item is None or item.type is None else item.type.dtype)
        for i, item in enumerate(call.inputs)
    ]
    results = [
        wanted(there.outputs, i, None if known is None else known.dtype) for i, known in enumerate(call.types)
    ]
    if not chosen or 0 in chosen.values():
        return None
    inputs = [
        item if item is None or need is None else g.cast(item, need)
        for item, need in zip(call.inputs, needs, strict=True)
    ]
    made = g.emit(call.op_type, inputs, call.outputs, call.attributes, call.version)
    return tuple(
        value if need is None or known is None else g.cast(value, known.dtype)
        for value, need, known in zip(made, results, call.types, strict=True)
    )
