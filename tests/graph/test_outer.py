"""Types in bodies that rest on constants of the scopes around them; right values by numpy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import rewriter
from rewriter.execution.session import Session
from rewriter.graph.outer import show_constants
from rewriter.graph.scopes import main_scope
from rewriter.storage import ModelFile

HEAD = """<ir_version: 8, opset_import: ["":17,"local":1,"com.example":1]>
g (float[n,1,6] x, bool c) => (float[n,6] y)
"""
ROLL = "com.example.Roll<shifts: ints = [1], dims: ints = [1]>"
BRANCHES = f"""<then_branch = a () => (float[p,q] t) {{ s = Squeeze(x, axes)  t = {ROLL}(s) }},
               else_branch = b () => (float[r,s] e) {{ e = Squeeze(x, axes) }}>"""
SHAPED = f"""<then_branch = a () => (float[p,q] t) {{ s = Reshape(x, shape)  t = {ROLL}(s) }},
             else_branch = b () => (float[r,s] e) {{ e = Reshape(x, shape) }}>"""
#: What stands around a Roll of x without its axis of size 1.
MODELS = {
    "an initializer": HEAD + f"<int64[1] axes = {{1}}> {{ y = If(c) {BRANCHES} }}",
    "a Constant": HEAD + f"{{ axes = Constant<value_ints: ints = [1]>()  y = If(c) {BRANCHES} }}",
    "a Constant tensor": HEAD
    + f"{{ axes = Constant<value: tensor = int64[1] {{1}}>()  y = If(c) {BRANCHES} }}",
    "a shape": HEAD + f"<int64[2] shape = {{-1, 6}}> {{ y = If(c) {SHAPED} }}",
    "two levels": HEAD
    + f"""<int64[1] axes = {{1}}> {{ y = If(c)
        <then_branch = o () => (float[k,l] u) {{ u = If(c) {BRANCHES} }},
         else_branch = d () => (float[v,w] f) {{ f = Squeeze(x, axes) }}> }}""",
    "a function": HEAD
    + f"""{{ y = local.F(x, c) }}
        <domain: "local", opset_import: ["":17,"com.example":1]>
        F (x, c) => (y) {{ axes = Constant<value: tensor = int64[1] {{1}}>()  y = If(c) {BRANCHES} }}""",
    "a computed one": HEAD
    + f"""<int64[1] zero = {{0}}, int64 last = {{2}}, int64[1] rest = {{-1}}> {{
        sizes = Shape(x)  six = Gather(sizes, last)  one = Unsqueeze(six, zero)
        shape = Concat<axis = 0>(rest, one)  y = If(c) {SHAPED} }}""",
}


@pytest.mark.parametrize("name", MODELS)
def test_a_placeholder_in_a_branch_is_replaced_and_proved(name, tmp_path):
    report = rewriter.rewrite(parser.parse_model(MODELS[name]), tmp_path / "out.onnx", simplify=False)
    assert report.verification["verdict"] == "verified"
    model = onnx.load(tmp_path / "out.onnx")
    x = np.arange(12, dtype=np.float32).reshape(2, 1, 6)
    with ModelFile.from_proto(model) as file:
        session = Session(file, file.model)
        for condition, expected in ((True, np.roll(x[:, 0], 1, 1)), (False, x[:, 0])):
            found = session.run({"x": x, "c": np.asarray(condition)}, ["y"])["y"]
            assert found.tolist() == expected.tolist()


def test_a_loop_reads_a_constant_of_the_graph(tmp_path):
    source = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["":17,"com.example":1]>
        g (float[n,1,6] x) => (float[k,n,6] y) <int64[1] axes = {{1}}, int64 count = {{3}}, bool go = {{1}}> {{
          y = Loop(count, go) <body = b (int64 i, bool in) => (bool out, float[p,q] t) {{
            out = Identity(in)  s = Squeeze(x, axes)  t = {ROLL}(s) }}> }}"""
    )
    report = rewriter.rewrite(source, tmp_path / "out.onnx", simplify=False)
    assert report.verification["verdict"] == "verified"


def test_only_what_is_read_is_shown_and_names_of_a_body_stand():
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["":17]>
        g (float[n] x, bool c, int64[1] given) => (float[m] y)
        <int64[1] a = {1}, int64[1] b = {2}, int64[1] unread = {3}, int64[1] given = {4}> {
          y = If(c) <then_branch = t () => (float[k] r) { b = Identity(a)  r = Tile(x, b) },
                     else_branch = e () => (float[l] q) { h = Add(given, a)  q = Tile(x, h) }> }"""
    )
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    scope = main_scope(model)
    for _ in range(2):  # twice is as once
        show_constants(scope, graph)
    branches = [attribute.g for attribute in graph.node[0].attribute]
    assert [[tensor.name for tensor in branch.initializer] for branch in branches] == [["a"], ["a"]]
    assert not any(attribute.g.initializer for attribute in model.graph.node[0].attribute)
