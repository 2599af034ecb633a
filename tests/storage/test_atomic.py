"""The old file or the complete new one, whatever happens, and nothing beside it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import onnx
import pytest

from rewriter.errors import ModelReadError, ModelWriteError
from rewriter.storage import ModelFile
from rewriter.storage import save as save_module
from rewriter.storage import sink as sink_module
from tests.storage.conftest import names
from tests.storage.models import single, weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[..., Path]

#: Large enough for the kernel's copy.
BIG = weights(512, 512)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """An existing output."""
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "out.onnx"
    path.write_bytes(b"old")
    return path


class Calls:
    """Counts calls of functions of ``os``, and makes the n-th raise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail_at: int, error: BaseException) -> None:
        self.count = 0
        for name in (
            "open",
            "write",
            "copy_file_range",
            "fsync",
            "replace",
            "rename",
            "link",
            "fchmod",
            "pread",
            "lseek",
        ):
            if hasattr(os, name):
                monkeypatch.setattr(os, name, self._wrap(getattr(os, name), fail_at, error))

    def _wrap(
        self, function: Callable[..., object], fail_at: int, error: BaseException
    ) -> Callable[..., object]:
        def called(*args: object, **more: object) -> object:
            self.count += 1
            if self.count == fail_at:
                raise error
            return function(*args, **more)

        return called


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()], ids=["full", "interrupt"]
)
def test_failing_anywhere(
    write: Write, old: Path, monkeypatch: pytest.MonkeyPatch, external: bool, error: BaseException
) -> None:
    """Every system call on the way fails once."""
    path = write(single(BIG))
    if external:
        monkeypatch.setattr(save_module, "INLINE_LIMIT", 1000)
    failures = 0
    for at in range(1, 100):
        with ModelFile.open(path) as file, monkeypatch.context() as patch:
            calls = Calls(patch, at, error)
            try:
                file.save(old)
            except (ModelWriteError, KeyboardInterrupt):
                failed = True
            else:
                failed = False
        if calls.count < at:
            break
        content = old.read_bytes()
        if failed and content == b"old":
            failures += 1
            assert names(old.parent) == ["out.onnx"], at
        else:  # complete: what failed was not needed, or came after the rename
            assert onnx.load(old).graph.initializer[0].raw_data == BIG.tobytes()
            for extra in old.parent.glob("*.data"):
                extra.unlink()
            assert names(old.parent) == ["out.onnx"]
        old.write_bytes(b"old")
    assert failures >= (6 if external else 3)


def test_a_full_disk(write: Write, old: Path) -> None:
    """For real: the largest file that may be written is smaller than the model."""
    path = write(single(BIG))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        with (
            ModelFile.open(path) as file,
            pytest.raises(ModelWriteError, match="larger than is allowed") as caught,
        ):
            file.save(old)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.exit_code == 1
    assert old.read_bytes() == b"old"
    assert names(old.parent) == ["out.onnx"]


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a file system")
def test_a_full_file_system(write: Write, tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", mount], check=False).returncode:
        pytest.skip("may not mount")
    try:
        (mount / "out.onnx").write_bytes(b"old")
        with (
            ModelFile.open(write(single(BIG))) as file,
            pytest.raises(ModelWriteError, match="the disk is full"),
        ):
            file.save(mount / "out.onnx")
        assert (mount / "out.onnx").read_bytes() == b"old"
        assert names(mount) == ["out.onnx"]
        # another file system than the input's: the kernel may refuse to copy, the result is the same
        with ModelFile.open(write(single(weights()))) as file:
            file.save(mount / "out.onnx")
        assert onnx.load(mount / "out.onnx") == single(weights())
    finally:
        subprocess.run(["umount", mount], check=True)


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, None])
def test_without_the_kernel_s_copy(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    def refuse(*_: object) -> int:
        assert code is not None
        raise OSError(code, os.strerror(code))

    path = write(single(BIG))
    if code is None:
        monkeypatch.delattr(os, "copy_file_range", raising=False)
        monkeypatch.delattr(os, "posix_fadvise", raising=False)
    else:
        monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    with ModelFile.open(path) as file:
        file.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == path.read_bytes()


@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="Linux only")
def test_a_copy_that_stops_short_is_continued(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.copy_file_range
    calls = []

    def some(source: int, target: int, count: int, offset: int) -> int:
        calls.append(count)
        return real(source, target, min(count, 70_001), offset) if len(calls) < 6 else 0

    path = write(single(BIG))
    monkeypatch.setattr(os, "copy_file_range", some)
    with ModelFile.open(path) as file:
        file.save(tmp_path / "out.onnx")
    assert len(calls) == 6
    assert (tmp_path / "out.onnx").read_bytes() == path.read_bytes()


def test_a_source_that_changes_while_it_is_read(write: Write, old: Path) -> None:
    path = write(single(BIG))
    with ModelFile.open(path) as file:
        with path.open("ab") as out:
            out.write(b"more")
        with pytest.raises(ModelReadError, match="changed by another program"):
            file.save(old)
    assert old.read_bytes() == b"old"
    assert names(old.parent) == ["out.onnx"]


def test_a_source_that_shrinks(write: Write, old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(single(BIG))
    monkeypatch.delattr(os, "copy_file_range", raising=False)
    with ModelFile.open(path) as file:
        os.truncate(path, 100_000)
        with pytest.raises(ModelReadError, match="became shorter"):
            file.save(old)
    assert names(old.parent) == ["out.onnx"]


def test_in_place(write: Write) -> None:
    path = write(single(BIG))
    with ModelFile.open(path) as file:
        file.model.graph.name = "new"
        file.save(path)
        assert (
            file.array(file.model.graph.initializer[0]) == BIG
        ).all()  # the old file lives until it is closed
        file.save(path)
    expected = single(BIG)
    expected.graph.name = "new"
    assert onnx.load(path) == expected
    assert names(path.parent) == ["in.onnx"]


# --- targets ---------------------------------------------------------------------------------------------------


def test_permissions_of_a_new_file(write: Write, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with ModelFile.open(write(single(weights()))) as file:
            file.save(tmp_path / "out.onnx")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.onnx").stat().st_mode) == 0o640


def test_permissions_of_the_file_replaced(write: Write, old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old.chmod(0o604)
    monkeypatch.setattr(save_module, "INLINE_LIMIT", 1000)
    with ModelFile.open(write(single(weights()))) as file:
        result = file.save(old)
    assert stat.S_IMODE(old.stat().st_mode) == 0o604
    assert result.data is not None
    assert stat.S_IMODE(result.data.stat().st_mode) == 0o604


def test_target_is_a_link(write: Write, tmp_path: Path, old: Path) -> None:
    """The file that it leads to is replaced, and the link stays."""
    link = tmp_path / "link.onnx"
    link.symlink_to(old)
    with ModelFile.open(write(single(weights()))) as file:
        file.save(link)
        assert link.is_symlink()
        assert onnx.load(old) == single(weights())
        new = tmp_path / "dangling.onnx"
        new.symlink_to(tmp_path / "out" / "fresh.onnx")
        file.save(new)
    assert onnx.load(tmp_path / "out" / "fresh.onnx") == single(weights())


def test_target_is_a_link_and_data_is_written(
    write: Write, tmp_path: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data is looked up beside the name, so it goes there, and the link gives way to the model."""
    link = tmp_path / "link.onnx"
    link.symlink_to(old)
    monkeypatch.setattr(save_module, "INLINE_LIMIT", 1000)
    with ModelFile.open(write(single(weights()))) as file:
        file.save(link)
    assert not link.is_symlink()
    assert onnx.load(link).graph.initializer[0].raw_data == weights().tobytes()
    assert old.read_bytes() == b"old"
    assert names(tmp_path) == ["in.onnx", "link.onnx", "link.onnx.data", "out/out.onnx"]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("folder", "it is a directory"),
        ("absent/out.onnx", "does not exist"),
        ("file/out.onnx", "not a folder|does not exist"),
        ("pipe", "not a regular file"),
        ("/dev/null", "not a regular file"),
        ("loop", "leads to itself"),
        ("a\0b", "cannot write"),
        ("x" * 300, "name is too long"),
    ],
)
def test_impossible_targets(write: Write, tmp_path: Path, target: str, says: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    path = write(single(weights()))
    before = names(tmp_path)
    with ModelFile.open(path) as file:
        for save in (file.save, file.copy_to):
            with pytest.raises(ModelWriteError, match=says) as caught:
                save(tmp_path / target)
            assert caught.value.exit_code == 1
    assert names(tmp_path) == before


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from rewriter.errors import ModelReadError, ModelWriteError
from rewriter.storage import ModelFile
if os.geteuid() == 0:
    os.seteuid(65534)
for source, target in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        with ModelFile.open(source) as file:
            file.save(target)
        print("saved")
    except (ModelReadError, ModelWriteError) as error:
        print(type(error).__name__, error.what)
"""


def test_without_permission(write: Write, tmp_path: Path) -> None:
    path = write(single(weights()))
    secret = write(single(weights()), "secret.onnx")
    secret.chmod(0)
    closed, open_ = tmp_path / "closed", tmp_path / "open"
    closed.mkdir(mode=0o555)
    open_.mkdir()
    open_.chmod(0o777)
    (open_ / "protected.onnx").write_bytes(b"old")
    (open_ / "protected.onnx").chmod(0o444)
    # pytest's own folders are closed to others; how many there are depends on whether tests run in parallel.
    for folder in (tmp_path, *(p for p in tmp_path.parents if "pytest" in str(p))):
        folder.chmod(folder.stat().st_mode | 0o055)
    arguments = [path, closed / "out.onnx", path, open_ / "protected.onnx", secret, open_ / "out.onnx"]
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, *map(str, arguments)], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "ModelWriteError cannot write: permission denied",
        "ModelWriteError the file is write-protected",
        "ModelReadError the file cannot be read: Permission denied",
    ]
    assert names(closed) == []
    assert (open_ / "protected.onnx").read_bytes() == b"old"


def test_small_pieces_are_gathered(tmp_path: Path) -> None:
    """A thousand pieces and ranges end up in few writes, in order."""
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 1000)
    fds = os.open(source, os.O_RDONLY), os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    sink = sink_module.FileSink(fds[1])
    expected = b""
    for i in range(1000):
        sink.write(f"[{i}]".encode())
        sink.copy(fds[0], i, 3)
        sink.copy(fds[0], i + 3, 2)
        expected += f"[{i}]".encode() + source.read_bytes()[i : i + 5]
    sink.copy(fds[0], 0, 256_000)
    sink.pad_to(4096)
    sink.flush()
    for fd in fds:
        os.close(fd)
    expected += source.read_bytes()
    expected += bytes(-len(expected) % 4096)
    assert (tmp_path / "out").read_bytes() == expected
    assert sink.position == len(expected)
