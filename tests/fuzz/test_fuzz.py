"""The inputs that were finds once, and some seconds of new ones: always the same, from seed 0 on.

``make fuzz`` runs longer.  The fuzzer forks for each input, so it has a process of its own here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def fuzz(*arguments: str) -> str:
    """What the fuzzer says; it ends with 1 where there was a find."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_find_of_the_corpus_is_one_again() -> None:
    assert "inputs" in fuzz("--corpus")


def test_new_inputs_make_no_find() -> None:
    assert "inputs in" in fuzz("--minutes", "0.3", "--count", "400", "--verify", "0.02", "--simplify", "0")
