"""Folders for temporary files: gone at the end, or with the next run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from rewriter.storage import scratch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KILLED = """
import os, signal
from rewriter.storage.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "model.onnx").write_bytes(b"x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    scratch._remove_dead.cache_clear()
    yield tmp_path
    scratch._remove_dead.cache_clear()


def test_what_a_killed_run_left(place: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, "TMPDIR": str(place)}, check=False)
    (dead,) = place.iterdir()
    (place / "onnx-rewrite-mine").mkdir()
    (place / "onnx-rewrite-file").touch()
    with scratch.scratch_folder() as alive:
        assert not dead.exists()
        scratch._remove_dead.cache_clear()
        with scratch.scratch_folder() as other:
            assert alive.exists()
            assert other != alive
    assert {path.name for path in place.iterdir()} == {"onnx-rewrite-mine", "onnx-rewrite-file"}
