"""What is wrong with a gradient, in a word and a clause."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rewriter.gradients.slack import Slack


class Problem(NamedTuple):
    kind: str
    text: str


def same(actual: torch.Tensor, expected: torch.Tensor, slack: Slack) -> bool:
    """Whether two gradients of one shape agree; NaN agrees with NaN, infinities with their like."""
    if actual.shape != expected.shape:
        return False
    a, b = actual.double(), expected.double()
    finite = torch.isfinite(b)
    if not torch.equal(finite, torch.isfinite(a)) or not torch.equal(
        torch.nan_to_num(a[~finite]), torch.nan_to_num(b[~finite])
    ):
        return False
    allowed = slack.atol + slack.rtol * b[finite].abs() + slack.scaled * largest(b)
    return bool(((a[finite] - b[finite]).abs() <= allowed).all())


def diagnose(
    actual: torch.Tensor | None,
    expected: torch.Tensor | None,
    shape: torch.Size,
    slack: Slack,
    others: Mapping[str, torch.Tensor] | None = None,
) -> Problem | None:
    """What is wrong with ``actual``, the gradient of an input of ``shape``; None where it agrees with ``expected``.

    None as a gradient is zero.  ``others`` are the gradients due to the other inputs, to tell an exchange.
    """
    due = torch.zeros(shape, dtype=torch.float64) if expected is None else expected.double()
    size = largest(due)
    if actual is None:
        if size <= slack.atol:
            return None
        return Problem("none", f"is None, where one of up to {size:.3g} is due")
    if actual.shape != shape:
        return Problem("shape", f"has shape {list(actual.shape)}, and the input {list(shape)}")
    found = actual.double()
    if same(found, due, slack):
        return None
    finite = torch.isfinite(due)
    broken = int((finite & ~torch.isfinite(found)).sum())
    if broken:
        return Problem(
            "not finite", f"is NaN or infinite in {_places(broken, found)} where a finite one is due"
        )
    if not bool(finite.all()):
        return Problem("value", f"is finite where {_places(int((~finite).sum()), found)} are NaN or infinite")
    if size <= slack.atol:
        text = f"is up to {largest(found):.3g}, where none is due"
        return Problem("undue", text if expected is not None else f"{text}: no result depends on the input")
    if largest(found) <= slack.atol:
        return Problem("zero", f"is zero everywhere, where one of up to {size:.3g} is due")
    if same(-found, due, slack):
        return Problem("sign", "has the wrong sign")
    # The slack of what is compared grows with the factor, as do its own roundings.
    factor = float((found * due).sum() / (due * due).sum())
    if factor and same(found / factor, due, slack):
        return Problem("factor", f"is {factor:.9g} times what is due")
    for name, other in (others or {}).items():
        if other.shape == shape and largest(other) > slack.atol and same(found, other, slack):
            return Problem("exchanged", f"is that of '{name}'")
    if due.ndim >= 2 and due.shape[-1] == due.shape[-2] and same(found.transpose(-1, -2), due, slack):
        return Problem("transposed", "is transposed")
    return _partial(found, due, slack)


def _partial(found: torch.Tensor, due: torch.Tensor, slack: Slack) -> Problem:
    """Right in places, or everywhere wrong."""
    allowed = slack.atol + slack.rtol * due.abs() + slack.scaled * largest(due)
    wrong = (found - due).abs() > allowed
    count = int(wrong.sum())
    worst = int((found - due).abs().argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(worst), due.shape)]
    at = f"at {index} {float(found.flatten()[worst]) + 0.0:.6g}, due {float(due.flatten()[worst]):.6g}"
    if bool((found[wrong] == 0).all()):
        return Problem("zero in places", f"is zero in {_places(count, due)} where one is due; {at}")
    if bool(((found[wrong] + due[wrong]).abs() <= allowed[wrong]).all()):
        return Problem("sign in places", f"has the wrong sign in {_places(count, due)}; {at}")
    off = largest(found - due)
    return Problem(
        "term",
        f"is off by up to {off:.3g} ({off / largest(due):.2g} of the largest) in {_places(count, due)}: "
        f"a term is missing or wrong; {at}",
    )


def largest(tensor: torch.Tensor) -> float:
    """max|t| of the finite elements; 0 where there are none."""
    finite = tensor[torch.isfinite(tensor)].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _places(count: int, of: torch.Tensor) -> str:
    return f"{count} of {of.numel()} places"
