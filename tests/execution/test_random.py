"""Models that draw random numbers: two copies of one are the same, and what differs besides is still found."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from rewriter.errors import MismatchError
from rewriter.execution.session import Session
from rewriter.storage import ModelFile
from tests.verify.conftest import Double, prove

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.example": 1, "local": 1]>\n'

DRAWS = {
    # Computed: where it is constant, onnxruntime 1.32 drops the Dropout, training or not.
    "Dropout": """k = ReduceSum<keepdims = 0>(d) h = IsNaN(k) b = Not(h)
        r = Constant<value = float {0.5}>() n = Dropout(d, r, b)""",
    "RandomNormalLike": "n = RandomNormalLike(d)",
    "RandomUniformLike": "n = RandomUniformLike<seed = 3.0>(d)",
    "RandomNormal": "s = RandomNormal<shape = [8, 8]>() n = Add(d, s)",
    "Bernoulli": "u = Sigmoid(d) n = Bernoulli(u)",
    "in a branch": """k = ReduceSum<keepdims = 0>(d) c = Cast<to = 9>(k)
        n = If(c) <then_branch = p () => (e) { e = RandomNormalLike(d) }, else_branch = q () => (f) { f = Neg(d) }>""",
    "in a function": "n = local.Noise(d)",
}
FUNCTION = '<domain: "local", opset_import: ["": 17]> Noise (x) => (y) { y = RandomNormalLike(x) }'


def noisy(how: str) -> onnx.ModelProto:
    return parser.parse_model(
        HEAD
        + f"g (float[8, 8] x) => (float[8, 8] y) {{ d = com.example.Double(x) {DRAWS[how]} y = Mul(n, d) }}"
        + FUNCTION
    )


def moved(model: onnx.ModelProto) -> None:
    """The same model with other positions, from which onnxruntime takes the seeds that are not given."""
    nodes = [onnx.helper.make_node("Identity", ["x"], [f"spare{i}"]) for i in range(3)]
    for node in reversed(nodes):
        model.graph.node.insert(0, node)


@pytest.mark.parametrize("how", DRAWS)
def test_random_numbers_are_no_difference(how):
    assert prove(noisy(how), Double(), delivered=moved).verdict == "verified"


@pytest.mark.parametrize("how", DRAWS)
def test_what_differs_besides_is_found(how):
    def changed(model):
        moved(model)
        model.graph.node[-1].op_type = "Add"

    with pytest.raises(MismatchError, match="output 'y'"):
        prove(noisy(how), Double(), delivered=changed)


@pytest.mark.parametrize("how", DRAWS)
def test_a_session_starts_anew_with_each_run(how):
    source = noisy(how)
    source.graph.node[0].CopyFrom(onnx.helper.make_node("Identity", ["x"], ["d"]))
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    with ModelFile.from_proto(source) as file:
        session = Session(file, file.model, optimise=False)
        first, second = session.run({"x": x})["y"], session.run({"x": x})["y"]
        assert not any(
            a.name == "seed" and a.f != 3.0 for node in file.model.graph.node for a in node.attribute
        )
    np.testing.assert_array_equal(first, second)
    assert np.unique(first / x).size > 1


def test_what_only_the_runtime_s_optimiser_spoils_is_said_so():
    """onnxruntime 1.32 drops a Dropout in training mode whose flag is a constant: not the file's fault."""
    source = parser.parse_model(
        HEAD
        + """g (float[8, 8] x) => (float[8, 8] y) {
            d = com.example.Double(x) r = Constant<value = float {0.5}>() b = Constant<value = bool {1}>()
            e = Neg(d) n = Dropout(e, r, b) y = Mul(n, d) }"""
    )
    with pytest.raises(MismatchError, match="onnxruntime's optimiser") as caught:
        prove(source, Double())
    assert caught.value.remedy is not None
    assert "right as it is written" in caught.value.remedy
