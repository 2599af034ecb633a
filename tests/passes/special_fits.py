"""Where the coefficients in ``passes/special/_tables.py`` come from: Chebyshev series, computed with mpmath.

    python -m tests.passes.special_fits > passes/special/_tables.py

Each function below is smooth on its interval: what is singular has been divided out, or subtracted, by hand.  The forms
are those of the sources that the passes name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mpmath as mp

if TYPE_CHECKING:
    from collections.abc import Callable

#: Nodes of the interpolation, and digits of the arithmetic.
NODES = 64
DIGITS = 50
#: Coefficients below this share of the largest one are left out: half of a float64's last place.
NEGLIGIBLE = 1e-17


def lgamma_near(t: Any) -> Any:
    """ln Γ(t + 2) without its zeros at t = 0 and t = −1."""
    return mp.loggamma(t + 2) / (t * (t + 1))


def lgamma_far(u: Any) -> Any:
    """What Stirling's formula leaves, times x, by 1/x²."""
    x = 1 / mp.sqrt(u)
    return x * (mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2)


def digamma_near(t: Any) -> Any:
    return mp.digamma(t + 1)


def digamma_far(u: Any) -> Any:
    """What ln x + 1/2x leaves of ψ(1 + x), times x², by 1/x²."""
    x = 1 / mp.sqrt(u)
    return x * x * (mp.digamma(x + 1) - mp.log(x) - 1 / (2 * x))


def erfinv_near(w: Any) -> Any:
    """erf⁻¹(x) / x by w = −ln(1 − x²)."""
    return _erfinv(w) / mp.sqrt(-mp.expm1(-w))


def erfinv_far(s: Any) -> Any:
    """erf⁻¹(x) / x by √w."""
    return erfinv_near(s * s)


def _erfinv(w: Any) -> Any:
    target = mp.log(-mp.expm1(mp.log(-mp.expm1(-w)) / 2))  # ln(1 − x)
    start = mp.sqrt(w) if w > 4 else mp.sqrt(-mp.expm1(-w)) * 0.9 + w / 8
    return mp.findroot(lambda y: mp.log(mp.erfc(y)) - target, start)


def ndtri_near(z: Any) -> Any:
    """The quantile of p = 1/2 + y by y, by y²."""
    y = mp.sqrt(z)
    return mp.sqrt(2) * mp.erfinv(2 * y) / y


def ndtri_far(v: Any) -> Any:
    """What y − ln(y)/y leaves of the quantile of exp(−y²/2), times −y, by 1/y."""
    y = 1 / v
    x = mp.findroot(lambda x: mp.log(mp.erfc(x / mp.sqrt(2)) / 2) + y * y / 2, y - mp.log(y) / y)
    return y * (y - mp.log(y) / y - x)


def erfcx(t: Any) -> Any:
    """(1 + 2x)·exp(x²)·erfc(x) by t = (x − 3.75) / (x + 3.75)."""
    x = mp.mpf(3.75) * (1 + t) / (1 - t)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def i0_near(x: Any) -> Any:
    return mp.exp(-x) * mp.besseli(0, x)


def i0_far(v: Any) -> Any:
    return mp.exp(-1 / v) * mp.besseli(0, 1 / v) / mp.sqrt(v)


def i1_near(x: Any) -> Any:
    return mp.exp(-x) * mp.besseli(1, x) / x


def i1_far(v: Any) -> Any:
    return mp.exp(-1 / v) * mp.besseli(1, 1 / v) / mp.sqrt(v)


def i0_square(z: Any) -> Any:
    return mp.besseli(0, mp.sqrt(z))


def i1_square(z: Any) -> Any:
    return mp.besseli(1, mp.sqrt(z)) / mp.sqrt(z)


def k0_near(z: Any) -> Any:
    x = mp.sqrt(z)
    return mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)


def k0_far(v: Any) -> Any:
    return mp.exp(1 / v) * mp.besselk(0, 1 / v) / mp.sqrt(v)


def k1_near(z: Any) -> Any:
    x = mp.sqrt(z)
    return x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x))


def k1_far(v: Any) -> Any:
    return mp.exp(1 / v) * mp.besselk(1, 1 / v) / mp.sqrt(v)


def _zeros(order: int) -> list[Any]:
    """The squares of the first two positive zeros of J."""
    return [mp.besseljzero(order, i) ** 2 for i in (1, 2)]


def j0_near(z: Any) -> Any:
    first, second = _zeros(0)
    return mp.besselj(0, mp.sqrt(z)) / ((z - first) * (z - second))


def j1_near(z: Any) -> Any:
    first, second = _zeros(1)
    x = mp.sqrt(z)
    return mp.besselj(1, x) / (x * (z - first) * (z - second))


def y0_near(z: Any) -> Any:
    x = mp.sqrt(z)
    return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)


def y1_near(z: Any) -> Any:
    x = mp.sqrt(z)
    return (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x


def _hankel(order: int, z: Any) -> tuple[Any, Any]:
    """P and Q / w of the asymptotic form, where z = w² and w = 5/x."""
    w = mp.sqrt(z)
    x = 5 / w
    angle = x - (2 * order + 1) * mp.pi / 4
    factor = mp.sqrt(mp.pi * x / 2)
    j, y = mp.besselj(order, x), mp.bessely(order, x)
    return factor * (j * mp.cos(angle) + y * mp.sin(angle)), factor * (
        y * mp.cos(angle) - j * mp.sin(angle)
    ) / w


def hankel_p0(z: Any) -> Any:
    return _hankel(0, z)[0]


def hankel_q0(z: Any) -> Any:
    return _hankel(0, z)[1]


def hankel_p1(z: Any) -> Any:
    return _hankel(1, z)[0]


def hankel_q1(z: Any) -> Any:
    return _hankel(1, z)[1]


def airy_near(x: Any) -> Any:
    return mp.airyai(x)


def airy_right(v: Any) -> Any:
    """2·√π·x^¼·exp(ζ)·Ai(x) by 1/ζ, where ζ = ⅔·x^(3/2)."""
    x = (mp.mpf(3) / (2 * v)) ** (mp.mpf(2) / 3)
    return 2 * mp.sqrt(mp.pi) * mp.root(x, 4) * mp.exp(1 / v) * mp.airyai(x)


def _airy_left(v: Any) -> tuple[Any, Any]:
    """The factors of sin and −cos of ζ + π/4 in √π·x^¼·Ai(−x), the second by 1/ζ; from Ai and Bi."""
    zeta = 1 / mp.sqrt(v)
    x = (mp.mpf(3) * zeta / 2) ** (mp.mpf(2) / 3)
    factor, angle = mp.sqrt(mp.pi) * mp.root(x, 4), zeta + mp.pi / 4
    a, b = factor * mp.airyai(-x), factor * mp.airybi(-x)
    return a * mp.sin(angle) + b * mp.cos(angle), (b * mp.sin(angle) - a * mp.cos(angle)) * zeta


def airy_left_f(v: Any) -> Any:
    return _airy_left(v)[0]


def airy_left_g(v: Any) -> Any:
    return _airy_left(v)[1]


def log1p_less_x(m: Any) -> Any:
    """(m − ln(1 + m)) / m²."""
    return (m - mp.log1p(m)) / (m * m)


#: Where ζ of Airy's function is at |x| = 2.09.
_ZETA = 2 / 3 * 2.09**1.5

FITS: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "LGAMMA_NEAR": (lgamma_near, -1.0, 1.0),
    "LGAMMA_FAR": (lgamma_far, 0.0, 1 / 9),
    "DIGAMMA_NEAR": (digamma_near, 0.0, 2.0),
    "DIGAMMA_FAR": (digamma_far, 0.0, 0.25),
    "ERFINV_NEAR": (erfinv_near, 0.0, 6.25),
    "ERFINV_FAR": (erfinv_far, 2.5, 4.25),
    "ERFINV_FURTHER": (erfinv_far, 4.25, 6.25),
    "NDTRI_NEAR": (ndtri_near, 0.0, 0.14),
    "NDTRI_FAR": (ndtri_far, 1 / 40, 0.5),
    "ERFCX": (erfcx, -1.0, 1.0),
    "I0_NEAR": (i0_near, 0.0, 8.0),
    "I0_FAR": (i0_far, 0.0, 0.125),
    "I1_NEAR": (i1_near, 0.0, 8.0),
    "I1_FAR": (i1_far, 0.0, 0.125),
    "I0_SQUARE": (i0_square, 0.0, 4.0),
    "I1_SQUARE": (i1_square, 0.0, 4.0),
    "K0_NEAR": (k0_near, 0.0, 4.0),
    "K0_FAR": (k0_far, 0.0, 0.5),
    "K1_NEAR": (k1_near, 0.0, 4.0),
    "K1_FAR": (k1_far, 0.0, 0.5),
    "J0_NEAR": (j0_near, 0.0, 25.0),
    "J1_NEAR": (j1_near, 0.0, 25.0),
    "Y0_NEAR": (y0_near, 0.0, 25.0),
    "Y1_NEAR": (y1_near, 0.0, 25.0),
    "HANKEL_P0": (hankel_p0, 0.0, 1.0),
    "HANKEL_Q0": (hankel_q0, 0.0, 1.0),
    "HANKEL_P1": (hankel_p1, 0.0, 1.0),
    "HANKEL_Q1": (hankel_q1, 0.0, 1.0),
    "AIRY_NEAR": (airy_near, -2.09, 2.09),
    "AIRY_RIGHT": (airy_right, 0.0, 1 / _ZETA),
    "AIRY_LEFT_F": (airy_left_f, 0.0, 1 / _ZETA**2),
    "AIRY_LEFT_G": (airy_left_g, 0.0, 1 / _ZETA**2),
    "LOG1P_LESS_X": (log1p_less_x, -0.5, 1.0),
}


def coefficients(function: Callable[[Any], Any], low: float, high: float) -> list[float]:
    """Of the Chebyshev polynomials on [low, high], the first ones that matter."""
    with mp.workdps(DIGITS):
        angles = [mp.pi * (2 * i + 1) / (2 * NODES) for i in range(NODES)]
        middle, half = (mp.mpf(low) + mp.mpf(high)) / 2, (mp.mpf(high) - mp.mpf(low)) / 2
        values = [function(middle + half * mp.cos(angle)) for angle in angles]
        found = [
            float(
                mp.re(mp.fsum(v * mp.cos(k * a) for v, a in zip(values, angles, strict=True)))
                * (1 if k == 0 else 2)
                / NODES
            )
            for k in range(NODES)
        ]
    largest = max(map(abs, found))
    count = max(k for k, value in enumerate(found) if abs(value) > NEGLIGIBLE * largest) + 1
    return found[:count]


def text() -> str:
    """The module of tables."""
    lines = [
        '"""Chebyshev series of the special functions; see ``tests/passes/special_fits.py``, which makes this file.',
        "",
        "Each table is the interval and the coefficients of T0, T1, … on it, right to the last place of float64.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from passes.special._series import Fit",
        "",
        "# fmt: off",
    ]
    for name, (function, low, high) in FITS.items():
        lines += [f"{name} = Fit({low!r}, {high!r}, ("]
        found = [f"{value!r}," for value in coefficients(function, low, high)]
        lines += [f"    {' '.join(found[i : i + 4])}" for i in range(0, len(found), 4)]
        lines += ["))"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(text(), end="")  # noqa: T201
