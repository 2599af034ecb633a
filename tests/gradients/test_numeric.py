"""Derivatives by differences against autograd's, and what is said of gradients that differ."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from rewriter.gradients.kinds import diagnose, same
from rewriter.gradients.numeric import slope
from rewriter.gradients.sides import Point, Side, draw_cotangents, products
from rewriter.gradients.slack import DOUBLE
from rewriter.gradients.truth import believed, by_differences

if TYPE_CHECKING:
    from collections.abc import Callable

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(3, 4, generator=GENERATOR, dtype=torch.float64)


def side(function: Callable[[Tensor], Tensor]) -> Side:
    return Side("it", lambda given: [function(given["x"])])


SMOOTH: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "softmax": lambda x: torch.softmax(x, -1),
    "large": lambda x: 1e6 * torch.sin(x),
    "small": lambda x: 1e-6 * torch.sin(x),
    "offset": lambda x: 1e4 + torch.sin(x),
    "quick": lambda x: torch.sin(100 * x),
    "matmul": lambda x: x @ x.T,
}


@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_function(name: str) -> None:
    it, point = side(SMOOTH[name]), Point({"x": X}, ("x",))
    cotangents = draw_cotangents(it.call({"x": X}), GENERATOR)
    direction = torch.randn(X.shape, generator=GENERATOR, dtype=torch.float64)
    gradient = products(it, point, cotangents).gradients["x"]
    assert gradient is not None
    found = slope(it, point, cotangents, "x", direction)
    assert math.isfinite(found.error)
    scale = float(gradient.norm())
    assert found.value == pytest.approx(float((gradient * direction).sum()), abs=1e-6 * scale)
    assert found.error < 1e-5 * scale


@pytest.mark.parametrize(
    "function", [torch.relu, torch.abs, lambda x: (x > 0).double()], ids=["relu", "abs", "step"]
)
def test_a_kink_is_not_believed(function: Callable[[Tensor], Tensor]) -> None:
    point = Point({"x": torch.zeros(3, dtype=torch.float64)}, ("x",))
    ones = torch.ones(3, dtype=torch.float64)
    assert slope(side(function), point, [ones], "x", ones).error > 0.1
    nearby = point.jittered(torch.Generator().manual_seed(1))
    assert slope(side(function), nearby, [ones], "x", ones).error < 1e-6


def test_infinite_results_play_no_part() -> None:
    x = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    it, point = side(torch.log), Point({"x": x}, ("x",))
    cotangents = draw_cotangents(it.call({"x": x}), GENERATOR)
    assert cotangents[0] is not None
    assert cotangents[0][0] == 0
    direction = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
    expected = float((cotangents[0][1:] / x[1:]).sum())
    assert slope(it, point, cotangents, "x", direction).value == pytest.approx(expected, rel=1e-6)


def test_element_by_element() -> None:
    weights = torch.randn(3, 4, generator=GENERATOR, dtype=torch.float64)
    found = by_differences(side(torch.tanh), Point({"x": X}, ("x",)), [weights], "x")
    assert found is not None
    assert torch.allclose(found, weights * (1 - torch.tanh(X) ** 2), atol=1e-7)


def test_autograd_is_believed_only_where_differences_bear_it_out() -> None:
    ones = torch.ones_like(X)
    hidden = side(lambda x: x * torch.sigmoid(x).detach())
    found = believed(hidden, Point({"x": X}, ("x",)), [ones], GENERATOR).gradients["x"]
    gate = torch.sigmoid(X)
    assert found is not None
    assert torch.allclose(found, gate + X * gate * (1 - gate), atol=1e-7)


def test_the_jacobian_s_product_is_gradcheck_s() -> None:
    # What SMOOTH is held to above is autograd, which torch's own check bears out.
    for function in SMOOTH.values():
        assert torch.autograd.gradcheck(function, (X[:2, :2].clone().requires_grad_(),), fast_mode=True)


def kind(actual: Tensor | None, expected: Tensor | None) -> str:
    problem = diagnose(actual, expected, X.shape, DOUBLE)
    return "" if problem is None else problem.kind


def test_kinds() -> None:
    nan = float("nan")
    some = X.clone()
    some[0, 0] = nan
    assert kind(X, X) == ""
    assert kind(None, None) == ""
    assert kind(None, torch.zeros_like(X)) == ""
    assert kind(torch.zeros_like(X), None) == ""
    assert kind(X + 1e-12, X) == ""
    assert kind(some, some) == ""
    assert kind(X, None) == "undue"
    assert kind(None, X) == "none"
    assert kind(X[:2], X) == "shape"
    assert kind(some, X) == "not finite"
    assert kind(X, some) == "value"
    assert kind(torch.zeros_like(X), X) == "zero"
    assert kind(-X, X) == "sign"
    assert kind(X / 3, X) == "factor"
    assert kind(-2 * X, X) == "factor"
    assert kind(X + 1, X) == "term"
    assert kind(X * (X > 0), X) == "zero in places"
    assert kind(X.abs(), X) == "sign in places"


def test_infinities_are_told_apart() -> None:
    inf = torch.tensor([float("inf"), 1.0], dtype=torch.float64)
    assert same(inf, inf, DOUBLE)
    assert not same(inf, -inf, DOUBLE)
    assert not same(inf, torch.tensor([float("nan"), 1.0], dtype=torch.float64), DOUBLE)
