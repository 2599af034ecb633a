"""What protobuf allows and ONNX does not: one sentence with the place, whatever is asked of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import pytest
from onnx import AttributeProto, ModelProto, TensorProto

import rewriter
from rewriter.declare import explain, requirements
from rewriter.errors import ModelReadError
from rewriter.graph.validate import validate
from rewriter.inspection import inspect
from rewriter.types import TensorType

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
        (lambda m: m.opset_import.add(domain="ai.onnx", version=13), None),
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
        (lambda m: m.graph.initializer[0].dims.append(-1), "main graph"),
        (lambda m: m.graph.initializer[0].dims.extend([2**40, 2**40]), "main graph"),
        (lambda m: constant(m).dims.append(2**62), "Constant"),
        (lambda m: m.graph.sparse_initializer.add(dims=[4]).values.dims.append(-4), "main graph"),
        (lambda m: m.graph.sparse_initializer.add(dims=[-4]), "main graph"),
        (lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "~~"), "main graph"),
        (lambda m: m.graph.node[1].attribute[0].g.output.pop(), "If 'y'"),
        (lambda m: m.graph.node[1].attribute[1].g.ClearField("output"), "If 'y'"),
        (lambda m: m.graph.node[1].output.append("more"), "If 'y'"),
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


@pytest.mark.parametrize("number", [0, 99, 2**31 - 1, -1])
def test_element_types_that_onnx_does_not_know_are_kept(number: int) -> None:
    """Of an initializer and of declared types; they are taken for unknown."""
    model = whole()
    model.graph.initializer[0].data_type = number
    model.graph.value_info[0].type.tensor_type.elem_type = number
    report = rewriter.rewrite(model, passes="roll,swish", simplify=False, verify=False, details=True)
    result = report.model
    assert result is not None
    assert any("'y'" in warning and "unknown element type" in warning for warning in report.warnings) == (
        number != 0
    )
    assert result.graph.initializer[0] == model.graph.initializer[0]
    assert result.graph.value_info[0] == model.graph.value_info[0]


@pytest.mark.parametrize("scope", ["main graph", "If 'y' then_branch", "function local::F"])
def test_a_placeholder_that_reads_what_nothing_makes_is_refused(scope: str) -> None:
    model = whole()
    node = inner(model) if scope.startswith("If") else model.functions[0].node[0]
    if scope == "main graph":
        node = model.graph.node.add(op_type="Swish", domain="com.example", output=["s"], input=["x"])
    node.input[0] = "absent"
    with pytest.raises(ModelReadError, match="absent") as caught:
        rewriter.rewrite(model, passes="roll,swish", verify=False)
    assert getattr(caught.value.where, "scope", None) == scope


def test_a_size_beyond_64_bits_is_left_open_in_a_type() -> None:
    """Sizes are added and multiplied in Python, without an end."""
    proto = TensorType(1, (2, 1 << 63, "n", None, (1 << 63) - 1)).to_proto()
    assert TensorType.from_proto(proto) == TensorType(1, (2, None, "n", None, (1 << 63) - 1))
    assert TensorType.from_proto(TensorType(1, ()).to_proto()) == TensorType(1, ())
    assert TensorType.from_proto(TensorType(1).to_proto()) == TensorType(1)
