"""Axes that turn out to be empty at run time, where the model has a symbol for their size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rewriter.decompose import decompose
from rewriter.execution.session import Session
from rewriter.placeholder import Case, Selection, f32
from rewriter.placeholder.discovery import resolve
from rewriter.storage import ModelFile
from rewriter.testing.models import build

_BOXES = (f32(2, 6, 4), f32(2, 6, 3))
NO_IMAGES = {
    "group_norm": Case(f32(2, 6, 4, 3), 3, f32(6), f32(6)),
    "instance_norm": Case(f32(2, 6, 4, 3)),
    "multiclass_nms": Case(*_BOXES, score_threshold=0.1, max_total=5),
    "multiclass_nms, padded": Case(*_BOXES, score_threshold=0.1, max_total=5, padded=True),
}


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("name", NO_IMAGES)
def test_a_batch_of_no_images(name: str, opset: int) -> None:
    placeholder = resolve(name.partition(",")[0])[0]
    made = build(placeholder, NO_IMAGES[name], dtype="float32", opset=opset, symbolic=True, place="graph")
    # Weights have one axis.
    feeds = {key: array[:0] if array.ndim > 1 else array for key, array in made.feeds.items()}
    arguments = {
        key: torch.from_numpy(np.array(feeds[key])) if key in feeds else value
        for key, value in made.arguments.items()
    }
    expected = placeholder.reference(**arguments)
    expected = expected if isinstance(expected, (tuple, list)) else [expected]
    with ModelFile.from_proto(made.model) as file:
        decompose(file, Selection((placeholder,), frozenset({placeholder.pass_name()})))
        outputs = [output.name for output in file.model.graph.output]
        found = Session(file, file.model).run(feeds, outputs)
    assert [found[output].shape for output in outputs] == [tuple(e.shape) for e in expected]
