"""The same input gives the same bytes, whatever the order of hashes, also with verification on."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import in_process
from tests.texts import ROLL, UNKNOWN, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "options"),
    [(ROLL, ()), (UNKNOWN, ("--keep", "com.example::MySpecialOp")), (ROLL, ("--no-simplify",))],
)
def test_under_other_hash_seeds(tmp_path: Path, text: str, options: tuple[str, ...]) -> None:
    source = write(tmp_path / "in.onnx", text)
    seen = set()
    for seed in ("1", "2"):
        target = tmp_path / "out.onnx"
        report = tmp_path / "report.json"
        done = in_process(source, target, "--report", report, *options, PYTHONHASHSEED=seed)
        assert done.code == 0, done.err
        seen.add((hashlib.sha256(target.read_bytes()).hexdigest(), report.read_text(), done.out))
    assert len(seen) == 1
