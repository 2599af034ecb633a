"""Standard output and standard error may be closed, as they are for some services and schedulers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams(roll: Path, closed: str) -> None:
    target = roll.with_name("out.onnx")
    command = f'exec "{sys.executable}" -m rewriter.cli "{roll}" "{target}" --no-verify {closed}'
    assert subprocess.run(["/bin/sh", "-c", command], check=False).returncode == 0
    assert target.stat().st_size > 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_standard_output_that_is_full(roll: Path) -> None:
    target = roll.with_name("out.onnx")

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        with Path("/dev/full").open("w") as full:
            return subprocess.run(
                [sys.executable, "-m", "rewriter.cli", *map(str, arguments)],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )

    done = run(roll, target, "--no-verify")
    assert done.returncode == 0
    assert done.stderr.startswith("warning: standard output cannot be written: No space left")
    assert done.stderr.endswith(f"'{target}' is delivered all the same\n")
    assert done.stderr.count("\n") == 1
    assert target.stat().st_size > 0
    done = run(roll)  # of an inspection there is nothing else
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output cannot be written")
    assert done.stderr.count("\n") == 1
