"""The pictures' data against the models that they are of."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import rewriter
from rewriter.page.drawing import draw
from rewriter.page.neighbourhood import Neighbourhood
from tests.page.conftest import chain, model, roll

if TYPE_CHECKING:
    from onnx import NodeProto

Picture = dict[str, Any]


def drawings(source: ModelProto, **options: Any) -> list[Picture]:
    report = rewriter.rewrite(source, details=True, verify=False, simplify=False, **options)
    assert report.details is not None
    found = report.details.drawings
    assert found is not None
    return found


def names(picture: Picture, kind: str) -> list[str]:
    return [node["name"] or node["op"] for node in picture["nodes"] if node["kind"] == kind]


def arrows(picture: Picture) -> set[tuple[str, str]]:
    ops = [node["op"] for node in picture["nodes"]]
    return {(ops[start], ops[end]) for start, _, end in picture["edges"]}


def test_before_and_after_with_neighbours() -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="abs"),
        roll("a", "r", "roll", 2),
        helper.make_node("Relu", ["r"], ["b"], name="relu"),
        helper.make_node("Neg", ["r"], ["c"], name="neg"),
        helper.make_node("Add", ["b", "c"], ["y"], name="add"),
    ]
    (drawing,) = drawings(model(nodes, "y"))
    (picture,) = drawing["pictures"]
    before, after = picture["before"], picture["after"]
    assert names(before, "placeholder") == ["roll"]
    assert names(before, "neighbour") == ["abs", "relu", "neg"]
    assert arrows(before) == {
        ("Abs", "com.example::Roll"),
        ("com.example::Roll", "Relu"),
        ("com.example::Roll", "Neg"),
    }
    assert [n["op"] for n in after["nodes"] if n["kind"] == "new"] == drawing["into"]
    assert arrows(after) == {
        ("Abs", "Slice"),
        ("Slice", "Concat"),
        ("Concat", "Relu"),
        ("Concat", "Neg"),
    }
    assert before["nodes"][1]["lines"] == ["shifts=(2,)", "dims=(1,)"]


def test_types_and_constants() -> None:
    (drawing,) = drawings(model([roll("x", "y", "roll", 2)], "y"))
    picture = drawing["pictures"][0]
    assert ["y", "float32[batch, 6]"] in picture["before"]["nodes"][1]["outputs"]
    slices = [node for node in picture["after"]["nodes"] if node["op"] == "Slice"]
    # The last two of the six columns come first.
    assert slices[0]["lines"] == ["starts: [4]", "ends: [6]", "axes: [1]"]
    assert [node["outputs"][0][1] for node in slices] == ["float32[batch, 2]", "float32[batch, 4]"]
    assert names(picture["before"], "input") == ["x"]
    assert names(picture["after"], "output") == ["y"]


def test_weights_are_told_by_their_type() -> None:
    nodes = [
        roll("x", "r", "roll"),
        helper.make_node("MatMul", ["r", "w"], ["m"], name="matmul"),
        helper.make_node("ReduceSum", ["m"], ["s"], keepdims=0),
        helper.make_node("Gelu", ["w"], ["v"], domain="com.example"),
        helper.make_node("ReduceSum", ["v"], ["t"], keepdims=0),
        helper.make_node("Add", ["s", "t"], ["u"]),
        helper.make_node("Add", ["x", "u"], ["y"]),
    ]
    by_operator = {d["operator"]: d for d in drawings(model(nodes, "y", weights=300))}
    before = by_operator["com.example::Gelu"]["pictures"][0]["before"]
    (placeholder,) = [node for node in before["nodes"] if node["kind"] == "placeholder"]
    assert "x: float32[6, 300]" in placeholder["lines"]


def test_equal_ones_share_a_picture_and_kinds_have_few() -> None:
    (drawing,) = drawings(chain(300))
    assert (drawing["count"], drawing["variants"]) == (300, 3)
    assert [picture["count"] for picture in drawing["pictures"]] == [100, 100]


def test_many_kinds_have_few_pictures_in_all() -> None:
    nodes: list[NodeProto] = []
    last = "x"
    for index in range(60):
        # A name of its own makes a kind of its own.
        nodes.append(
            helper.make_node(
                "Roll", [last], [f"r{index}"], domain=f"d{index}", shifts=[1], dims=[1], name=f"n{index}"
            )
        )
        last = f"r{index}"
    source = model(nodes, last)
    for index in range(60):
        source.opset_import.add(domain=f"d{index}", version=1)
    found = drawings(source, passes="roll")
    assert len(found) == 60
    assert sum(len(drawing["pictures"]) for drawing in found) == 30


def test_a_large_region_is_drawn_in_part() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["v0"])]
    nodes += [helper.make_node("Add", [f"v{n}", f"v{n // 2}"], [f"v{n + 1}"]) for n in range(60)]
    source = model(nodes, "v60")
    picture = draw(Neighbourhood(source, source.graph), list(source.graph.node), "new")
    kinds = Counter(node["kind"] for node in picture["nodes"])
    assert kinds == {"input": 1, "new": 24, "more": 1, "output": 1}
    (more,) = [node for node in picture["nodes"] if node["kind"] == "more"]
    assert more["op"] == f"{61 - 24} more nodes"
    assert more["lines"] == [f"{61 - 24} × Add"]
    _check_connected(picture)


def test_readers_that_lead_nowhere_are_left_out() -> None:
    nodes = [roll("x", "r", "roll"), helper.make_node("Relu", ["r"], ["y"], name="relu")]
    nodes.append(helper.make_node("Neg", ["r"], ["unread"], name="neg"))
    (drawing,) = drawings(model(nodes, "y"))
    assert names(drawing["pictures"][0]["before"], "neighbour") == ["relu"]


def test_many_readers_are_counted() -> None:
    nodes = [roll("x", "r", "roll")]
    nodes += [helper.make_node("Relu", ["r"], [f"a{index}"], name=f"relu{index}") for index in range(20)]
    nodes.append(helper.make_node("Sum", [f"a{index}" for index in range(20)], ["y"]))
    (drawing,) = drawings(model(nodes, "y"))
    before = drawing["pictures"][0]["before"]
    assert len(names(before, "neighbour")) == 6
    assert names(before, "more") == ["14 more readers"]


def _check_connected(picture: Picture) -> None:
    count = len(picture["nodes"])
    reached = {0}
    for start, output, end in picture["edges"]:
        assert 0 <= start < end < count
        assert output >= 0
    while True:
        grown = reached | {
            node for start, _, end in picture["edges"] if {start, end} & reached for node in (start, end)
        }
        if grown == reached:
            break
        reached = grown
    assert reached == set(range(count))


def test_in_a_body() -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, ["batch", 6])
    bodies = {}
    for branch, node in (
        ("then_branch", roll("x", "t", "inner")),
        ("else_branch", helper.make_node("Identity", ["x"], ["e"])),
    ):
        bodies[branch] = helper.make_graph([node], branch, [], [helper.make_value_info(node.output[0], kind)])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["c"], ["y"], name="if", **bodies),
    ]
    (drawing,) = drawings(model(nodes, "y"))
    picture = drawing["pictures"][0]
    assert "then_branch" in picture["scope"]
    assert names(picture["before"], "outer") == ["x"]
    assert names(picture["before"], "output") == ["t"]
    assert [n["op"] for n in picture["after"]["nodes"] if n["kind"] == "new"] == drawing["into"]


@pytest.mark.parametrize("as_function", [False, True])
def test_in_a_function(as_function: bool) -> None:
    source = model([helper.make_node("Block", ["x"], ["y"], domain="local", name="block")], "y")
    function = helper.make_function(
        "local", "Block", ["a"], ["b"], [roll("a", "b", "inner")], list(source.opset_import)
    )
    source.functions.append(function)
    source.opset_import.add(domain="local", version=1)
    (drawing,) = drawings(source, as_function=as_function)
    picture = drawing["pictures"][0]
    assert picture["scope"] == "function local::Block"
    assert names(picture["before"], "input") == ["a"]
    assert [n["op"] for n in picture["after"]["nodes"] if n["kind"] == "new"] == ["Slice", "Slice", "Concat"]
    assert (picture["function"] is not None) is as_function


def test_what_becomes_nothing_but_a_copy() -> None:
    """No shift at all leaves an Identity."""
    (drawing,) = drawings(model([roll("x", "y", "roll", 0)], "y"))
    assert drawing["into"] == ["Identity"]
    assert arrows(drawing["pictures"][0]["after"]) == {("x", "Identity"), ("Identity", "y")}


@pytest.mark.parametrize("name", [b"r0", b"a0", b"/blocks.0/roll"])
def test_names_that_are_not_utf8(name: bytes) -> None:
    raw = chain(2).SerializeToString().replace(name, b"\xff" + name[1:])
    report = rewriter.rewrite(ModelProto.FromString(raw), details=True, verify=False, simplify=False)
    assert "\\xff" in report.to_html()


def test_nothing_is_collected_unasked() -> None:
    assert rewriter.rewrite(chain(1), verify=False, simplify=False).details is None


def test_the_model_is_the_same_with_pictures() -> None:
    plain, drawn = (
        rewriter.rewrite(chain(4), verify=False, simplify=False, details=asked).model
        for asked in (False, True)
    )
    assert plain is not None
    assert drawn is not None
    assert plain.SerializeToString(deterministic=True) == drawn.SerializeToString(deterministic=True)
