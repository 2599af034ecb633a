"""The oracles themselves: what is wrong comes out as wrong, and a list that is not exact fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, Value, f32
from tests.oracles import gradients, test_opinfo
from tests.oracles.opinfo import Setting
from tests.oracles.run import Result, run
from tests.oracles.table import Row, Unrun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder

X = np.asarray([-3.0, 0.5, 2.0], np.float32)
SILU = torch.nn.functional.silu(torch.from_numpy(X)).numpy()


class Hard(Placeholder):
    """x · hardsigmoid(x), which is no SiLU."""

    matches = ("Hard",)
    dtypes = ("float32", "float64")

    def reference(self, x: Any) -> Any:
        return x * torch.nn.functional.hardsigmoid(x)

    def decompose(self, g: Builder, x: Value, mode: str = "") -> Value:
        if mode:
            raise UnsupportedParameter("no mode is supported", where=g.where)
        return x * g.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(5))


class Detached(Hard):
    def reference(self, x: Any) -> Any:
        return x * torch.sigmoid(x).detach()


def outcome(arguments: dict[str, Any]) -> Result:
    return run(Hard(), arguments, [SILU], opset=13, symbolic=False)[0]


def test_results_are_told_apart() -> None:
    hard = (X * np.clip(X / 6 + 0.5, 0, 1)).astype(np.float32)
    assert run(Hard(), {"x": X}, [hard], opset=13, symbolic=True)[0] is Result.AGREES
    assert outcome({"x": X}) is Result.DIFFERS
    assert outcome({"x": X, "mode": "sharp"}) is Result.REFUSED
    assert outcome({"x": X, "unknown": 1}) is Result.BROKEN


SETTINGS = [Setting("float32", 13, False)]


def check(monkeypatch: pytest.MonkeyPatch, entry: str, *unrun: Unrun) -> None:
    monkeypatch.setattr(test_opinfo, "UNRUN", list(unrun))
    test_opinfo.check(Hard(), Row("hard", (entry,)), entry, SETTINGS, full=True)


def test_a_sample_that_differs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="differs, expected agrees"):
        check(monkeypatch, "nn.functional.silu")


def test_a_listed_sample_that_agrees_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    check(monkeypatch, "nn.functional.hardswish")
    wrong = Unrun("hard", "nn.functional.hardswish", Result.REFUSED, "", samples=(0,))
    with pytest.raises(AssertionError, match="agrees, expected refused"):
        check(monkeypatch, "nn.functional.hardswish", wrong)


def test_an_entry_that_covers_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = Unrun("hard", "nn.functional.hardswish", Result.REFUSED, "", samples=(10_000,))
    with pytest.raises(AssertionError, match="covering nothing"):
        check(monkeypatch, "nn.functional.hardswish", beyond)


def test_a_wrong_gradient_is_found() -> None:
    assert [problem for _, problem in gradients.checks(Hard())] == [None]
    assert all(problem for _, problem in gradients.checks(Detached()))
