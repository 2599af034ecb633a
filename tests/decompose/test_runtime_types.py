"""Types get past a runtime's own operators where their results have the type of what they take."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import parser

from rewriter.decompose import decompose
from rewriter.errors import NeedsRank
from rewriter.graph.runtime_types import SAME_AS_FIRST_INPUT
from rewriter.placeholder import Selection
from rewriter.storage import ModelFile

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1, "com.example": 1]>\n'
ROLL = "com.example.Roll <shifts: ints = [1], dims: ints = [1]>"


def decomposed(text: str):
    with ModelFile.from_proto(parser.parse_model(HEAD + text)) as file:
        decompose(file, Selection.load("roll"))
        return file.hydrate(file.model)


def run(model, **feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


X = np.random.default_rng(5).standard_normal((2, 5)).astype(np.float32)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[n, 5] x) => (float[n, 5] y) { a = com.microsoft.Gelu(x) y = ROLL(a) }",
        """g (float[n, 5] x, bool c) => (float[n, 5] y) {
            y = If(c) <then_branch = t () => (float[n, 5] p) { a = com.microsoft.Gelu(x) p = ROLL(a) },
                       else_branch = e () => (float[n, 5] q) { q = Neg(x) }> }""",
        """g (float[n, 5] x) => (float[n, 5] y) { y = local.block(x) }
        <domain: "local", opset_import: ["": 17, "com.microsoft": 1, "com.example": 1]>
        block (u) => (v) { a = com.microsoft.Gelu(u) v = ROLL(a) }""",
    ],
    ids=["graph", "body", "function"],
)
def test_a_roll_behind_a_runtimes_gelu(text: str) -> None:
    head = HEAD.replace("]>", ', "local": 1]>') if "local" in text else HEAD
    with ModelFile.from_proto(parser.parse_model(head + text.replace("ROLL", ROLL))) as file:
        decompose(file, Selection.load("roll"))
        model = file.hydrate(file.model)
    feeds = {"x": X, "c": np.asarray(True)}
    expected = torch.roll(torch.nn.functional.gelu(torch.from_numpy(X)), 1, 1).numpy()
    got = run(model, **{value.name: feeds[value.name] for value in model.graph.input})
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_an_operator_that_changes_the_type_is_not_guessed_at() -> None:
    with pytest.raises(NeedsRank):
        decomposed(
            "g (float[2, 3] a, float[3, 4] b) => (y) { c = com.microsoft.FusedMatMul(a, b) y = ROLL(c) }".replace(
                "ROLL", ROLL
            )
        )


def test_onnxruntimes_own_schemas_give_the_first_result_the_type_of_the_first_input() -> None:
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    schemas = {s.name: s for s in runtime.get_all_operator_schema() if s.domain == "com.microsoft"}
    for name in SAME_AS_FIRST_INPUT["com.microsoft"]:
        assert schemas[name].inputs[0].typeStr == schemas[name].outputs[0].typeStr, name


@pytest.mark.parametrize(
    "node",
    [
        "BiasGelu(x, b)",
        "FastGelu(x)",
        "QuickGelu(x)",
        "Inverse(q)",
        "Trilu(q)",
        "SkipLayerNormalization(t, t, b)",
        "SkipSimplifiedLayerNormalization(t, t, b)",
    ],
)
def test_what_onnxruntime_computes_has_the_shape_of_the_first_input(node: str) -> None:
    first = node.rpartition("(")[2][0]
    shapes = {"x": (2, 5), "b": (5,), "q": (3, 3), "t": (1, 2, 5)}
    used = {letter for letter in shapes if letter in node.rpartition("(")[2]}
    inputs = ", ".join(f"float{list(shapes[name])} {name}" for name in sorted(used))
    model = parser.parse_model(HEAD + f"g ({inputs}) => (float y) {{ y = com.microsoft.{node} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(shapes[name]).astype(np.float32) for name in used}
    assert run(model, **feeds).shape == shapes[first]
