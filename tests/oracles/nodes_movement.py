"""ONNX's node tests for the passes of passes/movement/; see the package's docstring."""

from tests.oracles.table import NodeRow, Unrun

ROWS: tuple[NodeRow, ...] = ()

UNRUN: tuple[Unrun, ...] = ()
