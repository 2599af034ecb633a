"""``docs/exporting.md``: every Python block runs, in order, and the files that they write hold what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import pytest

import rewriter
from tests.torch import exports

PAGE = Path(__file__).parents[2] / "docs" / "exporting.md"

#: What the page writes without a placeholder.
PLAIN = {"spread.onnx"}

#: Each other file that the page writes, the placeholder that is in it, and the pass that takes it, if there is one.
FILES = {
    "silu.onnx": ("com.example::Silu", "swish"),
    "cummax.onnx": ("com.example::CumMax", None),
    "swish-13.onnx": ("com.example::Swish", "swish"),
    "swish-18.onnx": ("com.example::Swish", "swish"),
    "roll.onnx": ("com.example::Roll", "roll"),
    "square.onnx": ("docs::SquarePlusOne", "square_plus_one"),
    "shift.onnx": ("com.example::Roll", "roll"),
    "rolled.onnx": ("com.example::Roll", "roll"),
    "through.onnx": ("org.pytorch.aten::cummax", None),
    "other.onnx": ("mylib::shift_op", None),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the page was run."""
    path = tmp_path_factory.mktemp("docs")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    # Annotations of torch.library's operators are looked up in the module that the function belongs to.
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with pytest.MonkeyPatch.context() as patch, exports.quiet():
        patch.chdir(path)
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), namespace)
    return path


def test_the_page_writes_these_files(folder: Path) -> None:
    assert {file.name for file in folder.glob("*.onnx")} - PLAIN == set(FILES)


@pytest.mark.parametrize("file", FILES)
def test_the_files_hold_the_placeholders(folder: Path, file: str) -> None:
    operator, by = FILES[file]
    model = onnx.load(folder / file)
    assert [f"{n.domain}::{n.op_type}" for n in model.graph.node if n.domain] == [operator]
    if by is not None:
        report = rewriter.rewrite(folder / file, passes=[by])
        assert report.outcome == "verified"
        assert [item.by for item in report.replaced] == [by]


def test_the_rule_of_the_page_binds(folder: Path) -> None:
    (rule,) = re.findall(r'other.onnx out.onnx --bind "(.*)"', PAGE.read_text())
    report = rewriter.rewrite(folder / "other.onnx", bind=[rule])
    assert report.outcome == "verified"
    assert [item.by for item in report.replaced] == ["roll"]
