"""Models on disk, and the command run in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from rewriter.cli import run
from tests.texts import ROLL, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def rewrite(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs the command in this process."""

    def call(*arguments: object) -> Outcome:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return call


@pytest.fixture
def roll(tmp_path: Path) -> Path:
    """A model with a roll and a swish."""
    return write(tmp_path / "roll.onnx", ROLL)


def in_process(*arguments: object, blocked: tuple[str, ...] = (), **environment: str) -> Outcome:
    """Runs the command in a python of its own, in which importing one of ``blocked`` fails."""
    code = (
        "import sys\n"
        f"for name in {blocked!r}: sys.modules[name] = None\n"
        "from rewriter.cli import run\n"
        "code = run(sys.argv[1:])\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
