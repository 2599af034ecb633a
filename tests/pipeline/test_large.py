"""Weights are never in the way: a gigabyte of them is rewritten in the memory of a small model."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto

from rewriter.storage import ModelFile
from rewriter.storage.wire import key, varint
from tests.texts import parse

if TYPE_CHECKING:
    from pathlib import Path

GRAPH, INITIALIZER, RAW_DATA = key(7), key(5), key(9)

#: Runs the command and prints the most private memory that it had, in MB.
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
from rewriter.cli import run
thread = threading.Thread(target=watch)
thread.start()
code = run(sys.argv[1:])
done.set()
thread.join()
print(peak // 1000)
sys.exit(code)
"""


SIZE, COUNT = 250_000_000, 4


def write(path: Path, *, external: bool) -> None:
    """A roll, and ``COUNT`` weights of ``SIZE`` bytes beside it: zeros that take no room on the disk, but for the first
    and last element, 1 and 2."""
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
        main (float[N] x) => (float[N] y) { y = com.example.Roll <shifts: ints = [1], dims: ints = [0]> (x) }"""
    )
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    records: list[bytes] = []
    for i in range(COUNT):
        tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[SIZE // 4])
        if external:
            tensor.data_location = TensorProto.EXTERNAL
            for name, value in (("location", "weights"), ("offset", i * SIZE), ("length", SIZE)):
                tensor.external_data.add(key=name, value=str(value))
        header = tensor.SerializeToString() + (b"" if external else RAW_DATA + varint(SIZE))
        records.append(INITIALIZER + varint(len(header) + (0 if external else SIZE)) + header)
    total = len(graph) + sum(map(len, records)) + (0 if external else COUNT * SIZE)
    with path.open("wb") as file, path.with_name("weights").open("wb") as data:
        file.write(model.SerializeToString() + GRAPH + varint(total) + graph)
        for record in records:
            file.write(record)
            place = data if external else file
            place.write(np.float32(1).tobytes())
            place.seek(SIZE - 8, 1)
            place.write(np.float32(2).tobytes())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("external", [False, True])
def test_private_memory(tmp_path: Path, external: bool) -> None:
    write(tmp_path / "in.onnx", external=external)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, "in.onnx", "out.onnx", "--no-simplify", "--no-verify", "-q"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100
    with ModelFile.open(tmp_path / "out.onnx") as written:
        assert written.model.graph.node[-1].op_type == "Concat"
        weights = [t for t in written.model.graph.initializer if t.name.startswith("w")]
        assert [written.array(t)[[0, -1]].tolist() for t in weights] == [[1, 2]] * COUNT
