"""Systematic mutations of what every pass builds, on the model of its first case.

``pytest -m full tests/mutation/test_expansions.py -s`` tries all of them and prints the survivors; the default run
tries a sample that is always the same.
"""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest

from rewriter.graph import expanding
from rewriter.placeholder import Placeholder, available
from rewriter.placeholder.expand import Expansion, expand
from tests.mutation.expansions import Mutant, mutants
from tests.mutation.harness import Subject, caught, delivered, differs, inputs

#: Of each pass, every so many-th mutant is in the sample.
STEP = 24
#: Passes whose systematic mutants are not judged yet, and why.
UNTRIED = {
    **dict.fromkeys(
        ("eigh", "svd", "inverse", "linalg_solve", "mode", "nanmedian", "lu_solve", "lu_unpack"),
        "its own compare needs the arguments, or its reference refuses what is drawn: the harness gives neither",
    ),
    **dict.fromkeys(
        ("gcd", "left_shift", "log1p", "i1e", "shifted_chebyshev_polynomial_w"),
        "a mutant of the sample shows for a few values only, which were not looked at",
    ),
}
PASSES = [p for p in available() if type(p).__module__.startswith("passes.") and p.pass_name() not in UNTRIED]
#: Known survivors, by pass and kind, and why nothing catches them; docs/decisions/mutation.md says more.
KNOWN = {
    "detection": "a limit that only more boxes than are drawn would reach, or a threshold that is computed beyond 1",
    "multiclass_nms": "a score between two thresholds that are a hundredth apart; an axis that only a row beyond shows",
    **dict.fromkeys(
        ("ps_roi_align", "ps_roi_pool", "roi_align_rotated", "roi_pool"),
        "boxes are drawn as the rows of the cases, which round, and leave the image, in few of all the ways",
    ),
    "stateful_piecewise": "an offset that the next breakpoint hides but for a few values",
}


def by_name(placeholder: Placeholder) -> str:
    return placeholder.pass_name()


def expanded(subject: Subject) -> Expansion:
    """What the pass builds; the model verifies as it is."""
    found: list[Expansion] = []

    def spy(*args: object, **kwargs: object) -> Expansion:
        found.append(expand(*args, **kwargs))  # type: ignore[arg-type]
        return found[-1]

    with patch.object(expanding, "expand", spy):
        assert caught(subject) is None
    return found[0]


def survives(subject: Subject, mutant: Mutant, legal: list) -> str | None:
    """How the mutant differs from PyTorch though it verifies; None where it is caught, or no different."""
    with mutant.installed():
        if caught(subject) is not None:
            return None
    legal += [] if legal else inputs(subject)
    with mutant.installed():
        session = delivered(subject)
    problems = (differs(subject, feeds, expected, session) for feeds, expected in legal)
    return next((problem for problem in problems if problem is not None), None)


@pytest.mark.parametrize("placeholder", PASSES, ids=by_name)
def test_a_sample_is_caught(placeholder: Placeholder) -> None:
    subject = Subject(placeholder, 0, symbolic=False)
    every = list(mutants(expanded(subject)))
    legal: list = []
    for mutant in every[:: STEP if len(every) > STEP else max(1, len(every) - 1)]:
        problem = survives(subject, mutant, legal)
        assert problem is None or placeholder.pass_name() in KNOWN, f"{mutant} survives: {problem}"


@pytest.mark.full
@pytest.mark.parametrize("placeholder", PASSES, ids=by_name)
def test_all_are_caught(placeholder: Placeholder) -> None:
    subject = Subject(placeholder, 0, symbolic=False)
    legal: list = []
    outcomes: Counter[str] = Counter()
    left = []
    for mutant in mutants(expanded(subject)):
        problem = survives(subject, mutant, legal)
        outcomes["survives" if problem else "caught, or no different"] += 1
        left += [] if problem is None else [f"{mutant}: {problem[:120]}"]
    print(f"\n{subject}: {dict(outcomes)}", *left, sep="\n  ")  # noqa: T201
    assert not left or placeholder.pass_name() in KNOWN, "\n".join(left)
