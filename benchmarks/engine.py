"""The engine against other tools that make the same replacement, each as a whole process.

    python benchmarks/engine.py                    1k, 10k and 100k nodes, 1% and 33% placeholders, 200 MB of weights
    python benchmarks/engine.py --nodes 1000000    a million nodes
    python benchmarks/engine.py --megabytes 1900   more weights; 3000 --external beside the model

Every tool replaces ``com.example::Roll`` (shifts 1, dims 1) by two Slices and a Concat.  ``cp`` and ``onnx`` (load and
save) replace nothing.  Tools take turns, and the table gives medians: CPU seconds (user and system), seconds of the
clock, and the largest anonymous memory (RssAnon), which is sampled every five milliseconds.  On a machine that does
other work only CPU seconds and memory mean something.
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

import passes
import rewriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROOT = Path(__file__).resolve().parent.parent
_PEERS = Path(__file__).with_name("_engine_peers.py")
_PYTHON = sys.executable
#: What the command's entry point does.
_REWRITE = "import sys; from rewriter.cli import main; main()"
#: Bytes of one weight.
_WEIGHT = 1 << 22


class Measured(NamedTuple):
    cpu: float
    wall: float
    #: Bytes; None where the system does not tell.
    anonymous: int | None


def model(nodes: int, every: int, megabytes: int) -> onnx.ModelProto:
    """A chain of ``nodes`` nodes, of which each ``every``-th is a placeholder, and weights that pass through."""
    made, last = [], "x"
    for index in range(nodes):
        name = f"/net/layer.{index // 10}/op_{index}"
        if index % every == every - 1:
            node = helper.make_node(
                "Roll", [last], [f"{name}/out"], name, domain="com.example", shifts=[1], dims=[1]
            )
        else:
            node = helper.make_node(("Relu", "Tanh", "Neg")[index % 3], [last], [f"{name}/out"], name)
        made.append(node)
        last = f"{name}/out"
    made.append(helper.make_node("Identity", [last], ["y"], "last"))
    weights = []
    for index in range((megabytes << 20) // _WEIGHT):
        weights.append(TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[_WEIGHT // 4]))
        weights[-1].raw_data = np.full(_WEIGHT // 4, index, np.float32).tobytes()
        made.append(helper.make_node("Identity", [f"w{index}"], [f"kept{index}"], f"keep{index}"))
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 6, 8]) for name in "xy"]
    graph = helper.make_graph(made, "g", shapes[:1], shapes[1:], weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def commands(source: Path, target: Path) -> dict[str, list[str]]:
    """What each tool is called with."""
    files = [str(source), str(target)]
    ours = [*files, "--passes", "roll", "--no-simplify", "--no-verify", "-q"]
    peers = ("onnx", "graphsurgeon", "onnx_ir", "onnxscript")
    return {
        "rewrite": [_PYTHON, "-c", _REWRITE, *ours],
        "cp": ["cp", "-r", str(source.parent), str(target.parent / "copy")],
        **{peer: [_PYTHON, str(_PEERS), peer, *files] for peer in peers},
    }


def run(command: Sequence[str]) -> Measured:
    """One process from start to end; CalledProcessError where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    most = 0
    while True:
        most = max(most, _anonymous(process.pid))
        done, code, usage = os.wait4(process.pid, os.WNOHANG)
        if done:
            break
        time.sleep(0.005)
    process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Measured(usage.ru_utime + usage.ru_stime, time.perf_counter() - start, most or None)


def _anonymous(process: int) -> int:
    """Bytes of anonymous memory of a process and of those that it started: the command works in a child."""
    place = Path(f"/proc/{process}")
    try:
        lines = (place / "status").read_text().splitlines()
        children = (place / f"task/{process}/children").read_text().split()
    except OSError:
        return 0
    own = next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)
    return own + sum(_anonymous(int(child)) for child in children)


def compare(source: Path, repeats: int, leave_out: Iterable[str]) -> dict[str, Measured]:
    """The medians of every tool on one model."""
    found: dict[str, list[Measured]] = {}
    for _ in range(repeats):
        for tool in commands(source, source):
            if tool in leave_out:
                continue
            with tempfile.TemporaryDirectory(dir=source.parent.parent) as folder:
                found.setdefault(tool, []).append(run(commands(source, Path(folder) / "out.onnx")[tool]))
    return {tool: _median(runs) for tool, runs in found.items()}


def _median(runs: Sequence[Measured]) -> Measured:
    memory = [item.anonymous for item in runs if item.anonymous is not None]
    return Measured(
        statistics.median(item.cpu for item in runs),
        statistics.median(item.wall for item in runs),
        int(statistics.median(memory)) if memory else None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument(
        "--every", type=int, nargs="+", default=[100, 3], help="each how many-th is a placeholder"
    )
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--external", action="store_true", help="weights in a file beside the model")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--without", nargs="*", default=[], help="tools to leave out")
    options = parser.parse_args()
    for package in (rewriter, passes):  # a fresh checkout has no bytecode, an installed package has
        compileall.compile_dir(Path(str(package.__file__)).parent, quiet=2)
    print("| nodes | placeholders | tool | CPU s | wall s | RssAnon MB |\n|---|---|---|---|---|---|")
    for nodes in options.nodes:
        for every in options.every:
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "in").mkdir()
                source = Path(folder) / "in" / "model.onnx"
                onnx.save(
                    model(nodes, every, options.megabytes),
                    source,
                    save_as_external_data=options.external,
                    location="model.data",
                )
                for tool, item in compare(source, options.repeats, options.without).items():
                    memory = "–" if item.anonymous is None else f"{item.anonymous / 1e6:.0f}"
                    print(
                        f"| {nodes} | {nodes // every} | {tool} | {item.cpu:.2f} | {item.wall:.2f} | {memory} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
