"""Several runs that write one target, and what killed runs leave behind."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewriter import rewrite
from rewriter.errors import ModelReadError, ModelWriteError
from rewriter.progress import Quiet, Stage
from rewriter.storage import ModelFile, locks
from tests.storage.conftest import names
from tests.storage.models import single, weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    Write = Callable[..., Path]

#: Saves again and again when told to: the source, the target, how.
WRITER = """
import sys, time
from rewriter.errors import RewriteError
from rewriter.storage import ModelFile
for line in sys.stdin:
    source, target, how, pause = line.split()
    time.sleep(float(pause))
    try:
        with ModelFile.open(source) as file:
            if how == "save":
                file.model.doc_string = source
            (file.copy_to if how == "copy" else file.save)(target)
        print("done", flush=True)
    except RewriteError as error:
        print(error.code, flush=True)
"""


COPIED = "w.bin"


def external(folder: Path, values: np.ndarray[Any, Any], location: str = COPIED) -> Path:
    """A model whose two weights, of equal shape, are external data."""
    folder.mkdir(exist_ok=True)
    (folder / location).parent.mkdir(exist_ok=True)
    (folder / location).write_bytes(values.tobytes() + values.tobytes())
    made = []
    for number in range(2):
        tensor = TensorProto(name=f"w{number}", data_type=TensorProto.FLOAT, dims=values.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (
            ("location", location),
            ("offset", number * values.nbytes),
            ("length", values.nbytes),
        ):
            tensor.external_data.add(key=key, value=str(value))
        made.append(tensor)
    graph = helper.make_graph(
        [helper.make_node("Add", ["w0", "w1"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(values.shape))],
        made,
    )
    path = folder / "in.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    return path


def check_target(target: Path, allowed: Sequence[np.ndarray[Any, Any]]) -> None:
    """One complete model of ``allowed``, and nothing of ours beside it.

    A copied data file keeps its name, and stays when another model replaces the copy: others may refer to it.
    """
    shell = onnx.load(target, load_external_data=False)
    used = {
        entry.value for t in shell.graph.initializer for entry in t.external_data if entry.key == "location"
    }
    copied = {COPIED, "deep/new.bin"}
    assert set(names(target.parent)) - copied == {target.name, *used} - copied
    first, second = (numpy_helper.to_array(t) for t in onnx.load(target).graph.initializer)
    assert (first == second).all()
    assert any(np.array_equal(first, values) for values in allowed)


def race(tmp_path: Path, rounds: int) -> None:
    """Two runs at a time write one target, with contents that are equal, different, or there already."""
    contents = [np.full((64, 64), value, np.float32) for value in (1, 2, 3)]
    sources = [external(tmp_path / f"in{k}", values) for k, values in enumerate(contents)]
    sources.append(external(tmp_path / "twin", contents[0]))
    target = tmp_path / "out" / "out.onnx"
    target.parent.mkdir()
    random = np.random.default_rng(0)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        for _ in range(rounds):
            chosen = [int(number) for number in random.integers(0, len(sources), 2)]
            before = onnx.load(target).graph.initializer[0].raw_data if target.exists() else b""
            in_place = bool(before) and random.random() < 0.2
            for writer, number in zip(writers, chosen, strict=True):
                assert writer.stdin is not None
                how = random.choice(["save", "save", "plain", "copy"])
                source = target if in_place and writer is writers[0] else sources[number]
                writer.stdin.write(f"{source} {target} {how} {random.random() * 0.004}\n")
                writer.stdin.flush()
            for writer in writers:
                assert writer.stdout is not None
                said = writer.stdout.readline()
                # A source may be replaced while it is read.
                refused = (
                    {"unreadable-model\n", "external-data\n"} if in_place and writer is writers[0] else set()
                )
                assert said in {"done\n", *refused}
            allowed = [contents[number % 3] for number in chosen]
            if in_place:
                allowed[0] = np.frombuffer(before, np.float32).reshape(64, 64)
            check_target(target, allowed)
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_two_runs_write_one_target(tmp_path: Path) -> None:
    race(tmp_path, 30)


@pytest.mark.full
def test_two_runs_write_one_target_often(tmp_path: Path) -> None:
    race(tmp_path, 1000)


# --- killed runs -----------------------------------------------------------------------------------------------


def killed_at(number: int, save: Callable[[], object]) -> bool:
    """Run ``save`` in a child that kills itself at its ``number``-th system call; False where it got through."""
    child = os.fork()
    if child == 0:
        calls = 0

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            def called(*args: Any, **more: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **more)

            return called

        try:
            for name in (
                "open",
                "write",
                "fsync",
                "replace",
                "rename",
                "link",
                "unlink",
                "close",
                "mkdir",
                "pread",
            ):
                setattr(os, name, wrap(getattr(os, name)))
            save()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("how", ["save", "copy"])
def test_killed_anywhere(tmp_path: Path, how: str, unsynced: None) -> None:
    """The target is the old model or the new one, and the next run leaves nothing else."""
    values = [np.full((64, 64), value, np.float32) for value in range(3)]
    new = external(tmp_path / "new", values[1], "deep/new.bin" if how == "copy" else "new.bin")
    folder = tmp_path / "out"
    target = folder / "out.onnx"
    last = external(tmp_path / "last", values[2])

    def write(source: Path, how: str = "save") -> None:
        with ModelFile.open(source) as file:
            (file.save if how == "save" else file.copy_to)(target)

    folder.mkdir()
    kills = 0
    for number in range(1, 200):
        write(external(tmp_path / "old", values[0]))
        if not killed_at(number, lambda: write(new, how)):
            break
        kills += 1
        first = numpy_helper.to_array(onnx.load(target).graph.initializer[0])
        assert np.array_equal(first, values[0]) or np.array_equal(first, values[1])
        # Copied data keeps its name, and stays: others may use it.
        copied = how == "copy" and np.array_equal(first, values[1])
        write(last)
        check_target(target, values[2:])
        assert copied == (folder / "deep").exists()
        for path in folder.glob("deep/*"):
            path.unlink()
            path.parent.rmdir()
    assert kills > 20


def test_what_lives_stays(write: Write, tmp_path: Path) -> None:
    """Temporary files are dead by their lock alone: neither age nor name nor owner counts."""
    alive, dead = tmp_path / f".rewrite-{'0' * 16}.tmp", tmp_path / f".rewrite-{'1' * 16}.tmp"
    other, folder = tmp_path / ".rewrite-mine.tmp", tmp_path / f".rewrite-{'2' * 16}.tmp"
    for path in (alive, dead, other):
        path.write_bytes(b"x")
        os.utime(path, (0, 0))
    folder.mkdir()
    with alive.open("rb+") as held, ModelFile.open(write(single(weights()))) as file:
        fcntl.flock(held, fcntl.LOCK_EX)
        file.save(tmp_path / "out.onnx")
    assert {path.name for path in tmp_path.glob(".rewrite-*")} == {alive.name, other.name, folder.name}


@pytest.mark.parametrize(
    "line",
    [
        ["kept.bin", None, True],
        ["kept.bin", [0, 0, 0, 0], True],
        ["kept.bin", [0, 0, 0, 0], False],
        ["../kept.bin", "identity", True],
        ["/etc/hostname", "identity", True],
        ["a\0b", None, True],
        [1, 2, True],
        [1, 2],
        "kept.bin",
        [],
    ],
)
def test_a_journal_by_another_hand(write: Write, tmp_path: Path, line: Any) -> None:
    """It removes nothing but the very file that a dead run made."""
    folder = tmp_path / "out"
    folder.mkdir()
    for kept in (folder / "kept.bin", tmp_path / "kept.bin"):
        kept.write_bytes(b"x")
    if "identity" in line:
        line = [line[0], locks.identity_of((tmp_path / "kept.bin").stat()), True]
    model = f".rewrite-{'0' * 16}.tmp"
    (folder / model).write_bytes(b"x")
    content = [locks.JOURNAL, model, line]
    (folder / f".rewrite-{'1' * 16}.tmp").write_text("\n".join(json.dumps(item) for item in content))
    with ModelFile.open(write(single(weights()))) as file:
        file.save(folder / "out.onnx")
    assert names(folder) == ["kept.bin", "out.onnx"]
    assert (tmp_path / "kept.bin").exists()


# --- file systems and folders that fail ------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL, errno.ENOSYS])
def test_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A file system without locks: models are written, data files are not shared, nothing of others is removed."""

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    values = np.ones((64, 64), np.float32)
    source = external(tmp_path / "in", values)
    target = tmp_path / "out" / "out.onnx"
    target.parent.mkdir()
    (target.parent / f".rewrite-{'0' * 16}.tmp").touch()
    for _ in range(3):
        with ModelFile.open(source) as file:
            file.save(target)
        (target.parent / f".rewrite-{'0' * 16}.tmp").unlink()
        check_target(target, [values])
        (target.parent / f".rewrite-{'0' * 16}.tmp").touch()


def test_somebody_holds_the_lock(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    folder = tmp_path / "out"
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        with ModelFile.open(write(single(weights()))) as file, pytest.raises(ModelWriteError, match="lock"):
            file.save(folder / "out.onnx")
    finally:
        os.close(fd)
    assert names(folder) == []


@pytest.mark.parametrize("how", ["save", "copy_to"])
def test_the_folder_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Removed at any moment: an error that says so."""
    source = external(tmp_path / "in", np.ones((64, 64), np.float32))
    folder = tmp_path / "out"
    for name in ("fsync", "link", "open", "replace"):
        for at in range(1, 8):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            real, calls = getattr(os, name), 0

            def gone(*args: Any, real: Callable[..., Any] = real, at: int = at, **more: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == at:
                    shutil.rmtree(folder)
                return real(*args, **more)

            with ModelFile.open(source) as file, monkeypatch.context() as patch:
                patch.setattr(os, name, gone)
                try:
                    getattr(file, how)(folder / "out.onnx")
                except (ModelWriteError, ModelReadError) as error:
                    assert error.remedy  # noqa: PT017
            if calls < at:
                break


@pytest.mark.parametrize("stage", ["load", "passes", "save"])
def test_the_folder_goes_during_a_run(tmp_path: Path, stage: str) -> None:
    """The run ends with an error of its own, and does not make the folder again."""

    class Removing(Quiet):
        @contextmanager
        def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
            if name == stage:
                shutil.rmtree(tmp_path / "out")
            with super().stage(name, total) as inner:
                yield inner

    source = external(tmp_path / "in", np.ones((64, 64), np.float32))
    (tmp_path / "out").mkdir()
    with pytest.raises(ModelWriteError) as caught:
        rewrite(source, tmp_path / "out" / "out.onnx", simplify=False, verify=False, progress=Removing())
    assert caught.value.remedy
    assert not (tmp_path / "out").exists()


def test_data_that_another_run_took(tmp_path: Path) -> None:
    """Written in place, the model would refer to a file that is gone."""
    source = external(tmp_path / "in", np.ones((64, 64), np.float32))
    before = source.read_bytes()
    with ModelFile.open(source) as file:
        (tmp_path / "in" / COPIED).unlink()
        with pytest.raises(ModelReadError) as caught:
            file.save(source)
    assert caught.value.exit_code == 2
    assert source.read_bytes() == before
    assert names(source.parent) == ["in.onnx"]


# --- holes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["save", "copy_to"])
def test_a_data_file_of_4_tb_that_is_a_hole(tmp_path: Path, how: str) -> None:
    """What the file does not hold is neither copied nor compared."""
    size = 1 << 42
    source = external(tmp_path / "in", np.ones((64, 64), np.float32))
    data = tmp_path / "in" / COPIED
    try:
        with data.open("rb+") as out:
            out.truncate(size)
            out.seek(1 << 40)
            out.write(b"some data")
    except OSError:
        pytest.skip("no files of this size")
    if data.stat().st_blocks > 1000:
        pytest.skip("no holes")
    model = onnx.load(source, load_external_data=False)
    tensor = model.graph.initializer.add(name="large", data_type=TensorProto.FLOAT, dims=[size // 4 - 8192])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", COPIED), ("offset", 32768), ("length", size - 32768)):
        tensor.external_data.add(key=key, value=str(value))
    source.write_bytes(model.SerializeToString())
    target = tmp_path / "out" / "out.onnx"
    target.parent.mkdir()
    for _ in range(2):  # the second finds the same content there
        with ModelFile.open(source) as file:
            getattr(file, how)(target)
    (made,) = [path for path in target.parent.iterdir() if path != target]
    assert made.stat().st_size == size
    assert made.stat().st_blocks < 1000
    with made.open("rb") as copied, data.open("rb") as original:
        for at in (0, 32000, 1 << 40, size - 16):
            copied.seek(at)
            original.seek(at)
            assert copied.read(16) == original.read(16)


def test_the_interrupted_wait(tmp_path: Path, write: Write) -> None:
    """A run that waits for the lock ends when it is told to."""
    folder = tmp_path / "out"
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    source = write(single(weights()))
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdin is not None
        child.stdin.write(f"{source} {folder / 'out.onnx'} save 0\n")
        child.stdin.flush()
        end = time.monotonic() + 30
        while not list(folder.iterdir()) and time.monotonic() < end:
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        child.wait(30)
    finally:
        os.close(fd)
        child.kill()
        child.communicate()
    assert names(folder) == []
