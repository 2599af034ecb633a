"""Errors on a logarithmic scale: one row for each output or kind of operator, one mark for each comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rewriter.page.data import figure
from rewriter.page.markup import cut, tag, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rewriter.page.markup import Markup


@dataclass(frozen=True)
class Mark:
    """One comparison: max|a−b| / max|b|, the sample that it was made on, and what pointing at it shows.

    ``sure`` is what any element may be off by, ``limit`` what the largest may; None where no such figure is the rule.
    """

    value: float
    sample: int
    title: str = ""
    sure: float | None = None
    limit: float | None = None

    @property
    def is_beyond(self) -> bool:
        return self.limit is not None and not self.value <= self.limit


@dataclass
class Row:
    label: str
    note: str = ""
    marks: list[Mark] = field(default_factory=list)

    @property
    def sure(self) -> float | None:
        return max((mark.sure for mark in self.marks if mark.sure is not None), default=None)

    @property
    def limit(self) -> float | None:
        return max((mark.limit for mark in self.marks if mark.limit is not None), default=None)

    @property
    def failed(self) -> bool:
        return any(mark.is_beyond for mark in self.marks)


_LEFT, _RIGHT, _WIDTH = 250.0, 24.0, 880.0
_ROW, _TOP, _BOTTOM = 34.0, 12.0, 42.0
#: Where zero, which has no logarithm, stands: left of the scale.
_ZERO = _LEFT + 22.0
_START = _LEFT + 58.0
#: Marks of samples, in turn.
_SHAPES = 4


def plot(rows: Sequence[Row], title: str, number: str) -> Markup:
    """``number`` tells the ids from those of others on the page."""
    low, high = _decades(rows)
    height = _TOP + _ROW * len(rows) + _BOTTOM
    content = [*_grid(low, high, len(rows)), *(_row(row, at, low, high) for at, row in enumerate(rows))]
    return tag(
        "svg",
        tag("title", title, id=f"{number}-title"),
        tag("desc", "The same figures stand in the table below.", id=f"{number}-desc"),
        content,
        viewBox=f"0 0 {_WIDTH:.0f} {height:.0f}",
        width=f"{_WIDTH:.0f}",
        height=f"{height:.0f}",
        role="img",
        class_="plot",
        aria_labelledby=f"{number}-title {number}-desc",
    )


def shape(sample: int, x: float, y: float, class_: str, title: str = "") -> Markup:
    """The mark of a sample."""
    told = tag("title", title) if title else None
    r = 4.5
    match sample % _SHAPES:
        case 0:
            return tag("circle", told, cx=x, cy=y, r=r, class_=class_)
        case 1:
            return tag("rect", told, x=x - 4, y=y - 4, width=8, height=8, class_=class_)
        case 2:
            points = (
                f"{x:.1f},{y - 5.5:.1f} {x + 5.5:.1f},{y:.1f} {x:.1f},{y + 5.5:.1f} {x - 5.5:.1f},{y:.1f}"
            )
        case _:
            points = f"{x:.1f},{y - 5:.1f} {x + 5:.1f},{y + 4:.1f} {x - 5:.1f},{y + 4:.1f}"
    return tag("polygon", told, points=points, class_=class_)


def _decades(rows: Iterable[Row]) -> tuple[int, int]:
    """Exponents of the ends of the scale."""
    rows = list(rows)
    seen = [mark.value for row in rows for mark in row.marks]
    seen += [value for row in rows for value in (row.sure, row.limit) if value is not None]
    seen = [value for value in seen if 0 < value < math.inf]
    low = math.floor(math.log10(min(seen, default=1e-7)))
    high = math.ceil(math.log10(max(seen, default=1e-3)))
    return max(-40, min(low, high - 3)), min(40, max(high, low + 3))


def _x(value: float, low: int, high: int) -> float:
    if math.isnan(value) or value == math.inf:
        return _WIDTH - _RIGHT
    if value <= 0:
        return _ZERO
    share = (math.log10(value) - low) / (high - low)
    return _START + min(1.0, max(0.0, share)) * (_WIDTH - _RIGHT - 14 - _START)


def _grid(low: int, high: int, rows: int) -> list[Markup]:
    bottom = _TOP + _ROW * rows
    step = max(1, math.ceil((high - low) / 10))
    found = [
        tag("line", x1=_ZERO, x2=_ZERO, y1=_TOP, y2=bottom, class_="grid"),
        tag("text", "0", x=_ZERO, y=bottom + 18, class_="tick"),
    ]
    for exponent in range(low, high + 1, step):
        x = _x(10.0**exponent, low, high)
        found.append(tag("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_="grid"))
        found.append(tag("text", f"1e{exponent}", x=x, y=bottom + 18, class_="tick"))
    middle = (_START + _WIDTH - _RIGHT) / 2
    found.append(tag("text", "max |a−b| / max |b|", x=middle, y=bottom + 36, class_="tick"))
    return found


def _row(row: Row, at: int, low: int, high: int) -> Markup:
    top = _TOP + at * _ROW
    middle = top + _ROW / 2
    parts = []
    if row.limit is not None and row.limit > 0:
        limit = _x(row.limit, low, high)
        sure = _x(row.sure, low, high) if row.sure else _START
        parts.append(
            tag(
                "rect",
                x=_LEFT + 6,
                y=top + 4,
                width=max(0.0, sure - _LEFT - 6),
                height=_ROW - 8,
                class_="sure",
            )
        )
        parts.append(
            tag("rect", x=sure, y=top + 4, width=max(0.0, limit - sure), height=_ROW - 8, class_="perhaps")
        )
        line = tag(
            "line",
            tag("title", f"threshold {figure(row.limit)}"),
            x1=limit,
            x2=limit,
            y1=top + 2,
            y2=top + _ROW - 2,
            class_="limit",
        )
        parts.append(line)
    elif row.limit is not None:
        parts.append(
            tag("rect", x=_LEFT + 6, y=top + 4, width=_ZERO - _LEFT + 8, height=_ROW - 8, class_="sure")
        )
        x = _ZERO + 14
        parts.append(tag("line", x1=x, x2=x, y1=top + 2, y2=top + _ROW - 2, class_="limit"))
    label = visible(row.label)
    parts.append(
        tag("text", tag("title", cut(label, 600)), cut(label, 34), x=_LEFT - 8, y=middle - 1, class_="label")
    )
    parts.append(tag("text", row.note, x=_LEFT - 8, y=middle + 12, class_="note"))
    drawn: set[tuple[int, int]] = set()
    lanes = min(_SHAPES, 1 + max((mark.sample for mark in row.marks), default=0))
    for mark in row.marks:
        x = _x(mark.value, low, high)
        place = (round(x), min(mark.sample, _SHAPES))
        if place in drawn:
            continue  # it would cover the one before
        drawn.add(place)
        # Samples one above the other: their marks often fall on one place.
        y = middle + (min(mark.sample, _SHAPES - 1) - (lanes - 1) / 2) * min(9.0, 24 / lanes)
        parts.append(shape(mark.sample, x, y, "mark beyond" if mark.is_beyond else "mark", mark.title))
    return tag("g", parts, class_="row failed" if row.failed else "row")
