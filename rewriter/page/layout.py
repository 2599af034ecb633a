"""Places for the nodes of a small acyclic graph, in layers from top to bottom.

Sugiyama's scheme: layers by longest path, stand-ins where an edge crosses a layer, orders by the barycentres of
neighbours, and then, layer by layer, the places nearest to those of the neighbours that leave the order as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Point = tuple[float, float]

#: Between layers, between nodes of a layer, and the width that an edge takes in a layer that it crosses.
_ROW_GAP, _COLUMN_GAP, _LANE = 30.0, 18.0, 10.0
_SWEEPS = 8


@dataclass
class Layout:
    """Centres of the nodes' upper edges, and the points that each edge runs through."""

    width: float
    height: float
    tops: list[Point]
    routes: list[list[Point]]


@dataclass
class _Box:
    width: float
    height: float
    layer: int = 0
    x: float = 0.0
    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)


def lay_out(sizes: Sequence[Point], edges: Sequence[tuple[int, int]]) -> Layout:
    """``sizes`` are (width, height) of the nodes; every edge goes from a lower index to a higher one."""
    boxes = [_Box(width, height) for width, height in sizes]
    _set_layers(boxes, edges)
    chains = [_chain(boxes, start, end) for start, end in edges]
    layers: list[list[int]] = [[] for _ in range(1 + max((box.layer for box in boxes), default=0))]
    for index, box in enumerate(boxes):
        layers[box.layer].append(index)
    layers = _ordered(boxes, layers)
    _place(boxes, layers)
    heights = [max((boxes[index].height for index in layer), default=0.0) for layer in layers]
    starts = [sum(heights[:at]) + at * _ROW_GAP for at in range(len(layers))]
    left = min((box.x - box.width / 2 for box in boxes), default=0.0)
    for box in boxes:
        box.x -= left
    tops = [(box.x, starts[box.layer]) for box in boxes]
    routes = _routes(boxes, chains, starts, heights)
    width = max((box.x + box.width / 2 for box in boxes), default=0.0)
    return Layout(width, sum(heights) + _ROW_GAP * (len(layers) - 1), tops[: len(sizes)], routes)


def _set_layers(boxes: list[_Box], edges: Sequence[tuple[int, int]]) -> None:
    incoming: set[int] = set()
    for start, end in sorted(edges, key=lambda edge: edge[1]):
        boxes[end].layer = max(boxes[end].layer, boxes[start].layer + 1)
        incoming.add(end)
    # What nothing leads to stands right above its first reader.
    for index, box in enumerate(boxes):
        readers = [boxes[end].layer for start, end in edges if start == index]
        if index not in incoming and readers:
            box.layer = min(readers) - 1


def _chain(boxes: list[_Box], start: int, end: int) -> list[int]:
    """The edge's boxes from ``start`` to ``end``, with new ones in the layers between."""
    chain = [start]
    for layer in range(boxes[start].layer + 1, boxes[end].layer):
        chain.append(len(boxes))
        boxes.append(_Box(_LANE, 0.0, layer))
    chain.append(end)
    for above, below in pairwise(chain):
        boxes[above].below.append(below)
        boxes[below].above.append(above)
    return chain


def _ordered(boxes: list[_Box], layers: list[list[int]]) -> list[list[int]]:
    """Orders with few crossings: the best of some sweeps down and up."""
    best, fewest = [list(layer) for layer in layers], _crossings(boxes, layers)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        places = {index: at for layer in layers for at, index in enumerate(layer)}
        for layer in layers[1:] if downwards else layers[-2::-1]:

            def barycentre(index: int, *, down: bool = downwards) -> float:
                near = boxes[index].above if down else boxes[index].below
                return sum(places[other] for other in near) / len(near) if near else float(places[index])  # noqa: B023

            layer.sort(key=barycentre)
            places |= {index: at for at, index in enumerate(layer)}
        crossings = _crossings(boxes, layers)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    return best


def _crossings(boxes: list[_Box], layers: list[list[int]]) -> int:
    places = {index: at for layer in layers for at, index in enumerate(layer)}
    count = 0
    for layer in layers:
        ends = [
            places[below] for index in layer for below in sorted(boxes[index].below, key=places.__getitem__)
        ]
        count += sum(a > b for at, a in enumerate(ends) for b in ends[at + 1 :])
    return count


def _place(boxes: list[_Box], layers: list[list[int]]) -> None:
    for layer in layers:
        x = 0.0
        for index in layer:
            boxes[index].x = x + boxes[index].width / 2
            x += boxes[index].width + _COLUMN_GAP
        for index in layer:
            boxes[index].x -= x / 2
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        for layer in layers if downwards else reversed(layers):
            wanted = []
            for index in layer:
                box = boxes[index]
                near = (box.above if downwards else box.below) or (box.below if downwards else box.above)
                wanted.append(sum(boxes[other].x for other in near) / len(near) if near else box.x)
            for index, x in zip(layer, _spread([boxes[index] for index in layer], wanted), strict=True):
                boxes[index].x = x


def _spread(row: list[_Box], wanted: list[float]) -> list[float]:
    """The centres nearest to ``wanted`` (least squares) at which the boxes, in their order, do not overlap."""
    offsets = [0.0] if row else []
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + (left.width + right.width) / 2 + _COLUMN_GAP)
    blocks: list[tuple[float, int]] = []  # mean and size; neighbours that would overlap share one
    for x, offset in zip(wanted, offsets, strict=True):
        mean, size = x - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean, size = (other * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    means = [mean for mean, size in blocks for _ in range(size)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _routes(
    boxes: list[_Box], chains: list[list[int]], starts: list[float], heights: list[float]
) -> list[list[Point]]:
    """Points of each edge; its ends are spread over the sides of the nodes, in the order of where they lead."""
    routes: list[list[Point]] = []
    for chain in chains:
        points: list[Point] = []
        for at, index in enumerate(chain):
            box = boxes[index]
            top = starts[box.layer]
            if at == 0:
                points.append((_port(boxes, box, box.below, chain[1]), top + box.height))
            elif at == len(chain) - 1:
                points.append((_port(boxes, box, box.above, chain[-2]), top))
            else:
                points += [(box.x, top), (box.x, top + heights[box.layer])]
        routes.append(points)
    return routes


def _port(boxes: list[_Box], box: _Box, ends: list[int], other: int) -> float:
    order = sorted(ends, key=lambda index: boxes[index].x)
    step = min(14.0, box.width * 0.7 / len(order))
    return box.x + (order.index(other) - (len(order) - 1) / 2) * step
