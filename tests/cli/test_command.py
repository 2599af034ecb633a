"""What the command does, prints and returns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from tests.cli.conftest import in_process
from tests.texts import OWNED, PLAIN, ROLL, UNKNOWN, parse, write, write_external

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome

    Rewrite = Callable[..., Outcome]


def run_model(path: Path, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def test_rewrites_verifies_and_reports(rewrite: Rewrite, roll: Path) -> None:
    import torch

    target = roll.with_name("out.onnx")
    done = rewrite(roll, target, "--passes", "roll,swish")
    assert (done.code, done.err) == (0, "")
    for words in (
        "1 × com.example::Roll",
        "pass roll",
        "opset ai.onnx 17",
        "verified",
        "output 'y', before and after",
        "out.onnx",
    ):
        assert words in done.out
    model = onnx.load(target)
    assert {node.domain for node in model.graph.node} == {""}
    x = np.random.default_rng(1).standard_normal((3, 6, 4)).astype(np.float32)
    w = onnx.numpy_helper.to_array(parse(ROLL).graph.initializer[0])
    expected = torch.nn.functional.silu(torch.roll(torch.tensor(x @ w), 2, 1)).numpy()
    np.testing.assert_allclose(run_model(target, x), expected, rtol=1e-5, atol=1e-6)


def test_quiet_prints_nothing_and_delivers(rewrite: Rewrite, roll: Path) -> None:
    target = roll.with_name("out.onnx")
    done = rewrite(roll, target, "-q", "--no-simplify")
    assert (done.code, done.out, done.err) == (0, "", "")
    onnx.checker.check_model(onnx.load(target), full_check=True)


def test_verbose_names_each_node(rewrite: Rewrite, roll: Path) -> None:
    done = rewrite(roll, roll.with_name("out.onnx"), "-v", "--no-simplify")
    assert "com.example::Roll 'r'" in done.out


def test_no_verify_is_exit_0_and_says_so(rewrite: Rewrite, roll: Path) -> None:
    done = rewrite(roll, roll.with_name("out.onnx"), "--no-verify", "--no-simplify")
    assert done.code == 0
    assert "not compared with PyTorch, as asked" in done.out


def test_report_is_json_and_tells_neither_time_nor_place(rewrite: Rewrite, roll: Path) -> None:
    report = roll.with_name("report.json")
    assert rewrite(roll, roll.with_name("out.onnx"), "--report", report).code == 0
    text = report.read_text()
    data = json.loads(text)
    assert data["outcome"] == "verified"
    assert data["failure"] is None
    assert [entry["operator"] for entry in data["replaced"]] == ["com.example::Roll", "com.example::Swish"]
    assert data["written"]["file"] == "out.onnx"
    assert data["verification"]["regions"]
    assert str(roll.parent) not in text
    assert time.strftime("%Y-") not in text


def test_same_path_in_and_out(rewrite: Rewrite, roll: Path) -> None:
    assert rewrite(roll, roll).code == 0
    assert {node.domain for node in onnx.load(roll).graph.node} == {""}
    assert [path.name for path in roll.parent.iterdir()] == ["roll.onnx"]


def test_output_in_another_folder_with_external_data(rewrite: Rewrite, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source = write_external(tmp_path / "in" / "model.onnx", ROLL, "weights.bin")
    before = {path.name: path.read_bytes() for path in source.parent.iterdir()}
    target = tmp_path / "out" / "model.onnx"
    assert rewrite(source, target).code == 0
    assert {path.name: path.read_bytes() for path in source.parent.iterdir()} == before
    x = np.ones((1, 6, 4), np.float32)
    plain = write(tmp_path / "plain.onnx", ROLL)
    assert rewrite(plain, tmp_path / "expected.onnx").code == 0
    np.testing.assert_array_equal(run_model(target, x), run_model(tmp_path / "expected.onnx", x))


# --- inspection -----------------------------------------------------------------------------------------------


def test_inspects_without_writing(rewrite: Rewrite, tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx", UNKNOWN)
    done = rewrite(source)
    assert done.code == 0
    assert "1 × com.example::Roll → pass roll" in done.out
    assert "1 × com.example::MySpecialOp → no pass" in done.out
    assert "'a' in main graph" in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_inspection_with_strict_fails_on_a_placeholder_without_pass(rewrite: Rewrite, tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx", UNKNOWN)
    assert rewrite(source, "--strict").code == 1
    assert rewrite(source, "--strict", "--keep", "com.example::MySpecialOp").code == 0


def test_inspection_as_json(rewrite: Rewrite, tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx", OWNED)
    assert rewrite(source, "--report", tmp_path / "r.json").code == 0
    data = json.loads((tmp_path / "r.json").read_text())
    assert [(p["operator"], p["pass"]) for p in data["placeholders"]] == [("com.example::Roll", "roll")]
    assert [(o["domain"], o["name"]) for o in data["runtime_operators"]] == [("com.microsoft", "Gelu")]


def test_inspection_needs_no_torch_and_no_runtime(tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx", ROLL)
    done = in_process(source, blocked=("torch", "onnxruntime", "onnxsim", "onnxscript", "onnx_graphsurgeon"))
    assert done.code == 0, done.err
    assert "pass roll" in done.out


# --- passes ---------------------------------------------------------------------------------------------------


def test_a_named_pass_that_matches_nothing_is_reported_and_an_error_with_strict(
    rewrite: Rewrite, roll: Path
) -> None:
    target = roll.with_name("out.onnx")
    arguments = (roll, target, "--passes", "roll,swish,square_plus_one", "--no-simplify")
    done = rewrite(*arguments, "--strict", "--report", roll.with_name("r.json"))
    assert done.code == 1
    assert "square_plus_one" in done.err
    assert not target.exists()
    assert json.loads(roll.with_name("r.json").read_text())["failure"]["code"] == "unmatched"
    done = rewrite(*arguments)
    assert done.code == 0
    assert "'square_plus_one' matched nothing" in done.out


def test_a_rule_that_matches_nothing_is_reported_and_an_error_with_strict(
    rewrite: Rewrite, roll: Path
) -> None:
    target, rule = roll.with_name("out.onnx"), "mylib::no_such=roll(shifts=amount)"
    arguments = (roll, target, "--bind", rule, "--no-simplify", "--no-verify")
    done = rewrite(*arguments, "--strict", "--report", roll.with_name("r.json"))
    assert done.code == 1
    assert rule in done.err
    assert not target.exists()
    assert json.loads(roll.with_name("r.json").read_text())["failure"]["code"] == "unmatched"
    done = rewrite(*arguments, "--report", roll.with_name("r.json"))
    assert done.code == 0
    assert f"'{rule}' matched nothing" in done.out
    assert json.loads(roll.with_name("r.json").read_text())["unmatched_rules"] == [rule]
    assert f"'{rule}' matches nothing" in rewrite(roll, "--bind", rule).out
    done = rewrite(roll, target, "--bind", "mylib::no_such=roll(shfts=amount)")
    assert done.code == 2
    assert "'shfts'" in done.err


def test_bind_gives_an_operator_to_a_pass(rewrite: Rewrite, tmp_path: Path) -> None:
    source = write(
        tmp_path / "m.onnx",
        """<ir_version: 8, opset_import: ["" : 17, "mylib" : 1]>
        main (float[2, 6] x) => (float[2, 6] y)
        { y = mylib.shift_op <amount: ints = [2], axis: ints = [1]> (x) }""",
    )
    target = tmp_path / "out.onnx"
    assert rewrite(source, target).code == 1
    done = rewrite(source, target, "--bind", "mylib::shift_op=roll(shifts=amount,dims=axis)")
    assert done.code == 0, done.err
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(run_model(target, x), np.roll(x, 2, 1))


def test_a_pass_from_a_file(rewrite: Rewrite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_ops.py").write_text(
        """
from rewriter import Builder, Case, Placeholder, Value, f32

class MySpecialOp(Placeholder):
    \"\"\"x · strength.\"\"\"
    matches = ("MySpecialOp",)
    def reference(self, x, strength=1.0):
        return x * strength
    def decompose(self, g: Builder, x: Value, strength: float = 1.0):
        return x * strength
    def cases(self):
        yield Case(f32(2, 3))
"""
    )
    write(tmp_path / "m.onnx", UNKNOWN)
    monkeypatch.chdir(tmp_path)
    done = rewrite("m.onnx", "out.onnx", "--passes", "roll,./my_ops.py")
    assert done.code == 0, done.err
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run_model(tmp_path / "out.onnx", x), np.roll(x, 1, 1) * 0.5)


def test_no_simplify_changes_nothing_else(rewrite: Rewrite, tmp_path: Path) -> None:
    source = write(
        tmp_path / "m.onnx",
        PLAIN.replace("Relu(a)", "com.example.Swish(a)").replace("17]", '17, "com.example" : 1]'),
    )
    assert rewrite(source, tmp_path / "a.onnx", "--no-simplify").code == 0
    assert [node.op_type for node in onnx.load(tmp_path / "a.onnx").graph.node] == [
        "Identity",
        "Sigmoid",
        "Mul",
        "Identity",
    ]
    assert rewrite(source, tmp_path / "b.onnx").code == 0
    assert [node.op_type for node in onnx.load(tmp_path / "b.onnx").graph.node] == ["Sigmoid", "Mul"]


# --- how it ends ----------------------------------------------------------------------------------------------


def test_an_unexpected_exception_is_one_line(
    rewrite: Rewrite, roll: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rewriter import pipeline

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.setattr(pipeline, "decompose", broken)
    done = rewrite(roll, roll.with_name("out.onnx"))
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert done.err.startswith("error: internal error: ZeroDivisionError: first line second line")
    assert "--debug" in done.err
    done = rewrite(roll, roll.with_name("out.onnx"), "--debug", "--report", roll.with_name("r.json"))
    assert done.code == 1
    assert "Traceback" in done.err
    data = json.loads(roll.with_name("r.json").read_text())
    assert (data["outcome"], data["source"], data["failure"]["code"]) == ("failed", "roll.onnx", "internal")
    assert data["failure"]["what"] == "internal error: ZeroDivisionError: first line second line"
    assert not roll.with_name("out.onnx").exists()


def test_debug_prints_the_traceback_of_an_error(rewrite: Rewrite, tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx", UNKNOWN)
    assert "Traceback" not in rewrite(source, tmp_path / "out.onnx").err
    assert "Traceback" in rewrite(source, tmp_path / "out.onnx", "--debug").err


def test_interrupted_is_130_and_leaves_the_old_output(
    rewrite: Rewrite, roll: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rewriter import pipeline

    target = roll.with_name("out.onnx")
    target.write_bytes(b"old")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "decompose", interrupted)
    done = rewrite(roll, target)
    assert done.code == 130
    assert done.err.strip() == "interrupted; nothing was written"
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in roll.parent.iterdir()) == ["out.onnx", "roll.onnx"]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_it_verifies(roll: Path, tmp_path: Path, sent: signal.Signals, code: int) -> None:
    (tmp_path / "slow.py").write_text(
        """
import sys, time
from rewriter import Builder, Case, Placeholder, Value, f32

class Roll(Placeholder):
    \"\"\"Takes its time.\"\"\"
    matches = ("Roll",)
    def reference(self, x, shifts=0, dims=0):
        print("verifying", file=sys.stderr, flush=True)
        time.sleep(60)
    def decompose(self, g: Builder, x: Value, shifts: tuple[int, ...] = (), dims: tuple[int, ...] = ()):
        return x + 0
    def cases(self):
        yield Case(f32(2, 3))
"""
    )
    command = [sys.executable, "-m", "rewriter.cli", str(roll), str(tmp_path / "out.onnx"), "--no-simplify"]
    with subprocess.Popen(
        [*command, "--passes", f"swish,{tmp_path / 'slow.py'}"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "verifying\n"
        process.send_signal(sent)
        rest = process.stderr.read()
        assert process.wait(timeout=60) == code
    assert "Traceback" not in rest
    assert not (tmp_path / "out.onnx").exists()


def test_a_reader_that_goes_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "rewriter.cli", "--list"], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_that_lacks_the_signs(roll: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rewriter.cli", str(roll), str(tmp_path / "out.onnx"), "--no-verify"]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "com.example::Roll" in done.stdout


def test_nothing_but_the_report_in_a_pipe(roll: Path, tmp_path: Path) -> None:
    done = in_process(roll, tmp_path / "out.onnx")
    assert done.code == 0
    assert done.err == ""
    assert "\x1b" not in done.out


def test_progress_on_a_terminal(roll: Path, tmp_path: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "rewriter.cli", str(roll), str(tmp_path / "out.onnx")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, env=os.environ | {"TERM": "xterm"}
    ) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            seen += part
        assert process.wait(timeout=120) == 0
    os.close(ours)
    for stage in (b"load", b"passes", b"simplify", b"verify"):
        assert stage in seen
