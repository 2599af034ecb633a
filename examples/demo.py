"""The main job, end to end: a Swin transformer whose `torch.roll` calls leave PyTorch as placeholders.

Exports the model, rewrites it into standard ONNX, verifies it, prints the report, and compares the delivered file with
PyTorch at several batch sizes.  Random weights, no network; everything is written to ./demo-output/.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn
from transformers import SwinConfig, SwinModel

import rewriter
from rewriter.torch import export_placeholders

OUTPUT = Path("demo-output")
BATCHES = (1, 2, 3, 8)


class Swin(nn.Module):
    """A small Swin, from pixels (batch, 3, 56, 56) to features (batch, 49, 48) and their mean (batch, 48)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        config = SwinConfig(
            image_size=56, patch_size=4, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=7
        )
        self.swin = SwinModel(config)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        result = self.swin(pixels)
        return result.last_hidden_state, result.pooler_output


def export(model: nn.Module, path: Path) -> None:
    """Write ``model`` with every `torch.roll` in it as a node `com.example::Roll`."""
    with export_placeholders("roll"), torch.no_grad():
        torch.onnx.export(
            model,
            (torch.randn(2, 3, 56, 56),),
            path,
            input_names=["pixels"],
            output_names=["features", "pooled"],
            dynamic_shapes=({0: "batch"},),
            opset_version=18,
            dynamo=True,
            verbose=False,
        )


def worst_error(model: nn.Module, path: Path, batch: int) -> float:
    """max|a−b| / max|b| of the file in onnxruntime against PyTorch, over both outputs."""
    pixels = torch.randn(batch, 3, 56, 56, generator=torch.Generator().manual_seed(batch))
    with torch.no_grad():
        expected = [tensor.numpy() for tensor in model(pixels)]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(None, {"pixels": pixels.numpy()})
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, expected, strict=True))


def main() -> None:
    OUTPUT.mkdir(exist_ok=True)
    exported, delivered = OUTPUT / "swin.onnx", OUTPUT / "swin.rewritten.onnx"
    model = Swin().eval()

    print(f"Exporting a Swin transformer to {exported}")
    export(model, exported)
    print("\nWhat it holds:")
    print(rewriter.inspect(exported))

    print(f"\nRewriting it to {delivered}")
    print(rewriter.rewrite(exported, delivered))

    print("\nThe delivered file in onnxruntime against PyTorch, max |a−b| / max |b|:")
    for batch in BATCHES:
        print(f"  batch {batch}: {worst_error(model, delivered, batch):.1e}")


if __name__ == "__main__":
    main()
