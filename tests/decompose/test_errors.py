"""What is refused, and that the message says what, where, and what to do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from rewriter.decompose import decompose
from rewriter.errors import (
    BindingError,
    CyclicDecompositionError,
    LeftoverPlaceholderError,
    NeedsRank,
    OpsetError,
)
from rewriter.placeholder import Selection
from rewriter.storage import ModelFile
from tests.decompose.passes import Affine, Mirror, evaluate, model_of, operators, run_pass

HEAD = '<ir_version: 10, opset_import: ["": 17, "com.example": 1]>\n'
X = np.asarray([[-1.0, 2.0, 3.5]], np.float32)


def test_leftovers_are_listed_together_with_where_and_remedy():
    with pytest.raises(LeftoverPlaceholderError) as caught:
        run_pass(
            HEAD
            + """g (float[1, 3] x, bool c) => (float[1, 3] y) {
                [first] t = com.example.Afine(x)
                [second] u = com.example.Unheard(t)
                y = If(c) <then_branch = t () => (float[1, 3] p) { [third] p = com.example.Unheard(u) },
                           else_branch = e () => (float[1, 3] q) { q = Neg(u) }>
            }"""
        )
    text = str(caught.value)
    for part in (
        "com.example::Afine",
        "'first'",
        "com.example::Unheard",
        "'second'",
        "'third' in If 'y' then_branch",
        "--keep",
    ):
        assert part in text
    assert text.index("Afine") < text.index("Unheard")


def test_the_exporters_fallback_form_goes_by_what_it_stands_for():
    graph = "g (float[1, 3] x) => (float[1, 3] y) {"
    head = '<ir_version: 8, opset_import: ["": 17, "org.pytorch.aten": 1]>\n'
    with pytest.raises(LeftoverPlaceholderError, match="no pass takes aten::nosuch") as caught:
        run_pass(head + graph + 'y = org.pytorch.aten.ATen <operator = "nosuch"> (x) }')
    assert "--keep org.pytorch.aten::ATen leaves it" in str(caught.value)
    with pytest.raises(LeftoverPlaceholderError) as caught:
        run_pass(
            head
            + graph
            + 'a = org.pytorch.aten.ATen <operator = "one"> (x) y = org.pytorch.aten.ATen <operator = "other"> (a) }'
        )
    assert "aten::one: 'a'" in str(caught.value)
    assert "aten::other: 'y'" in str(caught.value)
    assert str(caught.value).count("--keep org.pytorch.aten::ATen") == 1


def test_leftover_names_the_nearest_pass():
    with pytest.raises(LeftoverPlaceholderError) as caught:
        run_pass(HEAD + "g (float[1, 3] x) => (float[1, 3] y) { [n] y = com.example.Afine(x) }")
    assert caught.value.where is not None
    assert "'n'" in str(caught.value.where)
    assert caught.value.remedy is not None
    assert "is it 'affine'? then --bind \"com.example::Afine=affine\"" in caught.value.remedy
    assert "then --passes" not in caught.value.remedy  # it would not take the operator
    assert "--keep com.example::Afine" in caught.value.remedy


def test_leftover_of_a_later_opset_says_since_when():
    source = model_of(
        '<ir_version: 8, opset_import: ["": 13]> g (float[1, 1, 4, 4] x, float[1, 4, 4, 2] f) => (float[1, 1, 4, 4] y) '
        "{ y = GridSample(x, f) }"
    )
    with pytest.raises(
        LeftoverPlaceholderError, match="ONNX has GridSample since opset 16, the model has opset 13"
    ):
        run_pass(source)
    source.graph.node[0].op_type = "GreedSample"
    with pytest.raises(LeftoverPlaceholderError, match="ONNX has no operator GreedSample"):
        run_pass(source)


def test_python_op_says_what_it_is():
    source = model_of(
        '<ir_version: 8, opset_import: ["": 13, "prim": 1]> g (float[1, 3] x) => (float[1, 3] y) '
        '{ y = prim.PythonOp<module = "mynet.ops", name = "Swish">(x) }'
    )
    with pytest.raises(
        LeftoverPlaceholderError, match=r"autograd\.Function without a `symbolic` \(mynet\.ops\.Swish\)"
    ):
        run_pass(source)


@pytest.mark.parametrize("exporter", ["dynamo", "legacy"])
def test_source_line_that_the_exporter_recorded(exporter: str):
    source = model_of(
        HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = com.example.Affine<skale = 2.0>(x) }"
    )
    node = source.graph.node[0]
    if exporter == "dynamo":
        node.metadata_props.add(
            key="pkg.torch.onnx.stack_trace",
            value='File "/home/me/train.py", line 3, in main\n    net(x)\nFile "/home/me/net.py", line 12, in forward\n'
            '    return affine(x)\nFile "/usr/lib/python3.11/site-packages/torch/nn/functional.py", line 9, in affine\n'
            "    return 1",
        )
    else:
        node.doc_string = (
            "/usr/lib/python3.11/site-packages/torch/nn/functional.py(9): affine\n/home/me/net.py(12): forward\n"
            "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py(1): _call\n/home/me/train.py(3): <module>\n"
        )
    with pytest.raises(BindingError, match="skale") as caught:
        run_pass(source)
    assert "/home/me/net.py:12" in str(caught.value)


def test_needs_rank_names_the_value():
    with pytest.raises(NeedsRank, match="'x'"):
        run_pass(
            HEAD + "g (float[] x) => (y) { y = com.example.Mirror(x) }".replace("float[] x", "x"), Mirror
        )


def test_cycle_names_the_chain():
    with pytest.raises(
        CyclicDecompositionError, match=r"com\.example::Ping → com\.example::Pong → com\.example::Ping"
    ):
        run_pass(HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = com.example.Ping(x) }")


def test_leftover_of_a_decomposition_names_where_it_came_from():
    with pytest.raises(
        LeftoverPlaceholderError, match=r"Nowhere.*the decomposition of com\.example::Lost made it"
    ):
        run_pass(HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = com.example.Lost(x) }")


def test_placeholder_made_by_a_decomposition_is_decomposed():
    model, done = run_pass(HEAD + "g (float[1, 3] x) => (float[1, 3] y) { [n] y = com.example.Outer(x) }")
    assert operators(model) == {"Mul", "Add", "Neg"}
    np.testing.assert_allclose(evaluate(model, x=X)[0], -(2 * X + 1))
    assert [(r.where.operator, r.via) for r in done.regions] == [
        ("com.example::Outer", ()),
        ("com.example::Affine", ("com.example::Outer",)),
    ]
    assert done.regions[0].into == ["Mul", "Add", "Neg"]
    assert done.regions[1].inputs[0][0] == "x"
    made = {name for node in model.graph.node for name in node.output}
    assert done.regions[1].outputs[0][0] in made


def test_placeholder_made_by_a_decomposition_may_be_kept():
    model, _ = run_pass(
        HEAD + "g (float[1, 3] x) => (float[1, 3] y) { [n] y = com.example.Lost(x) }",
        keep=["com.example::Nowhere"],
    )
    assert operators(model) == {"com.example::Nowhere"}
    assert "com.example" in {item.domain for item in model.opset_import}


def test_dead_placeholder_goes_with_a_note():
    """As `_is_all_true` that the exporter leaves behind: nobody reads it, nor what only it reads."""
    source = model_of(
        HEAD
        + """g (float[1, 3] x) => (float[1, 3] y) {
            a = com.example.Unheard(x)
            b = com.example.IsAllTrue(a)
            y = Neg(x)
        }"""
    )
    model, done = run_pass(source)
    assert operators(model) == {"Neg"}
    assert len(done.warnings) == 2
    assert done.dropped_opsets == ["com.example"]
    assert done.changed


def test_a_named_pass_that_took_nothing_is_reported():
    _, done = run_pass(
        HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = com.example.Affine(x) }", Affine, Mirror
    )
    assert done.unmatched_passes == ["mirror"]


def test_a_rule_that_took_nothing_is_reported():
    source = model_of(HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = com.example.Affine(x) }")
    rules = ["com.example::Affine = affine", "com.example::Afine=affine(x=$0)"]
    with ModelFile.from_proto(source) as file:
        done = decompose(file, Selection.load([Affine], rules))
    assert done.unmatched_rules == [rules[1]]


def test_operators_of_runtimes_stay():
    source = model_of(
        '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[1, 3] x) => (float[1, 3] y) '
        "{ y = com.microsoft.Gelu(x) }"
    )
    model, done = run_pass(source)
    assert model == source
    assert done.runtime == [("com.microsoft", "Gelu", 1)]


@pytest.mark.parametrize("version", [1, 10, 99])
def test_opset_out_of_range(version: int):
    source = model_of(HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = com.example.Affine(x) }")
    source.opset_import[0].version = version
    with pytest.raises(OpsetError, match=str(version)) as caught:
        run_pass(source)
    assert caught.value.remedy is not None


def test_no_default_domain():
    source = model_of(HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = com.example.Affine(x) }")
    del source.opset_import[0]
    with pytest.raises(OpsetError, match="default domain"):
        run_pass(source)


def test_domain_that_the_model_forgot_to_import():
    source = model_of(
        HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = com.example.Affine<scale = 2.0>(x) }"
    )
    del source.opset_import[1]
    model, _ = run_pass(source)
    np.testing.assert_allclose(evaluate(model, x=X)[0], 2 * X)


def test_nothing_of_ours_stays_in_the_schema_registry():
    before = {(s.domain, s.name, s.since_version) for s in onnx.defs.get_all_schemas_with_history()}
    run_pass(HEAD + "g (float[1, 3] x) => (float[1, 3] y) { y = com.example.Affine(x) }")
    with pytest.raises(NeedsRank):
        run_pass(HEAD + "g (x) => (y) { y = com.example.Mirror(x) }", Mirror)
    assert {(s.domain, s.name, s.since_version) for s in onnx.defs.get_all_schemas_with_history()} == before


def test_attribute_with_a_placeholder_in_the_default_domain():
    source = model_of(
        '<ir_version: 8, opset_import: ["": 13]> g (float[1, 3] x) => (float[1, 3] y) { y = Affine<scale = 2.0>(x) }'
    )
    model, done = run_pass(source)
    np.testing.assert_allclose(evaluate(model, x=X)[0], 2 * X)
    assert done.dropped_opsets == []
