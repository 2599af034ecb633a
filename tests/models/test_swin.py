"""A Swin transformer with roll placeholders, from PyTorch to a verified file of standard ONNX."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import rewriter
from rewriter.torch import export_placeholders
from tests.models.swin import Swin, pixels
from tests.torch import exports
from tests.torch.checks import interface, operator_domains, worst_error

if TYPE_CHECKING:
    from onnx import ModelProto

NAMES = {"input_names": ["pixels"], "output_names": ["features", "pooled"]}


@dataclass(frozen=True)
class Rewritten:
    module: Swin
    before: ModelProto
    after: ModelProto
    report: rewriter.Report


def _export(swin: Swin, use_dynamo: bool, opset: int) -> ModelProto:
    with export_placeholders("roll"):
        if use_dynamo:
            return exports.dynamo(swin, pixels(2), opset=opset, **NAMES)
        dynamic = {name: {0: "batch"} for names in NAMES.values() for name in names}
        return exports.legacy(swin, pixels(2), opset=opset, dynamic_axes=dynamic, **NAMES)


@pytest.fixture(
    scope="module",
    params=[(False, 13), (False, 17), (True, 18), (True, 20)],
    ids=["legacy-13", "legacy-17", "dynamo-18", "dynamo-20"],
)
def rewritten(request: pytest.FixtureRequest) -> Rewritten:
    use_dynamo, opset = request.param
    # The legacy exporter has no scaled_dot_product_attention below opset 14.
    swin = Swin("eager" if opset < 14 else "sdpa")
    before = _export(swin, use_dynamo, opset)
    report = rewriter.rewrite(before)
    assert report.model is not None
    return Rewritten(swin, before, report.model, report)


def test_the_export_holds_the_rolls(rewritten: Rewritten) -> None:
    """The second block of each stage shifts there and back; the last stage's one window needs no shift."""
    assert [n.op_type for n in rewritten.before.graph.node if n.domain == "com.example"] == ["Roll", "Roll"]


def test_every_roll_is_replaced_and_proved(rewritten: Rewritten) -> None:
    assert rewritten.report.outcome == "verified"
    assert [item.operator for item in rewritten.report.replaced] == ["com.example::Roll"] * 2
    assert operator_domains(rewritten.after) == {""}
    assert [o.domain for o in rewritten.after.opset_import] == [""]


def test_equals_pytorch_at_several_batch_sizes(rewritten: Rewritten) -> None:
    error = worst_error(rewritten.after, rewritten.module, [pixels(n) for n in (1, 2, 3, 8)])
    assert error <= 1e-5


def test_the_interface_stands(rewritten: Rewritten) -> None:
    before, after = interface(rewritten.before), interface(rewritten.after)
    assert [value[:3] for value in after] == [value[:3] for value in before]
    dims = {name: shape for _, name, _, shape in after}
    assert dims["pixels"] == ["batch", 3, 56, 56]
    # 14 × 14 patches, merged once by 2 × 2, 24 · 2 channels.  The legacy exporter computes the first at run
    # time: unless inference can tell what it is, it has no name.
    assert dims["features"] in (["batch", 49, 48], ["batch", None, 48])
    if ("output", "features", 1, ["batch", 49, 48]) in before:
        assert dims["features"] == ["batch", 49, 48]
    assert dims["pooled"] == ["batch", 48]


def test_no_name_of_a_size_is_the_exporter_s_invention(rewritten: Rewritten) -> None:
    values = [*rewritten.after.graph.input, *rewritten.after.graph.output, *rewritten.after.graph.value_info]
    names = {d.dim_param for v in values for d in v.type.tensor_type.shape.dim if d.dim_param}
    assert not [name for name in names if re.search(r"_dim_\d+$", name)]


def test_the_opset_stands(rewritten: Rewritten) -> None:
    assert rewritten.after.opset_import[0].version == rewritten.before.opset_import[0].version
