"""What is large: memory does not grow with the weights, and 2 GiB is no limit."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from rewriter.errors import ModelWriteError
from rewriter.storage import ModelFile
from rewriter.storage.wire import key, varint
from tests.storage.models import length

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHILD = """
import sys, threading
def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
peak, done = 0, threading.Event()
def watch():
    global peak
    while not done.wait(0.001):
        peak = max(peak, anonymous())
from rewriter.storage import ModelFile
thread = threading.Thread(target=watch)
thread.start()
with ModelFile.open(sys.argv[1]) as file:
    if sys.argv[3] == "save":
        file.save(sys.argv[2])
    elif sys.argv[3] == "copy":
        file.copy_to(sys.argv[2])
    else:
        file.hydrate(file.model)
done.set()
thread.join()
print(peak // 1000)
"""


def sparse(path: Path, sizes: list[int], *, external: bool = False) -> Path:
    """A model with float32 weights ``w0``, ``w1``, … of these sizes in bytes: zeros, which take no room on the disk,
    but for the first and last element, 1 and 2."""
    ends = np.array([1, 2], np.float32).tobytes()
    headers, total = [], 0
    for i, size in enumerate(sizes):
        tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[size // 4])
        if external:
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=path.name + ".weights")
            tensor.external_data.add(key="offset", value=str(sum(sizes[:i])))
            tensor.external_data.add(key="length", value=str(size))
            headers.append(key(5) + length(tensor.SerializeToString()))
            total += len(headers[-1])
        else:
            header = tensor.SerializeToString() + key(9) + varint(size)
            headers.append(key(5) + varint(len(header) + size) + header)
            total += len(headers[-1]) + size
    with path.open("wb") as out, path.with_name(path.name + ".weights").open("wb") as data:
        out.write(b"\x08\x08\x3a" + varint(total))
        place = data if external else out
        for header, size in zip(headers, sizes, strict=True):
            out.write(header)
            place.write(ends[:4])
            place.seek(size - 8, 1)
            place.write(ends[4:])
    return path


def run(path: Path, out: Path, what: str) -> int:
    """Largest private memory of a process that does ``what``, in MB."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), str(out), what], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("external", [False, True])
def test_private_memory(tmp_path: Path, external: bool) -> None:
    path = sparse(tmp_path / "in.onnx", [100_000_000] * 3, external=external)
    assert run(path, tmp_path / "out.onnx", "hydrate") > 300  # what is measured is what it should be
    assert run(path, tmp_path / "out.onnx", "save") < 100
    assert run(path, tmp_path / "copy.onnx", "copy") < 100
    with ModelFile.open(tmp_path / "out.onnx") as file:
        assert [file.array(t)[[0, -1]].tolist() for t in file.model.graph.initializer] == [[1, 2]] * 3


def test_private_memory_does_not_grow_with_packed_numbers(tmp_path: Path) -> None:
    """Integers in varint form are checked when opened; piece by piece."""
    tensor = TensorProto(name="w", data_type=TensorProto.INT64, dims=[40_000_000]).SerializeToString()
    tensor += key(7) + length(b"\x05" * 40_000_000)
    (tmp_path / "in.onnx").write_bytes(b"\x08\x08\x3a" + length(key(5) + length(tensor)))
    assert (
        run(tmp_path / "in.onnx", tmp_path / "out.onnx", "save") < 100 + 100
    )  # all of them decoded are 320 MB


def test_reading_above_two_gibibytes(tmp_path: Path) -> None:
    path = sparse(tmp_path / "in.onnx", [1_000_000_000, 1_300_000_000, 5000])
    assert path.stat().st_size > 1 << 31
    with ModelFile.open(path) as file:
        assert [t.name for t in file.model.graph.initializer] == ["w0", "w1", "w2"]
        second, last = file.model.graph.initializer[1:]
        assert file.array(last)[[0, 1, -1]].tolist() == [1, 0, 2]
        place = file.raw(second)
        assert place is not None
        assert place.length == 1_300_000_000
        with path.open("rb") as content:
            content.seek(place.offset + place.length - 4)
            assert np.frombuffer(content.read(4), np.float32).tolist() == [2]
        with pytest.raises(ModelWriteError, match="2 GiB"):
            file.hydrate(file.model)


@pytest.mark.full
def test_saving_above_two_gibibytes(tmp_path: Path) -> None:
    path = sparse(tmp_path / "in.onnx", [1_000_000_000, 1_300_000_000])
    assert run(path, tmp_path / "out.onnx", "save") < 100
    assert (tmp_path / "out.onnx").stat().st_size < 1000
    model = onnx.load(tmp_path / "out.onnx", load_external_data=False)
    assert [t.data_location for t in model.graph.initializer] == [TensorProto.EXTERNAL] * 2
    with ModelFile.open(tmp_path / "out.onnx") as file:
        assert [file.array(t)[[0, -1]].tolist() for t in file.model.graph.initializer] == [[1, 2]] * 2


@pytest.mark.full
def test_a_model_in_memory_above_two_gibibytes(tmp_path: Path) -> None:
    model = ModelProto(ir_version=8)
    for i in range(3):
        values = np.full(200_000_000, i, np.float32)
        model.graph.initializer.add(
            name=f"w{i}", data_type=TensorProto.FLOAT, dims=values.shape, raw_data=values.tobytes()
        )
    with ModelFile.from_proto(model) as file:
        assert file.model.ByteSize() < 1000
        file.save(tmp_path / "out.onnx")
    with ModelFile.open(tmp_path / "out.onnx") as file:
        assert [file.array(t)[[0, -1]].tolist() for t in file.model.graph.initializer] == [
            [i, i] for i in range(3)
        ]


def test_large_tensors_added_to_a_skeleton(write: Callable[..., Path], tmp_path: Path) -> None:
    """What a pass adds may take the whole above protobuf's limit; then it is withheld too."""
    model = helper.make_model(helper.make_graph([], "g", [], []), ir_version=8)
    values = np.arange(5000, dtype=np.float32)

    with ModelFile.open(write(model)) as file:
        file.model.graph.initializer.add().CopyFrom(onnx.numpy_helper.from_array(values, "added"))
        smaller, content = file._withhold_more(file.model)
        assert len(content) < 1000
        file.save(tmp_path / "out.onnx", smaller)
    assert onnx.load(tmp_path / "out.onnx").graph.initializer[0] == onnx.numpy_helper.from_array(
        values, "added"
    )
