"""Which of PyTorch's operators can be exported, by which way: every OpInfo entry, judged by PyTorch's own values.

    python benchmarks/coverage.py survey.jsonl                  # all ways, three samples; goes on where it stopped
    python benchmarks/coverage.py survey.jsonl --ways ours-18   # one way
    python benchmarks/coverage.py survey.jsonl --only linalg    # entries whose name contains it
    python benchmarks/coverage.py survey.jsonl --table          # the table as Markdown, from what is there

An entry counts if its forward is deterministic, on real tensors.  A sample's tensors are the model's inputs, everything
else is fixed.  Values are compared at rtol 1e-3, atol 1e-5 of the largest, in onnxruntime, else in onnx's evaluator.
Each entry runs in a process of its own, with limits of time and memory, so that a crash is a result.

right: every output equal.  wrong: a file was made, and an output differs.  unrunnable: a file was made that nothing
here runs.  refused: an error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import resource
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

WAYS = ("dynamo-18", "legacy-17", "fallthrough-18", "ours-18", "ours-13")
SECONDS = 120
MEMORY = 12 << 30


def entries() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {op.full_name: op for op in op_db}


def dtype_of(op: Any) -> Any:
    import torch

    for dtype in (torch.float32, torch.int64, torch.bool):
        if dtype in op.dtypes:
            return dtype
    return None


def samples_of(op: Any, count: int) -> list[Any]:
    import torch

    torch.manual_seed(0)
    dtype = dtype_of(op)
    if dtype is None:
        return []
    found = []
    for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
        found.append(sample)
        if len(found) == count:
            break
    return found


def _seen() -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        """Whether an operator that draws random numbers was called."""

        random = False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.random |= torch.Tag.nondeterministic_seeded in func.tags
            return func(*args, **(kwargs or {}))

    return Seen()


class Sample:
    """One call of an operator as a module of its tensors."""

    def __init__(self, op: Any, sample: Any) -> None:
        import torch
        from torch.utils._pytree import tree_flatten, tree_unflatten

        leaves, spec = tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = tuple(leaves[i].detach() for i in where)

        class Call(torch.nn.Module):
            def forward(self, *tensors: torch.Tensor) -> Any:
                filled = list(leaves)
                for i, tensor in zip(where, tensors, strict=True):
                    filled[i] = tensor
                first, args, kwargs = tree_unflatten(filled, spec)
                return op(first, *args, **kwargs)

        self.module = Call().eval()

    def expected(self) -> list[Any]:
        import torch
        from torch.utils._pytree import tree_leaves

        with torch.no_grad():
            made = self.module(*(tensor.clone() for tensor in self.tensors))
        return [leaf for leaf in tree_leaves(made) if leaf is not None]

    def counts(self) -> bool:
        """Whether it is deterministic, of real tensors, and gives tensors."""
        import torch

        if not self.tensors or any(tensor.dtype.is_complex or tensor.is_sparse for tensor in self.tensors):
            return False
        with _seen() as seen:  # OpInfo sets the seed itself, so that values do not tell
            made = self.expected()
        return not seen.random and all(
            isinstance(item, torch.Tensor) and item.layout == torch.strided for item in made
        )


# --- the ways -------------------------------------------------------------------------------------------------


def exported(way: str, sample: Sample, path: Path) -> None:
    import torch

    kind, _, opset = way.partition("-")
    if kind == "dynamo":
        torch.onnx.export(
            sample.module, sample.tensors, str(path), dynamo=True, opset_version=int(opset), verbose=False
        )
    elif kind == "legacy":
        torch.onnx.export(sample.module, sample.tensors, str(path), dynamo=False, opset_version=int(opset))
    elif kind == "fallthrough":
        import rewriter
        from rewriter.torch import safe_fallthrough

        between = path.with_name("between.onnx")
        with safe_fallthrough():
            torch.onnx.export(
                sample.module,
                sample.tensors,
                str(between),
                dynamo=False,
                opset_version=int(opset),
                operator_export_type=torch.onnx.OperatorExportTypes.ONNX_FALLTHROUGH,
            )
        rewriter.rewrite(between, path, simplify=False)
    else:
        import rewriter.torch

        rewriter.torch.export(sample.module, sample.tensors, path, simplify=False, samples=1)


def judged(sample: Sample, path: Path) -> tuple[str, str]:
    import onnx
    import onnxruntime
    import torch

    expected = sample.expected()
    model = onnx.load(path)
    names = [value.name for value in model.graph.input]
    if len(names) != len(sample.tensors):
        # The legacy exporter drops inputs that nothing reads.
        return "unrunnable", f"{len(names)} inputs for {len(sample.tensors)} tensors"
    feeds = {name: tensor.numpy() for name, tensor in zip(names, sample.tensors, strict=True)}
    try:
        onnxruntime.set_default_logger_severity(4)
        found = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
    except Exception as error:  # noqa: BLE001
        try:
            from onnx.reference import ReferenceEvaluator

            found = ReferenceEvaluator(model).run(None, feeds)
        except Exception:  # noqa: BLE001
            return "unrunnable", " ".join(str(error).split())[:200]
    flat = [item for part in found for item in (part if isinstance(part, list) else [part])]
    if len(flat) != len(expected):
        return "wrong", f"{len(flat)} outputs for {len(expected)}"
    for index, (actual, tensor) in enumerate(zip(flat, expected, strict=True)):
        wanted = torch.view_as_real(tensor.resolve_conj()) if tensor.dtype.is_complex else tensor
        problem = difference(
            np.asarray(actual),
            wanted.resolve_neg().float().numpy()
            if wanted.dtype == torch.bfloat16
            else wanted.resolve_neg().numpy(),
        )
        if problem:
            return "wrong", f"output {index}: {problem}"
    return "right", ""


def difference(actual: np.ndarray, wanted: np.ndarray) -> str:
    if actual.shape != wanted.shape:
        return f"shape {list(actual.shape)} for {list(wanted.shape)}"
    if actual.dtype.kind != wanted.dtype.kind:
        return f"{actual.dtype} for {wanted.dtype}"
    if wanted.dtype.kind in "biu":
        return (
            ""
            if np.array_equal(actual, wanted)
            else f"{int((actual != wanted).sum())} of {wanted.size} differ"
        )
    a, b = actual.astype(np.float64), wanted.astype(np.float64)
    finite = b[np.isfinite(b)]
    scale = float(np.abs(finite).max()) if finite.size else 1.0
    same = np.isclose(a, b, rtol=1e-3, atol=1e-5 * max(scale, 1.0), equal_nan=True)
    return (
        ""
        if same.all()
        else f"{int((~same).sum())} of {same.size} differ, by up to {np.nanmax(np.abs(a - b)):.3g}"
    )


# --- the survey -----------------------------------------------------------------------------------------------


def one_entry(name: str, ways: list[str], count: int, pipe: Any) -> None:
    import tempfile

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    op = entries()[name]
    warnings.simplefilter("ignore")
    for number, raw in enumerate(samples_of(op, count)):
        sample = Sample(op, raw)
        with contextlib.suppress(Exception):
            if not sample.counts():
                continue
            for way in ways:
                began = time.perf_counter()
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "model.onnx"
                    try:
                        with contextlib.redirect_stdout(sys.stderr):
                            exported(way, sample, path)
                        verdict, why = judged(sample, path)
                    except Exception as error:  # noqa: BLE001
                        verdict, why = (
                            "refused",
                            f"{type(error).__name__}: {' '.join(str(error).split())}"[:300],
                        )
                took = round(time.perf_counter() - began, 2)
                pipe.send(
                    {"entry": name, "sample": number, "way": way, "verdict": verdict, "why": why, "s": took}
                )
    pipe.send(None)


def survey(out: Path, ways: list[str], count: int, only: str) -> None:
    lines = out.read_text().splitlines() if out.exists() else []
    done = {(row["entry"], row["way"]) for row in map(json.loads, lines) if "end" in row}
    context = multiprocessing.get_context("fork")
    names = [name for name in sorted(entries()) if only in name]
    with out.open("a") as file:
        for at, name in enumerate(names):
            missing = [way for way in ways if (name, way) not in done]
            if not missing:
                continue
            receive, send = context.Pipe(duplex=False)
            child = context.Process(target=_quietly, args=(name, missing, count, send))
            child.start()
            send.close()
            deadline = time.monotonic() + SECONDS * len(missing)
            ended = "crashed"
            while time.monotonic() < deadline:
                if receive.poll(1):
                    try:
                        row = receive.recv()
                    except EOFError:
                        break
                    if row is None:
                        ended = "ended"
                        break
                    file.write(json.dumps(row) + "\n")
            else:
                ended = "too slow"
            child.kill()
            child.join()
            for way in missing:
                file.write(json.dumps({"entry": name, "way": way, "end": ended}) + "\n")
            file.flush()
            if sys.stderr.isatty():
                print(f"\r{at + 1}/{len(names)} {name:60}", end="", file=sys.stderr)


def _quietly(*arguments: Any) -> None:
    import os

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    one_entry(*arguments)


def table(out: Path) -> None:
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    samples = [row for row in rows if "verdict" in row]
    ways = [way for way in WAYS if any(row["way"] == way for row in samples)]
    counted = sorted({row["entry"] for row in samples})
    print(f"{len(counted)} entries\n")
    print("| way | entries right on all samples | samples right | wrong | unrunnable | refused |")
    print("|---|---|---|---|---|---|")
    for way in ways:
        verdicts = Counter(row["verdict"] for row in samples if row["way"] == way)
        by_entry: dict[str, set[str]] = {}
        for row in samples:
            if row["way"] == way:
                by_entry.setdefault(row["entry"], set()).add(row["verdict"])
        right = sum(verdict == {"right"} for verdict in by_entry.values())
        share = 100 * right / max(1, len(by_entry))
        figures = " | ".join(str(verdicts[key]) for key in ("right", "wrong", "unrunnable", "refused"))
        print(f"| {way} | {right} of {len(by_entry)} ({share:.0f}%) | {figures} |")
    print("\n| entry | " + " | ".join(ways) + " | reason |\n|---|" + "---|" * (len(ways) + 1))
    for entry in counted:
        cells, reason = [], ""
        for way in ways:
            mine = [row for row in samples if row["entry"] == entry and row["way"] == way]
            verdicts = Counter(row["verdict"] for row in mine)
            cells.append(
                "right" if set(verdicts) == {"right"} else ", ".join(f"{n} {v}" for v, n in verdicts.items())
            )
            reason = next((row["why"] for row in mine if row["verdict"] != "right"), reason)
        if any(cell != "right" for cell in cells):
            print(f"| {entry} | " + " | ".join(cells) + f" | {reason[:160].replace('|', '/')} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        table(given.out)
    else:
        import onnxruntime  # noqa: F401  (once, for all children, as all imports here)

        from rewriter.derive.translate import library

        library()
        entries()
        survey(given.out, given.ways.split(","), given.samples, given.only)


if __name__ == "__main__":
    main()
