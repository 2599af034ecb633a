"""The known faults of ``torch.onnx`` are still there.  A test that fails says which entry can go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from rewriter.derive.faults import FAULTS
from rewriter.derive.translate import library, quiet
from rewriter.errors import DerivationError

if TYPE_CHECKING:
    from pathlib import Path

X = torch.tensor([[100.0, -50.0, 3.0, 0.5]])

#: For each operator of the list a call in which the fault shows.
CALLS: dict[str, Any] = {
    "native_batch_norm": (
        lambda x: torch.ops.aten.native_batch_norm(
            x, None, None, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5
        )[0],
        torch.arange(24.0).reshape(2, 3, 4),
    ),
    "_native_batch_norm_legit_functional": (
        lambda x: torch.ops.aten._native_batch_norm_legit_functional(
            x, None, None, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5
        )[3],
        torch.arange(24.0).reshape(2, 3, 4),
    ),
    "avg_pool2d": (
        lambda x: torch.nn.functional.avg_pool2d(x, 2, divisor_override=3),
        torch.arange(16.0).reshape(1, 1, 4, 4),
    ),
    "avg_pool3d": (
        lambda x: torch.nn.functional.avg_pool3d(x, 2, divisor_override=3),
        torch.arange(64.0).reshape(1, 1, 4, 4, 4),
    ),
    "scatter_reduce": (
        lambda x: torch.zeros(1, 4).scatter_reduce(1, torch.zeros(1, 4, dtype=torch.int64), x, "mean"),
        X,
    ),
    "special_erfcx": (torch.special.erfcx, X),
    "special_log_ndtr": (torch.special.log_ndtr, X),
    "logaddexp": (lambda x: torch.logaddexp(x, x), X),
    "logaddexp2": (lambda x: torch.logaddexp2(x * 2, x * 2), X),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x, 1), torch.tensor([[-200.0, 100.0]])),
    "nansum": (lambda x: torch.nansum(x), torch.arange(4)),
}


class Of(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def as_exported(module: torch.nn.Module, x: torch.Tensor, path: Path) -> np.ndarray | None:
    """What the file of the exporter gives; None where it is not valid."""
    import onnxruntime

    with quiet():
        torch.onnx.export(module, (x,), str(path), dynamo=True, opset_version=18, verbose=False)
    try:
        session = onnxruntime.InferenceSession(str(path))
        feeds = {session.get_inputs()[0].name: x.numpy()}
        result: np.ndarray = session.run(None, feeds)[0]
    except Exception:  # noqa: BLE001  (not valid, in the words of the runtime)
        return None
    return result


def test_every_fault_has_a_call() -> None:
    assert {fault.operator for fault in FAULTS} == set(CALLS)


@pytest.mark.full
@pytest.mark.parametrize("operator", CALLS)
def test_the_fault_is_still_there(operator: str, tmp_path: Path) -> None:
    function, x = CALLS[operator]
    made = as_exported(Of(function), x, tmp_path / "out.onnx")
    expected = function(x).numpy()
    assert (
        made is None
        or made.shape != expected.shape
        or not np.allclose(made, expected, rtol=1e-3, equal_nan=True)
    )


@pytest.mark.parametrize("operator", ["avg_pool2d", "logaddexp"])
def test_a_form_that_rests_on_it_is_refused(operator: str) -> None:
    from rewriter.derive.translate import translate
    from rewriter.types import TensorType

    library()
    function, x = CALLS[operator]
    with pytest.raises(DerivationError, match=f"aten::{operator} wrongly"):
        translate(function, [TensorType(1, tuple(x.shape))], ["x"])
