"""The recurrence h[t] = exp(Δ[t]·A)·h[t−1] + Δ[t]·u[t]·B[t], y[t] = C[t]·h[t]: written out, in blocks, and as a Scan.

None divides by a product of decays, which underflows to 0 within a few steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rewriter.types import TensorType

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Value


@dataclass(frozen=True)
class Recurrence:
    """Operands with time first.

    A row is (batch, dim), or (batch, groups, dim of a group): ``step`` and ``drive`` (Δ and Δ·u) are (length, *row, 1),
    ``decay`` (*row without batch, state).  ``enter`` and ``leave`` (B and C) are (length, batch, …, 1, state) and
    (length, batch, …, state, 1) where they vary, else of the shape of ``decay``.
    """

    step: Value
    drive: Value
    decay: Value
    enter: Value
    leave: Value
    enter_varies: bool
    leave_varies: bool

    def read(self, g: Builder, states: Value, leave: Value) -> Value:
        """y of ``states`` (…, *row, state), with an axis of 1 for the state."""
        if self.leave_varies:
            return g.matmul(states, leave)
        return g.reduce_sum(states * leave, [states.rank - 1])


def unrolled(g: Builder, operands: Recurrence, length: int) -> tuple[Value, Value]:
    """Two operators a step.  Results are y (length, *row, 1) and the last state (*row, state)."""
    keep = g.split(g.exp(operands.step * operands.decay), [1] * length, 0)
    add = g.split(operands.drive * operands.enter, [1] * length, 0)
    states = [add[0]]
    for kept, added in zip(keep[1:], add[1:], strict=True):
        states.append(kept * states[-1] + added)
    return operands.read(g, g.concat(states, 0), operands.leave), g.squeeze(states[-1], [0])


def blocked(g: Builder, operands: Recurrence, length: int) -> tuple[Value, Value]:
    """All blocks of about √length steps side by side from a state of 0, then what the blocks before add.

    About 5·√length operators, on two to three times as much data as :func:`unrolled`.
    """
    size = math.isqrt(length - 1) + 1
    count = -(-length // size)
    # A step of 0 changes nothing.
    tail = [size * count - length] + [0] * (operands.step.rank - 1)
    none = [0] * operands.step.rank
    step, drive = (g.pad(v, none, tail, value=0.0) for v in (operands.step, operands.drive))
    enter = operands.enter
    if operands.enter_varies:
        enter = g.pad(enter, none[: enter.rank], tail[: enter.rank], value=0.0)
    keep, add = (_in_blocks(g, v, count, size) for v in (g.exp(step * operands.decay), drive * enter))
    keeps, adds = g.split(keep, [1] * size, 1), g.split(add, [1] * size, 1)
    through, states = [keeps[0]], [adds[0]]
    for kept, added in zip(keeps[1:], adds[1:], strict=True):
        states.append(kept * states[-1] + added)
        through.append(through[-1] * kept)
    ends, passing = g.split(states[-1], [1] * count, 0), g.split(through[-1], [1] * count, 0)
    carried = [ends[0]]
    for end, passed in zip(ends[1:], passing[1:], strict=True):
        carried.append(passed * carried[-1] + end)
    # What a block starts from: the end of the one before, and 0 for the first.
    first = carried[0] * 0.0
    before = g.concat([first, *carried[:-1]], 0)
    every = g.concat(states, 1) + g.concat(through, 1) * before
    flat = g.reshape(every, [size * count, *(g.dim(every, i) for i in range(2, every.rank))])
    flat = g.slice(flat, [0], [length], [0]) if size * count != length else flat
    # Steps that were appended keep the state.
    return operands.read(g, flat, operands.leave), g.squeeze(carried[-1], [0, 1])


def _in_blocks(g: Builder, x: Value, count: int, size: int) -> Value:
    return g.reshape(x, [count, size, *(g.dim(x, i) for i in range(1, x.rank))])


def scan(g: Builder, operands: Recurrence) -> tuple[Value, Value]:
    """An ONNX Scan, for any length."""
    step = operands.step
    row = [g.dim(step, i) for i in range(1, step.rank - 1)]
    start = g.constant_of_shape([*row, g.dim(operands.decay, operands.decay.rank - 1)], 0.0, step)
    given = [step, operands.drive]
    given += [operands.enter] if operands.enter_varies else []
    given += [operands.leave] if operands.leave_varies else []
    body = g.body()
    assert start.type is not None
    before = body.fresh_input(start.type)
    slices = [body.fresh_input(TensorType(v.dtype, v.shape[1:])) for v in given]
    enter = slices[2] if operands.enter_varies else operands.enter
    leave = slices[-1] if operands.leave_varies else operands.leave
    state = body.exp(slices[0] * operands.decay) * before + slices[1] * enter
    read = operands.read(body, state, leave)
    state = body.retyped(state, before.shape)
    graph = g.subgraph("step", body, [before, *slices], [state, read])
    last, results = g.op("Scan", start, *given, body=graph, num_scan_inputs=len(given), outputs=2)
    return g.retyped(results, [step.shape[0], *step.shape[1:]]), last
