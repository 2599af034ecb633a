"""Every pass against PyTorch, against the exporters' own form, and against the limit of the machine.

    python benchmarks/operators.py [--only roll,swish] [--rounds 15] [--opset 18] [--threads 1]
                                   [--instances 3] [--write docs/performance.md]

Per row of ``operator_cases``: PyTorch eager; the operator as torch.onnx.export writes it (the legacy exporter, and from
opset 18 on the dynamo one; the faster of those that are right); the decomposition that the pass chooses; and a copy of
the same bytes, or a MatMul of the same FLOPs.  All are timed in turns, in thread CPU time on one thread and in wall
time on several; the lower quartile over the rounds counts, since other work on the machine only ever adds.  Where
buffers come to lie matters too: everything is set up anew several times, and the median over these instances is given.
ONNX models run in onnxruntime with bound inputs and outputs, at its default optimisation level.  An exporter's form
that onnxruntime optimises to the very operators of ours is marked "same", and the ratio is 1.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import onnxruntime
import torch
from _candidates import candidates
from _timing import in_turns, settled
from operator_cases import Row, rows

from rewriter.placeholder.discovery import resolve

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass(frozen=True)
class Measured:
    """Seconds; None where there is no such candidate."""

    row: Row
    form: str
    torch: float
    ours: float
    limit: float
    exporter: float | None
    exporter_name: str
    same: bool = False

    @property
    def to_torch(self) -> float:
        return self.ours / self.torch

    @property
    def to_exporter(self) -> float | None:
        return None if self.exporter is None else 1.0 if self.same else self.ours / self.exporter


def measure(row: Row, *, opset: int, rounds: int, instances: int, threads: int) -> Measured:
    """The instance whose ratio to the exporter (or to PyTorch) is the median one."""
    found = []
    for number in range(instances):
        made = candidates(row, resolve(row.pass_name)[0], opset=opset, threads=threads)
        readings = in_turns(made.calls, rounds=rounds, threads=threads)
        times = {name: settled(values) for name, values in readings.items()}
        base = times.pop("onnx:base")
        # Of what takes no time at all, 100 ns is left.
        taken = {
            name.removeprefix("onnx:"): max(value - base, 1e-7) if name.startswith("onnx:") else value
            for name, value in times.items()
        }
        exporters = {name: taken[name] for name in ("legacy", "dynamo") if name in taken}
        best = min(exporters, key=lambda name: exporters[name]) if exporters else ""
        found.append(
            Measured(
                row,
                made.notes.get("form", ""),
                taken["torch"],
                taken["ours"],
                taken["limit"],
                exporters.get(best),
                best,
                best != "" and made.optimised["ours"] == made.optimised[best],
            )
        )
        if number == 0:
            for name in ("legacy", "dynamo"):
                if name in made.notes:
                    print(f"{row.pass_name} {row.label}: {name}: {made.notes[name]}", file=sys.stderr)
    found.sort(key=lambda item: item.to_exporter or item.to_torch)
    return found[len(found) // 2]


HEADER = (
    "| pass | shape | form | ours µs | torch µs | exporter µs | limit µs | ours/torch | ours/exporter | ours/limit |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def line(item: Measured) -> str:
    named = f"{item.exporter_name}, same" if item.same else item.exporter_name
    exporter = "–" if item.exporter is None else f"{item.exporter * 1e6:.1f} ({named})"
    ratio = "–" if item.to_exporter is None else f"{item.to_exporter:.2f}"
    own = "" if item.row.counts else " (formula)" if item.row.torch is not None else " (reference)"
    return (
        f"| {item.row.pass_name} | {item.row.label} | {item.form} | {item.ours * 1e6:.1f} | "
        f"{item.torch * 1e6:.1f}{own} | {exporter} | {item.limit * 1e6:.1f} | {item.to_torch:.2f} | {ratio} | "
        f"{item.ours / item.limit:.2f} |"
    )


def summary(items: list[Measured]) -> str:
    """The geometric mean over operators (over the rows of each first), and the worst against exporters."""
    by_pass: dict[str, list[float]] = {}
    for item in items:
        if item.row.counts:
            by_pass.setdefault(item.row.pass_name, []).append(math.log(item.to_torch))
    lines = []
    if by_pass:
        mean = math.exp(sum(sum(v) / len(v) for v in by_pass.values()) / len(by_pass))
        lines.append(
            f"Geometric mean of ours/torch over the {len(by_pass)} operators that torch implements: {mean:.2f}."
        )
    compared = [item for item in items if item.to_exporter is not None]
    if compared:
        worst = max(compared, key=lambda item: item.to_exporter or 0)
        lines.append(
            f"Largest ours/exporter: {worst.to_exporter:.2f} ({worst.row.pass_name}, {worst.row.label})."
        )
        mean = math.exp(sum(math.log(item.to_exporter or 1) for item in compared) / len(compared))
        lines.append(f"Geometric mean of ours/exporter over {len(compared)} rows: {mean:.2f}.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", default="", help="passes, separated by commas")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--opset", type=int, default=18)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", type=Path, help="a document to put the table into, between its marks")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    only = set(options.only.split(",")) if options.only else None
    chosen = [row for row in rows() if only is None or row.pass_name in only]
    print(HEADER, flush=True)
    items: list[Measured] = []
    for row in chosen:
        item = measure(
            row,
            opset=options.opset,
            rounds=options.rounds,
            instances=options.instances,
            threads=options.threads,
        )
        items.append(item)
        print(line(item), flush=True)
    print(f"\n{summary(items)}")
    if options.write is not None:
        setting = (
            f"onnxruntime {onnxruntime.__version__}, torch {torch.__version__}, {platform.machine()}, "
            f"opset {options.opset}, {options.threads} thread{'s' * (options.threads > 1)}, "
            f"{options.rounds} rounds, {options.instances} instances."
        )
        text = options.write.read_text()
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        table = "\n".join([HEADER, *map(line, items)])
        options.write.write_text(
            f"{before}{BEGIN}\n{setting}\n\n{table}\n\n{summary(items)}\n{END}{after}", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
