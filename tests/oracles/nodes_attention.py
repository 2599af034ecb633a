"""ONNX's node tests for the passes of passes/attention/; see the package's docstring."""

from tests.oracles.table import NodeRow, Unrun

ROWS: tuple[NodeRow, ...] = (
    NodeRow(
        "rotary_embedding",
        "RotaryEmbedding",
        lambda attributes, inputs: {
            **dict(zip(("x", "cos_cache", "sin_cache", "position_ids"), inputs, strict=False)),
            **{k: bool(v) if k == "interleaved" else v for k, v in attributes.items()},
        },
    ),
)

UNRUN: tuple[Unrun, ...] = ()
