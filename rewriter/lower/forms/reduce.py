"""Reductions: axes as attribute or input, axes that are computed, empty lists of axes, booleans."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto as T

from rewriter.lower import schemas
from rewriter.lower.forms.table import form

if TYPE_CHECKING:
    from collections.abc import Callable

    from rewriter.lower.writer import Writer
    from rewriter.placeholder.standard import Call
    from rewriter.placeholder.value import Value

_SIMPLE = ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceSum")
_ALL = (*_SIMPLE, "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")

_BYTES: dict[int, tuple[int, int]] = {T.INT8: (-128, 127), T.UINT8: (0, 255)}


def takes_input(op_type: str, opset: int) -> bool:
    """Whether axes are an input at ``opset``."""
    return opset >= (13 if op_type == "ReduceSum" else 18)


@form(*_ALL)
def reduction(g: Writer, call: Call) -> Value | None:
    """Axes in the form of the target.

    Computed axes become one If an axis where the target wants an attribute.  An empty list means every axis, or none
    with noop_with_empty_axes, in which case the function of a single element still applies.
    """
    x, axes, keep = call.x, call.input(1), call.get("keepdims", 1)
    if x.type is not None and x.dtype == T.BOOL:
        return _bool(g, call, x)
    if _lacks_bytes(g, call):
        return _bytes(g, call, x)
    if call.has("axes"):
        listed: list[int] | None = list(call.get("axes"))
    elif axes is None or _is_empty(axes):
        listed = []
    else:
        listed = None if axes.constant is None else [int(a) for a in axes.constant.reshape(-1)]
    if listed == []:
        if not call.get("noop_with_empty_axes", 0):
            return _write(g, call.op_type, x, None, keep)
        return _single(g, call.op_type, x)
    if listed is not None:
        return _write(g, call.op_type, x, listed, keep)
    assert axes is not None
    return _computed(g, call, x, axes, keep)


def _is_empty(axes: Value) -> bool:
    return axes.has_rank and axes.rank == 1 and axes.size(0) == 0


def _write(g: Writer, op_type: str, x: Value, axes: list[int] | None, keep: int) -> Value:
    """Over known axes; None for all."""
    if axes is not None and takes_input(op_type, g.opset):
        made: Value = g.op(op_type, x, g.ints(axes), keepdims=keep)
    else:
        made = g.op(op_type, x, axes=axes, keepdims=keep)
    return made


def _single(g: Writer, op_type: str, x: Value) -> Value:
    """The function of one element."""
    if op_type in _SIMPLE:
        return g.identity(x)
    if op_type in ("ReduceL1", "ReduceL2"):
        return g.abs(x)
    if op_type == "ReduceLogSum":
        return g.log(x)
    return x * x if op_type == "ReduceSumSquare" else g.identity(x)


def _bool(g: Writer, call: Call, x: Value) -> Value:
    """A maximum of booleans by one of integers; of nothing it is false, a minimum true."""
    made: Value = g.emit(
        call.op_type, (g.cast(x, T.INT32), *call.inputs[1:]), 1, call.attributes, call.version
    )[0]
    return g.greater(made, g.const(0, T.INT32))


def _lacks_bytes(g: Writer, call: Call) -> bool:
    """Whether it is a maximum or minimum of 8-bit integers, which the target does not have."""
    if call.op_type not in ("ReduceMax", "ReduceMin") or call.x.type is None or call.x.dtype not in _BYTES:
        return False
    there = schemas.schema(call.op_type, g.opset)
    if there is None:
        return False
    return (
        call.x.dtype not in schemas.allowed_types(call.op_type, there.since_version)[there.inputs[0].type_str]
    )


def _bytes(g: Writer, call: Call, x: Value) -> Value:
    """In int32; of nothing it is the end of the narrow type."""
    wide = (g.cast(x, T.INT32), *call.inputs[1:])
    made: Value = g.emit(call.op_type, wide, 1, call.attributes, call.version)[0]
    if not (x.is_static and 0 not in x.shape):
        low, high = _BYTES[x.dtype]
        end = g.const(low if call.op_type == "ReduceMax" else high, T.INT32)
        beyond = g.less(made, end) if call.op_type == "ReduceMax" else g.less(end, made)
        made = g.where_(beyond, end, made)
    return g.cast(made, x.dtype)


def _computed(g: Writer, call: Call, x: Value, axes: Value, keep: int) -> Value | None:
    """Axes that are known only when the model runs."""
    rank = x.rank
    if call.op_type not in _SIMPLE or not axes.has_rank:
        return None
    hit = _hits(g, _positive(g, axes, rank), rank)
    if axes.size(0) is None and not call.get("noop_with_empty_axes", 0):
        # No axis at all means every axis.
        none = g.equal(g.op("ReduceSum", hit, keepdims=1), g.const([0], T.INT32))
        hit = (
            g.maximum(hit, g.cast(none, T.INT32))
            if g.opset >= 12
            else g.cast(g.or_(g.greater(hit, g.const(0, T.INT32)), none), T.INT32)
        )
    flags = g.cast(hit, T.BOOL)
    y = x
    for axis in range(rank):
        flag = g.reshape(g.gather(g.cast(flags, T.INT32), [axis], 0), [])
        y = choose(g, g.cast(flag, T.BOOL), partial(_over, call.op_type, y, axis), partial(_kept, y))
    if keep:
        return y
    left = g.op("Compress", g.op("Shape", y), g.not_(flags), axis=0)
    result: Value = g.op("Reshape", y, left)
    return result


def _over(op_type: str, x: Value, axis: int, g: Writer) -> Value:
    return _write(g, op_type, x, [axis], 1)


def _kept(x: Value, g: Writer) -> Value:
    return g.identity(x)


def _hits(g: Writer, wanted: Value, rank: int) -> Value:
    """One for each axis that is among ``wanted``, which may be empty."""
    one = g.op("Expand", g.const([1], T.INT32), g.op("Shape", wanted))
    return g.one("ScatterElements", g.const(np.zeros(rank, np.int32)), wanted, one, axis=0)


def _positive(g: Writer, axes: Value, rank: int) -> Value:
    """Axes counted from the front."""
    return g.mod(g.cast(axes, T.INT64) + rank, rank)


def choose(
    g: Writer, condition: Value, yes: Callable[[Writer], Value], no: Callable[[Writer], Value]
) -> Value:
    """An If of two functions that are given the builder of a branch."""
    graphs = []
    for branch, make in (("then", yes), ("else", no)):
        inner = g.body()
        made = make(inner)
        if made.name not in {name for node in inner.nodes for name in node.output}:
            made = inner.identity(made)
        if made.type is not None:
            made = inner.declared(made, made.type.with_shape(None))
        graphs.append(inner.subgraph(branch, inner, [], [made]))
    result: Value = g.op("If", condition, then_branch=graphs[0], else_branch=graphs[1])
    return result


def by_case(
    g: Writer, axis: Value, rank: int, make: Callable[[Writer, int], Value], cases: int | None = None
) -> Value:
    """One branch for each axis, where the axis is known only when the model runs."""
    at = g.mod(g.op("Reshape", g.cast(axis, T.INT64), g.ints([])) + rank, rank)
    last = (rank if cases is None else cases) - 1

    def pick(b: Writer, position: int) -> Value:
        if position == last:
            return make(b, position)
        return choose(
            b,
            b.equal(at, position),
            lambda inner: make(inner, position),
            lambda inner: pick(inner, position + 1),
        )

    return pick(g, 0)
