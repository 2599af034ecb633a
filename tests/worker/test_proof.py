"""The proof in a worker: what dies or runs away there is an error of the run, and nothing else changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import rewriter
from rewriter.errors import LimitError, MismatchError, ModelReadError, WorkerDiedError
from rewriter.graph.survey import Keep
from rewriter.placeholder.registry import Selection
from rewriter.storage import ModelFile
from rewriter.verify import VerifyOptions
from rewriter.verify.sides import Apart
from tests.texts import PLAIN, ROLL, write
from tests.worker.processes import descendants, is_gone

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.isolated

#: A pass for the Swish of ROLL whose reference does what ``{body}`` says.
PASS = """
import ctypes, os, sys, time
import torch
from rewriter import Case, Placeholder, Value, f32

class Mine(Placeholder):
    \"\"\"x · sigmoid(x), or what a test wants.\"\"\"
    name = "mine"
    matches = ("Swish",)

    def reference(self, x):
        {body}
        return x * torch.sigmoid(x)

    def decompose(self, g, x: Value):
        return g.op("Mul", x, g.op("Sigmoid", x))

    def cases(self):
        yield Case(f32(2, 3))
"""

#: Its loop goes on for 2**63 - 1 rounds; y is what an addition of 0 leaves.
ENDLESS = """
<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
main (float[2] x) => (float[2] y)
<int64 rounds = {9223372036854775807}, bool go = {1}>
{
    a = Loop (rounds, go, x) <body = body (int64 i, bool on, float[2] v) => (bool still, float[2] w) {
        still = Identity (on)
        w = Identity (v)
    }>
    y = com.example.Swish (a)
}
"""

#: Two gigabytes and a half of float32.
HUGE = """
<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
main (int64[1] n) => (float y)
{
    big = ConstantOfShape (n)
    s = com.example.Swish (big)
    y = ReduceSum <keepdims = 0> (s)
}
"""


def with_pass(folder: Path, body: str) -> tuple[Path, str]:
    """A model, and the passes for it: the Swish's is our own, whose reference begins with ``body``."""
    (folder / "mine.py").write_text(PASS.replace("{body}", body))
    return write(folder / "in.onnx", ROLL), f"roll,{folder / 'mine.py'}"


@pytest.mark.parametrize(
    ("body", "how"),
    [
        ("os.abort()", "SIGABRT"),
        ("ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_a_death_is_an_error_of_the_run(tmp_path: Path, body: str, how: str) -> None:
    source, passes = with_pass(tmp_path, body)
    with pytest.raises(WorkerDiedError) as error:
        rewriter.rewrite(source, tmp_path / "out.onnx", passes=passes, simplify=False)
    assert (error.value.code, error.value.exit_code) == ("worker-died", 1)
    assert how in error.value.what
    assert "the reference of pass 'mine'" in error.value.what
    assert "Swish" in str(error.value.where)
    assert not (tmp_path / "out.onnx").exists()


def test_time_is_limited_also_in_native_code(tmp_path: Path) -> None:
    source = write(tmp_path / "in.onnx", ENDLESS)
    with pytest.raises(LimitError) as error:
        rewriter.rewrite(source, tmp_path / "out.onnx", simplify=False, verify_timeout=8)
    assert (error.value.code, error.value.exit_code) == ("verify-limit", 1)
    assert "--verify-timeout" in str(error.value.remedy)
    assert not (tmp_path / "out.onnx").exists()


def test_memory_is_limited(tmp_path: Path) -> None:
    source = write(tmp_path / "in.onnx", HUGE)
    inputs = {"n": np.array([600_000_000])}
    with pytest.raises(LimitError) as error:
        rewriter.rewrite(source, inputs=inputs, simplify=False, verify_memory=1 << 30)
    assert "onnxruntime" in error.value.what
    assert "--verify-memory" in str(error.value.remedy)


def test_the_simplifiers_comparison_may_die_too(tmp_path: Path) -> None:
    """Then the model goes on as it was, and the proof has a worker of its own."""
    source = write(tmp_path / "in.onnx", PLAIN.replace("Identity(x)", "Neg(x)"))
    report = rewriter.rewrite(source, tmp_path / "out.onnx", verify_memory=1 << 10, verify=False)
    assert report.simplification is not None
    assert not report.simplification.accepted
    assert "memory" in report.simplification.reason


def test_a_death_at_size_0_is_a_note_of_the_whole_model(tmp_path: Path) -> None:
    source = write(tmp_path / "in.onnx", ROLL.replace("MatMul(x, w)", "Mul(x, w)"))
    (tmp_path / "whole.py").write_text(
        "import os, torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        if x.shape[0] == 0: os.abort()\n"
        "        w = torch.tensor([[1, 0, 2, 0, 0, 1, 0, 3, 1, 1, 0, 0, 0, 2, 0, 1]]).float().reshape(4, 4)\n"
        "        return torch.nn.functional.silu(torch.roll(x @ w, 2, 1))\n"
    )
    source = write(tmp_path / "in.onnx", ROLL)
    report = rewriter.rewrite(source, tmp_path / "out.onnx", against=f"{tmp_path / 'whole.py'}:Net")
    assert report.verification is not None
    skipped = report.verification["whole_model"]["skipped"]
    assert [item["sizes"] for item in skipped] == [{"N": 0}]
    assert "PyTorch" in skipped[0]["reason"]
    assert "SIGABRT" in skipped[0]["reason"]


def test_errors_come_back_as_they_are(tmp_path: Path) -> None:
    source, passes = with_pass(tmp_path, "x = x * 1.5")
    with pytest.raises(MismatchError) as error:
        rewriter.rewrite(source, tmp_path / "out.onnx", passes=passes)
    found = error.value
    assert found.headline
    assert found.figures
    assert found.blame is not None
    assert found.proof is not None
    assert found.report is not None
    assert found.report.verification["verdict"] == "failed"  # type: ignore[index]
    assert isinstance(found.where, rewriter.errors.Where)


def test_a_fault_comes_back_with_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, passes = with_pass(tmp_path, "pass")
    text = (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text(
        text + "\n    def compare(self, actual, expected):\n        raise LookupError('of the pass')\n"
    )
    with pytest.raises(Exception, match="of the pass") as error:
        rewriter.rewrite(source, tmp_path / "out.onnx", passes=passes)
    assert "LookupError" in "".join([str(error.value), *getattr(error.value, "__notes__", [])])


def test_the_outcome_is_that_of_this_process(tmp_path: Path) -> None:
    source = write(tmp_path / "in.onnx", ROLL)
    reports = {
        isolate: rewriter.rewrite(source, tmp_path / f"{isolate}.onnx", isolate=isolate)
        for isolate in (True, False)
    }
    apart, here = (dict(reports[isolate].verification or {}) for isolate in (True, False))
    assert apart == here
    assert apart["process"] == ""
    assert (tmp_path / "True.onnx").read_bytes() == (tmp_path / "False.onnx").read_bytes()


def test_objects_are_used_in_this_process_and_the_report_says_so(tmp_path: Path) -> None:
    from passes.movement.roll import Roll

    source = write(tmp_path / "in.onnx", ROLL)
    report = rewriter.rewrite(source, tmp_path / "out.onnx", passes=["swish", Roll])
    assert report.verification is not None
    assert report.verification["process"] == "a pass is given as a Python object"
    assert "in this process" in report.text()

    def judge(actual: Any, expected: Any) -> str | None:
        return None

    report = rewriter.rewrite(source, tmp_path / "out.onnx", compare={"y": judge})
    assert "a function" in (report.verification or {})["process"]
    with ModelFile.open(source) as file:
        report = rewriter.rewrite(file.hydrate(file.model))
    assert (report.verification or {})["process"] == "the model is given as an object"


def test_another_file_under_the_same_name_is_not_verified(tmp_path: Path) -> None:
    source = write(tmp_path / "in.onnx", ROLL)
    with ModelFile.open(source) as file:
        other = write(tmp_path / "other.onnx", ROLL)
        other.replace(source)
        apart = Apart(["roll", "swish"], [], derived=False)
        try:
            apart.open(file, Selection.load("roll,swish"), Keep(), VerifyOptions(), torch=False)
            for _ in range(2):
                with pytest.raises(ModelReadError, match="changed"):
                    apart.equal(file.model, file.model)
        finally:
            apart.close()


def test_neither_library_is_loaded_by_the_command_itself(tmp_path: Path) -> None:
    source = write(tmp_path / "in.onnx", ROLL)
    code = (
        "import sys, rewriter\n"
        f"rewriter.rewrite({str(source)!r}, {str(tmp_path / 'out.onnx')!r})\n"
        "print(sorted({'torch', 'onnxruntime', 'onnxsim'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- signals ------------------------------------------------------------------------------------------------------


def started(folder: Path, source: Path, passes: str, *more: str) -> subprocess.Popen[str]:
    """The command, and what it prints on standard error."""
    command = [
        sys.executable,
        "-m",
        "rewriter.cli",
        str(source),
        str(folder / "out.onnx"),
        "--passes",
        passes,
        *more,
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


BUSY = "print('busy', file=sys.stderr, flush=True); time.sleep(100)"
#: Sleeps in C with the interpreter's lock held, as a long call into a library does.
STUCK = "print('busy', file=sys.stderr, flush=True); ctypes.PyDLL(None).sleep(100)"


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_verification_at_once(tmp_path: Path, sent: int, code: int) -> None:
    source, passes = with_pass(tmp_path, BUSY)
    with started(tmp_path, source, passes, "--no-simplify") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "busy\n"
        workers = descendants(process.pid)
        process.send_signal(sent)
        assert process.wait(timeout=10) == code
        assert all(map(is_gone, workers))
    assert len(workers) == 2
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_native_code_of_the_command_itself(tmp_path: Path, sent: int, code: int) -> None:
    source, passes = with_pass(tmp_path, "pass")
    file = tmp_path / "mine.py"
    file.write_text(file.read_text().replace("return g.op(", f"{STUCK}\n        return g.op(", 1))
    with started(tmp_path, source, passes, "--no-verify") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "busy\n"
        process.send_signal(sent)
        assert process.wait(timeout=10) == code


def test_a_signal_ends_the_simplification(tmp_path: Path) -> None:
    source = write(
        tmp_path / "in.onnx",
        ENDLESS.replace("float[2] x", "float[2] z")
        .replace("x)", "c)")
        .replace("<int64 rounds", "<float[2] c = {1, 2}, int64 rounds"),
    )
    with started(tmp_path, source, "swish", "--no-verify") as process:
        end = time.monotonic() + 60
        while not any(b"simplify" in _command(pid) for pid in descendants(process.pid)):
            assert time.monotonic() < end
            time.sleep(0.05)
        workers = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 143
        assert all(map(is_gone, workers))


def _command(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


def test_a_killed_command_leaves_no_process(tmp_path: Path) -> None:
    source, passes = with_pass(tmp_path, STUCK)
    with started(tmp_path, source, passes, "--no-simplify") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "busy\n"
        workers = descendants(process.pid)
        process.kill()
        process.wait(timeout=10)
        assert len(workers) == 2
        assert all(map(is_gone, workers))


def test_a_library_call_installs_no_handlers(tmp_path: Path) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)}
    pid = os.getpid()
    rewriter.rewrite(write(tmp_path / "in.onnx", PLAIN), tmp_path / "out.onnx")
    assert before == {number: signal.getsignal(number) for number in before}
    assert descendants(pid) == []
