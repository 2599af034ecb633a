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
    size = np.where(size >= sentinel(dtype), 0.0, size)
    return float(size.max()) if size.size else 0.0


def sentinel(dtype: np.dtype[Any]) -> float:
    """Magnitudes from which on an element stands for something else than itself."""
    if dtype.kind == "f" or dtype.name == "bfloat16":
        # masks are filled with the lowest number of this or a narrower format, or with round powers of ten beyond use
        return 3e4 if dtype.name == "float16" else 1e30
    return float("inf")


class Cosine:
    """The cosine of the angle between two vectors that come in parts; sentinels of the second do not count.

    Sums are of float64; numbers of that format are scaled to 1 first, so that nothing overflows or vanishes.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._limit = sentinel(dtype)
        #: Whether a square may leave what float64 can hold.
        self._wide = dtype.name in ("float64", "complex128", "longdouble")
        self._dot = 0.0
        self._squares = [0.0, 0.0]
        self._scales = [0.0, 0.0]

    def add(self, a: Array, b: Array) -> None:
        """Parts of the two: finite, in float64 or complex128; one and the same array where they are equal."""
        counts = np.abs(b) < self._limit
        if not counts.all():
            a, b = (b[counts],) * 2 if a is b else (a[counts], b[counts])
        if a is b and not self._wide:
            square = float(np.vdot(b, b).real)
            self._squares = [self._squares[0] + square, self._squares[1] + square]
            self._dot += square
            return
        if self._wide:
            a, b = self._scaled(0, a), self._scaled(1, b)
        self._squares[1] += float(np.vdot(b, b).real)
        self._squares[0] += float(np.vdot(a, a).real)
        self._dot += float(np.vdot(b, a).real)

    def _scaled(self, which: int, part: Array) -> Array:
        """``part`` by what is the largest magnitude by now."""
        size = float(np.abs(part).max(initial=0.0))
        if size > self._scales[which]:
            shrink = self._scales[which] / size
            self._squares[which] *= shrink * shrink
            self._dot *= shrink
            self._scales[which] = size
        return part / self._scales[which] if self._scales[which] else part

    @property
    def value(self) -> float:
        """From -1 to 1; 1 where both are zero, 0 where one is."""
        zero = [square == 0 for square in self._squares]
        if any(zero):
            return float(all(zero))
        return float(np.clip(self._dot / np.sqrt(self._squares[0]) / np.sqrt(self._squares[1]), -1.0, 1.0))


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
