"""What has no gradient among the passes of passes/special/; see the package's docstring."""

from __future__ import annotations

#: Pass and reason.
NOT_DIFFERENTIABLE: tuple[tuple[str, str], ...] = tuple(
    (name, "PyTorch has no derivative of it")
    for name in (
        "bessel_j0",
        "bessel_j1",
        "bessel_y0",
        "bessel_y1",
        "modified_bessel_k0",
        "modified_bessel_k1",
        "scaled_modified_bessel_k0",
        "scaled_modified_bessel_k1",
        "spherical_bessel_j0",
        "airy_ai",
        "chebyshev_polynomial_t",
        "chebyshev_polynomial_u",
        "chebyshev_polynomial_v",
        "chebyshev_polynomial_w",
        "shifted_chebyshev_polynomial_t",
        "shifted_chebyshev_polynomial_u",
        "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w",
        "hermite_polynomial_h",
        "hermite_polynomial_he",
        "laguerre_polynomial_l",
        "legendre_polynomial_p",
    )
)

#: Pass, a part of the case's text, and why the gradient fails there.
KINKS: tuple[tuple[str, str, str], ...] = ()
