"""Whether two sides compute the same results, before anything is differentiated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rewriter.gradients.kinds import largest, same

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.gradients.sides import Results
    from rewriter.gradients.slack import Slack


class Unlike(Exception):  # noqa: N818  (an outcome: there is nothing to differentiate alike)
    """The two sides compute different results."""


def agreement(actual: Results, expected: Results, slacks: Sequence[Slack]) -> Slack:
    """The closest of ``slacks`` for gradients of results that agree as these do; Unlike where they do not."""
    if len(expected) < len(actual):
        raise Unlike(f"there are {len(actual)} results, {len(expected)} expected")
    at = 0
    for number, (a, b) in enumerate(zip(actual, expected, strict=False)):
        if a is None or b is None:
            continue
        if a.shape != b.shape:
            raise Unlike(f"result {number} has shape {list(a.shape)}, expected {list(b.shape)}")
        if not b.is_floating_point():
            if not torch.equal(a.to(b.dtype), b):
                raise Unlike(f"result {number} differs")
            continue
        while not same(a, b, slacks[at].closer):
            at += 1
            if at == len(slacks):
                raise Unlike(
                    f"result {number} differs by up to {largest(a.double() - b.double()):.3g} of {largest(b):.3g}"
                )
    return slacks[at]


def finite_count(outputs: Results) -> int:
    """How many elements are finite."""
    return sum(int(torch.isfinite(output).sum()) for output in outputs if output is not None)
