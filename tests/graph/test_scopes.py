"""Scopes are found wherever they are, and found again."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

from rewriter.graph.scopes import ScopeRef, function_scope, main_scope, source_line

MODEL = """<ir_version: 10, opset_import: ["": 17, "local": 1]>
g (float[2] x, bool c) => (float[2] y) {
    [outer] y = If(c) <
        then_branch = t () => (float[2] p) {
            [n] p = If(c) <then_branch = tt () => (float[2] a) { a = Neg(x) },
                           else_branch = te () => (float[2] b) { b = Abs(x) }>
        },
        else_branch = e () => (float[2] q) { q = local.F(x, c) }>
}
<domain: "local", opset_import: ["": 15]> F(a, c) => (b) {
    b = If(c) <then_branch = ft () => (u) { u = Neg(a) }, else_branch = fe () => (v) { v = Abs(a) }>
}"""


@pytest.fixture
def model() -> onnx.ModelProto:
    return parser.parse_model(MODEL)


def test_every_scope_outer_ones_first(model: onnx.ModelProto):
    assert [scope.path for scope in main_scope(model).walk()] == [
        "main graph",
        "If 'outer' then_branch",
        "If 'outer' then_branch / If 'n' then_branch",
        "If 'outer' then_branch / If 'n' else_branch",
        "If 'outer' else_branch",
    ]
    function = function_scope(model.functions[0])
    assert [scope.path for scope in function.walk()] == [
        "function local::F",
        "function local::F / If 'b' then_branch",
        "function local::F / If 'b' else_branch",
    ]


def test_opsets_are_those_of_the_graph_or_of_the_function(model: onnx.ModelProto):
    assert {scope.opset for scope in main_scope(model).walk()} == {17}
    assert {scope.opset for scope in function_scope(model.functions[0]).walk()} == {15}


def test_parents(model: onnx.ModelProto):
    scopes = {scope.path: scope for scope in main_scope(model).walk()}
    inner = scopes["If 'outer' then_branch / If 'n' else_branch"]
    assert inner.parent is scopes["If 'outer' then_branch"]
    assert inner.parent.parent is scopes["main graph"]


def test_a_scope_is_found_again_after_its_nodes_have_moved(model: onnx.ModelProto):
    scopes = [*main_scope(model).walk(), *function_scope(model.functions[0]).walk()]
    refs = [(scope.ref, scope.graph.SerializeToString()) for scope in scopes if scope.parent is not None]
    for graph in (model.graph, model.functions[0]):
        graph.node.insert(0, onnx.helper.make_node("Neg", ["x"], ["other"]))
    for ref, content in refs:
        assert ref.find(model).SerializeToString() == content


def test_a_scope_that_is_not_there(model: onnx.ModelProto):
    with pytest.raises(KeyError):
        ScopeRef(("local", "G", "")).find(model)
    ref = next(scope.ref for scope in main_scope(model).walk() if scope.parent is not None)
    del model.graph.node[:]
    with pytest.raises(KeyError):
        ref.find(model)


@pytest.mark.parametrize(
    ("doc", "expected"),
    [
        ("", None),
        ("a layer of its own", None),
        (
            "/home/me/net.py(12): forward\n/x/site-packages/torch/nn/modules/module.py(3): _call\n",
            "/home/me/net.py:12",
        ),
        ("/x/site-packages/torch/_tensor.py(3): roll\n/home/me/net.py(12): forward\n", "/home/me/net.py:12"),
        ("/x/site-packages/torch/_tensor.py(3): roll\n", "/x/site-packages/torch/_tensor.py:3"),
    ],
)
def test_source_line_from_a_doc_string(doc: str, expected: str | None):
    assert source_line(onnx.NodeProto(doc_string=doc)) == expected
