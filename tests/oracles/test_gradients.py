"""Gradients of the references; see the package's docstring."""

from __future__ import annotations

import pytest

from rewriter.placeholder import Placeholder, available
from tests.oracles.gradients import checks
from tests.oracles.table import collected

PASSES = available()
NOT_DIFFERENTIABLE: dict[str, str] = dict(collected("gradients", "NOT_DIFFERENTIABLE"))
KINKS: list[tuple[str, str, str]] = collected("gradients", "KINKS")


def check(placeholder: Placeholder, *, full: bool) -> None:
    name = placeholder.pass_name()
    listed = [part for owner, part, _ in KINKS if owner == name]
    problems, good, unused = [], 0, set(listed)
    for case, problem in checks(placeholder, full=full):
        covering = {part for part in listed if part in repr(case)}
        unused -= covering
        good += problem is None
        if (problem is None) == bool(covering):
            problems.append(f"{case}: {problem or 'listed, but right'}")
    if name in NOT_DIFFERENTIABLE:
        assert not good, "it has a gradient, and is listed as having none"
        return
    assert not problems, "\n".join(problems[:20])
    assert good, "no case to differentiate; list the pass as not differentiable, or add a case"
    assert not unused, f"listed, but covering nothing: {unused}"


@pytest.mark.parametrize("placeholder", PASSES, ids=lambda p: p.pass_name())
def test_gradcheck(placeholder: Placeholder) -> None:
    check(placeholder, full=False)


@pytest.mark.full
@pytest.mark.parametrize("placeholder", PASSES, ids=lambda p: p.pass_name())
def test_gradcheck_in_full(placeholder: Placeholder) -> None:
    check(placeholder, full=True)


def test_what_is_listed_exists() -> None:
    assert {*NOT_DIFFERENTIABLE, *(owner for owner, _, _ in KINKS)} <= {p.pass_name() for p in PASSES}
