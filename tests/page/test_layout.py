"""Places of nodes: apart from one another, in layers, with edges that run down."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriter.page.layout import lay_out

if TYPE_CHECKING:
    from rewriter.page.layout import Layout

Sizes = list[tuple[float, float]]
Edges = list[tuple[int, int]]


def check(layout: Layout, sizes: Sizes, edges: Edges) -> None:
    boxes = [
        (x - width / 2, y, x + width / 2, y + height)
        for (x, y), (width, height) in zip(layout.tops, sizes, strict=True)
    ]
    for left, top, right, bottom in boxes:
        assert left >= -1e-6
        assert top >= -1e-6
        assert right <= layout.width + 1e-6
        assert bottom <= layout.height + 1e-6
    for a, b in combinations(boxes, 2):
        assert a[2] <= b[0] + 1e-6 or b[2] <= a[0] + 1e-6 or a[3] <= b[1] + 1e-6 or b[3] <= a[1] + 1e-6
    for (start, end), route in zip(edges, layout.routes, strict=True):
        assert route[0][1] == pytest.approx(boxes[start][3])
        assert route[-1][1] == pytest.approx(boxes[end][1])
        assert boxes[start][0] <= route[0][0] <= boxes[start][2]
        assert boxes[end][0] <= route[-1][0] <= boxes[end][2]
        assert all(a[1] <= b[1] for a, b in pairwise(route))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Sizes, Edges]:
    count = draw(st.integers(1, 14))
    number = st.floats(20, 200)
    sizes = [(draw(number), draw(number)) for _ in range(count)]
    possible = list(combinations(range(count), 2))
    edges = draw(st.lists(st.sampled_from(possible), unique=True, max_size=30)) if possible else []
    return sizes, edges


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_any_graph(graph: tuple[Sizes, Edges]) -> None:
    sizes, edges = graph
    layout = lay_out(sizes, edges)
    check(layout, sizes, edges)
    assert lay_out(sizes, edges) == layout


def test_a_chain_stands_in_a_column() -> None:
    layout = lay_out([(50, 20), (90, 20), (70, 20)], [(0, 1), (1, 2)])
    assert {x for x, _ in layout.tops} == {45}


def test_crossing_edges_are_turned_about() -> None:
    """0 and 1 above, 2 and 3 below, each leading to the one across."""
    layout = lay_out([(50, 20)] * 4, [(0, 3), (1, 2)])
    x = [place[0] for place in layout.tops]
    assert (x[0] < x[1]) == (x[3] < x[2])


def test_an_input_stands_above_its_reader() -> None:
    """1 is read only by 4, at the end of a chain."""
    layout = lay_out([(50, 20)] * 5, [(0, 2), (2, 3), (3, 4), (1, 4)])
    assert layout.tops[1][1] == layout.tops[3][1]


def test_a_long_edge_keeps_clear_of_the_nodes_between() -> None:
    sizes: Sizes = [(60, 20)] * 4
    layout = lay_out(sizes, [(0, 1), (1, 2), (2, 3), (0, 3)])
    for x, y in layout.routes[3][1:-1]:
        for node in (1, 2):
            left, top = layout.tops[node][0] - 30, layout.tops[node][1]
            assert not (left < x < left + 60 and top <= y <= top + 20)


def test_nothing_at_all() -> None:
    assert lay_out([], []).tops == []
