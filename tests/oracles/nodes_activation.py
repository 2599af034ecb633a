"""ONNX's node tests for the passes of passes/activation/; see the package's docstring."""

from tests.oracles.table import NodeRow, Unrun, named

ROWS: tuple[NodeRow, ...] = (NodeRow("swish", "Swish", named("x", beta=("alpha", 1.0))),)

UNRUN: tuple[Unrun, ...] = ()
