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
    *(
        Fault(
            runtime,
            name,
            Result.WRONG,
            "Max and Min of NaN and a number are the number",
            cases="Case(float32[3])",
            form=form,
        )
        for runtime in ("openvino", "tract")
        for name, form in (("elu", None), ("celu", None), ("selu", "formula"))
    ),
    *(
        Fault(
            runtime, "hardsigmoid", Result.WRONG, "HardSigmoid of NaN is a number", cases="Case(float32[3])"
        )
        for runtime in ("openvino", "tract")
    ),
    Fault("openvino", "logsigmoid", Result.WRONG, "Exp of NaN is a number", cases="Case(float32[3])"),
    Fault(
        "tract",
        "gelu",
        Result.WRONG,
        "Tanh of -inf is above -1, in some of its kernels",
        cases="Case(float32[1], approximate='tanh')",
        sometimes=True,
    ),
    Fault(
        "tract",
        "swiglu",
        Result.WRONG,
        "Sigmoid of inf is below 1, of NaN a number",
        cases="Case(float32[4])",
    ),
    Fault(
        "openvino",
        "piecewise",
        Result.WRONG,
        "IsNaN is false everywhere: its kernels are built for finite numbers",
        cases="Case(float32[5]",
    ),
)
