"""ONNX's node tests for the passes of passes/sampling/; see the package's docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracles.table import NodeRow, Unrun

if TYPE_CHECKING:
    from collections.abc import Mapping


def _grid_sample(attributes: Mapping[str, Any], inputs: list[Any]) -> Mapping[str, Any]:
    x, grid = inputs
    return {
        "x": x,
        "grid": grid,
        "mode": attributes.get("mode", "linear"),
        "padding_mode": attributes.get("padding_mode", "zeros"),
        "align_corners": bool(attributes.get("align_corners", 0)),
    }


# The expected values in ONNX's tests are written with four decimals.
ROWS: tuple[NodeRow, ...] = (NodeRow("grid_sample", "GridSample", _grid_sample, tolerance=(1e-4, 1e-4)),)

UNRUN: tuple[Unrun, ...] = ()
