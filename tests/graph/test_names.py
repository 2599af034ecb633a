"""Fresh names: never taken, always the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from rewriter.graph.names import Names


def test_every_kind_of_name_is_taken():
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 17, "local": 1]>
        g (float[2] input, bool c) => (float[2] output) <float[2] weight = {1.0, 2.0}, float[2] typed> {
            [node] output = If(c) <then_branch = t () => (float[2] inner) { [inner_node] inner = Neg(input) },
                                   else_branch = e () => (float[2] other) { other = local.F(input) }>
        }
        <domain: "local", opset_import: ["": 17]> F(formal) => (result) { result = Neg(formal) }"""
    )
    model.graph.sparse_initializer.add().values.name = "sparse"
    model.graph.quantization_annotation.add(tensor_name="quantised").quant_parameter_tensor_names.add(
        key="k", value="scale"
    )
    model.training_info.add().algorithm.node.add(op_type="Neg", name="train", input=["tin"], output=["tout"])
    names = Names.of_model(model)
    for name in (
        "input", "output", "c", "weight", "typed", "node", "inner", "inner_node", "other", "F", "formal", "result",
        "sparse", "quantised", "scale", "train", "tin", "tout",
    ):  # fmt: skip
        assert name in names
        assert names.fresh(name) == f"{name}_2"


@given(
    st.lists(st.sampled_from(["a", "a_2", "a_3", "b", "", "_2"]), max_size=30),
    st.sets(st.sampled_from(["a", "a_2", "b"])),
)
def test_fresh_names_are_distinct_and_repeatable(wishes: list[str], taken: set[str]):
    first, second = Names(taken), Names(sorted(taken, reverse=True))
    made = [first.fresh(wish) for wish in wishes]
    assert made == [second.fresh(wish) for wish in wishes]
    assert len(set(made)) == len(made)
    assert not taken & set(made)
    assert all(made)
