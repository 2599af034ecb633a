"""Every pass against PyTorch, against the exporters' own form, and against the limit of the machine.

    python benchmarks/operators.py [--only roll,swish] [--rounds 15] [--opset 18] [--threads 1]
                                   [--instances 5] [--write docs/performance.md]

Per row of ``operator_cases``: PyTorch eager; the operator as torch.onnx.export writes it (the legacy exporter, and from
opset 18 on the dynamo one; the faster of those that are right); the decomposition that the pass chooses; and a copy of
the same bytes, or a MatMul of the same FLOPs.  All are timed in turns, in thread CPU time on one thread and in wall
time on several; the lower quartile over the rounds counts, since other work on the machine only ever adds.  Where
buffers come to lie matters too: everything is set up anew several times, and the median over these instances is given,
of a ratio to an exporter with the least and the greatest.
ONNX models run in onnxruntime with bound inputs and outputs, at its default optimisation level.  An exporter's form
that onnxruntime optimises to the very operators of ours is marked "same", and the ratio is 1.  One that is no ONNX of
the opset, or wrong for special values where ours is right (``_peers.py`` checks both), is shown as left out, and no
ratio is taken to it.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnxruntime
import torch
from _candidates import candidates, prepared
from _timing import in_turns, settled
from operator_cases import Row, rows

from rewriter.placeholder.discovery import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

#: So much slower than an exporter's form counts as slower.
BOUND = 1.05


@dataclass(frozen=True)
class Measured:
    """Seconds by candidate, the median over instances, and ratios of ours to each, least, median and greatest."""

    row: Row
    form: str
    seconds: Mapping[str, float]
    ratios: Mapping[str, tuple[float, float, float]]
    #: The fastest exporter's form that counts; empty where there is none.
    exporter: str
    same: bool
    #: Why forms do not count.
    left_out: Mapping[str, str]

    @property
    def to_torch(self) -> float:
        return self.ratios["torch"][1]

    @property
    def to_exporter(self) -> float | None:
        return None if not self.exporter else 1.0 if self.same else self.ratios[self.exporter][1]


def measure(row: Row, *, opset: int, rounds: int, instances: int, threads: int) -> Measured:
    made = prepared(row, resolve(row.pass_name)[0], opset=opset)
    for name, reason in made.missing.items():
        print(f"{row.pass_name} {row.label}: {name}: {reason}", file=sys.stderr)
    found: list[dict[str, float]] = []
    optimised: dict[str, str] = {}
    for number in range(instances):
        timed = candidates(made, threads=threads)
        optimised = timed.optimised
        order = list(timed.calls) if number % 2 else list(reversed(timed.calls))
        readings = in_turns({name: timed.calls[name] for name in order}, rounds=rounds, threads=threads)
        times = {name: settled(values) for name, values in readings.items()}
        base = times.pop("onnx:base")
        # Of what takes no time at all, 100 ns is left.
        found.append(
            {
                name.removeprefix("onnx:"): max(value - base, 1e-7) if name.startswith("onnx:") else value
                for name, value in times.items()
            }
        )
    seconds = {name: statistics.median(times[name] for times in found) for name in found[0]}
    ratios = {}
    for name in seconds:
        each = sorted(times["ours"] / times[name] for times in found)
        ratios[name] = (each[0], statistics.median(each), each[-1])
    peers = [name for name in seconds if name in made.models and name != "ours" and name not in made.left_out]
    # One that is the same as ours is as fast, whatever the readings say.
    best = min(
        peers, key=lambda name: seconds["ours" if optimised[name] == optimised["ours"] else name], default=""
    )
    same = best != "" and optimised["ours"] == optimised[best]
    return Measured(row, made.form, seconds, ratios, best, same, made.left_out)


HEADER = (
    "| pass | shape | form | ours µs | torch µs | exporter µs | limit µs | ours/torch | ours/exporter | ours/limit "
    "| left out |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def line(item: Measured) -> str:
    exporter = ratio = "–"
    if item.exporter:
        named = f"{item.exporter}, same" if item.same else item.exporter
        exporter = f"{_micro(item, item.exporter)} ({named})"
        least, _, most = item.ratios[item.exporter]
        ratio = "1.00" if item.same else f"{item.to_exporter:.2f} ({least:.2f} to {most:.2f})"
    own = "" if item.row.counts else " (formula)" if item.row.torch is not None else " (reference)"
    # Forms that are the same as one another and left out for the same reason were timed each.
    reasons: dict[str, list[str]] = {}
    for name, reason in item.left_out.items():
        reasons.setdefault(reason, []).append(
            f"{name} {_micro(item, name)}" if name in item.seconds else name
        )
    left_out = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return (
        f"| {item.row.pass_name} | {item.row.label} | {item.form} | {_micro(item, 'ours')} | "
        f"{_micro(item, 'torch')}{own} | {exporter} | {_micro(item, 'limit')} | {item.to_torch:.2f} | {ratio} | "
        f"{item.seconds['ours'] / item.seconds['limit']:.2f} | {left_out} |"
    )


def _micro(item: Measured, name: str) -> str:
    return f"{item.seconds[name] * 1e6:.1f}"


def summary(items: list[Measured]) -> str:
    """The geometric mean over operators (over the rows of each first), and how ours stand against exporters."""
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
        mean = math.exp(sum(math.log(item.to_exporter or 1) for item in compared) / len(compared))
        lines.append(f"Geometric mean of ours/exporter over {len(compared)} rows: {mean:.2f}.")
        slower = sorted(
            (item for item in compared if (item.to_exporter or 0) > BOUND),
            key=lambda item: -(item.to_exporter or 0),
        )
        told = ", ".join(f"{i.row.pass_name} {i.row.label} {i.to_exporter:.2f}" for i in slower)
        lines.append(
            f"Rows where ours/exporter is above {BOUND}: {len(slower)} of {len(compared)}"
            f"{f' ({told})' if told else ''}."
        )
    refused = [item for item in items if item.left_out]
    if refused:
        alone = sum(1 for item in refused if not item.exporter)
        lines.append(
            f"Rows with exporters' forms left out: {len(refused)}, in {alone} of them all that there are."
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", default="", help="passes, separated by commas")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--instances", type=int, default=5)
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
        text = options.write.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        table = "\n".join([HEADER, *map(line, items)])
        told = "\n".join(f"- {part}" for part in summary(items).splitlines())
        options.write.write_text(
            f"{before}{BEGIN}\n{setting}\n\n{table}\n\n{told}\n{END}{after}", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
