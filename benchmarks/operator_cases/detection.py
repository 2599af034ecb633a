"""Rows for the passes of passes/detection/; see the package's docstring.

PyTorch has none of these operators, and exporters cannot write their references, which loop: only `box_decode` has
an exporter's form to be held against, and `nms` the one that torchvision registers for torch.onnx.
"""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from operator_cases import Row
from passes.detection import _draw as draw
from rewriter.placeholder import Case, f32, i64


def _sparse(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Scores of which few are above 0.25, as detectors give them."""
    return rng.uniform(0, 1, shape) ** 24


def _near(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.normal(0, 0.3, shape)


def _boxes(*shape: int) -> Any:
    return f32(*shape, draw=draw.boxes)


def _scores(*shape: int) -> Any:
    return f32(*shape, draw=_sparse)


def _torchvision_nms(count: int) -> Any:
    """As torchvision (v0.29.1) exports its `nms`, in torchvision/ops/_register_onnx_ops.py, without its idle casts."""

    def model(opset: int) -> onnx.ModelProto:
        constants = {
            "first": np.array([0], np.int64),
            "most": np.array([2**63 - 1], np.int64),
            "iou": np.array([0.5], np.float32),
            "box": np.array([2], np.int64),
            "last": np.array([1], np.int64),
        }
        steps = (
            ("Unsqueeze", "boxes first", "rows"),
            ("Unsqueeze", "scores first", "by_class"),
            ("Unsqueeze", "by_class first", "by_image"),
            ("NonMaxSuppression", "rows by_image most iou", "found"),
            ("Gather", "found box", "column"),
            ("Squeeze", "column last", "kept"),
        )
        nodes = [helper.make_node(op, inputs.split(), [output]) for op, inputs, output in steps]
        nodes[4].attribute.append(helper.make_attribute("axis", 1))
        inputs = [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [count, 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [count]),
        ]
        outputs = [helper.make_tensor_value_info("kept", TensorProto.INT64, [None])]
        tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        graph = helper.make_graph(nodes, "nms", inputs, outputs, tensors)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        made.ir_version = 8
        return made

    return model


def _swapped(feeds: dict[str, Any]) -> dict[str, Any]:
    """Every third box with its corners the wrong way round."""
    feeds["boxes"][::3] = feeds["boxes"][::3, [2, 3, 0, 1]]
    return feeds


def _nms(count: int) -> Row:
    return Row(
        "nms",
        str(count),
        Case(_boxes(count, 4), f32(count, draw=draw.distinct), iou_threshold=0.5),
        peers={"torchvision": _torchvision_nms(count)},
        special={"swapped corners": _swapped},
    )


ROWS: tuple[Row, ...] = (
    *(_nms(count) for count in (20, 100, 300, 1000, 4000)),
    Row(
        "batched_nms",
        "1000, 80 classes: moved apart",
        Case(_boxes(1000, 4), f32(1000, draw=draw.distinct), i64(1000, high=80), iou_threshold=0.5),
    ),
    Row(
        "batched_nms",
        "4000, 80 classes: by class",
        Case(_boxes(4000, 4), f32(4000, draw=draw.distinct), i64(4000, high=80), iou_threshold=0.5),
    ),
    Row(
        "multiclass_nms",
        "YOLO 1x8400x80, padded to 300",
        Case(
            f32(1, 8400, 4, draw=draw.centred),
            _scores(1, 80, 8400),
            score_threshold=0.25,
            max_total=300,
            box_format="cxcywh",
            layout="cn",
            padded=True,
        ),
    ),
    Row(
        "multiclass_nms",
        "4x1000x20, padded to 100",
        Case(_boxes(4, 1000, 4), _scores(4, 1000, 20), score_threshold=0.25, max_total=100, padded=True),
    ),
    Row(
        "detection",
        "SSD 1x1940x21, ragged",
        Case(
            f32(1, 1940, 4, draw=_near),
            _scores(1, 1940, 21),
            f32(1940, 4, draw=draw.centred),
            f32(value=0.25),
            f32(value=0.5),
            weights=[10.0, 10.0, 5.0, 5.0],
            anchor_format="cxcywh",
        ),
        constants=("anchors",),
    ),
    Row(
        "box_decode",
        "RetinaNet 1x76725x4",
        Case(f32(1, 76725, 4, draw=_near), _boxes(76725, 4)),
        constants=("anchors",),
        export=True,
    ),
    Row(
        "box_decode",
        "SSD 8732x4",
        Case(
            f32(8732, 4, draw=_near),
            f32(8732, 4, draw=draw.centred),
            weights=[10.0, 10.0, 5.0, 5.0],
            anchor_format="cxcywh",
        ),
        constants=("anchors",),
        export=True,
    ),
    Row(
        "box_decode",
        "Faster R-CNN 1000x364",
        Case(f32(1000, 364, draw=_near), _boxes(1000, 4), weights=[10.0, 10.0, 5.0, 5.0]),
        export=True,
    ),
)
