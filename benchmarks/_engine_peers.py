"""The replacement of :mod:`engine` made with other tools, as a user of each would write it: ``TOOL IN OUT``."""

from __future__ import annotations

import sys
from typing import Any

#: Bounds of the two Slices: the last row goes first.
_BOUNDS = {"last": -1, "zero": 0, "end": 1 << 62, "axis": 1}


def onnx_(source: str, target: str) -> None:
    """Load and save alone."""
    import onnx

    onnx.save(onnx.load(source), target)


def graphsurgeon(source: str, target: str) -> None:
    import numpy as np
    import onnx
    import onnx_graphsurgeon as gs

    graph = gs.import_onnx(onnx.load(source))
    bounds = {name: gs.Constant(name, np.array([value], np.int64)) for name, value in _BOUNDS.items()}
    parts = (("last", "end"), ("zero", "last"))
    for node in [node for node in graph.nodes if node.op == "Roll"]:
        halves = []
        for number, (start, end) in enumerate(parts):
            half = gs.Variable(f"{node.name}/half_{number}")
            inputs = [node.inputs[0], bounds[start], bounds[end], bounds["axis"]]
            graph.nodes.append(gs.Node("Slice", f"{node.name}/slice_{number}", inputs=inputs, outputs=[half]))
            halves.append(half)
        outputs = list(node.outputs)
        node.outputs.clear()
        node.inputs.clear()
        joined = gs.Node("Concat", f"{node.name}/concat", {"axis": 1}, inputs=halves, outputs=outputs)
        graph.nodes.append(joined)
    graph.cleanup().toposort()
    onnx.save(gs.export_onnx(graph), target)


def onnx_ir(source: str, target: str) -> None:
    import numpy as np
    import onnx_ir as ir

    model = ir.load(source)
    graph = model.graph
    bounds = {}
    for name, value in _BOUNDS.items():
        tensor = ir.tensor(np.array([value], np.int64), name=name)
        bounds[name] = ir.Value(name=name, const_value=tensor)
        graph.register_initializer(bounds[name])
    for node in [node for node in graph if node.op_type == "Roll"]:
        data = node.inputs[0]
        assert data is not None
        new = [
            ir.Node("", "Slice", [data, bounds[start], bounds[end], bounds["axis"]])
            for start, end in (("last", "end"), ("zero", "last"))
        ]
        halves = [item.outputs[0] for item in new]
        new.append(ir.Node("", "Concat", halves, [ir.AttrInt64("axis", 1)]))
        ir.convenience.replace_nodes_and_values(graph, node, [node], new, node.outputs, new[-1].outputs)
    ir.save(model, target)


def onnxscript(source: str, target: str) -> None:
    import onnx_ir as ir
    from onnxscript.rewriter import pattern, rewrite

    def roll(op: Any, x: Any) -> Any:
        return op.Roll(x, _domain="com.example", _allow_other_attributes=True)

    def slices(op: Any, x: Any) -> Any:
        bound = {name: op.Constant(value_ints=[value]) for name, value in _BOUNDS.items()}
        first = op.Slice(x, bound["last"], bound["end"], bound["axis"])
        second = op.Slice(x, bound["zero"], bound["last"], bound["axis"])
        return op.Concat(first, second, axis=1)

    ir.save(rewrite(ir.load(source), [pattern.RewriteRule(roll, slices)]), target)


if __name__ == "__main__":
    tool, *files = sys.argv[1:]
    {"onnx": onnx_, "graphsurgeon": graphsurgeon, "onnx_ir": onnx_ir, "onnxscript": onnxscript}[tool](*files)
