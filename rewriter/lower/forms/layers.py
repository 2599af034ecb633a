"""Layers of networks: pooling, normalisation, recurrence, softmax, dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto as T

from rewriter.errors import NeedsRank, UnsupportedAtOpset
from rewriter.lower.forms.table import form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.lower.writer import Writer
    from rewriter.placeholder.standard import Call
    from rewriter.placeholder.value import Value


@form("BatchNormalization")
def batch_normalization(g: Writer, call: Call) -> Any:
    """training_mode: statistics of the batch, and running ones; else as every version has it."""
    x, scale, bias, mean, var = call.inputs
    assert x is not None
    assert mean is not None
    assert var is not None
    epsilon = call.get("epsilon", 1e-5)
    training = call.get("training_mode", 0) if call.version >= 14 else call.outputs > 1
    running: list[Value | None] = [None] * (call.outputs - 1)
    if training:
        if call.version < 14:
            return None
        axes = [0, *range(2, x.rank)]
        centre = x - g.reduce_mean(x, axes)
        batch = g.reduce_mean(x, axes, keepdims=False), g.reduce_mean(centre * centre, axes, keepdims=False)
        momentum = call.get("momentum", 0.9)
        running = [
            old * momentum + g.cast(new, old) * (1 - momentum)
            for new, old in zip(batch, (mean, var), strict=True)
        ][: call.outputs - 1]
        mean, var = batch
    made = g.op("BatchNormalization", x, scale, bias, mean, var, epsilon=epsilon)
    return (made, *running)


@form("RNN", "GRU", "LSTM")
def batch_first(g: Writer, call: Call) -> Any:
    """layout=1: the batch before the time."""
    if not call.get("layout", 0):
        return None
    inputs = [
        g.transpose(item, [1, 0, 2]) if item is not None and i in (0, 5, 6) else item
        for i, item in enumerate(call.inputs)
    ]
    made = g.op(call.op_type, *inputs, outputs=call.outputs, **call.given("layout"))
    results = [made] if call.outputs == 1 else list(made)
    return tuple(g.transpose(y, [1, 0, 2] if i else [2, 0, 1, 3]) for i, y in enumerate(results))


@form("Softmax", "LogSoftmax", "Hardmax")
def softmax(g: Writer, call: Call) -> Value | None:
    """Below opset 13 everything from the axis on is one row; since, the axis alone is."""
    x, rank, op_type = call.x, call.x.rank, call.op_type
    axis = call.get("axis", -1) % rank
    if call.version >= 13:
        order = [i for i in range(rank) if i != axis] + [axis]
        moved = g.newer(11, op_type, g.transpose(x, order), axis=rank - 1)
        return g.transpose(moved, [order.index(i) for i in range(rank)])
    if axis == rank - 1:
        return g.one(op_type, x, axis=axis)
    flat = g.op(op_type, g.op("Flatten", x, axis=axis), axis=1)
    return g.one("Reshape", flat, g.op("Shape", x))


@form("Dropout")
def dropout(g: Writer, call: Call) -> Any:
    """Without training the value itself, and a mask of ones; ratio and mode as inputs since opset 12."""
    x, mode = call.x, call.input(2)
    if mode is not None and not (mode.constant is not None and not mode.constant.any()):
        return _training(g, call, mode)
    if call.has("ratio") or call.version < 12 or g.opset < 12:
        made = [g.identity(x)]
        if call.outputs > 1:
            made.append(g.op("Expand", g.const(True, T.BOOL), g.op("Shape", x)))
        return tuple(made)
    return None


def _training(g: Writer, call: Call, mode: Value) -> Any:
    """A mask drawn in training, of ones otherwise."""
    x, ratio = call.x, call.input(1)
    share = g.const(0.5, T.FLOAT) if ratio is None else g.cast(ratio, T.FLOAT)
    on = g.cast(mode, T.FLOAT)
    share = share * on
    drawn = g.op("RandomUniformLike", x, low=0.0, high=1.0, dtype=T.FLOAT, seed=seed_of(call))
    mask = g.not_(g.less(drawn, share))
    kept = g.cast(x, T.FLOAT) * g.cast(mask, T.FLOAT)
    return (g.cast(kept / (g.const(1.0, T.FLOAT) - share), x), mask)[: call.outputs]


@form("ArgMax", "ArgMin")
def last_index(g: Writer, call: Call) -> Value | None:
    """select_last_index: the first of the reversed axis, counted from its end."""
    if not call.get("select_last_index", 0):
        return None
    x, axis = call.x, call.get("axis", 0)
    turned = g.slice(x, [-1], [-(2**62)], [axis], [-1])
    found = g.one(call.op_type, turned, axis=axis, keepdims=call.get("keepdims", 1))
    size = g.dim(x, axis)
    last = size - 1
    return g.ints(last) - found if isinstance(last, int) else last - found


@form("AveragePool", "LpPool")
def pool(g: Writer, call: Call) -> Value:
    """Dilated windows: the sum by a depthwise Conv of ones, over the number of elements that count."""
    x, kernel = call.x, list(call.get("kernel_shape"))
    d = len(kernel)
    strides = list(call.get("strides", [1] * d))
    dilations = list(call.get("dilations", [1] * d))
    spans = [(k - 1) * s + 1 for k, s in zip(kernel, dilations, strict=True)]
    before, after = _pads(call, spans, strides)
    ceil = call.get("ceil_mode", 0)
    spare = [s - 1 if ceil else 0 for s in strides]

    def summed(value: Value, low: Sequence[int], high: Sequence[int], fill: float = 0.0) -> Value:
        padded = g.pad(value, [0, 0, *low], [0, 0, *high], value=fill) if any((*low, *high)) else value
        ones = g.const(np.ones((1, 1, *kernel)), value)
        return g.one("Conv", padded, ones, strides=strides, dilations=dilations)

    outer = [g.dim(x, 0), g.dim(x, 1)]
    inner = [g.dim(x, i + 2) for i in range(d)]
    planes = g.reshape(x, [g.product(outer), 1, *inner])
    beyond = [a + s for a, s in zip(after, spare, strict=True)]
    if call.op_type == "LpPool":
        power = call.get("p", 2)
        total = summed(g.pow(g.abs(planes), float(power)), before, beyond)
        made = g.pow(total, 1.0 / power)
    else:
        total = summed(planes, before, beyond)
        one = g.expand(g.const(1.0, x), [1, 1, *inner])
        if call.get("count_include_pad", 0):
            # The padding counts; what ceil_mode adds beyond it does not.
            one = g.pad(one, [0, 0, *before], [0, 0, *after], value=1.0)
            count = summed(one, [0] * d, spare)
        else:
            count = summed(one, before, beyond)
        made = total / count
    result = g.op(
        "Reshape", made, g.concat([g.sizes(outer), g.slice(g.op("Shape", made), [2], [2**62], [0])], 0)
    )
    return _cropped(g, call, result, ceil)


def _pads(call: Call, spans: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    d, mode = len(spans), call.get("auto_pad", "NOTSET")
    if mode == "VALID":
        return [0] * d, [0] * d
    if mode == "NOTSET":
        pads = list(call.get("pads", [0] * 2 * d))
        return pads[:d], pads[d:]
    before, after = [], []
    for i in range(d):
        size = call.x.size(i + 2)
        if size is None:
            raise NeedsRank(f"auto_pad={mode} needs the sizes of '{call.x.name}'")
        total = max(0, (-(-size // strides[i]) - 1) * strides[i] + spans[i] - size)
        less = total // 2
        before.append(less if mode == "SAME_UPPER" else total - less)
        after.append(total - before[-1])
    return before, after


def _cropped(g: Writer, call: Call, made: Value, ceil: int) -> Value:
    """Without the windows that start in the padding after the end, which ceil_mode leaves out."""
    if not ceil:
        return made
    known = call.types[0]
    if known is None or not known.is_static or known.shape is None:
        raise UnsupportedAtOpset(f"{call.op_type} with ceil_mode needs sizes that are known", where=g.where)
    ends = [int(n or 0) for n in known.shape[2:]]
    return g.slice(made, [0] * len(ends), ends, [i + 2 for i in range(len(ends))])


@form("GlobalLpPool")
def global_lp_pool(g: Writer, call: Call) -> Value:
    """(Σ |x|ᵖ) ^ (1 / p) over all but the first two axes."""
    power = call.get("p", 2)
    total = g.reduce_sum(g.pow(g.abs(call.x), float(power)), list(range(2, call.x.rank)))
    return g.pow(total, 1.0 / power)


@form("GroupNormalization")
def group_normalization(g: Writer, call: Call) -> Value | None:
    """Scale and bias each group (opset 18) as those of its channels, and back where they are known to agree."""
    if not (call.version < 21 <= g.opset):
        return None
    x, scale, bias = call.x, call.inputs[1], call.inputs[2]
    assert scale is not None
    assert bias is not None
    groups, channels = call.get("num_groups"), x.size(1)
    if channels is None:
        return None

    def each(value: Value) -> Value:
        wide = g.expand(g.unsqueeze(value, [1]), [groups, channels // groups])
        return g.reshape(wide, [channels])

    return g.newer(21, "GroupNormalization", x, each(scale), each(bias), **call.given())


def seed_of(call: Call) -> float | None:
    """The seed of a random operator, as a number of the type that drawing takes."""
    seed = call.get("seed")
    return None if seed is None else float(seed)
