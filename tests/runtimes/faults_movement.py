"""Faults of runtimes with the passes of passes/movement/; see the package's docstring."""

from tests.runtimes.drive import Result
from tests.runtimes.faults import Fault

FAULTS: tuple[Fault, ...] = (
    Fault(
        "tract",
        "flip",
        Result.REFUSED,
        "a reversed Slice of an axis that turns out to be empty",
        cases="Case(float32[0, 3]",
        sizes="symbolic",
    ),
    Fault(
        "tract",
        "rot90",
        Result.REFUSED,
        "a reversed Slice of an axis that turns out to be empty",
        cases="Case(float32[2, 0]",
        sizes="symbolic",
    ),
    *(
        Fault(
            runtime,
            "roll",
            Result.WRONG,
            "its Mod of int64 by a size that is open takes the shift for the nearest int32",
            cases="922337203685477580",
            sizes="symbolic",
        )
        for runtime in ("openvino", "tract")
    ),
)
