"""Opening and saving a model against `cp`, in time and in private memory.

    python benchmarks/storage.py [--size 1000] [--rounds 5] [--folder .]

Makes models of `size` MB of weights, inline and as external data, then copies each with `cp` (the model and its
data) and through ModelFile (open, save to another name), in turns, each in a process of its own.  Prints medians, and
the ratio to `cp` of what is left without Python's start-up, bare and with onnx imported.  Saving includes fsync, which
`cp` does not do.  Private memory is the largest anonymous part of the process (RssAnon), sampled every millisecond;
mapped pages of the file are the kernel's to drop and not counted.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
from onnx import TensorProto, helper

TENSORS = 64

CHILD = """
import sys, threading
peak = 0
def anonymous():
    with open('/proc/self/status') as status:
        return next(int(line.split()[1]) for line in status if line.startswith('RssAnon'))
def watch():
    global peak
    while not done.wait(0.001):
        peak = max(peak, anonymous())
done = threading.Event()
thread = threading.Thread(target=watch)
if sys.argv[3] == 'memory':
    thread.start()
from rewriter.storage import ModelFile
with ModelFile.open(sys.argv[1]) as file:
    file.save(sys.argv[2])
done.set()
if sys.argv[3] == 'memory':
    thread.join()
    print(max(peak, anonymous()))
"""


def make(folder: Path, megabytes: int, *, external: bool) -> Path:
    """A model with random weights; written tensor by tensor."""
    import numpy as np

    from rewriter.storage import ModelFile

    rng = np.random.default_rng(0)
    each = megabytes * 1_000_000 // TENSORS // 4
    path = folder / ("external.onnx" if external else "inline.onnx")
    graph = helper.make_graph([], "g", [], [])
    with (folder / "weights.bin").open("wb") as data:
        for i in range(TENSORS):
            tensor = graph.initializer.add(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[each])
            content = rng.random(each, np.float32).tobytes()
            if external:
                tensor.data_location = TensorProto.EXTERNAL
                for key, value in (("location", data.name), ("offset", data.tell()), ("length", each * 4)):
                    tensor.external_data.add(key=key, value=Path(str(value)).name)
                data.write(content)
            else:
                tensor.raw_data = content
    model = helper.make_model(graph)
    if external:
        path.write_bytes(model.SerializeToString())
    else:
        with ModelFile.from_proto(model) as file:
            file.save(path)
    return path


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure(source: Path, out: Path, rounds: int) -> None:
    files = [str(source)] + ([str(source.parent / "weights.bin")] if source.name == "external.onnx" else [])
    cp: list[float] = []
    ours: list[float] = []
    bare: list[float] = []
    start: list[float] = []
    for _ in range(rounds + 1):
        for times, command in (
            (cp, ["cp", *files, str(out)]),
            (ours, [sys.executable, "-c", CHILD, str(source), str(out / "saved.onnx"), "time"]),
            (bare, [sys.executable, "-c", "pass"]),
            (start, [sys.executable, "-c", "import onnx"]),
        ):
            for old in out.iterdir():
                old.unlink()
            subprocess.run(["sync"], check=True)
            times.append(seconds(command))
    memory = subprocess.run(
        [sys.executable, "-c", CHILD, str(source), str(out / "saved.onnx"), "memory"],
        check=True,
        capture_output=True,
        text=True,
    )
    a, b, c, d = (
        statistics.median(times[1:]) for times in (cp, ours, bare, start)
    )  # the first round warms the cache
    print(
        f"{source.name:14} cp {a:.2f} s, open and save {b:.2f} s; Python {c:.2f} s, with onnx {d:.2f} s; "
        f"without start-up {(b - c) / a:.2f}x cp, without start-up and onnx {(b - d) / a:.2f}x; "
        f"private memory {int(memory.stdout) / 1000:.0f} MB (onnx {onnx.__version__})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=1000, help="MB of weights")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="where to write; the file system matters")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        (folder / "out").mkdir()
        for external in (False, True):
            measure(make(folder, options.size, external=external), folder / "out", options.rounds)


if __name__ == "__main__":
    main()
