"""What verification costs, against running the model itself as often: Swin tiny at two batch sizes.

    python benchmarks/verification.py [--rounds 5] [--batch 1,4] [--small]

Exports transformers' Swin tiny (224 × 224 pixels, 28 million random weights) with roll placeholders, rewrites and
simplifies it once, then times in turns:

- verify: the proof of the default run, complete: every replaced roll against PyTorch, the delivered model against the
  rewritten one, at the batch sizes;
- model: one onnxruntime session of the delivered file as it lies on the disk (optimised, as by default), loaded and run
  once at each batch size;
- eager: the PyTorch module, once at each batch size.

Both use as many threads.  Seconds of wall clock, lower quartile; then what of the process's time `import torch` is.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from _timing import settled

from rewriter.decompose import decompose
from rewriter.graph.survey import Keep
from rewriter.placeholder.registry import Selection
from rewriter.simplify import DEFAULT_MEMORY, DEFAULT_TIMEOUT, simplify
from rewriter.storage import ModelFile
from rewriter.torch import export_placeholders
from rewriter.verify import VerifyOptions, equal, verify

if TYPE_CHECKING:
    from collections.abc import Callable


class Swin(torch.nn.Module):
    """Pixels (N, 3, S, S) → pooled features (N, C)."""

    def __init__(self, small: bool) -> None:
        super().__init__()
        from transformers import SwinConfig, SwinModel

        torch.manual_seed(0)
        shape = (
            {"image_size": 56, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4]}
            if small
            else {"image_size": 224, "embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24]}
        )
        config = SwinConfig(patch_size=4, window_size=7, **shape)
        self.swin = SwinModel._from_config(config, attn_implementation="sdpa").eval()
        self.size = config.image_size

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.swin(pixels).pooler_output


def export(module: Swin, path: Path) -> None:
    pixels = torch.randn(2, 3, module.size, module.size)
    with torch.no_grad(), export_placeholders("roll"):
        program = torch.onnx.export(
            module,
            (pixels,),
            dynamo=True,
            opset_version=18,
            input_names=["pixels"],
            dynamic_shapes={"pixels": {0: "batch"}},
            verbose=False,
        )
    program.save(str(path))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", default="1,4", help="the batch sizes")
    parser.add_argument("--small", action="store_true", help="a small configuration")
    options = parser.parse_args()
    sizes = tuple(int(size) for size in options.batch.split(","))
    threads = min(4, len(os.sched_getaffinity(0)))  # what verification itself takes
    torch.set_num_threads(threads)
    module = Swin(options.small).eval()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.onnx", Path(folder) / "out.onnx"
        export(module, source)
        asked = VerifyOptions(samples=len(sizes), dims={"batch": sizes})
        with ModelFile.open(source) as file:
            decomposed = decompose(file, Selection.load("auto", None), Keep.parse(()))
            simplified = simplify(
                file,
                file.model,
                timeout=DEFAULT_TIMEOUT,
                memory=DEFAULT_MEMORY,
                equal=lambda before, after: equal(file, before, after, asked),
            )
            delivered = simplified.model
            file.save(target, delivered)

            def proof() -> object:
                found = verify(file, file.model, delivered, decomposed.regions, asked)
                assert found.verdict == "verified"
                assert [s["batch"] for s in found.sizes] == list(sizes)
                return found

            times = _in_turns(
                {
                    "verify": proof,
                    "model": lambda: _model(target, module.size, sizes, threads),
                    "eager": lambda: _eager(module, sizes),
                },
                options.rounds,
            )
        print(f"Swin, {len(decomposed.regions)} rolls, batch {options.batch}, {threads} threads")
        verify_time, model_time, eager_time = (settled(times[name]) for name in ("verify", "model", "eager"))
        print(f"verify {verify_time:.2f} s; model {model_time:.2f} s; eager {eager_time:.2f} s")
        print(f"verify / model {verify_time / model_time:.2f}; verify / eager {verify_time / eager_time:.2f}")


def _in_turns(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = time.perf_counter()
            candidates[name]()
            times[name].append(time.perf_counter() - start)
    return times


def _model(path: Path, size: int, sizes: tuple[int, ...], threads: int) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for batch in sizes:
        session.run(None, {"pixels": torch.randn(batch, 3, size, size).numpy()})


def _eager(module: Swin, sizes: tuple[int, ...]) -> None:
    with torch.no_grad():
        for batch in sizes:
            module(torch.randn(batch, 3, module.size, module.size))


if __name__ == "__main__":
    main()
