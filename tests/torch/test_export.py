"""``rewriter.torch.export``: one call from a module to a proved file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import rewriter
import rewriter.torch
from rewriter.torch import safe_fallthrough

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Of(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def run(path: Path, x: torch.Tensor) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(str(path)).run(None, {onnx.load(path).graph.input[0].name: x.numpy()})


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_what_a_pass_takes_leaves_as_a_placeholder(tmp_path: Path) -> None:
    net = Of(lambda x: torch.roll(torch.nn.functional.silu(x), 1, 0))
    dynamic = ({0: torch.export.Dim("batch")},)
    report = rewriter.torch.export(net, (rows(4, 3),), tmp_path / "out.onnx", dynamic_shapes=(dynamic[0],))
    assert report.outcome == "verified"
    assert {item.operator for item in report.replaced} == {"org.pytorch.aten::silu", "org.pytorch.aten::roll"}
    for size in (1, 7):
        x = rows(size, 3)
        np.testing.assert_allclose(run(tmp_path / "out.onnx", x)[0], net(x).numpy(), rtol=1e-5, atol=1e-6)


def test_complex_results_are_a_last_axis_of_two(tmp_path: Path) -> None:
    x = rows(3, 8)
    rewriter.torch.export(Of(torch.fft.rfft), (x,), tmp_path / "out.onnx")
    expected = torch.view_as_real(torch.fft.rfft(x))
    np.testing.assert_allclose(run(tmp_path / "out.onnx", x)[0], expected.numpy(), rtol=1e-4, atol=1e-5)


def test_modes_are_put_back_and_the_model_is_in_evaluation_mode(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(3, 3)).train()
    rewriter.torch.export(net, (rows(2, 3),), tmp_path / "out.onnx")
    assert net.training
    assert net[0].training


@pytest.mark.parametrize("dim", [0, 1])
def test_fall_through_raises_where_the_exporter_lost_its_refusal(tmp_path: Path, dim: int) -> None:
    """torch.onnx writes a TopK along another axis, or in another order, and goes on."""
    net = Of(lambda x: torch.sort(x, dim=dim, stable=True).values)
    with safe_fallthrough():
        torch.onnx.export(
            net,
            (rows(3, 4),),
            str(tmp_path / "sort.onnx"),
            dynamo=False,
            opset_version=18,
            operator_export_type=torch.onnx.OperatorExportTypes.ONNX_FALLTHROUGH,
        )
    assert [node.op_type for node in onnx.load(tmp_path / "sort.onnx").graph.node if node.domain] == ["sort"]


def test_what_no_exporter_takes_is_said_with_the_operator(tmp_path: Path) -> None:
    with pytest.raises(rewriter.RewriteError, match="linalg_eig") as caught:
        rewriter.torch.export(Of(torch.linalg.eigvals), (rows(3, 3),), tmp_path / "out.onnx")
    assert caught.value.remedy
    assert not (tmp_path / "out.onnx").exists()


class Keyword(torch.nn.Module):
    """A model as those of transformers: keyword arguments, a range for a size, results in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.places = torch.nn.Embedding(16, 4)
        self.tokens = torch.nn.Embedding(50, 4)
        self.norm = torch.nn.LayerNorm(4)

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor | None = None, scale: float = 1.0
    ) -> dict[str, torch.Tensor]:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        if mask is not None:
            x = x * mask[..., None]
        return {"last": self.norm(x) * scale}


@pytest.mark.parametrize("opset", [13, 18])
def test_keywords_named_sizes_and_an_older_opset(tmp_path: Path, opset: int) -> None:
    torch.manual_seed(0)
    net = Keyword().eval()
    ids = torch.randint(0, 50, (1, 5))
    report = rewriter.torch.export(
        net,
        (ids,),
        tmp_path / "out.onnx",
        kwargs={"mask": torch.ones(1, 5), "scale": 0.5},
        dynamic_shapes={
            "ids": {0: "batch", 1: torch.export.Dim("length")},
            "mask": {0: "batch", 1: "length"},
        },
        opset=opset,
    )
    assert report.outcome == "verified"
    model = onnx.load(tmp_path / "out.onnx")
    assert model.opset_import[0].version == opset
    shapes = [[d.dim_param for d in v.type.tensor_type.shape.dim] for v in model.graph.input]
    assert shapes == [["batch", "length"]] * 2
    session = onnxruntime.InferenceSession(str(tmp_path / "out.onnx"))
    other, mask = torch.randint(0, 50, (3, 7)), torch.rand(3, 7)
    found = session.run(None, {"ids": other.numpy(), "mask": mask.numpy()})[0]
    with torch.no_grad():
        expected = net(other, mask, 0.5)["last"].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
