"""What stands beside an element does not excuse it: fills of masks, columns of another unit."""

from __future__ import annotations

import numpy as np
import pytest

from rewriter.verify.compare import REGION, WHOLE, judge, measure


def verdict(
    actual: np.ndarray, expected: np.ndarray, dtype: str = "float32", *, whole: bool = False
) -> str | None:
    a, b = actual.astype(dtype), expected.astype(dtype)
    return judge(a, b, measure(a, b), (WHOLE if whole else REGION)[dtype])


@pytest.mark.parametrize("fill", [-1e9, -1e4, 1e6, 5e3])
@pytest.mark.parametrize("masked", [0.02, 0.5, 0.95])
def test_the_fill_of_a_mask_hides_no_error(fill: float, masked: float) -> None:
    rng = np.random.default_rng(0)
    b = rng.standard_normal((8, 100))
    a = b + 0.01
    mask = rng.random(b.shape) < masked
    a[mask] = b[mask] = fill
    assert "beyond tolerance" in str(verdict(a, b))
    assert "beyond tolerance" in str(verdict(a, b, whole=True))
    assert verdict(b + np.where(mask, 0, 1e-7), b) is None


def test_a_mask_that_is_added_hides_no_error() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((8, 100))
    mask = np.where(rng.random(scores.shape) < 0.5, -1e4, 0)
    a, b = (scores + mask).astype("float32"), (scores.astype("float32") + mask.astype("float32"))
    assert verdict(a, b) is None
    assert "beyond tolerance" in str(verdict(a + np.where(mask == 0, 0.05, 0), b, whole=True))


def test_columns_of_another_unit() -> None:
    """Boxes of a few hundred, beside scores from 0 to 1."""
    rng = np.random.default_rng(0)
    b = np.concatenate([rng.random((20, 4)) * 300 + 100, rng.random((20, 6))], axis=1)
    a = b.copy()
    a[:, 4:] += 0.02
    assert "beyond tolerance" in str(verdict(a, b, whole=True))
    assert verdict(b * (1 + 1e-6), b, whole=True) is None


def test_what_cancelling_leaves_is_rounding() -> None:
    """Squared distances: |x|² + |y|² − 2xy, whose diagonal is 0 but for the rounding of the terms."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((200, 16)) * 60).astype("float32")
    squares = (x * x).sum(1)
    rounded = squares[:, None] + squares[None] - 2 * x @ x.T
    exact = ((x[:, None].astype("float64") - x[None].astype("float64")) ** 2).sum(-1)
    assert np.abs(rounded.diagonal()).max() > 1e-3
    assert verdict(rounded, exact) is None
    assert "beyond tolerance" in str(verdict(rounded + 3 * np.eye(200), exact))


def test_a_product_whose_rows_differ_in_size() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 300)) * np.exp(rng.standard_normal((64, 1)) * 2)
    w = rng.standard_normal((300, 32))
    exact = x @ w
    assert verdict(x.astype("float32") @ w.astype("float32"), exact) is None


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_few_elements_are_of_one_kind(size: int) -> None:
    b = np.array([4096.0, *[0.0] * size])
    a = b.copy()
    a[1] = 2e-3  # as a difference of terms of 4096 may be off
    assert verdict(a, b) is None
