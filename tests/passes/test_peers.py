"""Which of the exporters' forms benchmarks/operators.py counts, and when it takes two models for the same."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from types import ModuleType

_FOLDER = Path(__file__).parents[2] / "benchmarks"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, _FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PEERS, SAME = loaded("_peers"), loaded("_same")


def model(
    op_type: str, opset: int, *constants: Any, shape: tuple[int, ...] = (1, 2, 4, 4), **how: Any
) -> ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(c), f"c{i}") for i, c in enumerate(constants)]
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))
    node = helper.make_node(op_type, ["x", *[t.name for t in tensors]], ["y"], **how)
    made = helper.make_model(
        helper.make_graph([node], "g", [info], [result], tensors),
        opset_imports=[helper.make_opsetid("", opset)],
    )
    made.ir_version = 8
    return made


_PADS, _SIZES = np.array([0, 0, 1, 1, 0, 0, 1, 1]), np.array([1, 2, 8, 8])


def resized(opset: int, **how: Any) -> ModelProto:
    made = model("Resize", opset, _SIZES, **how)
    made.graph.node[0].input[:] = ["x", "", "", "c0"]
    return made


def test_a_mode_that_the_opset_lacks_is_no_onnx() -> None:
    assert PEERS.invalid(model("Pad", 18, _PADS, mode="wrap")) == "Pad has no mode 'wrap' at opset 18"
    assert PEERS.invalid(model("Pad", 19, _PADS, mode="wrap")) is None


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_modes_that_the_opset_has_are_onnx(mode: str) -> None:
    assert PEERS.invalid(model("Pad", 13, _PADS, mode=mode)) is None


@pytest.mark.parametrize(
    "how",
    [
        {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel", "antialias": 1},
    ],
)
def test_what_exporters_write_of_resize_is_onnx(how: dict[str, Any]) -> None:
    assert PEERS.invalid(resized(18, **how)) is None


def test_a_model_that_the_checker_refuses_is_no_onnx() -> None:
    assert "onnx.checker" in PEERS.invalid(model("Relu", 18, nonsense=1))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([1.0, float("inf")], None),
        ([1.0, float("nan")], "nan for inf"),
        ([1.0, 3e38], "3e+38 for inf"),
        ([1.1, float("inf")], "off by 0.1 of the largest value"),
    ],
)
def test_differences_are_told(found: list[float], told: str | None) -> None:
    assert PEERS.difference([np.array(found)], [np.array([1.0, float("inf")])]) == told


@pytest.mark.parametrize(
    ("left", "right"),
    [
        # Defaults, counted from behind, idle.
        (model("Softmax", 18), model("Softmax", 18, axis=3)),
        (model("Trilu", 18, upper=0), model("Trilu", 18, np.array(0), upper=0)),
        (model("Pad", 18, _PADS), model("Pad", 18, _PADS, np.float32(0), mode="constant")),
        (resized(18, mode="linear"), resized(18, mode="linear", nearest_mode="floor")),
        # Numbers that are weights.
        (model("Add", 18, np.zeros(4, np.float32)), model("Add", 18, np.ones(4, np.float32))),
    ],
    ids=lambda m: m.graph.node[0].op_type,
)
def test_the_same_work_is_recognised(left: ModelProto, right: ModelProto) -> None:
    assert SAME.digest(SAME.with_plain_axes(left)) == SAME.digest(SAME.with_plain_axes(right))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (model("Softmax", 18), model("Softmax", 18, axis=1)),
        (model("Trilu", 18), model("Trilu", 18, np.array(1))),
        (model("Pad", 18, _PADS), model("Pad", 18, _PADS, np.float32(1))),
        (resized(18, mode="nearest"), resized(18, mode="nearest", nearest_mode="floor")),
        (model("Add", 18, np.zeros(4, np.float32)), model("Add", 18, np.zeros((4, 4), np.float32))),
        (model("Pow", 18, np.float32(2)), model("Pow", 18, np.float32(1.5))),
    ],
    ids=lambda m: m.graph.node[0].op_type,
)
def test_other_work_is_not(left: ModelProto, right: ModelProto) -> None:
    assert SAME.digest(SAME.with_plain_axes(left)) != SAME.digest(SAME.with_plain_axes(right))
