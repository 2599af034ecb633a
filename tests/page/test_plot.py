"""Marks on a logarithmic scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from rewriter.page.plot import Mark, Row, plot

if TYPE_CHECKING:
    from collections.abc import Sequence


def marks(rows: Sequence[Row]) -> dict[str, tuple[float, str]]:
    """Place and class of each mark, by its title."""
    found = {}
    for element in ElementTree.fromstring(plot(rows, "errors", "p")).iter():
        if str(element.get("class")).startswith("mark"):
            left = element.get("cx") or element.get("points", "").split(",")[0] or element.get("x")
            found[str(element.findtext("title"))] = float(str(left)), str(element.get("class"))
    return found


def ticks(rows: Sequence[Row]) -> dict[str, float]:
    tree = ElementTree.fromstring(plot(rows, "errors", "p"))
    return {str(e.text): float(str(e.get("x"))) for e in tree.iter("text") if e.get("class") == "tick"}


def test_marks_stand_at_their_decades() -> None:
    rows = [Row("y", marks=[Mark(10.0**-n, 0, f"1e-{n}") for n in range(2, 8)])]
    found, scale = marks(rows), ticks(rows)
    for n in range(2, 8):
        assert found[f"1e-{n}"][0] == pytest.approx(scale[f"1e-{n}"], abs=0.11)


def test_zero_stands_apart_and_what_is_no_number_at_the_end() -> None:
    rows = [Row("y", marks=[Mark(0.0, 0, "zero"), Mark(1e-9, 0, "small"), Mark(1e3, 0, "large")])]
    rows += [Row("z", marks=[Mark(math.inf, 0, "infinite")]), Row("n", marks=[Mark(math.nan, 0, "nan")])]
    found = marks(rows)
    assert found["zero"][0] == pytest.approx(ticks(rows)["0"])
    assert found["zero"][0] < found["small"][0] < found["large"][0] < found["infinite"][0] == found["nan"][0]


@pytest.mark.parametrize(
    ("value", "limit", "class_"),
    [
        (1e-6, 1e-5, "mark"),
        (1e-4, 1e-5, "mark beyond"),
        (0.0, 0.0, "mark"),
        (1e-9, 0.0, "mark beyond"),
        (math.nan, 1e-5, "mark beyond"),
        (1e9, None, "mark"),
    ],
)
def test_beyond_the_threshold(value: float, limit: float | None, class_: str) -> None:
    row = Row("y", marks=[Mark(value, 0, "it", limit, limit)])
    assert marks([row])["it"][1] == class_
    assert row.failed is (class_ == "mark beyond")


def test_many_equal_marks_are_one() -> None:
    row = Row("y", marks=[Mark(1e-6, 0, f"{n}") for n in range(1000)])
    assert len(marks([row])) == 1


def test_samples_differ_in_shape_and_height() -> None:
    row = Row("y", marks=[Mark(1e-6, n, f"{n}") for n in range(3)])
    tree = ElementTree.fromstring(plot([row], "errors", "p"))
    shapes = [e.tag for e in tree.iter() if str(e.get("class")).startswith("mark")]
    assert shapes == ["circle", "rect", "polygon"]
