"""OpInfo's entries for the passes of passes/special/; see the package's docstring."""

from tests.oracles.table import Row, Unrun

ROWS: tuple[Row, ...] = (
    Row("lgamma", ("lgamma",)),
    Row("digamma", ("digamma",)),
    Row("log1p", ("log1p",)),
    Row("expm1", ("expm1",)),
    Row("erfc", ("erfc",)),
    Row("erfcx", ("special.erfcx",)),
    Row("log_ndtr", ("special.log_ndtr",)),
    Row("erfinv", ("erfinv",)),
    Row("bessel_j0", ("special.bessel_j0",)),
    Row("bessel_j1", ("special.bessel_j1",)),
    Row("bessel_y0", ("special.bessel_y0",)),
    Row("bessel_y1", ("special.bessel_y1",)),
    Row("i0e", ("special.i0e",)),
    Row("i1", ("special.i1", "special.modified_bessel_i1")),
    Row("i1e", ("special.i1e",)),
    Row("modified_bessel_k0", ("special.modified_bessel_k0",)),
    Row("modified_bessel_k1", ("special.modified_bessel_k1",)),
    Row("scaled_modified_bessel_k0", ("special.scaled_modified_bessel_k0",)),
    Row("scaled_modified_bessel_k1", ("special.scaled_modified_bessel_k1",)),
    Row("spherical_bessel_j0", ("special.spherical_bessel_j0",)),
    Row("airy_ai", ("special.airy_ai",)),
    Row("i0", ("i0", "special.modified_bessel_i0")),
    Row("chebyshev_polynomial_t", ("special.chebyshev_polynomial_t",)),
    Row("chebyshev_polynomial_u", ("special.chebyshev_polynomial_u",)),
    Row("chebyshev_polynomial_v", ("special.chebyshev_polynomial_v",)),
    Row("chebyshev_polynomial_w", ("special.chebyshev_polynomial_w",)),
    Row("shifted_chebyshev_polynomial_t", ("special.shifted_chebyshev_polynomial_t",)),
    Row("shifted_chebyshev_polynomial_u", ("special.shifted_chebyshev_polynomial_u",)),
    Row("shifted_chebyshev_polynomial_v", ("special.shifted_chebyshev_polynomial_v",)),
    Row("shifted_chebyshev_polynomial_w", ("special.shifted_chebyshev_polynomial_w",)),
    Row("hermite_polynomial_h", ("special.hermite_polynomial_h",)),
    Row("hermite_polynomial_he", ("special.hermite_polynomial_he",)),
    Row("laguerre_polynomial_l", ("special.laguerre_polynomial_l",)),
    Row("legendre_polynomial_p", ("special.legendre_polynomial_p",)),
    Row("ndtri", ("special.ndtri",)),
)

UNRUN: tuple[Unrun, ...] = ()
