"""What protobuf allows and ONNX does not: one sentence with the place, whatever is asked of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

import rewriter
from rewriter.declare import explain, requirements
from rewriter.errors import ModelReadError
from rewriter.graph.validate import validate
from rewriter.inspection import inspect

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = """<ir_version: 10, opset_import: ["" : 17, "com.example" : 1, "local" : 1]>
g (float[2, 3] x, bool c) => (float[2, 3] z)
<float[2] w = {1, 2}, float[2, 3] y>
{
    k = Constant <value = int64[2] {1, 1}> ()
    y = If (c) <
        then_branch = a () => (float[2, 3] t) { [inner] t = com.example.Roll <shifts = [1], dims = [0]> (x) },
        else_branch = b () => (float[2, 3] e) { e = Neg (x) }>
    z = local.F (y)
}
<domain: "local", opset_import: ["" : 17, "com.example" : 1]>
F (a) => (b) { [called] b = com.example.Swish (a) }
"""


def whole() -> ModelProto:
    return onnx.parser.parse_model(TEXT)


def inner(model: ModelProto) -> Any:
    """The placeholder in the If."""
    return model.graph.node[1].attribute[0].g.node[0]


def constant(model: ModelProto) -> TensorProto:
    return model.graph.node[0].attribute[0].t


def broken(model: ModelProto, change: Callable[[ModelProto], object]) -> ModelProto:
    """``model`` after ``change``, in which ``~~`` stands for bytes that are not UTF-8."""
    change(model)
    return ModelProto.FromString(model.SerializeToString().replace(b"~~", b"\xff\xfe"))


def test_a_valid_model_is_none_of_these() -> None:
    validate(whole())
    assert rewriter.rewrite(whole(), verify=False).outcome == "unverified"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda m: setattr(m.opset_import[0], "version", 2**31), None),
        (lambda m: setattr(m.opset_import[1], "version", -1), None),
        (lambda m: setattr(m.functions[0].opset_import[1], "version", 2**40), None),
        (lambda m: setattr(m.opset_import[1], "domain", "~~"), None),
        (lambda m: setattr(m.functions[0], "name", "~~"), None),
        (lambda m: setattr(inner(m), "op_type", "~~"), "If 'y' then_branch"),
        (lambda m: setattr(inner(m), "op_type", ""), "If 'y' then_branch"),
        (lambda m: setattr(inner(m), "domain", "~~"), "If 'y' then_branch"),
        (lambda m: setattr(inner(m), "overload", "~~"), "If 'y' then_branch"),
        (lambda m: setattr(inner(m).attribute[0], "name", "~~"), "'inner' in If 'y' then_branch"),
        (lambda m: setattr(inner(m).attribute[0], "type", AttributeProto.UNDEFINED), "'inner'"),
        (
            lambda m: m.functions[0].node[0].attribute.add(name="n", type=AttributeProto.TENSOR),
            "function local::F",
        ),
        (lambda m: m.functions[0].node[0].attribute.add(name="n", type=AttributeProto.GRAPH), "'called'"),
        (lambda m: inner(m).attribute.add(name="t", type=4).t.SetInParent(), "'inner'"),
        (lambda m: inner(m).attribute.add(name="t", type=9).tensors.add(data_type=99), "'inner'"),
        (lambda m: setattr(m.graph.initializer[0], "data_type", 99), "main graph"),
        (lambda m: setattr(m.graph.initializer[0], "data_type", TensorProto.UNDEFINED), "main graph"),
        (lambda m: m.graph.initializer[0].dims.append(-1), "main graph"),
        (lambda m: m.graph.initializer[0].dims.extend([2**40, 2**40]), "main graph"),
        (lambda m: m.graph.initializer[0].dims.append(5), "main graph"),
        (lambda m: constant(m).dims.append(2**31), "Constant"),
        (lambda m: m.graph.sparse_initializer.add(dims=[4]).values.SetInParent(), "main graph"),
        (lambda m: setattr(m.graph.value_info[0].type.tensor_type, "elem_type", 99), "main graph"),
        (lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", -1), "main graph"),
        (lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "~~"), "main graph"),
        (lambda m: m.training_info.add().algorithm.node.add(op_type="~~"), "training algorithm"),
    ],
)
def test_what_is_not_onnx_is_refused_with_its_place(
    change: Callable[[ModelProto], object], place: str | None
) -> None:
    model = broken(whole(), change)
    for ask in (
        lambda: rewriter.rewrite(model, passes="roll", verify=False),
        lambda: inspect(model, passes="roll"),
    ):
        with pytest.raises(ModelReadError) as caught:
            ask()
        assert caught.value.remedy
        assert place is None or place in str(caught.value.where)
    for other in (requirements, explain):
        with pytest.raises(ModelReadError):
            other(model)


def test_every_element_type_is_told_from_its_stored_elements() -> None:
    """Elements in raw form, in typed fields, packed ones and complex ones."""
    for number in set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}:
        values = ["a"] * 6 if number == TensorProto.STRING else np.ones(6)
        tensor = helper.make_tensor("t", number, [2, 3], values)
        found = [tensor]
        if number != TensorProto.STRING:
            found.append(numpy_helper.from_array(numpy_helper.to_array(tensor), "t"))
        for item in found:
            model = whole()
            model.graph.initializer.append(item)
            validate(model)
            model.graph.initializer[-1].dims.append(4)
            if item.HasField("raw_data") or number not in _PACKED:
                with pytest.raises(ModelReadError):
                    validate(model)


#: Several elements share an entry of the typed field, so that its length says little.
_PACKED = {
    value
    for name, value in TensorProto.DataType.items()
    if name.endswith(("INT4", "INT2", "4E2M1", "6E2M3", "6E3M2"))
}
