"""Faults of runtimes with the passes of passes/activation/; see the package's docstring."""

from tests.runtimes.drive import Result
from tests.runtimes.faults import Fault

FAULTS: tuple[Fault, ...] = (
    Fault("tract", "swish", Result.WRONG, "Sigmoid of NaN is a number", cases="Case(float32[8])"),
    Fault(
        "tract", "swish", Result.WRONG, "Sigmoid of inf is below 1, of NaN a number", cases="Case(float32[2])"
    ),
    Fault(
        "openvino",
        "swish",
        Result.REFUSED,
        "fuses x * Sigmoid(beta * x) into its Swish, whose beta must be of rank 0, and does not look at the rank",
        cases="Case(float32[2, 3, 8], float32[1])",
        sizes="static",
    ),
)
