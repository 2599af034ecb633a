"""ONNX's node tests for the passes of passes/normalisation/; see the package's docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracles.table import NodeRow, Unrun

if TYPE_CHECKING:
    from collections.abc import Mapping


def _last_axes(attributes: Mapping[str, Any], inputs: list[Any]) -> dict[str, Any]:
    x, weight, *rest = inputs
    shape = list(x.shape[attributes.get("axis", -1) :])
    made = {"x": x, "normalized_shape": shape, "weight": weight, "eps": attributes.get("epsilon", 1e-5)}
    return made | ({"bias": rest[0]} if rest else {})


def _channels(attributes: Mapping[str, Any], inputs: list[Any]) -> dict[str, Any]:
    x, weight, bias = inputs
    groups = {"num_groups": attributes["num_groups"]} if "num_groups" in attributes else {}
    return {"x": x, "weight": weight, "bias": bias, "eps": attributes.get("epsilon", 1e-5), **groups}


ROWS: tuple[NodeRow, ...] = (
    NodeRow("layer_norm", "LayerNormalization", _last_axes),
    NodeRow("rms_norm", "RMSNormalization", _last_axes),
    NodeRow("group_norm", "GroupNormalization", _channels),
    NodeRow("instance_norm", "InstanceNormalization", _channels),
)

UNRUN: tuple[Unrun, ...] = ()
