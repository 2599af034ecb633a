"""OpInfo's entries for the passes of passes/arithmetic/; see the package's docstring."""

from collections.abc import Mapping
from typing import Any

from tests.oracles.table import Row, Unrun

#: How `torch.cdist` calls the modes that its operator has numbers for.
_MODES = {
    "use_mm_for_euclid_dist_if_necessary": 0,
    "use_mm_for_euclid_dist": 1,
    "donot_use_mm_for_euclid_dist": 2,
}


def _cdist(sample: Any) -> Mapping[str, Any]:
    x2, p, mode = sample.args
    return {"x1": sample.input, "x2": x2, "p": p, "compute_mode": _MODES[mode]}


ROWS: tuple[Row, ...] = (
    Row("fmax", ("fmax",)),
    Row("fmin", ("fmin",)),
    Row("copysign", ("copysign",)),
    Row("signbit", ("signbit",)),
    Row("hypot", ("hypot",)),
    Row("logaddexp", ("logaddexp",)),
    Row("logaddexp2", ("logaddexp2",)),
    Row("floor_divide", ("floor_divide",)),
    Row("remainder", ("remainder",)),
    Row("fmod", ("fmod",)),
    Row("left_shift", ("bitwise_left_shift",)),
    Row("right_shift", ("bitwise_right_shift",)),
    Row("gcd", ("gcd",)),
    Row("lcm", ("lcm",)),
    Row("cdist", ("cdist",), adapt=_cdist),
    Row("pdist", ("nn.functional.pdist",)),
    Row("frexp", ("frexp",)),
    Row("nextafter", ("nextafter",)),
    Row("heaviside", ("heaviside",)),
    Row("angle", ("angle",)),
    Row("nansum", ("nansum",)),
    Row("xlogy", ("xlogy",)),
)

UNRUN: tuple[Unrun, ...] = ()
