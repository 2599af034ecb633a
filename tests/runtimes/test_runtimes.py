"""Every portable decomposition of every registered pass, on every runtime; see the package's docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rewriter.placeholder import Placeholder, available
from tests.runtimes.drive import Result, run, trials
from tests.runtimes.environments import environments
from tests.runtimes.faults import known_faults

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.runtimes

PASSES = available()


@pytest.mark.parametrize("placeholder", PASSES, ids=lambda p: p.pass_name())
def test_portable_decompositions_are_right_everywhere(placeholder: Placeholder, tmp_path: Path) -> None:
    listed = [fault for fault in known_faults() if fault.pass_name == placeholder.pass_name()]
    findings = run(trials(placeholder), environments(), tmp_path)
    assert findings, "no portable decomposition serves any case"
    problems = []
    unused = set(listed)
    for trial, by_runtime in findings:
        for runtime, finding in by_runtime.items():
            covering = [fault for fault in listed if fault.covers(runtime, trial)]
            unused -= set(covering)
            expected = covering[0].result if covering else Result.RIGHT
            if finding.result is Result.RIGHT and any(fault.sometimes for fault in covering):
                continue
            if finding.result is not expected:
                problems.append(
                    f"{runtime}: {finding.result.value}, expected {expected.value}: {trial}: {finding.what}"
                )
    assert not problems, f"{len(problems)} of {len(findings)} models:\n" + "\n".join(problems[:20])
    assert not unused, f"faults that cover nothing: {unused}"


def test_faults_name_passes_that_exist() -> None:
    assert {fault.pass_name for fault in known_faults()} <= {p.pass_name() for p in PASSES}
    assert {fault.runtime for fault in known_faults()} <= {place.runtime for place in environments()}
