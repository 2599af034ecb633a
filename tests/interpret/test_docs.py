"""``docs/verification.md``: its examples run in order as they stand, and do what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from rewriter.interpret import Interpreter
from tests.torch import exports

PAGE = Path(__file__).parents[2] / "docs" / "verification.md"


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the example defines."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^<!-- run -->\n```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    namespace: dict[str, Any] = {"__name__": "__main__"}
    folder = tmp_path_factory.mktemp("training")
    with pytest.MonkeyPatch.context() as patch, exports.quiet():
        patch.chdir(folder)
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), namespace)
    return {**namespace, "folder": folder}


def test_the_delivered_graph_is_standard(names: dict[str, Any]) -> None:
    assert "Roll" in {node.op_type for node in onnx.load(names["folder"] / "net.onnx").graph.node}
    assert {node.domain for node in onnx.load(names["folder"] / "delivered.onnx").graph.node} == {""}


def test_its_gradients_are_the_module_s(names: dict[str, Any]) -> None:
    net, x = names["net"], names["x"]
    expected = torch.autograd.grad(net(x).square().mean(), list(net.parameters()))
    for (name, _), value in zip(net.named_parameters(), expected, strict=True):
        torch.testing.assert_close(names["gradients"][name], value)


def test_it_was_trained_and_saved(names: dict[str, Any]) -> None:
    x = names["x"]
    target = x.sum(-1, keepdim=True).roll(2, 1)
    with torch.no_grad():
        untrained = (names["net"](x) - target).square().mean()
        trained = Interpreter(onnx.load(names["folder"] / "trained.onnx"))({"x": x})["y"]
    assert (trained - target).square().mean() < untrained / 10


def test_a_model_with_placeholders_runs(names: dict[str, Any]) -> None:
    net, x = names["net"], names["x"]
    with torch.no_grad():
        torch.testing.assert_close(torch.tensor(names["outputs"]["y"]), net(x))
        torch.testing.assert_close(torch.tensor(names["inner"]["/embed/Add_output_0"]), net.embed(x))
