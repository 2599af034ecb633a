"""Operators of the user's own, written in PyTorch: no pass, no case, no decomposition."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
import torch

import rewriter
from rewriter.errors import UsageError
from tests.derive.test_derived import OWN, model, rows, run

if TYPE_CHECKING:
    from pathlib import Path

FILE = """
import torch
from rewriter.torch import placeholder


@placeholder("com.example::Shifted")
def shifted(x, by=1.5):
    return torch.sinh(x) + by


@torch.library.custom_op("shelf::rolled", mutates_args=())
def rolled(x: torch.Tensor, k: int, scale: float = 2.0) -> torch.Tensor:
    return torch.roll(x, k, 0) * scale


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, power=3):
        ctx.save_for_backward(x)
        return x**power

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0] ** 2, None
"""

GRAPHS = {
    "placeholder": ("y = com.example.Shifted <by = 0.5> (x)", lambda x: np.sinh(x) + 0.5),
    "custom_op": ("y = shelf.rolled (x, k)", lambda x: np.roll(x, 1, 0) * 2),
    "autograd.Function": ("y = com.example.Cubed <power = 2> (x)", lambda x: x**2),
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "my_net.py"
    path.write_text(FILE)
    return str(path)


@pytest.mark.parametrize("kind", GRAPHS)
def test_an_operator_is_its_own_reference(file: str, kind: str) -> None:
    node, expected = GRAPHS[kind]
    head = OWN.replace('"com.example": 1', '"com.example": 1, "shelf": 1')
    source = model(head + f"g (float[N, 3] x) => (float[N, 3] y) <int64 k = {{1}}> {{ {node} }}")
    report = rewriter.rewrite(source, operators=file, simplify=False)
    assert report.outcome == "verified"
    x = rows(4, 3)
    np.testing.assert_allclose(run(report.model, x=x)[0], expected(x), rtol=1e-5)  # type: ignore[arg-type]


def test_a_pass_that_someone_wrote_goes_first(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE.replace("com.example::Shifted", "com.example::Swish"))
    source = model(OWN + "g (float[2] x) => (float[2] y) { y = com.example.Swish (x) }")
    report = rewriter.rewrite(source, operators=str(path), simplify=False)
    assert report.replaced[0].decomposition != "derived"


def test_two_operators_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "twice.py"
    path.write_text(FILE + FILE.replace("def shifted", "def other").replace("shelf::", "other::"))
    source = model(OWN + "g (float[2] x) => (float[2] y) { y = com.example.Shifted (x) }")
    with pytest.raises(UsageError, match="two operators"):
        rewriter.rewrite(source, operators=str(path))


def test_a_file_without_operators(tmp_path: Path) -> None:
    path = tmp_path / "nothing.py"
    path.write_text("import torch\n")
    with pytest.raises(UsageError, match="no operator is defined"):
        rewriter.rewrite(onnx.ModelProto(), operators=str(path))


def test_a_function_as_a_pass() -> None:
    made = rewriter.from_torch(lambda x, beta=1.0: x * torch.sigmoid(beta * x), matches="mylib::gate")
    source = model(
        OWN.replace("com.example", "mylib")
        + "g (float[N] x) => (float[N] y) { y = mylib.gate <beta = 2.0> (x) }"
    )
    report = rewriter.rewrite(source, passes=[made], simplify=False)
    x = rows(5)
    expected = x / (1 + np.exp(-2 * x))
    np.testing.assert_allclose(run(report.model, x=x)[0], expected, rtol=1e-5)  # type: ignore[arg-type]
    sys.modules.pop("my_net", None)
