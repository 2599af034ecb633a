"""What probes are made of: the kinds of values, their limits, and the sizes; and that the docs list the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rewriter.inputs.dims import Sizes
from rewriter.inputs.variants import KINDS, UNBOUNDED, Freedom, near, variants
from rewriter.types import TensorType

DOCS = (Path(__file__).parents[2] / "docs" / "verification.md").read_text()
FEEDS = {
    "x": np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32),
    "y": np.random.default_rng(2).standard_normal((4, 6)).astype(np.float32),
    "n": np.arange(24, dtype=np.int64).reshape(4, 6),
    "m": np.random.default_rng(3).random((4, 6)) < 0.5,
}


def made(freedom=None, **more):
    return list(variants({**FEEDS, **more}, [0.3], freedom or Freedom(), 0))


def test_docs_have_every_kind() -> None:
    for kind, what in KINDS.items():
        assert f"| {kind} | {what} |" in DOCS


def test_every_kind_is_made() -> None:
    assert {variant.kind for variant in made()} == set(KINDS)


def test_shapes_and_dtypes_stay() -> None:
    for variant in made():
        for name, array in variant.feeds.items():
            assert array.shape == FEEDS[name].shape
            assert array.dtype == FEEDS[name].dtype


@pytest.mark.parametrize("name", FEEDS)
def test_what_is_fixed_stays(name: str) -> None:
    for variant in made(Freedom(frozenset({name}))):
        assert np.array_equal(variant.feeds[name], FEEDS[name])


def test_limits_hold() -> None:
    for variant in made(Freedom(limits={"x": (0.0, 1.0), "n": (0, 3)})):
        if "x" in variant.changed:
            assert variant.kind not in UNBOUNDED
            assert variant.feeds["x"].min() >= 0
            assert variant.feeds["x"].max() <= 1
        if "n" in variant.changed:
            assert set(variant.feeds["n"].reshape(-1)) <= {0, 1, 2, 3}


def test_counts_do_not_become_large() -> None:
    for variant in made(Freedom(counts=frozenset({"n"}))):
        assert np.abs(variant.feeds["n"]).max() < 100


def test_nothing_unbounded_where_the_operator_is_meant_for_finite_numbers() -> None:
    assert not {variant.kind for variant in made(Freedom(finite=True))} & UNBOUNDED


def test_the_lowest_integer_is_left_out() -> None:
    for variant in made():
        assert variant.feeds["n"].min() > np.iinfo(np.int64).min


def test_neighbours_of_constants() -> None:
    exact = np.float32(0.3)
    found = near([0.3], np.dtype(np.float32))
    for value in (exact, -exact, np.nextafter(exact, np.float32(1)), np.nextafter(exact, np.float32(0))):
        assert value in found
    assert set(near([2.0, 0.5], np.dtype(np.int64))) == {2, 3, 1, -2}


def test_sizes_of_probes() -> None:
    sets = [s for _, s in Sizes({"x": TensorType(1, ("n", "c", "h"))}).probes()]
    for name in ("n", "c", "h"):
        sizes = {s[name] for s in sets}
        assert 1 in sizes
        assert any(16 <= size <= 33 for size in sizes)
        for other in {"n", "c", "h"} - {name}:
            assert any(s[name] < s[other] for s in sets)
            assert any(s[name] % s[other] and s[other] % s[name] for s in sets)


def test_sizes_that_are_asked_for_are_the_only_ones() -> None:
    sizes = Sizes({"x": TensorType(1, ("n", "c"))}, {"n": (4,)})
    assert {s["n"] for _, s in sizes.probes()} == {4}
    assert not Sizes({"x": TensorType(1, ("n",))}, {"n": (4,)}).probes()


def test_the_order_of_sizes_turns() -> None:
    sizes = Sizes({"x": TensorType(1, ("h", "w"))})
    first, second = sizes.draw(0, 0), sizes.draw(1, 0)
    assert (first["h"] < first["w"]) != (second["h"] < second["w"])
