"""One element of each row, chosen by its rank or by how often it occurs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from passes.order._rank import RankedElement
from passes.order._sorting import positions
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

_INF, _NAN = float("inf"), float("nan")


class Median(RankedElement):
    """The lower median along `dim`, and its index; without `dim` of all elements: `torch.median`.  NaN counts."""

    matches = ("Median", "aten::median")
    shapes = "x: ..."

    def reference(self, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        import torch

        found = torch.median(x.reshape(-1), 0) if dim is None else torch.median(x, dim, keepdim)
        return tuple(found)

    def rank_of(self, g: Builder, x: Value, axis: int, nan: Value | None) -> Value:
        # With a NaN it is the element behind all numbers, the first NaN.
        size = g.dim(x, axis)
        size = g.ints([size]) if isinstance(size, int) else size
        middle = g.op("Div", size - 1, g.ints(2))
        middle = g.reshape(middle, [1] * x.rank)
        if nan is None:
            return middle
        count = g.reduce_sum(g.cast(nan, TensorProto.INT64), [axis])
        return g.where_(g.equal(count, 0), middle, size - count)

    def decompose(self, g: Builder, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
        return self.chosen(g, x, dim, keepdim)


class Nanmedian(RankedElement):
    """The lower median along `dim` of what is not NaN, and its index: `torch.nanmedian`."""

    matches = ("Nanmedian", "aten::nanmedian")
    shapes = "x: ..."

    def reference(self, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        import torch

        found = torch.nanmedian(x.reshape(-1), 0) if dim is None else torch.nanmedian(x, dim, keepdim)
        return tuple(found)

    def rank_of(self, g: Builder, x: Value, axis: int, nan: Value | None) -> Value:
        size = g.dim(x, axis)
        count = g.reshape(g.ints([size]) if isinstance(size, int) else size, [1] * x.rank)
        if nan is not None:
            count = count - g.reduce_sum(g.cast(nan, TensorProto.INT64), [axis])
            # Of NaN alone, the first.
            count = g.where_(g.greater(count, 0), count, 1)
        middle: Value = g.op("Div", count - 1, g.ints(2))
        return middle

    def decompose(self, g: Builder, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
        return self.chosen(g, x, dim, keepdim)


class Kthvalue(RankedElement):
    """The k-th smallest element along `dim`, and its index, NaN above all numbers: `torch.kthvalue`."""

    matches = ("Kthvalue", "aten::kthvalue")
    shapes = "x: ..."

    def reference(self, x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
        import torch

        return tuple(torch.kthvalue(x, k, dim, keepdim))

    def decompose(self, g: Builder, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> Any:
        size = x.size(dim) if x.rank and -x.rank <= dim < x.rank else None
        if k < 1 or (size is not None and k > size):
            raise UnsupportedParameter(
                f"k is {k}, and the axis has {size} elements", where=g.where, remedy="k counts from 1"
            )
        return self.chosen(g, x, dim, keepdim, rank=k - 1)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(3, 5), k=2)
        yield Case(f32(2, 4, 3), k=4, dim=1, keepdim=True)
        yield Case(f32(6, value=(2, _NAN, 1, _INF, _NAN, 2)), k=5, dtypes=("float32",))
        yield Case(f32(), k=1, dim=0)


class Mode(RankedElement):
    """The most frequent element along `dim`, the smallest of several, and an index of it: `torch.mode`."""

    matches = ("Mode", "aten::mode")
    shapes = "x: ..."

    def reference(self, x: Any, dim: int = -1, keepdim: bool = False) -> Any:
        import torch

        return tuple(torch.mode(x, dim, keepdim))

    def decompose(self, g: Builder, x: Value, dim: int = -1, keepdim: bool = False) -> Any:
        return self.chosen(g, x, dim, keepdim)

    def place(self, g: Builder, x: Value, axis: int, indices: Value, rank: int | None) -> Value:
        """The last place of the longest run of equal elements in order.

        Runs end where the next element differs.  The ends, sorted, give the lengths as differences; places that do not
        end a run are put behind all, with a length of 0.
        """
        size = g.dim(x, axis)
        data = g.cast(x, TensorProto.INT32) if x.dtype not in _EQUAL else x
        in_order = g.gather_elements(data, indices, axis)
        length = g.ints([size]) if isinstance(size, int) else size
        beyond = [(1 << 63) - 1]
        here = g.slice(in_order, [0], [-1], [axis])
        following = g.slice(in_order, [1], beyond, [axis])
        at = g.expand(positions(g, x, axis), [g.dim(x, i) for i in range(x.rank)])
        far = g.reshape(length, [1] * x.rank)
        ends = g.concat(
            [
                g.where_(g.equal(here, following), far, g.slice(at, [0], [-1], [axis])),
                g.slice(at, [-1], beyond, [axis]),
            ],
            axis,
        )
        sorted_ends, _ = g.top_k(ends, size, axis, largest=False)
        first = g.slice(sorted_ends, [0], [1], [axis])
        rest = g.slice(sorted_ends, [1], beyond, [axis]) - g.slice(sorted_ends, [0], [-1], [axis])
        lengths = g.concat([first + 1, rest], axis)
        lengths = g.where_(g.equal(sorted_ends, far), 0, lengths)
        # Not every runtime has ArgMax of int64.
        longest = g.arg_max(g.cast(lengths, TensorProto.INT32), axis)
        return g.gather_elements(sorted_ends, longest, axis)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 7, value=(1, 2, 2, 0, 3, 0, 1, 5, 5, 4, 4, 4, 1, 1)))
        yield Case(f32(5, 3, value=(1, 0, 1) * 2 + (0, 0, 1) * 3), dim=0, keepdim=True)
        yield Case(f32(6, value=(_NAN, _NAN, 3, 1, _INF, _INF)), dtypes=("float32",))
        yield Case(f32(3, 1))
        yield Case(f32())


#: Element types that every runtime holds against each other.
_EQUAL = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64)
