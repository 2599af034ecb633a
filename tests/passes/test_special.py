"""The tables of passes/special/ hold what mpmath makes of their functions."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from onnx import TensorProto

from passes.special import _tables
from passes.special._series import Fit
from tests.passes.special_fits import FITS


def test_every_table_has_a_function() -> None:
    assert {name for name, value in vars(_tables).items() if isinstance(value, Fit)} == set(FITS)


@pytest.mark.parametrize("name", FITS)
def test_table(name: str) -> None:
    function, low, high = FITS[name]
    fit: Fit = getattr(_tables, name)
    assert (fit.low, fit.high) == (low, high)
    for share in (0.013, 0.37, 0.71, 0.994):
        t = low + (high - low) * share
        with mp.workdps(30):
            expected = float(mp.re(function(mp.mpf(t))))
        s = 2 * (t - low) / (high - low) - 1
        double = np.polynomial.chebyshev.chebval(s, fit.coefficients)
        single = np.polynomial.polynomial.polyval(s, fit.powers(TensorProto.FLOAT))
        largest = max(map(abs, fit.coefficients))
        assert double == pytest.approx(expected, rel=1e-13, abs=1e-15 * largest)
        assert single == pytest.approx(expected, rel=1e-7, abs=2e-8 * largest)
