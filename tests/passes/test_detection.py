"""The references of passes/detection/ against what torchvision itself gave (`data/make_detection.py`)."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import torch

from passes.detection.batched_nms import BatchedNms
from passes.detection.box_decode import BoxDecode
from passes.detection.nms import Nms


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
