"""Differences are seen where they are, and judged by dtype; expected figures are worked out by hand."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from rewriter.execution.numbers import ulp_steps
from rewriter.verify.compare import EXACT, REGION, WHOLE, Tolerance, judge, measure, tolerance_for


def problem(actual, expected, tolerance=None):
    a, b = np.asarray(actual), np.asarray(expected)
    return judge(a, b, measure(a, b), tolerance or tolerance_for(str(b.dtype), REGION))


def f32(*values):
    return np.array(values, np.float32)


def test_figures_of_a_simple_difference():
    metrics = measure(f32(1.0, -2.5, 4.0), f32(1.0, -2.0, 4.0))
    assert metrics.max_abs == 0.5
    assert metrics.max_rel == 0.25
    assert metrics.max_scaled == 0.125
    assert metrics.differing == 1
    assert metrics.worst_index == (1,)
    assert metrics.vacuous == ""


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_neighbouring_numbers_are_one_step_apart(dtype):
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    one = np.array([1.0, -1.0, 0.0]).astype(dtype)
    following = (one.view(unsigned) + 1).view(dtype)
    assert ulp_steps(one, following).tolist() == [1, 1, 1]


def test_steps_are_counted_across_zero():
    tiny = np.array([np.finfo(np.float32).smallest_subnormal], np.float32)
    assert ulp_steps(tiny, -tiny).tolist() == [2]
    assert ulp_steps(f32(0.0), f32(-0.0)).tolist() == [0]


def test_a_shape_that_broadcasts_is_a_mismatch():
    assert "shape [1, 3], expected [2, 3]" in problem(
        np.ones((1, 3), np.float32), np.ones((2, 3), np.float32)
    )
    assert "shape [], expected [1]" in problem(np.float32(1), f32(1))


def test_a_wider_dtype_is_a_mismatch():
    assert problem(np.ones(3, np.float32), np.ones(3, np.float16)) == "is float32, expected float16"
    assert problem(np.ones(3, np.int32), np.ones(3, np.int64)) == "is int32, expected int64"


def test_nan_must_stand_in_the_same_places():
    nan = np.nan
    assert problem(f32(1, nan, 3), f32(1, nan, 3)) is None
    assert "NaN in 1 of 3" in problem(f32(1, nan, 3), f32(1, 2, 3))
    assert "NaN in 1 of 3" in problem(f32(1, 2, 3), f32(1, nan, 3))
    assert "NaN in 3 of 3" in problem(f32(nan, nan, nan), f32(1, 2, 3))
    assert "NaN in 2 of 3" in problem(f32(nan, 2, 3), f32(1, nan, 3))


def test_infinities_must_stand_in_the_same_places_with_their_signs():
    inf = np.inf
    assert problem(f32(inf, -inf, 1), f32(inf, -inf, 1)) is None
    assert "infinities differ in 1 of 2" in problem(f32(inf, 1), f32(-inf, 1))
    assert "infinities differ in 1 of 2" in problem(f32(3.4e38, 1), f32(inf, 1))


def test_rounding_is_allowed_and_more_is_not():
    expected = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    assert problem(expected * np.float32(1 + 2e-6), expected) is None
    assert "1000 of 1000 elements beyond tolerance" in problem(expected + np.float32(1e-3), expected)
    wrong = expected.copy()
    wrong[7] += 1e-3
    assert "1 of 1000" in problem(wrong, expected)
    assert "at [7]" in problem(wrong, expected)


@pytest.mark.parametrize("sentinel", [-3.4028235e38, -1e38])
def test_a_sentinel_does_not_widen_the_tolerance_of_the_rest(sentinel):
    assert "1 of 3" in problem(f32(sentinel, 1, 2.1), f32(sentinel, 1, 2))


def test_an_element_among_large_ones_may_carry_their_rounding():
    assert problem(f32(1e4, 1.01), f32(1e4, 1.0)) is None
    assert problem(f32(1, 1.01), f32(1, 1.0)) is not None


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.int64, bool])
def test_integers_and_booleans_are_exact(dtype):
    expected = np.array([0, 1, 1], dtype)
    assert problem(expected, expected) is None
    assert "1 of 3 elements differ" in problem(np.array([0, 1, 0], dtype), expected)
    assert tolerance_for(str(expected.dtype), WHOLE) is EXACT


def test_integers_beyond_float64_are_told_apart():
    assert "1 of 1 elements differ" in problem(np.array([2**62 + 1]), np.array([2**62]))


def test_text_is_compared():
    assert problem(np.array(["a", "b"], object), np.array(["a", "b"], object)) is None
    assert "1 of 2" in problem(np.array(["a", "c"], object), np.array(["a", "b"], object))


def test_complex_numbers_are_compared_by_distance():
    expected = np.array([1 + 1j, 2 - 1j], np.complex64)
    assert problem(expected, expected) is None
    assert problem(expected.conj(), expected) is not None


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float16]
)
def test_small_formats_may_be_a_step_off(dtype):
    expected = np.array([1.0, 2.0, -3.0]).astype(dtype)
    unsigned = np.dtype(f"u{expected.dtype.itemsize}")
    near = (expected.view(unsigned) + 1).view(dtype)
    assert problem(near, expected) is None
    assert problem((expected.astype(np.float32) * 2).astype(dtype), expected) is not None


def test_a_float32_computation_in_float64_is_caught():
    x = np.random.default_rng(0).standard_normal(100)
    assert problem(np.float64(np.float32(x)), x) is not None


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (np.zeros((0, 3), np.float32), "empty"),
        (np.full(3, np.nan, np.float32), "all NaN"),
        (np.full(3, 2.0, np.float32), "all equal"),
        (np.array([1], np.float32), ""),
        (np.array([1, 2], np.float32), ""),
    ],
)
def test_agreement_that_says_nothing_is_flagged(values, why):
    metrics = measure(values, values)
    assert metrics.vacuous == why
    assert judge(values, values, metrics, EXACT) is None


def test_stated_tolerances_decide():
    a, b = f32(1.1), f32(1.0)
    assert problem(a, b, Tolerance(atol=0.2)) is None
    assert problem(a, b, Tolerance(rtol=0.2)) is None
    assert problem(a, b, Tolerance(ulp=1 << 24)) is None
    assert problem(a, b, Tolerance()) is not None


def test_tensors_larger_than_a_chunk_are_compared_whole():
    expected = np.arange((1 << 20) + 10, dtype=np.float32)
    actual = expected.copy()
    actual[-1] += 1e4
    metrics = measure(actual, expected)
    assert metrics.worst_index == ((1 << 20) + 9,)
    assert "1 of 1048586" in judge(actual, expected, metrics, REGION["float32"])
