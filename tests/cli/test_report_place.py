"""The JSON report never takes the place of a file that is no report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome

    Rewrite = Callable[..., Outcome]


@pytest.mark.parametrize(
    "spelling", ["{folder}/../{name}/roll.onnx", "{folder}/link.onnx", "{linked}/roll.onnx"]
)
def test_the_model_under_another_name(rewrite: Rewrite, roll: Path, spelling: str) -> None:
    folder = roll.parent
    (folder / "link.onnx").symlink_to("roll.onnx")
    linked = folder.parent / f"{folder.name}-linked"
    linked.symlink_to(folder)
    before = roll.read_bytes()
    report = spelling.format(folder=folder, name=folder.name, linked=linked)
    for arguments in ((roll, folder / "out.onnx"), (roll,)):
        done = rewrite(*arguments, "--no-verify", "--report", report)
        assert (done.code, done.out) == (2, "")
        assert "--report would overwrite" in done.err
        assert roll.read_bytes() == before
        assert not (folder / "out.onnx").exists()


@pytest.mark.parametrize("content", [b"import rewriter\n", b"\x93NUMPY", b"\0" * 100])
def test_a_pass_file_weights_or_arrays(rewrite: Rewrite, roll: Path, content: bytes) -> None:
    other = roll.with_name("other")
    other.write_bytes(content)
    done = rewrite(roll, "--report", other)
    assert done.code == 2
    assert "which is no report" in done.err
    assert other.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b'{"format": 1}\n'])
def test_an_older_report_and_an_empty_file_are_replaced(rewrite: Rewrite, roll: Path, content: bytes) -> None:
    report = roll.with_name("r.json")
    report.write_bytes(content)
    assert rewrite(roll, "--report", report).code == 0
    assert json.loads(report.read_text())["source"] == "roll.onnx"
