"""Faults of runtimes with the passes of passes/fused/; see the package's docstring."""

from tests.runtimes.drive import Result
from tests.runtimes.faults import Fault

_BN = ("conv_bn", "conv_bn_relu", "conv_bn_silu")

FAULTS: tuple[Fault, ...] = (
    *(
        Fault(
            "reference",
            name,
            Result.WRONG,
            "its BatchNormalization of opset 9 mixes the statistics of the batch in",
            cases="weight=constant",
            form="in_turn",
        )
        for name in _BN
    ),
    *(
        Fault(
            "openvino",
            name,
            Result.REFUSED,
            "has no convolution by a kernel of unknown size",
            cases=", float32[",
            sizes="symbolic",
        )
        for name in (*_BN, "conv_relu")
    ),
    Fault(
        "openvino",
        "linear_relu",
        Result.WRONG,
        "Relu of NaN is 0",
        cases="Case(float32[4, 2], float32[2, 2])",
    ),
    Fault(
        "openvino",
        "linear_relu",
        Result.REFUSED,
        "takes no product of nothing",
        cases="Case(float32[0, 4]",
        sizes="static",
    ),
    Fault("openvino", "conv_relu", Result.WRONG, "Relu of NaN is 0", cases="Case(float32[1, 1, 12]"),
    Fault(
        "tract",
        "conv_bn_silu",
        Result.WRONG,
        "its Sigmoid ends at 1e-7, and a large negative number times it is not 0",
        cases="Case(float32[2, 3, 6, 6], float32[2, 3, 3, 3], float32[2], float32[2], float32[2], float32[2], "
        "float32[2], groups=1)",
        form="in_turn",
    ),
)
