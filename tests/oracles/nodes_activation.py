"""ONNX's node tests for the passes of passes/activation/; see the package's docstring."""

from tests.oracles.run import Result
from tests.oracles.table import NodeRow, Unrun, named

ROWS: tuple[NodeRow, ...] = (
    NodeRow("swish", "Swish", named("x", beta=("alpha", 1.0))),
    NodeRow("mish", "Mish", named("x")),
    NodeRow("gelu", "Gelu", named("x", approximate=("approximate", "none"))),
    NodeRow("hardswish", "HardSwish", named("x")),
    NodeRow("softplus", "Softplus", named("x")),
    NodeRow("elu", "Elu", named("x", alpha=("alpha", 1.0))),
    NodeRow("celu", "Celu", named("x", alpha=("alpha", 1.0))),
)

UNRUN: tuple[Unrun, ...] = (
    Unrun("celu", "test_celu_bfloat16", Result.NO_KERNEL, "onnxruntime has no bfloat16 kernels on a CPU"),
)
