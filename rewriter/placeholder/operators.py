"""The common operators as methods of the builder, with what differs between opsets hidden.

Every method makes the fewest operators it can: sizes that are known are written as constants, and nothing is made
where nothing is to do (a Transpose by the identity, a Slice of everything).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from onnx import TensorProto

from rewriter.errors import DecompositionFault, UnsupportedAtOpset, Where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.placeholder.value import Value
    from rewriter.types import Dim

INT64_MAX = np.iinfo(np.int64).max
INT64_MIN = np.iinfo(np.int64).min

#: A size: a number where known, else a 1-D int64 value of one element.
Size = "int | Value"


class Operators:
    """Methods of :class:`rewriter.placeholder.builder.Builder`."""

    opset: int
    where: Where

    # What the methods below build upon; see the builder.
    if TYPE_CHECKING:

        def op(
            self, op_type: str, *inputs: Value | None, outputs: int = 1, domain: str = "", **attributes: Any
        ) -> Any: ...
        def const(self, value: Any, dtype: int | Value | None = None) -> Value: ...
        def ints(self, values: Sequence[int] | int) -> Value: ...
        def retyped(
            self, value: Value, shape: Sequence[Dim] | None, sizes: tuple[Dim, ...] | None = None
        ) -> Value: ...
        def fault(self, what: str, remedy: str | None = None) -> DecompositionFault: ...

    # --- elementwise ----------------------------------------------------------------------------------------

    def identity(self, x: Value) -> Value:
        return self._one("Identity", x)

    def abs(self, x: Value) -> Value:
        return self._one("Abs", x)

    def exp(self, x: Value) -> Value:
        return self._one("Exp", x)

    def log(self, x: Value) -> Value:
        return self._one("Log", x)

    def sqrt(self, x: Value) -> Value:
        return self._one("Sqrt", x)

    def floor(self, x: Value) -> Value:
        return self._one("Floor", x)

    def ceil(self, x: Value) -> Value:
        return self._one("Ceil", x)

    def round(self, x: Value) -> Value:
        """To the nearest integer, halves to even."""
        return self._one("Round", x)

    def sign(self, x: Value) -> Value:
        return self._one("Sign", x)

    def sin(self, x: Value) -> Value:
        return self._one("Sin", x)

    def cos(self, x: Value) -> Value:
        return self._one("Cos", x)

    def erf(self, x: Value) -> Value:
        return self._one("Erf", x)

    def tanh(self, x: Value) -> Value:
        return self._one("Tanh", x)

    def sigmoid(self, x: Value) -> Value:
        return self._one("Sigmoid", x)

    def relu(self, x: Value) -> Value:
        return self._one("Relu", x)

    def reciprocal(self, x: Value) -> Value:
        return self._one("Reciprocal", x)

    def pow(self, x: Value, exponent: Value | float) -> Value:
        """x ** exponent; a number takes the dtype of ``x``."""
        return self._one("Pow", x, self._like(exponent, x))

    def minimum(self, x: Value, y: Value | float) -> Value:
        """Elementwise Min of two (integers from opset 12)."""
        return self._one("Min", x, self._like(y, x))

    def maximum(self, x: Value, y: Value | float) -> Value:
        """Elementwise Max of two (integers from opset 12)."""
        return self._one("Max", x, self._like(y, x))

    def clip(self, x: Value, low: float | Value | None = None, high: float | Value | None = None) -> Value:
        """x limited to [low, high]; scalars."""
        return self._one("Clip", x, self._like_or_none(low, x), self._like_or_none(high, x))

    def mod(self, x: Value, y: Value | float) -> Value:
        """Integer remainder with the sign of ``y`` (Python's %).  A zero divisor raises in onnxruntime."""
        return self._one("Mod", x, self._like(y, x))

    def fmod(self, x: Value, y: Value | float) -> Value:
        """Floating-point remainder with the sign of ``x`` (C's fmod)."""
        return self._one("Mod", x, self._like(y, x), fmod=1)

    def where_(self, condition: Value, x: Value | float, y: Value | float) -> Value:
        """x where ``condition``, else y; of the two at most one may be a number."""
        like = next(v for v in (x, y) if not isinstance(v, (int, float)))
        return self._one("Where", condition, self._like(x, like), self._like(y, like))

    def equal(self, x: Value, y: Value | float) -> Value:
        return self._one("Equal", x, self._like(y, x))

    def less(self, x: Value, y: Value | float) -> Value:
        return self._one("Less", x, self._like(y, x))

    def greater(self, x: Value, y: Value | float) -> Value:
        return self._one("Greater", x, self._like(y, x))

    def less_equal(self, x: Value, y: Value | float) -> Value:
        """x ≤ y; below opset 12, which lacks the operator, (x < y) or (x = y), so that NaN stays false."""
        if self.opset >= 12:
            return self._one("LessOrEqual", x, self._like(y, x))
        return self.or_(self.less(x, y), self.equal(x, y))

    def greater_equal(self, x: Value, y: Value | float) -> Value:
        """x ≥ y; below opset 12 (x > y) or (x = y)."""
        if self.opset >= 12:
            return self._one("GreaterOrEqual", x, self._like(y, x))
        return self.or_(self.greater(x, y), self.equal(x, y))

    def and_(self, x: Value, y: Value) -> Value:
        return self._one("And", x, y)

    def or_(self, x: Value, y: Value) -> Value:
        return self._one("Or", x, y)

    def not_(self, x: Value) -> Value:
        return self._one("Not", x)

    def cast(self, x: Value, dtype: int | Value) -> Value:
        """``x`` as ``dtype`` (a ``TensorProto.DataType``, or that of another value); itself where it is that."""
        target = dtype if isinstance(dtype, int) else dtype.dtype
        if x.type is not None and x.type.dtype == target:
            return x
        return self._one("Cast", x, to=target)

    # --- products -------------------------------------------------------------------------------------------

    def matmul(self, a: Value, b: Value) -> Value:
        return self._one("MatMul", a, b)

    def softmax(self, x: Value, axis: int) -> Value:
        """Over one axis.  Below opset 13 the operator flattens what follows the axis: there it is moved to the end."""
        axis = axis % x.rank
        if self.opset >= 13 or axis == x.rank - 1:
            return self._one("Softmax", x, axis=axis)
        order = [i for i in range(x.rank) if i != axis] + [axis]
        moved = self._one("Softmax", self.transpose(x, order), axis=x.rank - 1)
        return self.transpose(moved, [order.index(i) for i in range(x.rank)])

    # --- reductions -----------------------------------------------------------------------------------------

    def reduce_sum(self, x: Value, axes: Sequence[int], keepdims: bool = True) -> Value:
        return self._reduce("ReduceSum", x, axes, keepdims, since=13)

    def reduce_mean(self, x: Value, axes: Sequence[int], keepdims: bool = True) -> Value:
        return self._reduce("ReduceMean", x, axes, keepdims, since=18)

    def reduce_max(self, x: Value, axes: Sequence[int], keepdims: bool = True) -> Value:
        return self._reduce("ReduceMax", x, axes, keepdims, since=18)

    def reduce_min(self, x: Value, axes: Sequence[int], keepdims: bool = True) -> Value:
        return self._reduce("ReduceMin", x, axes, keepdims, since=18)

    def reduce_prod(self, x: Value, axes: Sequence[int], keepdims: bool = True) -> Value:
        return self._reduce("ReduceProd", x, axes, keepdims, since=18)

    def _reduce(self, op_type: str, x: Value, axes: Sequence[int], keepdims: bool, since: int) -> Value:
        if not axes:
            return x
        if self.opset >= since:
            return self._one(op_type, x, self.ints(list(axes)), keepdims=int(keepdims))
        return self._one(op_type, x, axes=list(axes), keepdims=int(keepdims))

    def arg_max(self, x: Value, axis: int, keepdims: bool = True) -> Value:
        return self._one("ArgMax", x, axis=axis, keepdims=int(keepdims))

    def top_k(self, x: Value, k: int | Value, axis: int = -1, largest: bool = True) -> tuple[Value, Value]:
        """The k largest (or smallest) along ``axis``, sorted, and their indices; ``k`` a number or a 1-D value."""
        count = self.ints([k]) if isinstance(k, int) else k
        values, indices = self.op("TopK", x, count, axis=axis, largest=int(largest), sorted=1, outputs=2)
        return values, indices

    def cumsum(self, x: Value, axis: int, exclusive: bool = False, reverse: bool = False) -> Value:
        return self._one("CumSum", x, self.ints(axis), exclusive=int(exclusive), reverse=int(reverse))

    # --- shapes ---------------------------------------------------------------------------------------------

    def shape(self, x: Value) -> Value:
        """The sizes of ``x`` as a 1-D int64 value; a constant where all are known."""
        if x.is_static:
            return self.ints([int(d) for d in x.shape if d is not None])
        result = self._one("Shape", x)
        return self.retyped(result, (x.rank,), x.shape) if x.has_rank else result

    def dim(self, x: Value, axis: int) -> int | Value:
        """The size of one axis: a number where known, else a 1-D value of one element."""
        axis = axis % x.rank
        size = x.shape[axis]
        if isinstance(size, int):
            return size
        if self.opset >= 15:
            found = self._one("Shape", x, start=axis, end=axis + 1)
        else:
            found = self._one("Gather", self.shape(x), self.ints([axis]), axis=0)
        return self.retyped(found, (1,), (size,))

    def sizes(self, dims: Sequence[int | Value]) -> Value:
        """Sizes, some known and some computed (1-D values), as one 1-D int64 value."""
        runs: list[list[int] | Value] = []
        for dim in dims:
            if not isinstance(dim, int):
                runs.append(dim)
            elif runs and isinstance(runs[-1], list):
                runs[-1].append(dim)
            else:
                runs.append([dim])
        parts = [self.ints(run) if isinstance(run, list) else run for run in runs]
        if not parts:
            return self.ints([])
        if len(parts) == 1:
            return parts[0]
        known = tuple(d if isinstance(d, int) else (d.sizes or (None,))[0] for d in dims)
        return self.retyped(self.concat(parts, axis=0), (len(dims),), known)

    def product(self, dims: Sequence[int | Value]) -> int | Value:
        """The product of sizes."""
        known = int(np.prod([d for d in dims if isinstance(d, int)], dtype=np.int64))
        result: int | Value = known
        for dim in dims:
            if not isinstance(dim, int):
                result = dim if isinstance(result, int) and result == 1 else dim * result
        return result

    def reshape(self, x: Value, dims: Sequence[int | Value]) -> Value:
        """``x`` in the sizes ``dims``; at most one may be −1, and 0 is a size of zero."""
        if x.is_static and list(x.shape) == list(dims):
            return x
        numbers = all(isinstance(d, int) for d in dims)
        # Exactly one size is computed: -1 says the same without arithmetic, unless something is empty.
        computed = [i for i, d in enumerate(dims) if not isinstance(d, int)]
        if len(computed) == 1 and not any(isinstance(d, int) and d <= 0 for d in dims):
            dims_out: list[int | Value] = [-1 if i == computed[0] else d for i, d in enumerate(dims)]
        else:
            dims_out = list(dims)
        zero = any(isinstance(d, int) and d == 0 for d in dims)
        if (zero or not numbers) and -1 not in [d for d in dims_out if isinstance(d, int)]:
            result = self._reshape_allowing_zero(x, dims_out, zero)
        else:
            result = self._one("Reshape", x, self.sizes(dims_out))
        known: list[Dim] = [
            (None if d == -1 else d) if isinstance(d, int) else (d.sizes or (None,))[0] for d in dims
        ]
        inferred = result.type.shape if result.type is not None else None
        if inferred is not None and len(inferred) == len(known):
            known = [
                i if isinstance(i, int) or k is None else k for i, k in zip(inferred, known, strict=True)
            ]
        return self.retyped(result, known) if x.type is not None else result

    def reshape_keeping(self, x: Value, dims: Sequence[int]) -> Value:
        """Reshape as ONNX reads it: 0 keeps the size of the input's axis at that position, −1 is what is left."""
        if x.is_static and list(x.shape) == [x.shape[i] if d == 0 else d for i, d in enumerate(dims)]:
            return x
        result = self._one("Reshape", x, self.ints(list(dims)))
        if x.type is None or x.type.shape is None:
            return result
        inferred = result.type.shape if result.type is not None else None
        known = [x.shape[i] if d == 0 else None if d == -1 else d for i, d in enumerate(dims)]
        if inferred is not None and len(inferred) == len(known):
            known = [i if k is None else k for i, k in zip(inferred, known, strict=True)]
        return self.retyped(result, known)

    def _reshape_allowing_zero(self, x: Value, dims: Sequence[int | Value], zero: bool) -> Value:
        """A size that is or may be 0: Reshape reads 0 as "keep the input's size" unless told otherwise (opset 14)."""
        if self.opset >= 14:
            return self._one("Reshape", x, self.sizes(dims), allowzero=1)
        if not zero:
            # A computed 0 copies the input's size at that position, which then is the empty axis itself or an error.
            return self._one("Reshape", x, self.sizes(dims))
        # A constant 0: an empty tensor is made anew, there is nothing in it.
        fill = TensorProto(data_type=x.dtype, dims=[1])
        if x.dtype == TensorProto.STRING:
            raise UnsupportedAtOpset(
                "an empty string tensor cannot be reshaped below opset 14", where=self.where
            )
        if x.dtype == TensorProto.BFLOAT16:
            # ConstantOfShape makes it since opset 20 only.
            fill = TensorProto(data_type=TensorProto.FLOAT, dims=[1], float_data=[0.0])
            return self.cast(self._one("ConstantOfShape", self.sizes(dims), value=fill), x)
        fill.raw_data = b"\0" * max(1, np.dtype(_np_dtype(x.dtype)).itemsize)
        return self._one("ConstantOfShape", self.sizes(dims), value=fill)

    def flatten(self, x: Value) -> Value:
        """To 1-D."""
        if x.has_rank and x.rank == 1:
            return x
        return self._one("Reshape", x, self.ints([-1]))

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        if list(order) == list(range(len(order))):
            return x
        return self._one("Transpose", x, perm=list(order))

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        return self._with_axes("Squeeze", x, axes)

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        return self._with_axes("Unsqueeze", x, axes)

    def _with_axes(self, op_type: str, x: Value, axes: Sequence[int]) -> Value:
        if not axes:
            return x
        if self.opset >= 13:
            return self._one(op_type, x, self.ints(list(axes)))
        return self._one(op_type, x, axes=list(axes))

    def expand(self, x: Value, dims: Sequence[int | Value]) -> Value:
        """Broadcast to the sizes ``dims``."""
        if x.is_static and list(x.shape) == list(dims):
            return x
        result = self._one("Expand", x, self.sizes(dims))
        known = [d if isinstance(d, int) else (d.sizes or (None,))[0] for d in dims]
        return self.retyped(result, known) if x.type is not None and len(known) >= x.rank else result

    def tile(self, x: Value, repeats: Sequence[int | Value]) -> Value:
        if all(isinstance(r, int) and r == 1 for r in repeats):
            return x
        return self._one("Tile", x, self.sizes(repeats))

    def range(self, start: int | Value, limit: int | Value, step: int | Value = 1) -> Value:
        """int64 numbers; a constant where all three are known.  Computed ones are 0-D values."""
        if isinstance(start, int) and isinstance(limit, int) and isinstance(step, int):
            return self.ints([int(i) for i in np.arange(start, limit, step)])
        scalars = [self.ints(v) if isinstance(v, int) else v for v in (start, limit, step)]
        return self._one("Range", *scalars)

    # --- moving data ----------------------------------------------------------------------------------------

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        if len(parts) == 1:
            return parts[0]
        return self._one("Concat", *parts, axis=axis)

    def split(self, x: Value, lengths: Sequence[int], axis: int) -> tuple[Value, ...]:
        """Into pieces of known lengths."""
        if len(lengths) == 1:
            return (x,)
        if self.opset >= 13:
            made = self.op("Split", x, self.ints(list(lengths)), axis=axis, outputs=len(lengths))
        else:
            made = self.op("Split", x, axis=axis, split=list(lengths), outputs=len(lengths))
        return tuple(made)

    def slice(
        self,
        x: Value,
        starts: Sequence[int] | Value,
        ends: Sequence[int] | Value,
        axes: Sequence[int],
        steps: Sequence[int] | None = None,
    ) -> Value:
        """``x[start:end:step]`` on each of ``axes``; numbers, or 1-D values of as many elements."""
        given = [self._sizes_value(starts), self._sizes_value(ends)]
        inputs = [x, *given, self.ints(list(axes))]
        if steps is not None and any(step != 1 for step in steps):
            inputs.append(self.ints(list(steps)))
        return self._one("Slice", *inputs)

    def gather(self, x: Value, indices: Value | Sequence[int] | int, axis: int) -> Value:
        """Rows of ``x`` along ``axis``; indices are non-negative and in range, since runtimes disagree about others."""
        return self._one("Gather", x, self._sizes_value(indices), axis=axis)

    def gather_elements(self, x: Value, indices: Value, axis: int) -> Value:
        return self._one("GatherElements", x, indices, axis=axis)

    def gather_nd(self, x: Value, indices: Value, batch_dims: int = 0) -> Value:
        if batch_dims and self.opset < 12:
            raise UnsupportedAtOpset("GatherND has batch_dims since opset 12", where=self.where)
        return self._one("GatherND", x, indices, batch_dims=batch_dims or None)

    def pad(
        self,
        x: Value,
        before: Sequence[int],
        after: Sequence[int],
        mode: str = "constant",
        value: float | Value | None = None,
    ) -> Value:
        """``before`` and ``after`` each axis; modes constant, reflect, edge, and wrap from opset 19."""
        if not any(before) and not any(after):
            return x
        if mode == "wrap" and self.opset < 19:
            raise UnsupportedAtOpset("Pad has mode wrap since opset 19", where=self.where)
        fill = None if mode != "constant" or value is None else self._like(value, x)
        return self._one("Pad", x, self.ints([*before, *after]), fill, mode=mode)

    def constant_of_shape(self, dims: Sequence[int | Value], value: float, dtype: int | Value) -> Value:
        """A tensor of one value."""
        target = dtype if isinstance(dtype, int) else dtype.dtype
        fill = self.const(np.asarray([value]), target)
        return self.expand(fill, dims)

    # --- inside ---------------------------------------------------------------------------------------------

    def _one(self, op_type: str, *inputs: Value | None, **attributes: Any) -> Value:
        result: Value = self.op(op_type, *inputs, **attributes)
        return result

    def _sizes_value(self, numbers: Value | Sequence[int] | int) -> Value:
        return self.ints(numbers) if isinstance(numbers, (int, list, tuple)) else cast("Value", numbers)

    def _like(self, value: Value | float, like: Value) -> Value:
        return self.const(value, like) if isinstance(value, (int, float)) else value

    def _like_or_none(self, value: Value | float | None, like: Value) -> Value | None:
        return None if value is None else self._like(value, like)


def _np_dtype(dtype: int) -> Any:
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(dtype)
