"""Piecewise-linear functions, given by their breakpoints, and a form that carries a state."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Floats, Value


class Piecewise(Placeholder):
    """slopes[i]·x + offsets[i] on the i-th segment, elementwise.

    The n `breakpoints` rise; segment i reaches from breakpoints[i−1] (included) to breakpoints[i] (excluded), so
    there are n + 1 slopes and offsets.  A flat segment is its offset, also at ±∞; NaN stays NaN.
    """

    matches = ("Piecewise", "PiecewiseLinear")
    shapes = "x: ..."

    def reference(self, x: Any, breakpoints: Any, slopes: Any, offsets: Any) -> Any:
        return _reference(x, breakpoints, slopes, offsets)

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    def decompose(self, g: Builder, x: Value, breakpoints: Floats, slopes: Floats, offsets: Floats) -> Value:
        return _piecewise(g, x, breakpoints, slopes, offsets)

    def cases(self) -> Iterator[Case]:
        hard_tanh: dict[str, Any] = {
            "breakpoints": (-1.0, 1.0),
            "slopes": (0.0, 1.0, 0.0),
            "offsets": (-1.0, 0.0, 1.0),
        }
        yield Case(f32(2, 3, 8), **hard_tanh)
        yield Case(f32(5, value=(float("inf"), float("-inf"), float("nan"), 1.0, -1.0)), **hard_tanh)
        yield Case(
            f32(4, 5),
            breakpoints=(-0.5, 0.0, 0.5),
            slopes=(2.0, 0.0, -1.0, 0.25),
            offsets=(1.0, 0.5, 0.5, -0.125),
        )
        yield Case(f32(6), breakpoints=(0.0,), slopes=(0.25, 1.0), offsets=(0.0, 0.0))
        yield Case(f32(6), breakpoints=(), slopes=(3.0,), offsets=(1.0,))
        yield Case(f32(), **hard_tanh)
        yield Case(f32(0, 3), **hard_tanh)


class StatefulPiecewise(Placeholder):
    """A piecewise-linear function of a leaky sum: state' = decay·state + x, output = f(state').

    The state is an input and an output, so that a caller carries it from one step to the next.
    """

    matches = ("StatefulPiecewise",)
    shapes = "x: ...; state: ..."
    outputs = ("output", "new_state")

    def reference(
        self, x: Any, state: Any, breakpoints: Any, slopes: Any, offsets: Any, decay: float = 0.9
    ) -> Any:
        new_state = state * decay + x
        return _reference(new_state, breakpoints, slopes, offsets), new_state

    def decompose(
        self,
        g: Builder,
        x: Value,
        state: Value,
        breakpoints: Floats,
        slopes: Floats,
        offsets: Floats,
        decay: float = 0.9,
    ) -> Any:
        new_state = state * decay + x
        return _piecewise(g, new_state, breakpoints, slopes, offsets), new_state

    def cases(self) -> Iterator[Case]:
        leaky: dict[str, Any] = {
            "breakpoints": (0.0, 2.0),
            "slopes": (0.1, 1.0, 0.0),
            "offsets": (0.0, 0.0, 2.0),
        }
        yield Case(f32(2, 8), f32(2, 8), **leaky)
        yield Case(f32(2, 8), f32(2, 8), **leaky, decay=0.0)
        yield Case(f32(4, 2, 8), f32(2, 8), **leaky, decay=0.5)
        yield Case(f32(0, 8), f32(0, 8), **leaky)


def _piecewise(g: Builder, x: Value, breakpoints: Floats, slopes: Floats, offsets: Floats) -> Value:
    if len(slopes) != len(breakpoints) + 1 or len(offsets) != len(slopes):
        raise UnsupportedParameter(
            f"{len(breakpoints)} breakpoints, {len(slopes)} slopes and {len(offsets)} offsets are given",
            where=g.where,
            remedy="n breakpoints need n + 1 slopes and offsets",
        )
    if any(a >= b for a, b in itertools.pairwise(breakpoints)):
        raise UnsupportedParameter("the breakpoints do not rise", where=g.where)

    def segment(index: int) -> Value | float:
        slope, offset = slopes[index], offsets[index]
        if slope == 0:
            return offset
        line = x if slope == 1 else x * slope
        return line if offset == 0 else line + offset

    # NaN is in no segment: it comes to the first, which passes it on unless it is flat.
    first = segment(0)
    whole = g.where_(g.op("IsNaN", x), x, first) if isinstance(first, float) else first
    for index, start in enumerate(breakpoints):
        whole = g.where_(g.greater_equal(x, start), segment(index + 1), whole)
    return whole


def _reference(x: Any, breakpoints: Any, slopes: Any, offsets: Any) -> Any:
    import torch

    edges, slope, offset = (torch.tensor(v, dtype=x.dtype) for v in (breakpoints, slopes, offsets))
    segment = torch.bucketize(x, edges, right=True)
    line = torch.where(slope[segment] == 0, offset[segment], slope[segment] * x + offset[segment])
    return torch.where(torch.isnan(x), x, line)
