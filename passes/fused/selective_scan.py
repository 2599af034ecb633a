"""The selective scan of Mamba (Gu and Dao, 2023, arXiv:2312.00752)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes._terms import evaluated
from passes.fused._scan import Recurrence, blocked, scan, unrolled
from passes.normalisation._precision import wide, wide_dtype
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rewriter.placeholder import Builder, Value


#: Up to so many steps are written out one by one: beyond, the graph takes longer to load than to run.
UNROLLED = 64


class SelectiveScan(Placeholder):
    """h[t] = exp(Δ[t]·A)·h[t−1] + Δ[t]·B[t]·u[t], y[t] = C[t]·h[t] + D·u[t], gated by silu(z).

    The arguments are those of `mamba_ssm.ops.selective_scan_interface.selective_scan_fn`, whose definition in PyTorch
    (`selective_scan_ref`) the reference follows, real numbers only: `u`, `delta` and `z` of shape (batch, dim, length),
    `A` (dim, state), `B` and `C` (batch, state, length), (batch, groups, state, length) or (dim, state), `D` and
    `delta_bias` (dim).  The second output is the last h (batch, dim, state), in float32 at least; `return_last_state`
    is whether it is asked for, which the node's outputs tell.
    """

    matches = ("SelectiveScan", "SelectiveScanFn", "MambaSelectiveScan")
    shapes = (
        "u: B D L; delta: B D L; A: D N; B: B _ L | B _ _ L | D N; C: B _ L | B _ _ L | D N; D: D; "
        "z: B D L; delta_bias: D"
    )
    outputs = ("output", "last_state")
    auxiliary = ("last_state",)

    def reference(
        self,
        u: Any,
        delta: Any,
        A: Any,
        B: Any,
        C: Any,
        D: Any = None,
        z: Any = None,
        delta_bias: Any = None,
        delta_softplus: bool = False,
        return_last_state: bool = False,
    ) -> Any:
        import torch

        narrow = u.dtype in (torch.float16, torch.bfloat16)
        dtype = torch.float32 if narrow else u.dtype
        x, step, decay, b, c = (t.to(dtype) for t in (u, delta, A, B, C))
        if delta_bias is not None:
            step = step + delta_bias.to(dtype)[:, None]
        if delta_softplus:
            step = torch.nn.functional.softplus(step)

        def at(matrix: Any, t: int) -> Any:
            if matrix.ndim == 2:
                return matrix
            now = matrix[..., t] if matrix.ndim == 4 else matrix[:, None, :, t]
            return now.repeat_interleave(x.shape[1] // now.shape[1], 1)

        state = x.new_zeros(x.shape[0], x.shape[1], decay.shape[1])
        results = []
        for t in range(x.shape[2]):
            now = step[:, :, t, None]
            state = torch.exp(now * decay) * state + now * at(b, t) * x[:, :, t, None]
            results.append((state * at(c, t)).sum(-1))
        result = torch.stack(results, 2) if results else torch.zeros_like(x)
        if D is not None:
            result = result + x * D.to(dtype)[:, None]
        if z is not None:
            result = result * torch.nn.functional.silu(z.to(dtype))
        return result.to(u.dtype), state

    def terms(self, z: Any = None, **arguments: Any) -> Any:
        return {} if z is None else {"Sigmoid": z * evaluated(self.reference, arguments)}

    def infer(self, u: Value, A: Value, **_: Any) -> Any:
        if not u.has_rank or not A.has_rank:
            return None
        return [u.type, TensorType(wide_dtype(u), (u.shape[0], u.shape[1], A.shape[1]))]

    # ms on one thread for (dim, length), state 16: Scan, unrolled, blocked, the reference's loop in PyTorch:
    # (64, 64) 0.44, 0.46, 0.51, 3.5; (64, 256) 1.5, 2.1, 2.2, 13.6; (1536, 64) 5.6, 11.7, 14.8, 11.8;
    # (1536, 256) 20.7, 41.5, 61, 33.  What is as large as the states of all steps is never made.
    @decomposition(
        portable=False,
        when=lambda u, **_: u.shape[2] != 1,
        reason="the state stays in the cache: up to 2x faster; tract lacks Scan",
    )
    def scan(
        self,
        g: Builder,
        u: Value,
        delta: Value,
        A: Value,
        B: Value,
        C: Value,
        D: Value | None = None,
        z: Value | None = None,
        delta_bias: Value | None = None,
        delta_softplus: bool = False,
        return_last_state: bool = False,
    ) -> Any:
        return _selective_scan(g, u, delta, A, B, C, D, z, delta_bias, delta_softplus, run=scan)

    @decomposition(
        when=lambda u, **_: isinstance(u.shape[2], int) and u.shape[2] <= UNROLLED,
        requires=lambda u, **_: isinstance(u.shape[2], int) and u.shape[2] > 0,
        reason="two operators a step",
    )
    def unrolled(self, g: Builder, u: Value, **arguments: Any) -> Any:
        return _selective_scan(g, u, **arguments, run=lambda g, r: unrolled(g, r, _length(u)))

    @decomposition(
        requires=lambda u, **_: isinstance(u.shape[2], int) and u.shape[2] > 0,
        reason="five operators for the square root of the length",
    )
    def blocked(self, g: Builder, u: Value, **arguments: Any) -> Any:
        return _selective_scan(g, u, **arguments, run=lambda g, r: blocked(g, r, _length(u)))

    def cases(self) -> Iterator[Case]:
        negative = f32(4, 3, draw=lambda rng, shape: -np.exp(rng.standard_normal(shape)))
        step = f32(2, 4, 5, draw=lambda rng, shape: rng.random(shape))
        state = f32(2, 3, 5)
        yield Case(f32(2, 4, 5), step, negative, state, state)
        yield Case(
            f32(2, 4, 5),
            f32(2, 4, 5),
            negative,
            state,
            state,
            f32(4),
            f32(2, 4, 5),
            f32(4),
            delta_softplus=True,
        )
        # Groups, and matrices that do not vary.
        yield Case(f32(2, 4, 5), step, negative, f32(2, 2, 3, 5), f32(2, 2, 3, 5), f32(4))
        yield Case(f32(2, 4, 5), step, negative, f32(2, 1, 3, 5), state, None, f32(2, 4, 5))
        yield Case(f32(2, 4, 5), step, negative, f32(4, 3), f32(4, 3), f32(4))
        yield Case(f32(2, 4, 5), step, negative, f32(4, 3), f32(2, 2, 3, 5))
        one = f32(2, 3, 1)
        yield Case(f32(2, 4, 1), f32(2, 4, 1), negative, one, one, delta_softplus=True)
        longer = f32(1, 2, 19)
        yield Case(
            f32(1, 1, 19), f32(1, 1, 19), f32(1, 2, value=(-0.5, -2.0)), longer, longer, delta_softplus=True
        )
        # Steps at which all is forgotten, and at which nothing happens.
        extreme = f32(1, 1, 4, value=(200.0, -200.0, 0.0, -40.0))
        yield Case(
            f32(1, 1, 4),
            extreme,
            f32(1, 2, value=(-1.0, -3.0)),
            f32(1, 2, 4),
            f32(1, 2, 4),
            delta_softplus=True,
        )


def _length(u: Value) -> int:
    length = u.shape[2]
    assert isinstance(length, int)
    return length


def _selective_scan(
    g: Builder,
    u: Value,
    delta: Value,
    A: Value,
    B: Value,
    C: Value,
    D: Value | None,
    z: Value | None,
    delta_bias: Value | None,
    delta_softplus: bool,
    *,
    run: Callable[[Builder, Recurrence], tuple[Value, Value]],
    **_: Any,
) -> tuple[Value, Value | None]:
    x, step = wide(g, u), wide(g, delta)
    if delta_bias is not None:
        step = step + g.unsqueeze(g.cast(delta_bias, x), [1])
    if delta_softplus:
        step = _softplus(g, step)
    if u.shape[2] == 0:
        dims = [g.dim(u, 0), g.dim(u, 1), g.dim(A, 1)]
        return u, g.constant_of_shape(dims, 0.0, x) if g.wants("last_state") else None
    groups = _groups(g, B, C)

    def rows(value: Value) -> Value:
        """(batch, dim, length) as (length, *row, 1)."""
        first = g.transpose(value, [2, 0, 1])
        if groups is None:
            return g.unsqueeze(first, [3])
        return g.reshape(first, [g.dim(first, 0), g.dim(first, 1), groups, -1, 1])

    def fixed(matrix: Value) -> Value:
        given = g.cast(matrix, x)
        return given if groups is None else g.reshape(given, [groups, -1, g.dim(given, 1)])

    def varying(matrix: Value, axis_of_one: int) -> Value:
        if matrix.rank == 2:
            return fixed(matrix)
        first = g.transpose(g.cast(matrix, x), [matrix.rank - 1, *range(matrix.rank - 1)])
        if matrix.rank == 3 and groups is not None:
            first = g.unsqueeze(first, [2])
        return g.unsqueeze(first, [first.rank + axis_of_one])

    result, last = run(
        g,
        Recurrence(
            rows(step),
            rows(step * x),
            fixed(A),
            varying(B, -1),
            varying(C, 0),
            B.rank > 2,
            C.rank > 2,
        ),
    )
    dims = [g.dim(u, 2), g.dim(u, 0), g.dim(u, 1)]
    result = g.transpose(g.squeeze(result, [3]) if groups is None else g.reshape(result, dims), [1, 2, 0])
    if D is not None:
        result = result + x * g.unsqueeze(g.cast(D, x), [1])
    if z is not None:
        opened = g.cast(z, x)
        result = result * (opened * g.sigmoid(opened))
    state = None
    if g.wants("last_state"):
        state = last if groups is None else g.reshape(last, [g.dim(u, 0), g.dim(u, 1), g.dim(A, 1)])
    return g.cast(result, u), state


def _groups(g: Builder, *matrices: Value) -> int | Value | None:
    """The groups of channels that share a matrix; None where none has any."""
    for matrix in matrices:
        if matrix.rank not in (2, 3, 4):
            raise UnsupportedParameter(f"a matrix has rank {matrix.rank}", where=g.where, remedy="2, 3 or 4")
    found = [g.dim(matrix, 1) for matrix in matrices if matrix.rank == 4]
    numbers = {size for size in found if isinstance(size, int)}
    if len(numbers) > 1:
        raise UnsupportedParameter(f"B and C have {sorted(numbers)} groups", where=g.where)
    return found[0] if found else None


def _softplus(g: Builder, x: Value) -> Value:
    """ln(1 + exp(x)) to full relative precision: steps are small, and ln(1 + e) of a small e is not e.

    With w = 1 + e as rounded, ln(w)·e / (w − 1) is ln(1 + e) but for rounding (Goldberg, 1991).
    """
    small = g.exp(-g.abs(x))
    one_more = small + 1
    exact = g.log(one_more) * (small / (one_more - 1))
    return g.maximum(x, 0.0) + g.where_(g.equal(one_more, 1.0), small, exact)
