"""Graphs at random, with bodies and functions in one another: the references must stand in wherever placeholders are.

The truth is onnxruntime on the same model with a Mul by 3 in the place of each placeholder.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from onnx import AttributeProto, NodeProto, helper, numpy_helper

from rewriter.execution.session import Session
from rewriter.placeholder import Case, Placeholder, Selection, Value, f32
from rewriter.storage import ModelFile
from rewriter.verify import StandIn
from tests.verify.conftest import BOOL, FLOAT, INT64, node

IMPORTS = [
    helper.make_opsetid(domain, version) for domain, version in (("", 17), ("com.example", 1), ("local", 1))
]


class Thrice(Placeholder):
    """x · 3, but only in PyTorch."""

    matches = ("Thrice",)

    def reference(self, x):
        return x * 3

    def decompose(self, g, x: Value):
        return x

    def cases(self):
        yield Case(f32(2))


def info(name, kind=FLOAT, shape=(2,)):
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name, value):
    return node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value)))


class Graph:
    """Makes nodes that compute vectors of two numbers from ``known`` ones; what is made last comes last."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.count = 0
        self.functions = []

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def block(self, known, depth, in_function=False):
        nodes, made = [], []
        makers = [self.placeholder, self.placeholder, self.sum, self.literal]
        if depth:
            makers += [self.branch, self.loop, self.scan]
        if depth and not in_function:
            makers.append(self.call)
        for _ in range(self.random.randint(2, 4)):
            new, results = self.random.choice(makers)([*known, *made], depth - 1, in_function)
            nodes += new
            made += results
        return nodes, made

    def pick(self, known):
        return self.random.choice(known)

    def placeholder(self, known, *_):
        out = self.name()
        return [node("Thrice", [self.pick(known)], [out], domain="com.example")], [out]

    def sum(self, known, *_):
        out = self.name()
        return [node("Add", [self.pick(known), self.pick(known)], [out])], [out]

    def literal(self, known, *_):
        out = self.name()
        return [constant(out, np.array([0.5, self.random.random()], np.float32))], [out]

    def branch(self, known, depth, in_function):
        limit, total, flag, out = (self.name() for _ in range(4))
        bodies = {}
        for key in ("then_branch", "else_branch"):
            nodes, made = self.block(known, depth, in_function)
            bodies[key] = helper.make_graph(nodes, key, [], [info(made[-1])])
        nodes = [
            constant(limit, np.float32(self.random.uniform(-1, 1))),
            node("ReduceSum", [self.pick(known)], [total], keepdims=0),
            node("Greater", [total, limit], [flag]),
            node("If", [flag], [out], **bodies),
        ]
        return nodes, [out]

    def loop(self, known, depth, in_function):
        turn, going, value, go, trips, last, seen, zero, total = (self.name() for _ in range(9))
        nodes, made = self.block([*known, value], depth, in_function)
        nodes.append(node("Identity", [going], [go]))
        body = helper.make_graph(
            nodes,
            "loop",
            [info(turn, INT64, []), info(going, BOOL, []), info(value)],
            [info(go, BOOL, []), info(made[-1]), info(made[0])],
        )
        nodes = [
            constant(trips, np.array(self.random.randint(0, 3))),
            constant(zero, np.array([0])),
            node("Loop", [trips, "", self.pick(known)], [last, seen], body=body),
            node("ReduceSum", [seen, zero], [total], keepdims=0),
        ]
        return nodes, [last, total]

    def scan(self, known, depth, in_function):
        state, item, following, number, last, numbers = (self.name() for _ in range(6))
        nodes, made = self.block([*known, state], depth, in_function)
        nodes.append(node("Add", [made[-1], item], [following]))
        nodes.append(node("ReduceSum", [made[0]], [number], keepdims=0))
        body = helper.make_graph(
            nodes, "scan", [info(state), info(item, shape=[])], [info(following), info(number, shape=[])]
        )
        inputs = [self.pick(known), self.pick(known)]
        return [node("Scan", inputs, [last, numbers], body=body, num_scan_inputs=1)], [last, numbers]

    def call(self, known, depth, _):
        name, a, b, out = (self.name() for _ in range(4))
        nodes, made = self.block([a, b], depth, in_function=True)
        self.functions.append((name, [a, b], [made[-1]], nodes))
        return [node(name, [self.pick(known), self.pick(known)], [out], domain="local")], [out]


def plain(nodes):
    """``nodes`` with a Mul by 3 in the place of each placeholder, in bodies too."""
    result = []
    for original in nodes:
        copy = NodeProto()
        copy.CopyFrom(original)
        for attribute in copy.attribute:
            if attribute.type == AttributeProto.GRAPH:
                inner = plain(attribute.g.node)
                del attribute.g.node[:]
                attribute.g.node.extend(inner)
        if copy.op_type == "Thrice":
            factor = f"{copy.output[0]}:factor"
            result.append(constant(factor, np.float32(3)))
            copy = node("Mul", [copy.input[0], factor], list(copy.output))
        result.append(copy)
    return result


@pytest.mark.parametrize("seed", range(24))
def test_a_graph_at_random(seed):
    maker = Graph(seed)
    nodes, made = maker.block(["x", "w"], 3)
    outputs = made[-2:]

    def build(form):
        graph = helper.make_graph(
            form(nodes),
            "random",
            [info("x")],
            [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
            [numpy_helper.from_array(np.array([0.25, -0.5], np.float32), "w")],
        )
        functions = [
            helper.make_function("local", name, inputs, results, form(inner), IMPORTS)
            for name, inputs, results, inner in maker.functions
        ]
        return helper.make_model(graph, opset_imports=IMPORTS, functions=functions, ir_version=8)

    feeds = {"x": np.random.default_rng(seed).standard_normal(2).astype(np.float32)}
    with ModelFile.from_proto(build(plain)) as file:
        expected = Session(file, file.model, optimise=False).run(feeds)
    with ModelFile.from_proto(build(list)) as file:
        found = StandIn(file, file.model, Selection((Thrice(),))).run(feeds)
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].shape == value.shape
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4)
