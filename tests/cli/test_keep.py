"""``--keep`` means: do not touch this.  What it names must be there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import rewriter
from tests.texts import OWNED, PLAIN, ROLL, UNKNOWN, parse, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome

    Rewrite = Callable[..., Outcome]

QUICK = ("--no-simplify", "--no-verify")


@pytest.mark.parametrize(
    ("text", "name", "meant"),
    [
        (ROLL, "Roll", "did you mean com.example::Roll?"),
        (ROLL, "com.example::Rol", "did you mean com.example::Roll?"),
        (ROLL, "com.example::roll", "did you mean com.example::Roll?"),
        (ROLL, "com.exmple::*", "did you mean com.example::*?"),
        (ROLL, "a::Xyzzy", "its placeholders are: com.example::Roll, com.example::Swish"),
        (OWNED, "com.microsoft::Gelo", "did you mean com.microsoft::Gelu?"),
        (PLAIN, "com.example::Roll", "it holds no placeholders"),
    ],
)
def test_what_is_not_there_is_refused(
    rewrite: Rewrite, tmp_path: Path, text: str, name: str, meant: str
) -> None:
    source, target, report = write(tmp_path / "in.onnx", text), tmp_path / "out.onnx", tmp_path / "r.json"
    done = rewrite(source, target, "--keep", name, *QUICK, "--report", report)
    assert done.code == 2
    assert f"the model holds no {name} to keep" in done.err
    assert meant in done.err
    assert not target.exists()
    assert json.loads(report.read_text())["failure"]["code"] == "usage"
    assert f"the model holds no {name} to keep" in rewrite(source, "--keep", name).out


@pytest.mark.parametrize("name", ["com.example::Roll", "com.example::*"])
def test_what_is_there_stays(rewrite: Rewrite, roll: Path, name: str) -> None:
    assert rewrite(roll, roll.with_name("out.onnx"), "--keep", name, *QUICK).code == 0


def test_what_an_earlier_run_kept_is_not_asked_for(tmp_path: Path) -> None:
    """Its manifest names the operator; replaced by a later run, it is gone, and nobody asked for it then."""
    kept = rewriter.rewrite(
        parse(UNKNOWN), keep="com.example::MySpecialOp", simplify=False, verify=False
    ).model
    again = rewriter.rewrite(kept, simplify=False, verify=False)
    assert [operator.name for operator in again.kept] == ["MySpecialOp"]
    assert rewriter.rewrite(kept, keep="com.example::*", simplify=False, verify=False).model is not None
    with pytest.raises(rewriter.errors.UsageError, match=r"did you mean com\.example::MySpecialOp"):
        rewriter.rewrite(kept, keep="com.example::MySpecial", simplify=False, verify=False)


def test_what_was_cut_out_is_said_once_and_without_names_of_our_own(rewrite: Rewrite, tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
main (float[N, 3] x) => (float[N, 3] y) <float[?, 3] b>
{
    a = com.example.Swish (x)
    b = com.example.Own (a)
    y = Relu (b)
}
"""
    source, report = write(tmp_path / "in.onnx", text), tmp_path / "r.html"
    done = rewrite(
        source, tmp_path / "out.onnx", "--keep", "com.example::Own", "--no-simplify", "--report", report
    )
    assert done.code == 0, done.err
    assert "(N=2; N=6)" in done.out
    for told in (done.out, report.read_text()):
        assert told.count("com.example::Own was cut out") == 1
        assert "cut:" not in told
