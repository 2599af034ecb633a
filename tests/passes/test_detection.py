"""The references of passes/detection/ against what torchvision itself gave (`data/make_detection.py`)."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import NodeProto, TensorProto, helper

from passes.detection.batched_nms import BatchedNms
from passes.detection.box_decode import BoxDecode
from passes.detection.multiclass_nms import MulticlassNms
from passes.detection.nms import Nms
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Placeholder, Site, expand
from rewriter.types import TensorType


@functools.cache
def stored(prefix: str) -> dict[str, dict[str, np.ndarray]]:
    """Arrays by case, for one operator."""
    found: dict[str, dict[str, np.ndarray]] = {}
    with np.load(Path(__file__).with_name("data") / "detection.npz") as file:
        for key in file.files:
            operator, rest = key.split("/", 1)
            if operator == prefix:
                case, _, name = rest.rpartition("/")
                found.setdefault(case, {})[name] = file[key]
    return found


@pytest.mark.parametrize("case", stored("nms"))
def test_nms_is_torchvisions(case: str) -> None:
    rows, kept = (stored("nms")[case][name] for name in ("rows", "kept"))
    boxes, scores = torch.from_numpy(rows[:, :4]), torch.from_numpy(rows[:, 4])
    found = Nms().reference(boxes, scores, float(case.rpartition("/")[2]))
    assert 0 < len(kept) <= len(rows)
    assert found.tolist() == kept.tolist()


@pytest.mark.parametrize("case", stored("batched_nms"))
def test_batched_nms_is_torchvisions(case: str) -> None:
    rows, kept = (torch.from_numpy(stored("batched_nms")[case][name]) for name in ("rows", "kept"))
    scores = rows[:, 4].float() / len(rows)
    found = BatchedNms().reference(
        rows[:, :4].float() / 4, scores, rows[:, 5].long(), float(case.rpartition("/")[2])
    )
    assert 0 < len(kept) < len(rows)
    assert found.tolist() == kept.tolist()


@pytest.mark.parametrize("case", stored("box_decode"))
def test_box_decode_is_torchvisions(case: str) -> None:
    given = stored("box_decode")[case]
    deltas, anchors, boxes = (torch.from_numpy(given[name]) for name in ("deltas", "anchors", "boxes"))
    found = BoxDecode().reference(deltas, anchors, given["weights"].tolist())
    # The same operations in the same order, some of them on wider vectors.
    torch.testing.assert_close(found, boxes, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("case", stored("multiclass_nms"))
def test_multiclass_nms_is_batched_nms_of_all_pairs(case: str) -> None:
    boxes, scores, kept = (
        torch.from_numpy(stored("multiclass_nms")[case][n]) for n in ("boxes", "scores", "kept")
    )
    found = MulticlassNms().reference(boxes, scores, 0.5, 0.25, max_total=15)
    count = scores.shape[1]
    rows = kept.long()
    assert len(kept) == 15
    assert found[2].tolist() == (rows % count).tolist()
    assert torch.equal(found[1], scores.flatten()[rows])
    assert torch.equal(found[0], boxes[rows // count])
    assert found[3].item() == 15


def site(*shapes: tuple[int, ...], **attributes: object) -> Site:
    names = [f"x{i}" for i in range(len(shapes))]
    node: NodeProto = helper.make_node("Placeholder", names, ["y"], domain="mmcv", **attributes)
    return Site(node, tuple(TensorType(TensorProto.FLOAT, shape) for shape in shapes), opset=13)


@pytest.mark.parametrize(
    ("placeholder", "where", "said"),
    [
        (Nms(), site((5, 4), (5,), iou_threshold=-0.5), "iou_threshold is -0.5"),
        (Nms(), site((5, 4), (5,), iou_threshold=float("nan")), "iou_threshold is nan"),
        (Nms(), site((5, 4), (5,), iou_threshold=0.5, offset=2), "offset is 2"),
        (MulticlassNms(), site((5, 4), (5, 3), padded=1), "max_total"),
        (MulticlassNms(), site((5, 4), (5, 3), box_format="xywh"), "box_format is 'xywh'"),
        (MulticlassNms(), site((5, 4), (5, 3), layout="bnc"), "layout is 'bnc'"),
        (BoxDecode(), site((5, 4), (5, 4), weights=[1.0, 1.0]), "2 weights"),
        (BoxDecode(), site((5, 4), (5, 4), anchor_format="xywh"), "box format is 'xywh'"),
    ],
)
def test_refusals(placeholder: Placeholder, where: Site, said: str) -> None:
    with pytest.raises(UnsupportedParameter, match=said):
        expand(placeholder, where)


def test_a_threshold_is_rounded_downwards_where_float32_lacks_it() -> None:
    """0.3 in float32 is above 0.3: rounded to nearest, an IoU of just that would no longer exceed it."""
    node = helper.make_node("nms", ["b", "s", "t"], ["y"], domain="torchvision")
    types = (TensorType(TensorProto.FLOAT, (5, 4)), TensorType(TensorProto.FLOAT, (5,)), None)
    made = expand(Nms(), Site(node, types, constants={"t": np.asarray(0.3)}, opset=13))
    threshold = next(n for n in made.nodes if n.op_type == "NonMaxSuppression").input[3]
    value = next(t for t in made.initializers if t.name == threshold)
    found = np.frombuffer(value.raw_data, np.float32).item()
    assert found == float(np.nextafter(np.float32(0.3), np.float32(0)))
