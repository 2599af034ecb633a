"""Every registered pass, over its own cases, against its PyTorch reference in onnxruntime.

A new pass is tested by being registered.  The default run takes the opsets at which an emitted form changes, with the
lowest and the newest, in two dtypes; ``-m full`` runs every opset and dtype.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter

import pytest

import passes
from rewriter.placeholder import Placeholder, available
from rewriter.testing import Outcome, Variant, check, variants

REGISTERED = available()


def by_name(placeholder: Placeholder) -> str:
    return placeholder.pass_name()


def declared() -> dict[str, type[Placeholder]]:
    """The passes that the files in ``passes/`` define, by name."""
    found: dict[str, type[Placeholder]] = {}
    for module in pkgutil.walk_packages(passes.__path__, "passes."):
        if module.ispkg or module.name.rpartition(".")[2].startswith("_"):
            continue
        for name, member in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if name.startswith("_"):
                continue  # what several passes share
            if issubclass(member, Placeholder) and member.__module__ == module.name:
                found[member.pass_name()] = member
    return found


def test_the_registry_holds_what_the_files_declare() -> None:
    assert {
        p.pass_name(): type(p) for p in REGISTERED if type(p).__module__.startswith("passes.")
    } == declared()
    assert declared(), "no pass is declared: the contract test would pass empty"


@pytest.mark.parametrize("placeholder", REGISTERED, ids=by_name)
def test_every_pass_has_cases_and_tells_what_it_means(placeholder: Placeholder) -> None:
    assert list(placeholder.cases())
    assert placeholder.summary
    assert any(form.portable for form in placeholder.decompositions), "no portable decomposition"


def run(batch: list[Variant]) -> Counter[Outcome]:
    """All variants; the failures are told together, not only the first."""
    problems: list[str] = []
    outcomes: Counter[Outcome] = Counter()
    for variant in batch:
        try:
            outcomes[check(variant)] += 1
        except Exception as error:  # noqa: BLE001
            problems.append(f"{variant}: {type(error).__name__}: {error}")
    assert not problems, f"{len(problems)} of {len(batch)} variants fail:\n" + "\n".join(problems[:20])
    return outcomes


@pytest.mark.parametrize("place", ["graph", "body", "function"])
@pytest.mark.parametrize("placeholder", REGISTERED, ids=by_name)
def test_contract(placeholder: Placeholder, place: str) -> None:
    every = list(variants(placeholder))
    several = {form.name for form in placeholder.decompositions}
    forced = {v.decomposition for v in every} - {None}
    assert forced == (several if len(several) > 1 else set()), "a decomposition is not forced"
    outcomes = {
        dtype: run([v for v in every if v.place == place and v.dtype == dtype])
        for dtype in {v.dtype for v in every}
    }
    assert all(found[Outcome.AGREES] for found in outcomes.values()), outcomes
    if "float32" in outcomes:
        assert not outcomes["float32"][Outcome.NO_KERNEL]


@pytest.mark.full
@pytest.mark.parametrize("placeholder", REGISTERED, ids=by_name)
def test_contract_in_full(placeholder: Placeholder) -> None:
    """Every opset and every dtype; a dtype that never runs should not be declared."""
    every = list(variants(placeholder, full=True))
    agreed = {
        dtype: run([v for v in every if v.dtype == dtype])[Outcome.AGREES]
        for dtype in {v.dtype for v in every}
    }
    assert all(agreed.values()), f"no kernel at any opset: {agreed}"
