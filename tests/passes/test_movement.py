"""Movement as PyTorch's exporter leaves it (aten nodes with positional inputs), and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import ModelProto, TensorProto, helper, numpy_helper

from rewriter.decompose import decompose
from rewriter.errors import DecompositionError
from rewriter.execution.session import Session
from rewriter.placeholder import Selection
from rewriter.storage import ModelFile


def fall_through(name: str, x: torch.Tensor, *arguments: Any) -> ModelProto:
    """One aten node: a tensor, and its arguments as constants in the operator's schema order; None is left out."""
    inputs, constants = ["x"], []
    for number, argument in enumerate(arguments):
        if argument is None:
            inputs.append("")
            continue
        array = np.asarray(argument)
        array = array.astype(np.float32) if array.dtype.kind == "f" else array
        constants.append(numpy_helper.from_array(array, f"c{number}"))
        inputs.append(f"c{number}")
    node = helper.make_node(name, inputs, ["y"], domain="org.pytorch.aten")
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [info], [result], constants)
    imports = [helper.make_opsetid("", 13), helper.make_opsetid("org.pytorch.aten", 1)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 8
    return model


def rewritten(model: ModelProto, x: torch.Tensor) -> Any:
    with ModelFile.from_proto(model) as file:
        decompose(file, Selection.load("auto"))
        assert not {n.domain for n in file.model.graph.node} - {""}
        return Session(file, file.model).run({"x": x.numpy()}, ["y"])["y"]


IMAGE = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)
COLUMNS = torch.arange(2 * 12 * 6, dtype=torch.float32).reshape(2, 12, 6)

FORMS = [
    ("constant_pad_nd", IMAGE, ([1, 2, 3, 0], 1.5), F.pad(IMAGE, (1, 2, 3, 0), value=1.5)),
    ("constant_pad_nd", IMAGE, ([1, -2],), F.pad(IMAGE, (1, -2))),
    ("pad", IMAGE, ([1, 2], None, 2.0), F.pad(IMAGE, (1, 2), value=2.0)),
    ("reflection_pad2d", IMAGE, ([1, 2, 3, 0],), F.pad(IMAGE, (1, 2, 3, 0), mode="reflect")),
    ("replication_pad2d", IMAGE, ([1, 2, 3, 0],), F.pad(IMAGE, (1, 2, 3, 0), mode="replicate")),
    ("_pad_circular", IMAGE, ([1, 2, 3, 0],), F.pad(IMAGE, (1, 2, 3, 0), mode="circular")),
    (
        "im2col",
        IMAGE,
        ([2, 3], [1, 1], [0, 1], [2, 1]),
        F.unfold(IMAGE, (2, 3), (1, 1), (0, 1), (2, 1)),
    ),
    (
        "col2im",
        COLUMNS,
        ([4, 3], [2, 2], [1, 1], [0, 0], [1, 1]),
        F.fold(COLUMNS, (4, 3), (2, 2)),
    ),
    ("flip", IMAGE, ([0, -1],), IMAGE.flip(0, -1)),
    ("rot90", IMAGE, (3, [1, 2]), IMAGE.rot90(3, (1, 2))),
    ("tril", IMAGE, (-1,), IMAGE.tril(-1)),
    ("triu", IMAGE, (1,), IMAGE.triu(1)),
    ("repeat_interleave", IMAGE, (2, 1, None), IMAGE.repeat_interleave(2, 1)),
    (
        "repeat_interleave",
        IMAGE,
        ([0, 2, 1, 3], 2, None),
        IMAGE.repeat_interleave(torch.tensor([0, 2, 1, 3]), 2),
    ),
    ("repeat_interleave", IMAGE, (3, None, None), IMAGE.repeat_interleave(3)),
    ("pixel_unshuffle", IMAGE[..., :4], (2,), F.pixel_unshuffle(IMAGE[..., :4], 2)),
]


@pytest.mark.parametrize(
    ("name", "x", "arguments", "expected"), FORMS, ids=[f"{f[0]}-{f[2]}".replace(" ", "") for f in FORMS]
)
def test_aten_forms(name: str, x: torch.Tensor, arguments: Any, expected: torch.Tensor) -> None:
    np.testing.assert_array_equal(
        rewritten(fall_through(name, x, *arguments), x.contiguous()), expected.numpy()
    )


@pytest.mark.parametrize("sizes", [(3, 5), ("a", "b")], ids=["static", "symbolic"])
@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize(
    ("shifts", "dims"),
    [
        ([-(2**63)], [1]),
        ([-(2**63)], []),
        ([-(2**63)] * 2, [1, 1]),
        ([2**63 - 1] * 3, [0, 0, 0]),
        ([-(2**63), 2**63 - 1], [0, 0]),
    ],
)
def test_shifts_at_the_ends_of_int64(shifts: Any, dims: Any, opset: int, sizes: Any) -> None:
    x = torch.arange(15, dtype=torch.float32).reshape(3, 5)
    model = fall_through("roll", x, np.asarray(shifts, np.int64), np.asarray(dims, np.int64))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes))
    model.opset_import[0].version = opset
    # Python's numbers have no end, so NumPy's roll takes them as they are; torch reads none below -2**62.
    expected = np.roll(x.numpy(), shifts, dims) if dims else np.roll(x.numpy(), shifts[0])
    np.testing.assert_array_equal(rewritten(model, x), expected)


def test_a_mode_as_text() -> None:
    model = fall_through("pad", IMAGE, [1, 2, 0, 0])
    model.graph.initializer.append(helper.make_tensor("mode", TensorProto.STRING, [], [b"circular"]))
    model.graph.node[0].input.append("mode")
    np.testing.assert_array_equal(
        rewritten(model, IMAGE), F.pad(IMAGE, (1, 2, 0, 0), mode="circular").numpy()
    )


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("reflection_pad2d", ([5, 0, 0, 0],), "at most 4"),
        ("_pad_circular", ([6, 0, 0, 0],), "at most 5"),
        ("_pad_circular", ([3, -3],), "at most 2"),
        ("constant_pad_nd", ([-3, -3],), "crop more than the 5 elements"),
        ("constant_pad_nd", ([1],), "1 pads are given"),
        ("pixel_shuffle", (2,), "no multiple"),
        ("pixel_unshuffle", (3,), "no multiple of 3"),
        ("im2col", ([5, 5], [1, 1], [0, 0], [1, 1]), "does not fit"),
        ("flip", ([0, 0],), "twice"),
        ("rot90", (1, [1, 1]), "two axes that differ"),
        ("repeat_interleave", ([1, 2], 1, None), "2 repeats are given for 3 elements"),
    ],
)
def test_what_pytorch_refuses_is_refused(name: str, arguments: Any, message: str) -> None:
    with (
        ModelFile.from_proto(fall_through(name, IMAGE, *arguments)) as file,
        pytest.raises(DecompositionError) as caught,
    ):
        decompose(file, Selection.load("auto"))
    assert message in str(caught.value)


def test_unfold_of_a_tensor_is_not_taken_for_im2col() -> None:
    """`aten::unfold(x, 1, 2, 1)` would bind as kernel 1, dilation 2 and padding 1."""
    model = fall_through("unfold", IMAGE, 1, 2, 1)
    with ModelFile.from_proto(model) as file:
        node = file.model.graph.node[0]
        assert Selection.load("auto").match(node) is None
        with pytest.raises(DecompositionError):
            decompose(file, Selection.load("unfold"))
