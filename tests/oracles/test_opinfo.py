"""Every OpInfo sample of every pass that has an entry, against PyTorch's own operator; see the package's docstring."""

from __future__ import annotations

import pytest

from rewriter.placeholder import Placeholder, available
from tests.oracles.opinfo import Setting, entries, missing_rows, outcomes, settings
from tests.oracles.run import Result
from tests.oracles.table import Row, Unrun, collected

PASSES = {p.pass_name(): p for p in available()}
ROWS: list[Row] = collected("opinfo", "ROWS")
UNRUN: list[Unrun] = collected("opinfo", "UNRUN")

EACH = [pytest.param(row, entry, id=f"{row.pass_name}-{entry}") for row in ROWS for entry in row.entries]


def test_rows_name_what_exists() -> None:
    assert {row.pass_name for row in ROWS} <= set(PASSES)
    assert {entry for row in ROWS for entry in row.entries} <= set(entries())
    listed = {(row.pass_name, entry) for row in ROWS for entry in row.entries}
    assert {(u.pass_name, u.entry) for u in UNRUN} <= listed


def test_every_pass_with_an_entry_has_a_row() -> None:
    missing = missing_rows(list(PASSES.values()), ROWS)
    assert not missing, "\n".join(missing)


def check(placeholder: Placeholder, row: Row, entry: str, every: list[Setting], *, full: bool) -> None:
    problems, agreed, total = [], 0, 0
    unused = {u for u in UNRUN if (u.pass_name, u.entry) == (row.pass_name, entry)} if full else set()
    for setting in every:
        for number, result, message in outcomes(placeholder, row, entry, setting, full=full):
            total += 1
            at = (row.pass_name, entry, number, setting.dtype, setting.opset, setting.symbolic)
            covering = [unrun for unrun in UNRUN if unrun.covers(*at)]
            unused -= set(covering)
            expected = covering[0].result if covering else Result.AGREES
            agreed += result is Result.AGREES
            if result is not expected:
                problems.append(f"{setting} #{number}: {result.value}, expected {expected.value}: {message}")
    assert not problems, f"{len(problems)} of {total} samples:\n" + "\n".join(problems[:20])
    assert agreed, "no sample agrees"
    assert not unused, f"listed, but covering nothing: {unused}"


@pytest.mark.parametrize(("row", "entry"), EACH)
def test_opinfo(row: Row, entry: str) -> None:
    placeholder = PASSES[row.pass_name]
    check(placeholder, row, entry, list(settings(placeholder, entry, full=False)), full=False)


@pytest.mark.full
@pytest.mark.parametrize(("row", "entry"), EACH)
def test_opinfo_in_full(row: Row, entry: str) -> None:
    placeholder = PASSES[row.pass_name]
    check(placeholder, row, entry, list(settings(placeholder, entry, full=True)), full=True)
