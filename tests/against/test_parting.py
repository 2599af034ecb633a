"""The search for the first node at which values part, on graphs of every form."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rewriter.against.mapping import matched
from rewriter.against.oracle import Step
from rewriter.errors import Where
from rewriter.types import TensorType
from rewriter.verify import parting as module
from rewriter.verify.blame import Blame
from rewriter.verify.parting import Parting
from tests.texts import parse

#: a → b → c → y, with a side d that y does not read, and a body that reads b.
GRAPH = """
<ir_version: 8, opset_import: ["" : 17]>
main (float[n] x, bool f) => (float[n] y, float[n] z)
{
    a = Neg(x)
    b = Abs(a)
    c = Mul(b, a)
    y = Add(c, x)
    d = Sqrt(a)
    z = If (f) <then_branch = yes () => (t) { t = Neg(b) }, else_branch = no () => (e) { e = Neg(d) }>
}
"""


def equal(found, expected):
    return None if np.array_equal(found, expected) else "differs"


@pytest.fixture
def graph():
    return Parting(parse(GRAPH), equal)


def verdicts(wrong, right="abcdyz"):
    return {name: "differs" if name in wrong else None for name in right}


@pytest.mark.parametrize(
    ("wrong", "outputs", "first"),
    [
        ("bcy", "y", "b"),
        ("abcdyz", "yz", "a"),
        ("y", "y", "y"),
        ("", "y", None),
        ("ay", "y", "y"),  # what agrees lies between: a was laid out otherwise
        ("dz", "z", "d"),  # through a body
        ("cyd", "y", "c"),  # d is not on the way
    ],
)
def test_the_first_of_those_that_lead_to_the_output(graph, wrong, outputs, first):
    assert graph.first(verdicts(wrong), list(outputs)) == first


def test_values_that_were_not_compared_are_passed_through(graph):
    known = verdicts("by", "by")
    assert graph.first(known, ["y"]) == "b"
    assert sorted(graph.before("y", known)) == ["b"]
    assert graph.unseen("y", known)
    assert not graph.unseen("b", verdicts("", "ab"))


def test_what_depends_on_what(graph):
    assert graph.ancestors("c") == ["a", "b", "c"]
    assert graph.ancestors("z") == ["a", "b", "d", "z"]
    assert graph.depends("y", ["x"])
    assert not graph.depends("y", ["f"])
    assert graph.depends("z", ["f"])


def test_values_are_held_a_few_at_a_time(graph, monkeypatch):
    graph.types = {name: TensorType(1, (1024,)) for name in "abc"}
    monkeypatch.setattr(module, "BUDGET", 4 * 4096)
    asked = []

    def values(names):
        asked.append(list(names))
        return {name: np.zeros(1) for name in names}

    assert graph.compare(list("abc"), values, values) == dict.fromkeys("abc")
    assert asked == [["a", "b"], ["a", "b"], ["c"], ["c"]]


def test_values_of_two_shapes_are_two_values_where_asked(graph):
    one, two = (lambda names, n=n: {name: np.zeros(n) for name in names} for n in (1, 2))
    assert graph.compare(["a"], one, two) == {"a": "differs"}
    assert graph.compare(["a"], one, two, alike=True) == {}


def test_blame_in_words_and_as_data():
    blame = Blame("export", Where("main graph", "n", "Mul", "net.py:3"), "'m' differs")
    assert str(blame) == "the export, first at Mul 'n' (net.py:3): 'm' differs"
    assert Blame("export").to_dict() == {
        "stage": "export",
        "node": "",
        "operator": "",
        "line": None,
        "scope": "",
        "detail": "",
        "cause": "",
    }


# --- which value is which operator's result ---------------------------------------------------------------------


def recorded(*nodes):
    """A chain of nodes; each with a name, a target, a module and a line that the dynamo exporter wrote into it."""
    names = ["x", *(name for name, *_ in nodes)]
    text = " ".join(f"{b} = Neg({a})" for a, b in itertools.pairwise(names))
    model = parse(
        f'<ir_version: 8, opset_import: ["" : 17]> main (float x) => (float {names[-1]}) {{ {text} }}'
    )
    for node, (name, target, path, line) in zip(model.graph.node, nodes, strict=True):
        add = node.metadata_props.add
        add(
            key="pkg.torch.onnx.fx_node",
            value=f"%{name} : [num_users=1] = call_function[target={target}](args = ())",
        )
        add(key="pkg.torch.onnx.name_scopes", value=str(["", path, name]))
        add(
            key="pkg.torch.onnx.stack_trace",
            value=f'File "/far/away/net.py", line {line}, in forward\n  code',
        )
    return model


def step(name, target, path, line):
    return Step(name, target, path, f"net.py:{line}:forward" if line else "")


def test_operators_are_matched_by_kind_module_and_line_not_by_number():
    model = recorded(("add_3", "aten.add", "a", 1), ("add_9", "aten.add", "b", 2))
    steps = [step("add_9", "aten.add", "a", 1), step("add_3", "aten.add", "b", 2)]
    assert matched(model, steps).names == {"add_3": "add_9", "add_9": "add_3"}
    assert matched(model, steps).certain


def test_operators_of_one_line_are_matched_in_order():
    model = recorded(("relu", "aten.relu", "a", 1), ("relu_1", "aten.relu", "a", 1))
    steps = [step("r0", "aten.relu", "a", 1), step("r1", "aten.relu", "a", 1)]
    assert matched(model, steps).names == {"relu": "r0", "relu_1": "r1"}


def test_one_too_few_on_a_line_is_not_guessed():
    model = recorded(("relu", "aten.relu", "a", 1))
    steps = [step("r0", "aten.relu", "a", 1), step("r1", "aten.relu", "a", 1)]
    assert matched(model, steps).names == {}


def test_without_lines_the_module_counts():
    model = recorded(("relu", "aten.relu", "a", 1), ("relu_1", "aten.relu", "b", 2))
    steps = [step("r0", "aten.relu", "b", 0), step("r1", "aten.relu", "a", 0)]
    assert matched(model, steps).names == {"relu": "r1", "relu_1": "r0"}


def test_a_file_without_records_is_matched_by_names():
    found = matched(parse(GRAPH), [step("a", "aten.neg", "", 1), step("q", "aten.abs", "", 1)])
    assert found.names == {"a": "a"}
    assert not found.certain


def test_the_torchscript_exporter_leaves_modules_that_are_called_once():
    model = parse(
        '<ir_version: 8, opset_import: ["" : 17]> main (float x) => (float y) '
        "{ a = Neg(x) b = Abs(a) c = Neg(b) y = Neg(c) }"
    )
    for node, name in zip(
        model.graph.node, ("/net/net.0/Neg", "/net/net.0/Abs", "/net/net.1/Neg", "/Neg"), strict=True
    ):
        node.name = name
    steps = [
        step("neg", "aten.neg", "net.0", 1),
        step("abs", "aten.abs", "net.0", 1),
        step("neg_1", "aten.neg", "net.1", 1),
        step("neg_2", "aten.neg", "", 1),
    ]
    assert matched(model, steps).names == {"b": "abs", "c": "neg_1"}
    twice = [*steps[:2], steps[2], step("neg_3", "aten.neg", "net.0", 1)]
    assert "b" not in matched(model, twice).names
