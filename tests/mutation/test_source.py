"""Every mutation written by hand ends a default run: with the error that is expected, and nothing delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest

import rewriter
from rewriter.errors import RewriteError
from tests.mutation import of_engine, of_passes
from tests.mutation.harness import caught, delivered, differs, inputs
from tests.mutation.source import NotOnceError, replaced

if TYPE_CHECKING:
    from tests.mutation.mutation import Engine, Mutation

PASSES = list(of_passes.mutations())
ENGINE = list(of_engine.mutations())


def test_there_are_enough_of_every_kind() -> None:
    assert len(PASSES) >= 50
    assert len(ENGINE) >= 20
    assert len({mutation.kind for mutation in (*PASSES, *ENGINE)}) >= 15
    assert len({mutation.file.split("/")[1] for mutation in PASSES}) == 7


def test_text_that_is_not_there_once_is_an_error() -> None:
    with pytest.raises(NotOnceError), replaced("passes/movement/roll.py", "no such text", ""):
        pass


@pytest.mark.parametrize("mutation", PASSES, ids=str)
def test_a_mutated_pass_does_not_verify(mutation: Mutation) -> None:
    with mutation.installed():
        found = caught(mutation.subject)
    assert found is not None, "it survives"
    assert found.startswith(mutation.code), found


@pytest.mark.full
@pytest.mark.parametrize("mutation", PASSES, ids=str)
def test_the_pass_verifies_without_and_the_mutation_is_one(mutation: Mutation) -> None:
    """On some legal input the mutated model differs from PyTorch, or is none."""
    assert caught(mutation.subject) is None
    legal = list(inputs(mutation.subject))
    with mutation.installed():
        session = delivered(mutation.subject)
    assert any(differs(mutation.subject, feeds, expected, session) for feeds, expected in legal)


@pytest.mark.parametrize("mutation", ENGINE, ids=str)
def test_a_mutated_engine_delivers_nothing_wrong(mutation: Engine) -> None:
    found: RewriteError | None = None
    try:
        with mutation.installed():
            report = rewriter.rewrite(mutation.build())
    except RewriteError as error:
        found = error
    if found is not None:
        assert found.code in mutation.codes, str(found)
        return
    assert report.simplification is not None
    assert report.model is not None
    if "refused" in mutation.codes:
        assert not report.simplification.accepted
        assert "values: " in report.simplification.reason
        return
    assert "corrected" in mutation.codes, "it survives"
    # What was wrong has been put right on the way: the model is valid, and every declared type is what inference says.
    onnx.checker.check_model(report.model, full_check=True)


@pytest.mark.full
@pytest.mark.parametrize("mutation", ENGINE, ids=str)
def test_the_model_is_delivered_without(mutation: Engine) -> None:
    report = rewriter.rewrite(mutation.build())
    assert report.outcome == "verified"
