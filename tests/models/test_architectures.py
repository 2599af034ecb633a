"""Whole architectures with placeholders, from PyTorch to verified files of standard ONNX.

Models of transformers' as their authors wrote them, and detectors with post-processing, in small configurations with
random weights.  Each leaves PyTorch with placeholders, is rewritten, and must equal PyTorch's own model, which knows
nothing of placeholders, at sizes other than that of the export.

Two of them run by default, all with `pytest -m full tests/models`; docs/architectures.md says what was measured.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

import rewriter
from tests.models import convnets, detectors, detr, longformer, mamba
from tests.torch.checks import operator_domains, worst_error

if TYPE_CHECKING:
    from onnx import ModelProto

    from tests.models.architectures import Architecture

#: The opsets at which each is exported: by dynamo=False below 18.
ARCHITECTURES: dict[str, tuple[Architecture, tuple[int, ...]]] = {
    # torch.export of RT-DETR fixes the batch (a len() in its forward), with or without placeholders.
    "rt_detr": (detr.RT_DETR, (13, 17)),
    "deformable_detr": (detr.DEFORMABLE_DETR, (13, 18)),
    "deformable_detr-through": (detr.DEFORMABLE_DETR_THROUGH, (13,)),
    "mamba": (mamba.MAMBA, (13, 18)),
    "mamba-any_length": (mamba.MAMBA_ANY_LENGTH, (13, 18)),
    "efficientnet": (convnets.EFFICIENTNET, (13, 18)),
    "convnext": (convnets.CONVNEXT, (13, 20)),
    "longformer": (longformer.LONGFORMER, (13, 17, 18)),
    "retina": (detectors.RETINA, (13, 18)),
    "ssd": (detectors.SSD, (13, 17)),
}
_BY_DEFAULT = {("rt_detr", 13), ("retina", 13)}


@pytest.mark.parametrize(
    ("name", "opset"),
    [
        pytest.param(
            name, opset, id=f"{name}-{opset}", marks=() if (name, opset) in _BY_DEFAULT else pytest.mark.full
        )
        for name, (_, opsets) in ARCHITECTURES.items()
        for opset in opsets
    ],
)
def test_the_rewritten_model_is_the_model(name: str, opset: int) -> None:
    architecture, _ = ARCHITECTURES[name]
    module = architecture.module()
    before = architecture.export(module, opset)
    assert before.opset_import[0].version == opset
    assert _placeholders(before) == architecture.operators

    report = rewriter.rewrite(before, passes=architecture.passes)
    after = report.model
    assert report.outcome == "verified"
    assert after is not None
    assert Counter(item.operator for item in report.replaced) == architecture.operators
    assert operator_domains(after) == {""}
    assert [(item.domain, item.version) for item in after.opset_import] == [("", opset)]

    assert _responds(architecture, module)
    for size in architecture.sizes:
        error = worst_error(after, module, [architecture.inputs(size)])
        assert error <= architecture.tolerance, f"size {size}"


def _placeholders(model: ModelProto) -> dict[str, int]:
    return dict(Counter(f"{node.domain}::{node.op_type}" for node in model.graph.node if node.domain))


def _responds(architecture: Architecture, module: nn.Module) -> bool:
    """Whether the first result depends on the input: a signal that dies out would equal anything."""
    (given, *others) = architecture.inputs(architecture.example)
    other = given.flip(-1)
    with torch.no_grad():
        results = [module.eval()(x, *others) for x in (given, other)]
    first, second = (r.numpy() if isinstance(r, torch.Tensor) else r[0].numpy() for r in results)
    return first.shape != second.shape or float(np.abs(first - second).max() / np.abs(second).max()) > 1e-2
