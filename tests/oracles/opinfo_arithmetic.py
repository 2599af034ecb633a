"""OpInfo's entries for the passes of passes/arithmetic/; see the package's docstring."""

from tests.oracles.table import Row, Unrun

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
    Row("cdist", ("cdist",)),
    Row("pdist", ("nn.functional.pdist",)),
    Row("frexp", ("frexp",)),
    Row("nextafter", ("nextafter",)),
    Row("heaviside", ("heaviside",)),
    Row("angle", ("angle",)),
    Row("nansum", ("nansum",)),
    Row("xlogy", ("xlogy",)),
)

UNRUN: tuple[Unrun, ...] = ()
