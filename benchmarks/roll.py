"""The forms of a roll against each other, by the bytes in a row: what passes/movement/roll.py chooses by.

    python benchmarks/roll.py [--rounds 15] [--threads 1] [--opset 13]

One axis (outer, n, row) and two axes (outer, n, m, row), rolled by

- slices: Slice, Slice, Concat for each axis (onnxruntime makes them Split, Concat);
- gather: one Gather along the axis, two axes merged into one by Reshape;
- blocks: the last axis cut into blocks that the shift and the size have in common, one Gather of blocks.

Times are microseconds within a model, as in operators.py; the limit is a copy of the same bytes.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

import numpy as np
import onnx
import torch
from _candidates import _runner, _surrounded
from _timing import in_turns, settled
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, values: object) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(values, np.int64), name))
        return name

    def op(self, op_type: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def slices(self, x: str, size: int, shift: int, axis: int) -> str:
        axes, cut = self.constant([axis]), self.constant([size - shift])
        tail = self.op("Slice", x, cut, self.constant([size]), axes)
        head = self.op("Slice", x, self.constant([0]), cut, axes)
        return self.op("Concat", tail, head, axis=axis)

    def model(self, output: str, shape: tuple[int, ...], opset: int) -> onnx.ModelProto:
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", output)]
        graph = helper.make_graph(self.nodes, "roll", infos[:1], infos[1:], self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        model.ir_version = 8
        return model


def _forms(
    shape: tuple[int, ...], moves: dict[int, int]
) -> Iterator[tuple[str, Callable[[], tuple[_Graph, str]]]]:
    axes = sorted(moves)

    def slices() -> tuple[_Graph, str]:
        g, x = _Graph(), "x"
        for axis in axes:
            x = g.slices(x, shape[axis], moves[axis], axis)
        return g, x

    def gather() -> tuple[_Graph, str]:
        g, x = _Graph(), "x"
        first, last = axes[0], axes[-1]
        run = shape[first : last + 1]
        rows = np.roll(
            np.arange(math.prod(run)).reshape(run),
            [moves[a] for a in axes],
            [a - first for a in axes],
        ).reshape(-1)
        if first == last:
            return g, g.op("Gather", x, g.constant(rows), axis=first)
        flat = g.op("Reshape", x, g.constant([*shape[:first], len(rows), *shape[last + 1 :]]))
        return g, g.op("Reshape", g.op("Gather", flat, g.constant(rows), axis=first), g.constant(shape))

    def blocks() -> tuple[_Graph, str]:
        g, axis = _Graph(), axes[0]
        block = math.gcd(shape[axis], moves[axis])
        count = shape[axis] // block
        rows = np.roll(np.arange(count), moves[axis] // block)
        cut = g.op("Reshape", "x", g.constant([*shape[:axis], count, block, *shape[axis + 1 :]]))
        return g, g.op("Reshape", g.op("Gather", cut, g.constant(rows), axis=axis), g.constant(shape))

    yield "slices", slices
    yield "gather", gather
    if len(axes) == 1 and math.gcd(shape[axes[0]], moves[axes[0]]) > 1:
        yield "blocks", blocks


def _line(shape: tuple[int, ...], moves: dict[int, int], *, opset: int, rounds: int, threads: int) -> str:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = np.roll(x, list(moves.values()), list(moves))
    source, target = torch.from_numpy(x), torch.empty(shape)
    turned = torch.from_numpy(x)
    calls: dict[str, Callable[[], object]] = {
        "torch": lambda: torch.roll(turned, list(moves.values()), list(moves)),
        "limit": lambda: target.copy_(source),
    }
    for name, make in _forms(shape, moves):
        g, output = make()
        model = g.model(output, shape, opset)
        session = onnx_run(model, x)
        assert np.array_equal(session, expected), name
        calls[name], _ = _runner(_surrounded(model), {"x": x}, threads)
    calls["base"], _ = _runner(_surrounded(_Graph().model("x", shape, opset)), {"x": x}, threads)
    times = {
        name: settled(values) for name, values in in_turns(calls, rounds=rounds, threads=threads).items()
    }
    base = times.pop("base")
    times |= {n: max(times[n] - base, 1e-7) for n in ("slices", "gather", "blocks") if n in times}
    row = math.prod(shape[max(moves) + 1 :]) * 4
    cells = [f"{times[n] * 1e6:.1f}" if n in times else "–" for n in _COLUMNS]
    ratio = times["gather"] / times["slices"]
    return f"| {list(shape)} | {moves} | {row} | {' | '.join(cells)} | {ratio:.2f} | " + (
        f"{times['blocks'] / times['slices']:.2f} |" if "blocks" in times else "– |"
    )


def onnx_run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


_COLUMNS = ("slices", "gather", "blocks", "torch", "limit")


def _cases() -> Iterator[tuple[tuple[int, ...], dict[int, int]]]:
    total = 1 << 18
    # One axis: rows of 4 bytes to 4 kB, in the first place, behind a few and behind many.
    for outer in (1, 16, 1024):
        for row in (1, 2, 4, 8, 16, 32, 64, 256, 1024):
            n = total // (outer * row)
            if n >= 4:
                yield (outer, n, row), {1: 3}
    # Two axes, as in Swin.
    for outer, n in ((1, 56), (8, 14), (64, 16)):
        for row in (1, 2, 4, 8, 16, 32, 96):
            yield (outer, n, n, row), {1: 3, 2: 3}
    # The last axis in blocks of 8 bytes to 1 kB.
    for n, shift in ((512, 2), (512, 4), (512, 8), (512, 16), (512, 32), (512, 64), (512, 256), (64, 16)):
        yield (total // n, n), {1: shift}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--opset", type=int, default=13)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"| shape | shifts by axis | row bytes | {' | '.join(_COLUMNS)} | gather/slices | blocks/slices |")
    print("|" + "---|" * (5 + len(_COLUMNS)))
    for shape, moves in _cases():
        print(
            _line(shape, moves, opset=options.opset, rounds=options.rounds, threads=options.threads),
            flush=True,
        )


if __name__ == "__main__":
    main()
