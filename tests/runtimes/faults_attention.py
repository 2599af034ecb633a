"""Faults of runtimes with the passes of passes/attention/; see the package's docstring."""

from tests.runtimes.drive import Result
from tests.runtimes.faults import Fault

FAULTS: tuple[Fault, ...] = (
    Fault(
        "openvino",
        "scaled_dot_product_attention",
        Result.WRONG,
        "a MatMul over no terms leaves its result as the memory was",
        cases="float32[2, 0, 4], float32[2, 0, 4]",
        sizes="symbolic",
    ),
)
