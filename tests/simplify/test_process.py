"""The worker process: whatever it does, the run goes on with the unsimplified model and a reason."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest
from onnx import ModelProto

from rewriter.simplify import driver, process
from rewriter.simplify.optimizers import ALLOWED, REFUSED
from rewriter.simplify.process import Task, run_worker
from rewriter.worker.driver import CannotStart
from tests.simplify.conftest import model_of, run_stage

MODEL = "g (float[N] x) => (float[N] y) { a = Identity(x)  y = Relu(a) }"


def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    """Lets another function play the worker; it answers through ``channel``."""
    script = tmp_path / "worker.py"
    head = "import os, sys, time, signal, pathlib\ndef play(channel):\n    channel.receive()\n"
    script.write_text(head + textwrap.indent(textwrap.dedent(code), "    "))
    monkeypatch.setattr(process, "TARGET", f"{script}:play")


FAILURES = {
    "segfault": ("os.kill(os.getpid(), signal.SIGSEGV)", "onnxsim: killed by SIGSEGV"),
    "abort": ("os.abort()", "onnxsim: killed by SIGABRT"),
    "exception": ("raise RuntimeError('no such thing')", "onnxsim: RuntimeError: no such thing"),
    "exit without a word": ("sys.exit(7)", "onnxsim: exit status 7"),
    "exit in a hurry": ("os._exit(0)", "onnxsim: exit status 0"),
    "garbage": ("channel.send({}, [b'\\xff' * 100])", "restore: "),
    "empty": ("channel.send({}, [b''])", "restore: inputs or outputs are missing"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failing_worker_is_a_reason(case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, reason = FAILURES[case]
    play(monkeypatch, tmp_path, code)
    stage = run_stage(model_of(MODEL))
    assert not stage.result.accepted
    assert reason in stage.result.reason
    assert stage.after == stage.before
    assert stage.result.nodes_after == stage.result.nodes_before == 2
    # Every attempt was made, and each says how it ended.
    assert len(stage.result.notes) == len(driver.ATTEMPTS) - 1


def test_another_models_result_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = model_of("g (float[N] x) => (float[N] y) { y = Neg(x) }").SerializeToString()
    play(monkeypatch, tmp_path, f"channel.send({{}}, [{other!r}])")
    stage = run_stage(model_of(MODEL))
    assert not stage.result.accepted
    assert "operators: Neg was not there before" in stage.result.reason
    assert stage.after == stage.before


def test_a_worker_that_hangs_is_ended_with_its_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    play(
        monkeypatch,
        tmp_path,
        f"""
        child = os.fork()
        if child:
            pathlib.Path({str(pids)!r}).write_text(f"{{os.getpid()}} {{child}}")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)
        """,
    )
    stage = run_stage(model_of(MODEL), timeout=1.5)
    assert stage.result.reason == "full simplification: onnxsim: not done within 1.5 s (--simplify-timeout)"
    assert stage.result.notes == ()  # no further attempt: the time was for all of them
    for pid in pids.read_text().split():
        assert is_gone(int(pid))


def is_gone(pid: int) -> bool:
    """Whether the process ended (it may be a zombie that init has not collected yet)."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


def test_an_interrupt_ends_the_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    play(
        monkeypatch,
        tmp_path,
        f"pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\nwhile True: time.sleep(1)",
    )

    def interrupt(line: str) -> None:
        if "onnxsim" in line and pid.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(model_of(MODEL), progress=interrupt)
    assert is_gone(int(pid.read_text()))


def test_output_is_captured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch, tmp_path, "print('noise' * 99999, flush=True); os.system('echo more'); sys.exit(1)")
    stage = run_stage(model_of(MODEL))
    assert capfd.readouterr() == ("", "")
    assert len(stage.result.reason) < 400


def test_nothing_is_left_in_the_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run_stage(model_of(MODEL)).result.accepted
    assert list(tmp_path.iterdir()) == []


def test_memory_is_limited() -> None:
    """64 KiB beyond its libraries are not enough for anything."""
    stage = run_stage(model_of(MODEL), memory=1 << 16)
    assert not stage.result.accepted
    assert stage.result.reason.startswith(
        "full simplification: onnxsim: out of memory within the limit of 64.0 KB (--simplify-memory): MemoryError"
    )
    assert stage.after == stage.before


def test_no_time_at_all() -> None:
    stage = run_stage(model_of(MODEL), timeout=0)
    assert stage.result.reason == "full simplification: onnxsim: not done within 0 s (--simplify-timeout)"


def test_the_environment_does_not_reach_onnxsim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXSIM_FIXED_POINT_ITERS", "0")
    monkeypatch.setenv("PYTHONHASHSEED", "17")
    environment = process._environment()
    assert not [name for name in environment if name.startswith("ONNXSIM")]
    assert environment["PYTHONHASHSEED"] == "0"


def test_modules_beside_the_worker_are_not_imported_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`-P`: the worker's folder is not on its path, so that no module there can stand for a library's."""
    request = model_of(MODEL).SerializeToString()
    (tmp_path / "onnx.py").write_text("raise SystemExit('imported from the working directory')")
    monkeypatch.chdir(tmp_path)
    result = ModelProto.FromString(run_worker(request, Task(), timeout=60, memory=4 << 30))
    assert [node.op_type for node in result.graph.node] == ["Relu"]


def test_an_interpreter_that_cannot_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(CannotStart, match="cannot start"):
        run_worker(b"", Task(), timeout=5, memory=1 << 30)


def test_importing_the_stage_imports_nothing_heavy() -> None:
    code = (
        "import sys, rewriter.simplify;"
        "print(sorted({'torch', 'onnxruntime', 'onnxsim', 'onnxscript', 'onnx_graphsurgeon'} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_pass_of_the_installed_onnxsim_is_judged() -> None:
    """A new release's passes must be tried, or refused with a reason, before they are named."""
    code = """
        import sys
        sys.modules["torch"] = None
        import onnx, onnxsim
        from onnxsim import onnxsim_cpp2py_export as core
        m = '<ir_version: 8, opset_import: ["": 13]> g (float[1] x) => (float[1] y) { y = Neg(x) }'
        onnxsim.simplify(onnx.parser.parse_model(m), certify=False)
        print(*core._list_optimizers())
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    installed = set(result.stdout.split())
    assert installed <= ALLOWED | REFUSED.keys()
    assert installed >= ALLOWED
    assert not ALLOWED & REFUSED.keys()
    assert all(REFUSED.values())
