"""Bad input: one clear message, the promised exit code and report code, nothing written."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import onnx
import pytest
from onnx import helper

from tests.texts import ROLL, UNKNOWN, parse, write, write_external

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onnx import ModelProto

    from tests.cli.conftest import Outcome

    Rewrite = Callable[..., Outcome]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        for path in folder.rglob("*")
        if path.name != "report.json"
    }


def refused(rewrite: Rewrite, source: Path, *options: object, code: str, exit_code: int, says: str) -> None:
    """The command fails as promised, on an existing output, and changes no file."""
    target = source.with_name("out.onnx")
    target.write_bytes(b"old")
    report = source.with_name("report.json")
    before = snapshot(source.parent)
    done = rewrite(source, target, "--report", report, *options)
    assert done.code == exit_code, done.err
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    assert says in done.err
    assert snapshot(source.parent) == before
    failure = json.loads(report.read_text())["failure"]
    assert (failure["code"], failure["exit_code"]) == (code, exit_code)
    assert str(source.parent) not in report.read_text()


# --- unreadable -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"hello, this is no model\n" * 40, "not an ONNX model"),
        (b"PK\x03\x04" + bytes(200), "not an ONNX model"),
        (parse(ROLL).SerializeToString()[:-20], "not an ONNX model"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "no graph"),
    ],
    ids=["empty", "text", "zip", "truncated", "no graph"],
)
def test_not_onnx(rewrite: Rewrite, tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "in.onnx").write_bytes(content)
    refused(rewrite, tmp_path / "in.onnx", code="unreadable-model", exit_code=2, says=says)


def test_missing_file(rewrite: Rewrite, tmp_path: Path) -> None:
    refused(rewrite, tmp_path / "in.onnx", code="unreadable-model", exit_code=2, says="does not exist")


def test_inspection_of_what_cannot_be_read(rewrite: Rewrite, tmp_path: Path) -> None:
    (tmp_path / "in.onnx").write_bytes(b"")
    done = rewrite(tmp_path / "in.onnx", "--report", tmp_path / "report.json")
    assert done.code == 2
    assert json.loads((tmp_path / "report.json").read_text())["failure"]["code"] == "unreadable-model"


def external(folder: Path) -> Path:
    return write_external(folder / "in.onnx", ROLL, "w.bin")


def relocate(path: Path, location: str) -> None:
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    path.write_bytes(model.SerializeToString())


def test_missing_external_data(rewrite: Rewrite, tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "w.bin").unlink()
    refused(rewrite, path, code="external-data", exit_code=2, says="w.bin")


def test_short_external_data(rewrite: Rewrite, tmp_path: Path) -> None:
    path = external(tmp_path)
    os.truncate(tmp_path / "w.bin", 10)
    refused(rewrite, path, code="external-data", exit_code=2, says="w.bin")


@pytest.mark.parametrize("kind", ["absolute", "parent", "link"])
def test_external_data_outside_the_folder(rewrite: Rewrite, tmp_path: Path, kind: str) -> None:
    (tmp_path / "model").mkdir()
    path = external(tmp_path / "model")
    shutil.move(tmp_path / "model" / "w.bin", tmp_path / "secret.bin")
    if kind == "link":
        (tmp_path / "model" / "w.bin").symlink_to(tmp_path / "secret.bin")
    else:
        relocate(path, str(tmp_path / "secret.bin") if kind == "absolute" else "../secret.bin")
    target = tmp_path / "model" / "out.onnx"
    done = rewrite(path, target, "--report", tmp_path / "report.json")
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert json.loads((tmp_path / "report.json").read_text())["failure"]["code"] == "external-data"
    assert not target.exists()


def at_opset(version: int) -> ModelProto:
    model = parse(ROLL)
    model.opset_import[0].version = version
    return model


@pytest.mark.parametrize("version", [10, 9999])
def test_opset(rewrite: Rewrite, tmp_path: Path, version: int) -> None:
    (tmp_path / "in.onnx").write_bytes(at_opset(version).SerializeToString())
    refused(rewrite, tmp_path / "in.onnx", code="opset", exit_code=2, says=f"opset {version}")


# --- not rewritten --------------------------------------------------------------------------------------------


def with_roll(tmp_path: Path, inputs: list[str], domain: str = "com.example", **attributes: Any) -> Path:
    model = parse(ROLL)
    node = helper.make_node("Roll", inputs, ["r"], name="the_roll", domain=domain, **attributes)
    model.graph.node[1].CopyFrom(node)
    (tmp_path / "in.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "in.onnx"


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"dims": [1]}, "shifts"),
        ({"shiftss": [2], "dims": [1]}, "shiftss"),
        ({"shifts": [2], "dims": [1], "strength": 0.5}, "strength"),
        ({"shifts": "two", "dims": [1]}, "shifts"),
    ],
    ids=["missing", "misspelt", "nobody consumed it", "wrong type"],
)
def test_attributes(rewrite: Rewrite, tmp_path: Path, attributes: dict[str, Any], says: str) -> None:
    path = with_roll(tmp_path, ["a"], **attributes)
    refused(rewrite, path, code="binding", exit_code=1, says=says)
    assert "com.example::Roll 'the_roll'" in rewrite(path, tmp_path / "out.onnx").err


def test_a_parameter_that_is_not_constant(rewrite: Rewrite, tmp_path: Path) -> None:
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17, "aten" : 1]>
        main (float[2, 6] x, int64[1] s, int64[1] d) => (float[2, 6] y) { y = aten.roll (x, s, d) }"""
    )
    (tmp_path / "in.onnx").write_bytes(model.SerializeToString())
    refused(rewrite, tmp_path / "in.onnx", code="binding", exit_code=1, says="dims")


def test_leftover(rewrite: Rewrite, tmp_path: Path) -> None:
    path = write(tmp_path / "in.onnx", UNKNOWN)
    refused(rewrite, path, code="leftover-placeholder", exit_code=1, says="com.example::MySpecialOp")


def test_unknown_pass(rewrite: Rewrite, tmp_path: Path) -> None:
    path = write(tmp_path / "in.onnx", ROLL)
    refused(rewrite, path, "--passes", "swich", code="unknown-pass", exit_code=2, says="swish")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import nothing_of_that_name", "nothing_of_that_name"),
        ("x = 1", "no pass is defined"),
        ("from rewriter import Placeholder\nclass P(Placeholder):\n    matches = ('P',)", "reference"),
    ],
)
def test_a_pass_file_that_does_not_load(rewrite: Rewrite, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "p.py").write_text(text)
    path = write(tmp_path / "in.onnx", ROLL)
    refused(rewrite, path, "--passes", tmp_path / "p.py", code="pass-definition", exit_code=2, says=says)


def test_inputs_that_do_not_fit(rewrite: Rewrite, tmp_path: Path) -> None:
    import numpy as np

    path = write(tmp_path / "in.onnx", ROLL)
    np.savez(tmp_path / "wrong.npz", z=np.zeros(3))
    refused(rewrite, path, "--inputs", tmp_path / "wrong.npz", code="usage", exit_code=2, says="x")
    refused(rewrite, path, "--inputs", tmp_path / "none.npz", code="usage", exit_code=2, says="none.npz")
    refused(rewrite, path, "--dim", "M=3", code="usage", exit_code=2, says="M")
    refused(rewrite, path, "--input-range", "z=0:1", code="usage", exit_code=2, says="z")


# --- not written ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "says"), [("nowhere/out.onnx", "does not exist"), ("folder", "directory")]
)
def test_unwritable(rewrite: Rewrite, tmp_path: Path, target: str, says: str) -> None:
    path = write(tmp_path / "in.onnx", ROLL)
    (tmp_path / "folder").mkdir()
    done = rewrite(path, tmp_path / target, "--report", tmp_path / "report.json")
    assert done.code == 1
    assert says in done.err
    assert json.loads((tmp_path / "report.json").read_text())["failure"]["code"] == "unwritable-output"


def test_a_report_that_cannot_be_written(rewrite: Rewrite, tmp_path: Path) -> None:
    path = write(tmp_path / "in.onnx", ROLL)
    done = rewrite(path, tmp_path / "out.onnx", "--report", tmp_path / "nowhere" / "r.json", "--no-verify")
    assert done.code == 1
    assert "report" in done.err
    assert not (tmp_path / "out.onnx").exists()


def test_full_disk(tmp_path: Path) -> None:
    # A limit on the size of files stands for a full disk: the write fails in the middle with an OSError.
    model = parse(ROLL)
    model.graph.initializer.append(helper.make_tensor("more", 1, [1 << 16], bytes(4 << 16), raw=True))
    (tmp_path / "in.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "out.onnx").write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-m", "rewriter.cli", "in.onnx", "out.onnx", "--no-verify", "--no-simplify"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, 1 << 17)),
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "out.onnx" in done.stderr
    assert (tmp_path / "out.onnx").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.onnx", "out.onnx"]


_NOT_UTF8 = """<ir_version: 8, opset_import: ["" : 17, "com.example" : 1, "com.import" : 1]>
main (float[dimdim, 3] value) => (float[dimdim, 3] y)
{
    a = com.example.Swish <attribute: int = 1> (value)
    b = com.example.Operator (a)
    c = Standard (b)
    y = com.import.Function (c)
}
<domain: "com.import", opset_import: ["" : 17, "com.example" : 1]>
Function (a) => (b) { b = com.example.Inner (a) }
"""


@pytest.mark.parametrize(
    "name", ["com.example", "com.import", "dimdim", "attribute", "Operator", "Standard", "Function", "Inner"]
)
def test_a_name_that_is_not_utf8_is_told(rewrite: Rewrite, tmp_path: Path, name: str) -> None:
    raw = parse(_NOT_UTF8).SerializeToString().replace(name.encode(), b"\xff" + name[1:].encode())
    source = tmp_path / "in.onnx"
    source.write_bytes(raw)
    for arguments in ([source], [source, tmp_path / "out.onnx"]):
        done = rewrite(*arguments)
        assert done.code == 2
        assert f"'\\xff{name[1:]}', which is not UTF-8" in done.err


def test_a_value_whose_name_is_not_utf8_is_rewritten_and_not_verified(rewrite: Rewrite, roll: Path) -> None:
    roll.write_bytes(parse(ROLL.replace("x)", "xxxx)").replace("x,", "xxxx,")).SerializeToString())
    roll.write_bytes(roll.read_bytes().replace(b"xxxx", b"x\xff\xfex"))
    done = rewrite(roll, roll.with_name("out.onnx"))
    assert done.code == 1
    assert "which is not UTF-8: no runtime reads it" in done.err
    assert rewrite(roll, roll.with_name("out.onnx"), "--no-verify", "--no-simplify").code == 0
