"""Whole models brought to an opset: bodies, functions, weights, what is refused, what stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import rewriter
from rewriter.errors import TargetError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def parse(text: str) -> onnx.ModelProto:
    return parser.parse_model(text)


def brought(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
    """The model without simplification and proof, checked."""
    found = rewriter.rewrite(model, simplify=False, verify=False, **options).model
    assert found is not None
    onnx.checker.check_model(found)
    return found


def ran(model: onnx.ModelProto, **feeds: Any) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def agree(before: onnx.ModelProto, after: onnx.ModelProto, **feeds: Any) -> None:
    for a, b in zip(ran(before, **feeds), ran(after, **feeds), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


NORMALISED = """
<ir_version: 10, opset_import: ["" : 21]>
main (float[N,8,6] x, float[8] s, float[8] b) => (float[N,8,6] y, int64[r] z)
{
  g = GroupNormalization<num_groups=2>(x, s, b)
  e = Gelu(g)
  k = Constant<value_ints=[2,-1]>()
  t = ReduceMax(e, k)
  y = Add(g, t)
  z = Shape<start=1>(y)
}"""


@pytest.mark.parametrize("opset", [11, 13, 17, 18])
def test_operators_that_came_later_are_written_in_older_ones(opset: int) -> None:
    before = parse(NORMALISED)
    after = brought(before, opset=opset)
    assert [item.version for item in after.opset_import] == [opset]
    rng = np.random.default_rng(0)
    for n in (1, 3):
        feeds = {
            name: rng.standard_normal(shape).astype(np.float32)
            for name, shape in (("x", (n, 8, 6)), ("s", (8,)), ("b", (8,)))
        }
        agree(before, after, **feeds)


def test_a_proved_run_needs_no_second_one(tmp_path: Path) -> None:
    onnx.save(parse(NORMALISED), tmp_path / "a.onnx")
    report = rewriter.rewrite(tmp_path / "a.onnx", tmp_path / "b.onnx", opset=13)
    assert report.outcome == "verified"
    assert report.opset_before == 21
    assert {item.operator: item.opset for item in report.replaced}["Gelu"] == 21
    assert report.manifest is not None
    assert report.manifest["opset_before"] == 21
    assert report.manifest["verification"]["against"][0] == "the operators of ONNX that were replaced"
    again = rewriter.rewrite(tmp_path / "b.onnx", tmp_path / "c.onnx", opset=13)
    assert again.outcome == "copied"
    assert (tmp_path / "b.onnx").read_bytes() == (tmp_path / "c.onnx").read_bytes()


def test_a_model_at_the_target_keeps_its_bytes(tmp_path: Path) -> None:
    model = parse(
        '<ir_version: 8, opset_import: ["" : 13]> main (float[N] x) => (float[N] y) { y = Relu(x) }'
    )
    onnx.save(model, tmp_path / "a.onnx")
    report = rewriter.rewrite(tmp_path / "a.onnx", tmp_path / "b.onnx", opset=13, ir_version=8)
    assert report.outcome == "copied"
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_nodes_of_the_same_form_stay_as_they_are_and_weights_too() -> None:
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="mine", doc_string="kept"),
        helper.make_node("Transpose", ["m"], ["y"], perm=[1, 0]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, "n"])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    report = rewriter.rewrite(model, simplify=False, verify=False, opset=13)
    assert report.replaced == []
    assert report.model is not None
    assert list(report.model.graph.node) == nodes
    assert list(report.model.graph.initializer) == [weight]
    assert report.model.ir_version == 8
    assert report.ir_version_before == 10


def test_bodies_and_functions_are_brought_as_well() -> None:
    model = parse("""
    <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    main (bool c, float[N,4] x) => (float[N,4] y)
    {
      y = If (c) <
        then_branch = g () => (float[N,4] a) { h = Gelu<approximate="tanh">(x)  a = local.twice(h) },
        else_branch = g () => (float[N,4] b) { s = ReduceSum<noop_with_empty_axes=1>(x)  b = Identity(s) }
      >
    }
    <domain: "local", opset_import: ["" : 21]>
    twice (x) => (y) { k = Constant<value_ints=[0]>()  m = ReduceMax(x, k)  y = Add(x, m) }
    """)
    after = brought(model, opset=13)
    assert [item.version for item in after.functions[0].opset_import if not item.domain] == [13]
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    for flag in (True, False):
        agree(model, after, c=np.array(flag), x=x)


def test_types_that_only_the_older_form_lacks_go_through_wider_ones() -> None:
    model = parse("""
    <ir_version: 8, opset_import: ["" : 18]>
    main (uint8[3] a, uint8[3] b, bool[2,3] m) => (uint8[3] y, bool[2,1] z)
    { k = Constant<value_ints=[1]>()  y = Add(a, b)  t = Cast<to=3>(m)  r = ReduceMax(t, k)  z = Cast<to=9>(r) }
    """)
    after = brought(model, opset=13)
    a, b = np.array([250, 1, 7], np.uint8), np.array([10, 2, 200], np.uint8)
    y, z = ran(after, a=a, b=b, m=np.array([[0, 0, 0], [0, 1, 0]], bool))
    np.testing.assert_array_equal(y, a + b)  # wraps around
    np.testing.assert_array_equal(z, [[False], [True]])


def test_axes_that_are_computed() -> None:
    model = parse("""
    <ir_version: 8, opset_import: ["" : 18]>
    main (float[2,3,4] x, int64[n] axes) => (float[P,Q,R] y) { y = ReduceMean<keepdims=1>(x, axes) }
    """)
    after = brought(model, opset=13)
    x = np.random.default_rng(2).standard_normal((2, 3, 4)).astype(np.float32)
    for axes in ([0], [-1, 1], [], [0, 1, 2]):
        agree(model, after, x=x, axes=np.array(axes, np.int64))


def test_every_node_without_a_form_is_named_at_once() -> None:
    model = parse("""
    <ir_version: 10, opset_import: ["" : 26]>
    main (float[2] x, string[2] s, string[2] t) => (int32[2] y, string[2] z)
    { y = BitCast<to=6>(x)  z = StringConcat(s, t) }
    """)
    with pytest.raises(TargetError) as caught:
        rewriter.rewrite(model, opset=13, verify=False)
    told = "\n".join([caught.value.what, *caught.value.details])
    assert "BitCast" in told
    assert "StringConcat" in told
    found = rewriter.inspect(model, opset=13)
    assert any("BitCast" in line for line in found.refused)


def test_operators_can_be_expanded_and_spared() -> None:
    model = parse(NORMALISED)
    expanded = brought(model, expand="Gelu,GroupNormalization")
    assert not {"Gelu", "GroupNormalization"} & {node.op_type for node in expanded.graph.node}
    assert expanded.opset_import[0].version == 21
    spared = rewriter.rewrite(model, simplify=False, verify=False, opset=13, no_expand=["Gelu"]).model
    assert spared is not None
    assert "Gelu" in {node.op_type for node in spared.graph.node}


def test_placeholders_are_written_at_the_target() -> None:
    model = parse("""
    <ir_version: 10, opset_import: ["" : 21, "com.example" : 1]>
    main (float[2,6] x) => (float[2,6] y) { r = com.example.Roll<shifts=[1], dims=[1]>(x)  y = HardSwish(r) }
    """)
    after = brought(model, opset=11)
    x = np.arange(12, dtype=np.float32).reshape(2, 6) - 5
    rolled = np.roll(x, 1, 1)
    np.testing.assert_allclose(ran(after, x=x)[0], rolled * np.clip(rolled / 6 + 0.5, 0, 1), rtol=1e-6)


@pytest.mark.parametrize(("target", "expected"), [(21, 10), (13, 8), (25, 13)])
def test_the_ir_version_follows_the_opset(target: int, expected: int) -> None:
    model = parse(
        '<ir_version: 10, opset_import: ["" : 18]> main (float[N] x) => (float[N] y) { y = Abs(x) }'
    )
    assert brought(model, opset=target).ir_version == expected


def test_an_ir_version_below_what_the_model_needs_is_refused() -> None:
    model = parse("""
    <ir_version: 10, opset_import: ["" : 18, "local" : 1]>
    main (float[N] x) => (float[N] y) { y = local.f(x) }
    <domain: "local", opset_import: ["" : 18]> f (x) => (y) { y = Abs(x) }
    """)
    with pytest.raises(TargetError):
        rewriter.rewrite(model, ir_version=7, verify=False)
    assert brought(model, ir_version=8).ir_version == 8


def test_what_cannot_be_a_target() -> None:
    model = parse(NORMALISED)
    for options in (
        {"opset": 6},
        {"opset": 99},
        {"expand": "NoSuch"},
        {"expand": "Gelu", "no_expand": "Gelu"},
    ):
        with pytest.raises(UsageError):
            rewriter.rewrite(model, verify=False, **options)  # type: ignore[arg-type]


def test_below_opset_11_nodes_must_stay() -> None:
    stays = parse(
        '<ir_version: 8, opset_import: ["" : 13]> main (float[N] x) => (float[N] y) { y = Relu(x) }'
    )
    assert brought(stays, opset=9).opset_import[0].version == 9
    with pytest.raises(TargetError):
        rewriter.rewrite(parse(NORMALISED), opset=9, verify=False)
