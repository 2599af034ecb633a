"""The interface is compared in full: names, order, element types, sizes and their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest
from onnx import parser

from rewriter.errors import InterfaceChangedError
from rewriter.graph.interface import Interface

if TYPE_CHECKING:
    from collections.abc import Callable


def model() -> onnx.ModelProto:
    return parser.parse_model(
        """<ir_version: 10, opset_import: ["": 17]>
        g (float[N, 3] a, int64[2] b) => (float[N, 3] y, seq(float[N]) z) { y = Neg(a) z = SequenceEmpty() }"""
    )


def test_the_same_interface_whatever_is_inside():
    before, after = model(), model()
    del after.graph.node[:]
    after.graph.value_info.add(name="other")
    Interface.of(before).check(after)


CHANGES: list[Callable[[onnx.GraphProto], object]] = [
    lambda g: setattr(g.input[0], "name", "renamed"),
    lambda g: g.input.pop(),
    lambda g: g.output.add(name="more"),
    lambda g: g.input.sort(key=lambda v: v.name, reverse=True),
    lambda g: setattr(g.output[0].type.tensor_type, "elem_type", onnx.TensorProto.DOUBLE),
    lambda g: setattr(g.output[0].type.tensor_type.shape.dim[0], "dim_param", "M"),
    lambda g: g.output[0].type.tensor_type.shape.dim[0].Clear(),
    lambda g: setattr(g.output[0].type.tensor_type.shape.dim[1], "dim_value", 4),
    lambda g: g.output[0].type.tensor_type.ClearField("shape"),
    lambda g: g.output[1].type.sequence_type.elem_type.tensor_type.shape.dim[0].Clear(),
    lambda g: setattr(g.input[0].type, "denotation", "IMAGE"),
]


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_any_change_is_an_error(change: Callable[[onnx.GraphProto], object]):
    before, after = model(), model()
    change(after.graph)
    with pytest.raises(InterfaceChangedError):
        Interface.of(before).check(after)
