"""Floating-point formats as numbers: widening, unit-in-the-last-place distances, magnitudes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether values of ``dtype`` are rounded (complex numbers and ml_dtypes' formats included)."""
    return dtype.kind in "fc" or (dtype.kind == "V" and dtype.name.startswith(("bfloat", "float")))


def to_float64(values: Array) -> Array:
    """The values in float64, complex ones in complex128; exact for every format but 64-bit integers."""
    if values.dtype.kind == "c":
        return values.astype(np.complex128)
    return values.astype(np.float64)


def finite_max(values: Array, dtype: np.dtype[Any]) -> float:
    """The largest magnitude; the dtype's own extremes, which masks are filled with, do not count."""
    size = np.abs(values)
    if dtype.kind == "f" or dtype.name == "bfloat16":
        # masks are filled with the lowest number of this or a narrower format, or with round powers of ten beyond use
        limit = {"float16": 3e4, "float32": 1e30, "bfloat16": 1e30}.get(dtype.name, 1e30)
        size = np.where(size >= limit, 0.0, size)
    return float(size.max()) if size.size else 0.0


def ulp_steps(a: Array, b: Array) -> Array:
    """Steps between the representable numbers ``a`` and ``b``, element by element, as float64; complex: the larger of
    the components."""
    if a.dtype.kind == "c":
        half = np.dtype(f"f{a.dtype.itemsize // 2}")
        real = ulp_steps(a.real.astype(half), b.real.astype(half))
        return np.maximum(real, ulp_steps(a.imag.astype(half), b.imag.astype(half)))
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    sign_a, size_a = _split(np.ascontiguousarray(a).view(unsigned))
    sign_b, size_b = _split(np.ascontiguousarray(b).view(unsigned))
    same = np.where(size_a > size_b, size_a - size_b, size_b - size_a).astype(np.float64)
    across = size_a.astype(np.float64) + size_b.astype(np.float64)
    return np.where(sign_a == sign_b, same, across)


def _split(bits: Array) -> tuple[Array, Array]:
    """Sign bit, and the magnitude as an integer: neighbouring numbers have neighbouring integers."""
    mask = bits.dtype.type(1 << (bits.dtype.itemsize * 8 - 1))
    return bits & mask, bits & ~mask
