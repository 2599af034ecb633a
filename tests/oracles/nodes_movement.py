"""ONNX's node tests for the passes of passes/movement/; see the package's docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracles.run import Result
from tests.oracles.table import NodeRow, Unrun

if TYPE_CHECKING:
    from collections.abc import Mapping

    Arguments = Mapping[str, Any]

_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _torch_pads(inputs: list[Any]) -> list[int]:
    """ONNX has all befores and then all afters, PyTorch a pair for each axis, the last axis first."""
    x, pads, _, axes = [*inputs, None, None][:4]
    at = range(x.ndim) if axes is None else [int(a) % x.ndim for a in axes]
    pairs = dict(zip(at, zip(pads[: len(at)].tolist(), pads[len(at) :].tolist(), strict=True), strict=True))
    return [p for axis in reversed(range(x.ndim)) for p in pairs.get(axis, (0, 0))]


def _pad(attributes: Arguments, inputs: list[Any]) -> Arguments:
    mode = _MODES[attributes.get("mode", "constant")]
    fill = inputs[2].item() if len(inputs) > 2 and inputs[2] is not None else None
    return {"x": inputs[0], "pad": _torch_pads(inputs), "mode": mode, "value": fill}


def _only(mode: str, attributes: Arguments, inputs: list[Any]) -> Arguments:
    if attributes.get("mode", "constant") != mode:
        raise ValueError("another mode")
    return {"x": inputs[0], "pad": _torch_pads(inputs)}


def _fold(attributes: Arguments, inputs: list[Any]) -> Arguments:
    x, size, block = inputs
    pads = attributes.get("pads", [0] * 2 * len(size))
    if pads[: len(size)] != pads[len(size) :] or len(size) != 2:
        raise ValueError("not an image, or pads that differ")
    return {
        "x": x,
        "output_size": size.tolist(),
        "kernel_size": block.tolist(),
        "dilation": attributes.get("dilations", [1]),
        "padding": pads[: len(size)],
        "stride": attributes.get("strides", [1]),
    }


def _shuffle(attributes: Arguments, inputs: list[Any]) -> Arguments:
    if attributes.get("mode", "DCR") != "CRD":
        raise ValueError("another order of channels")
    return {"x": inputs[0], "upscale_factor": attributes["blocksize"]}


def _unshuffle(attributes: Arguments, inputs: list[Any]) -> Arguments:
    if attributes.get("mode", "DCR") != "CRD" and inputs[0].shape[1] != 1:
        raise ValueError("another order of channels")
    return {"x": inputs[0], "downscale_factor": attributes["blocksize"]}


def _triangle(upper: int, attributes: Arguments, inputs: list[Any]) -> Arguments:
    if attributes.get("upper", 1) != upper:
        raise ValueError("the other triangle")
    return {"x": inputs[0], "diagonal": int(inputs[1].item()) if len(inputs) > 1 else 0}


ROWS: tuple[NodeRow, ...] = (
    NodeRow("pad", "Pad", _pad),
    NodeRow("circular_pad", "Pad", lambda a, i: _only("wrap", a, i)),
    NodeRow("reflection_pad", "Pad", lambda a, i: _only("reflect", a, i)),
    NodeRow("replication_pad", "Pad", lambda a, i: _only("edge", a, i)),
    NodeRow("fold", "Col2Im", _fold),
    NodeRow("pixel_shuffle", "DepthToSpace", _shuffle),
    NodeRow("pixel_unshuffle", "SpaceToDepth", _unshuffle),
    NodeRow("tril", "Trilu", lambda a, i: _triangle(0, a, i)),
    NodeRow("triu", "Trilu", lambda a, i: _triangle(1, a, i)),
)

_PADS = {
    "test_constant_pad": "constant",
    "test_constant_pad_axes": "constant",
    "test_constant_pad_negative_axes": "constant",
    "test_edge_pad": "replication_pad",
    "test_reflect_pad": "reflection_pad",
    "test_wrap_pad": "circular_pad",
}
_TRIANGLES = {
    "tril": ("", "_neg", "_one_row_neg", "_out_neg", "_out_pos", "_pos", "_square", "_square_neg", "_zero"),
    "triu": ("", "_neg", "_one_row", "_out_neg_out", "_out_pos", "_pos", "_square", "_square_neg", "_zero"),
}

UNRUN: tuple[Unrun, ...] = (
    *(
        Unrun(name, test, Result.BROKEN, "another mode")
        for name in ("circular_pad", "reflection_pad", "replication_pad")
        for test, owner in _PADS.items()
        if owner != name
    ),
    Unrun("fold", "test_col2im_5d", Result.BROKEN, "PyTorch folds images only"),
    Unrun("pixel_shuffle", "test_depthtospace_example", Result.BROKEN, "another order of channels"),
    Unrun("pixel_unshuffle", "test_spacetodepth", Result.BROKEN, "another order of channels"),
    Unrun(
        "pixel_unshuffle", "test_spacetodepth_dcr_mode_example", Result.BROKEN, "another order of channels"
    ),
    *(
        Unrun(name, f"test_{other}{suffix}", Result.BROKEN, "the other triangle")
        for name, other in (("tril", "triu"), ("triu", "tril"))
        for suffix in _TRIANGLES[other]
    ),
)
