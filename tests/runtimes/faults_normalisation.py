"""Faults of runtimes with the passes of passes/normalisation/; see the package's docstring."""

from tests.runtimes.drive import Result
from tests.runtimes.faults import Fault

_TRAINS = "its BatchNormalization of opset 9 mixes the statistics of the batch in"

FAULTS: tuple[Fault, ...] = (
    Fault("reference", "group_norm", Result.WRONG, _TRAINS, cases="weight=constant"),
    Fault("reference", "instance_norm", Result.WRONG, _TRAINS, cases="running_var=constant"),
    Fault(
        "tract",
        "instance_norm",
        Result.CRASHED,
        "takes no mean of nothing",
        cases="Case(float32[2, 3, 0]",
        sizes="symbolic",
    ),
)
