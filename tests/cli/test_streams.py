"""Standard output and standard error may be closed, as they are for some services and schedulers."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams(roll: Path, closed: str) -> None:
    target = roll.with_name("out.onnx")
    command = f'exec "{sys.executable}" -m rewriter.cli "{roll}" "{target}" --no-verify {closed}'
    assert subprocess.run(["/bin/sh", "-c", command], check=False).returncode == 0
    assert target.stat().st_size > 0
