"""How far gradients may be off that are computed in float64 by different operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Slack(NamedTuple):
    """How far an element may be off: ``|a − b| ≤ rtol·|b| + scaled·max|b| + atol``."""

    rtol: float
    scaled: float
    atol: float

    @property
    def closer(self) -> Slack:
        """What results are held to where their gradients are held to this: differentiating magnifies."""
        return Slack(*(part / 10 for part in self))

    def __str__(self) -> str:
        return f"rtol {self.rtol:g}, scaled {self.scaled:g}, atol {self.atol:g}"


#: Both sides are computed in float64, by different operators in another order.
DOUBLE = Slack(1e-8, 1e-8, 1e-11)
#: So they are here, but for the graph's constants and attributes, which were rounded to float32.
ROUNDED = Slack(1e-5, 1e-5, 1e-8)
#: A reference that computes in float32 whatever it is given.
SINGLE = Slack(1e-3, 1e-3, 1e-6)
#: Constants of a graph that were rounded to float16 or bfloat16.
HALF = Slack(5e-2, 5e-2, 1e-4)


def slacks_for(dtypes: Iterable[str]) -> tuple[Slack, ...]:
    """What is allowed for a graph of these element types (numpy's names), the closest first.

    The gradients are held to the first that the results live up to.
    """
    return (ROUNDED, SINGLE, HALF) if {"float16", "bfloat16"} & set(dtypes) else (ROUNDED, SINGLE)
