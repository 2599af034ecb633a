"""What the tests of the export side share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from onnx import ModelProto, NodeProto, helper

from tests.torch import exports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """No test of this folder may leave an exporter or a mode running."""
    import torch
    from torch.overrides import _get_current_function_mode_stack

    yield
    assert not torch.onnx.is_in_onnx_export()
    assert _get_current_function_mode_stack() == []


@pytest.fixture(params=["dynamo=False", "dynamo=True"])
def export(request: pytest.FixtureRequest) -> Callable[..., ModelProto]:
    """Both exporters, by turns."""
    return exports.dynamo if request.param == "dynamo=True" else exports.legacy


def placeholders(model: ModelProto) -> list[NodeProto]:
    return [node for node in model.graph.node if node.domain]


def attributes(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}
