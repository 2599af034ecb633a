"""ONNX's node tests for the passes of passes/activation/; see the package's docstring."""

from tests.oracles.table import NodeRow, Unrun

ROWS: tuple[NodeRow, ...] = (
    NodeRow(
        "swish", "Swish", lambda attributes, inputs: {"x": inputs[0], "beta": attributes.get("alpha", 1.0)}
    ),
)

UNRUN: tuple[Unrun, ...] = ()
