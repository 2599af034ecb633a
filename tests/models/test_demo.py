"""``examples/demo.py``, as ``make demo`` runs it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

from tests.torch import exports

if TYPE_CHECKING:
    import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_it_delivers_a_verified_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main = runpy.run_path(str(DEMO))["main"]
    with exports.quiet(keep_output=True):
        main()
    printed = capsys.readouterr().out
    assert (tmp_path / "demo-output" / "swin.rewritten.onnx").is_file()
    assert "2 × com.example::Roll" in printed
    assert "verified" in printed
    errors = [float(text) for text in re.findall(r"batch \d+: (\S+)", printed)]
    assert len(errors) == 4
    assert max(errors) <= 1e-5
