"""If, Loop, Scan and SequenceMap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()


@KERNELS.operator("If")
def if_(call: Call, condition: Tensor) -> tuple[Any, ...]:
    branch = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    return tuple(call.bodies[branch]([]))


@KERNELS.operator("Loop")
def loop(
    call: Call, limit: Tensor | None = None, condition: Tensor | None = None, *carried: Any
) -> tuple[Any, ...]:
    """The last carried values, then what each iteration gives beside them, stacked."""
    body = call.bodies["body"]
    count = None if limit is None else int(limit.reshape(-1)[0].item())
    going = True if condition is None else bool(condition.reshape(-1)[0])
    values = list(carried)
    collected: list[list[Tensor]] = [[] for _ in range(len(call.wanted) - len(carried))]
    i = 0
    while going and (count is None or i < count):
        # Without a condition going in, the body's own still ends the loop.
        result = body([torch.tensor(i, dtype=torch.int64), torch.tensor(going), *values])
        going = bool(result[0].reshape(-1)[0])
        values = result[1 : 1 + len(values)]
        for each, item in zip(collected, result[1 + len(values) :], strict=False):
            each.append(item)
        i += 1
    return (*values, *(_stacked(call, each, 0, len(carried) + 1 + k) for k, each in enumerate(collected)))


@KERNELS.operator("Scan")
def scan(call: Call, *inputs: Tensor) -> tuple[Tensor, ...]:
    """States, then scan outputs; axes and directions are by scan input and output."""
    count = call["num_scan_inputs"]
    states = list(inputs[: len(inputs) - count])
    rows = inputs[len(inputs) - count :]
    outputs = len(call.wanted) - len(states)
    axes = call.get("scan_input_axes") or [0] * count
    backwards = call.get("scan_input_directions") or [0] * count
    out_axes = call.get("scan_output_axes") or [0] * outputs
    out_backwards = call.get("scan_output_directions") or [0] * outputs
    collected: list[list[Tensor]] = [[] for _ in range(outputs)]
    length = rows[0].shape[axes[0]]
    for i in range(length):
        slices = [
            x.select(axis, length - 1 - i if back else i)
            for x, axis, back in zip(rows, axes, backwards, strict=True)
        ]
        result = call.bodies["body"]([*states, *slices])
        states = result[: len(states)]
        for each, item in zip(collected, result[len(states) :], strict=False):
            each.append(item)
    stacked = [
        _stacked(call, each[::-1] if back else each, axis, len(states) + k)
        for k, (each, axis, back) in enumerate(zip(collected, out_axes, out_backwards, strict=False))
    ]
    return (*states, *stacked)


def _stacked(call: Call, items: list[Tensor], axis: int, output: int) -> Tensor:
    """What the iterations gave as the body's ``output``-th; if none ran, nothing, as the body declares it."""
    if items:
        return torch.stack(items, axis if axis >= 0 else axis + items[0].ndim + 1)
    element, sizes = call.bodies["body"].declared[output]
    if not element or sizes is None:
        raise call.unsupported(
            "no iteration ran, and the body does not say of which type and rank its results are"
        )
    shape = list(sizes)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 0)
    return torch.zeros(shape, dtype=call.dtype(element))


@KERNELS.operator("SequenceMap")
def sequence_map(call: Call, first: list[Any], *others: Any) -> tuple[Any, ...]:
    """The body on each element; inputs that are no sequences are the same for all."""
    rows = [
        call.bodies["body"]([item, *(other[i] if isinstance(other, list) else other for other in others)])
        for i, item in enumerate(first)
    ]
    return tuple([row[k] for row in rows] for k in range(len(call.wanted)))
