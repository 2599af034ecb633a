"""What ONNX's operators require of their inputs is drawn; onnxruntime takes it in the first attempt.

The requirements are those of ONNX's documentation of each operator, stated here once more by hand.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, defs

from rewriter.execution.session import Session
from rewriter.inputs.required import REQUIRED
from rewriter.storage import ModelFile
from tests.inputs.test_inputs import inputs
from tests.verify.conftest import FLOAT, INT64, model, node

INT32, UINT8 = TensorProto.INT32, TensorProto.UINT8
MAP = (FLOAT, ["n", 3, 10, 14])


def between(low, high):
    return lambda x, _: low <= x.min() and x.max() <= high


def below(of, axis):
    return lambda x, feeds: x.min() >= 0 and x.max() < feeds[of].shape[axis]


def inside(height, width):
    """Corners in order, within the map."""

    def check(boxes, _):
        x1, y1, x2, y2 = np.moveaxis(boxes[..., -4:], -1, 0)
        ordered = (x1 <= x2).all() and (y1 <= y2).all() and boxes[..., -4:].min() >= 0
        return ordered and x2.max() <= width and y2.max() <= height and x2.max() > 1

    return check


def both(*checks):
    return lambda x, feeds: all(check(x, feeds) for check in checks)


def aligned(*before, **given):
    """A native RoiAlign."""
    return model(
        *before,
        node("RoiAlign", ["x", "boxes", "batch"], ["y"], output_height=2, output_width=2, spatial_scale=0.5),
        outputs={"y": (FLOAT, None)},
        **given,
    )


LSTM = {
    "w": np.zeros((1, 8, 5), np.float32),
    "r": np.zeros((1, 8, 2), np.float32),
    "z": np.zeros(0, np.float32),
}

CASES = {
    "RoiAlign": (
        aligned(inputs={"x": MAP, "boxes": (FLOAT, ["k", 4]), "batch": (INT64, ["k"])}),
        {"batch": below("x", 0), "boxes": inside(20, 28)},
    ),
    "RoiAlign, the index in a column": (
        aligned(
            node("Slice", ["rois", "zero", "one", "one"], ["column"]),
            node("Squeeze", ["column", "one"], ["flat"]),
            node("Cast", ["flat"], ["batch"], to=INT64),
            node("Slice", ["rois", "one", "five", "one"], ["boxes"]),
            inputs={"x": MAP, "rois": (FLOAT, ["k", 5])},
            tensors={"zero": np.array([0]), "one": np.array([1]), "five": np.array([2**63 - 1])},
        ),
        {"rois": both(inside(20, 28), lambda r, f: below("x", 0)(r[:, 0], f) and (r[:, 0] % 1 == 0).all())},
    ),
    "RoiAlign, the index picked": (
        aligned(
            node("Gather", ["rois", "first"], ["flat"], axis=1),
            node("Cast", ["flat"], ["batch"], to=INT64),
            node("Split", ["rois", "parts"], ["index", "boxes"], axis=-1),
            inputs={"x": MAP, "rois": (FLOAT, ["k", 5])},
            tensors={"first": np.array(0), "parts": np.array([1, 4])},
        ),
        {"rois": both(inside(20, 28), lambda r, f: below("x", 0)(r[:, 0], f))},
    ),
    "MaxRoiPool": (
        model(
            node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[2, 2]),
            inputs={"x": MAP, "rois": (FLOAT, ["k", 5])},
            outputs={"y": (FLOAT, None)},
        ),
        {"rois": both(inside(10, 14), lambda r, f: below("x", 0)(r[:, 0], f))},
    ),
    "LSTM": (
        model(
            node("LSTM", ["x", "w", "r", "", "steps"], ["y"], hidden_size=2),
            inputs={"x": (FLOAT, ["t", "n", 5]), "steps": (INT32, ["n"])},
            outputs={"y": (FLOAT, None)},
            tensors={key: LSTM[key] for key in "wr"},
        ),
        {"steps": lambda s, f: s.min() >= 1 and s.max() <= f["x"].shape[0]},
    ),
    "ReverseSequence": (
        model(
            node("ReverseSequence", ["x", "many"], ["y"], time_axis=0, batch_axis=1),
            inputs={"x": (FLOAT, ["t", "n", 5]), "many": (INT64, ["n"])},
            outputs={"y": (FLOAT, None)},
        ),
        {"many": lambda s, f: s.min() >= 1 and s.max() <= f["x"].shape[0]},
    ),
    "Div of integers": (
        model(
            node("Div", ["a", "b"], ["y"]),
            inputs={"a": (INT64, ["n"]), "b": (INT64, ["n"])},
            outputs={"y": (INT64, None)},
        ),
        {"b": lambda b, _: b.min() >= 1},
    ),
    "CumSum": (
        model(
            node("CumSum", ["x", "axis"], ["y"]),
            inputs={"x": (FLOAT, ["n", 3]), "axis": (INT64, [])},
            outputs={"y": (FLOAT, None)},
        ),
        {"axis": between(0, 1)},
    ),
    "NonMaxSuppression": (
        model(
            node("NonMaxSuppression", ["b", "s", "most", "iou"], ["y"]),
            inputs={
                "b": (FLOAT, [1, "k", 4]),
                "s": (FLOAT, [1, 2, "k"]),
                "most": (INT64, [1]),
                "iou": (FLOAT, [1]),
            },
            outputs={"y": (INT64, None)},
        ),
        {"most": lambda m, _: m.min() >= 1, "iou": between(0, 1)},
    ),
    "QuantizeLinear": (
        model(
            node("QuantizeLinear", ["x", "s"], ["y"]),
            inputs={"x": (FLOAT, ["n", 4]), "s": (FLOAT, [])},
            outputs={"y": (UINT8, None)},
        ),
        {"s": lambda s, _: s.min() > 0},
    ),
    "BatchNormalization": (
        model(
            node("BatchNormalization", ["x", "w", "w", "w", "v"], ["y"]),
            inputs={"x": (FLOAT, ["n", 3, 4]), "v": (FLOAT, [3])},
            outputs={"y": (FLOAT, None)},
            tensors={"w": np.ones(3, np.float32)},
        ),
        {"v": lambda v, _: v.min() > 0},
    ),
    "OneHot": (
        model(
            node("OneHot", ["i", "depth", "values"], ["y"]),
            inputs={"i": (INT64, ["n"]), "depth": (INT64, [])},
            outputs={"y": (FLOAT, None)},
            tensors={"values": np.float32([0, 1])},
        ),
        {"depth": lambda d, _: d.min() >= 1},
    ),
    "Tile": (
        model(
            node("Tile", ["x", "r"], ["y"]),
            inputs={"x": (FLOAT, ["n", 3]), "r": (INT64, [2])},
            outputs={"y": (FLOAT, None)},
        ),
        {"r": between(1, 3)},
    ),
    "a step of Slice": (
        model(
            node("Slice", ["x", "b", "e", "a", "step"], ["y"]),
            inputs={"x": (FLOAT, ["n", 6]), "step": (INT64, [1])},
            outputs={"y": (FLOAT, None)},
            tensors={"b": np.array([0]), "e": np.array([6]), "a": np.array([1])},
        ),
        {"step": between(1, 2)},
    ),
    "a column of points": (
        model(
            node("Gather", ["p", "last"], ["column"], axis=-1),
            node("Cast", ["column"], ["i"], to=INT64),
            node("Gather", ["t", "i"], ["y"]),
            inputs={"p": (FLOAT, ["n", 3]), "t": (FLOAT, [5, 2])},
            outputs={"y": (FLOAT, None)},
            tensors={"last": np.array(-1)},
        ),
        {"p": lambda p, _: p[:, 2].min() >= 0 and p[:, 2].max() <= 4 and p[:, :2].min() < 0},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_required_is_drawn_and_accepted_at_once(name):
    source, checks = CASES[name]
    found = inputs(source)
    with ModelFile.from_proto(source) as file:
        session = Session(file, file.model, optimise=False)
        for index in range(4):
            feeds = found.draw(index).feeds
            for key, check in checks.items():
                assert check(feeds[key], feeds), (key, feeds[key])
            session.run(feeds, ["y"])


def test_a_range_that_is_asked_for_overrules_what_is_required():
    source, _ = CASES["RoiAlign"]
    feeds = inputs(source, input_ranges={"boxes": (100, 200)}).draw(0).feeds
    assert feeds["boxes"].min() >= 100


def test_a_division_of_fractions_is_drawn_as_ever():
    source = model(
        node("Div", ["a", "b"], ["y"]),
        inputs={"a": (FLOAT, [64]), "b": (FLOAT, [64])},
        outputs={"y": (FLOAT, None)},
    )
    assert inputs(source).draw(0).feeds["b"].min() < 0


def test_every_row_names_an_input_of_an_operator():
    for op, index in REQUIRED:
        assert index < defs.get_schema(op, 25 if defs.has(op, 25) else 9).max_input
