"""Exports of the small modules, made once, and the command in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.against import nets
from tests.cli.conftest import rewrite  # noqa: F401
from tests.torch.exports import legacy, quiet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onnx import ModelProto


def args(n: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, 6, generator=generator), torch.randn(n, 6, generator=generator)


def dynamo(module: torch.nn.Module, inputs: tuple[object, ...], shapes: object = None) -> ModelProto:
    """``torch.onnx.export(dynamo=True)``, with the weights inside."""
    with quiet():
        program = torch.onnx.export(module.eval(), inputs, dynamo=True, dynamic_shapes=shapes, verbose=False)
    return program.model_proto


def exported(
    module: torch.nn.Module, inputs: tuple[object, ...], shapes: object = None
) -> torch.export.ExportedProgram:
    return torch.export.export(module.eval(), inputs, dynamic_shapes=shapes)


def batch(low: int = 1, high: int = 64) -> dict[str, object]:
    n = torch.export.Dim("n", min=low, max=high)
    return {"x": {0: n}, "other": {0: n}}


@pytest.fixture(scope="session")
def model() -> ModelProto:
    """``nets.Net`` by the dynamo exporter, with an open batch."""
    return dynamo(nets.Net(), args(), batch())


@pytest.fixture(scope="session")
def traced() -> ModelProto:
    """``nets.Net`` by the TorchScript exporter, with an open batch."""
    return legacy(nets.Net().eval(), args(), input_names=["x", "other"], opset=17)


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """``nets.Net`` as a torch.export archive."""
    path = tmp_path_factory.mktemp("archive") / "net.pt2"
    torch.export.save(exported(nets.Net(), args(), batch()), path)
    return path
