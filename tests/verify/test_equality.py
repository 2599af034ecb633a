"""Before and after simplification: equal, or why not."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, helper

from rewriter.storage import ModelFile
from rewriter.verify import VerifyOptions, equal
from tests.verify.conftest import DOUBLE, FLOAT, model, node


def compare(before, change, **options):
    with ModelFile.from_proto(before) as file:
        after = ModelProto()
        after.CopyFrom(file.model)
        change(after)
        return equal(file, file.model, after, VerifyOptions(**options))


def dense():
    return model(
        node("MatMul", ["x", "w"], ["h"]),
        node("Identity", ["h"], ["i"]),
        node("Add", ["i", "b"], ["y"]),
        inputs={"x": (FLOAT, ["batch", 64])},
        outputs={"y": (FLOAT, ["batch", 32])},
        tensors={
            "w": np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32),
            "b": np.arange(32, dtype=np.float32),
        },
    )


def test_the_same_model_is_equal():
    assert compare(dense(), lambda _: None) is None


def test_a_right_simplification_is_equal():
    def change(after):
        after.graph.node[2].input[0] = "h"
        del after.graph.node[1]

    assert compare(dense(), change) is None


def test_a_wrong_value_is_named_with_its_output():
    def change(after):
        after.graph.node[2].op_type = "Sub"

    assert "output 'y'" in compare(dense(), change)


def test_a_baked_in_size_is_found_at_another_size():
    """Right for a batch of 2 alone."""
    before = model(
        node("Identity", ["x"], ["y"]),
        inputs={"x": (FLOAT, ["batch", 3])},
        outputs={"y": (FLOAT, ["batch", 3])},
    )

    def change(after):
        after.graph.node[0].CopyFrom(node("Reshape", ["x", "shape"], ["y"]))
        after.graph.initializer.append(helper.make_tensor("shape", 7, [2], [2, 3]))

    assert "refuses" in compare(before, change, samples=1)


def test_a_result_that_does_not_load():
    def change(after):
        after.graph.node[0].input[0] = "nowhere"

    assert "does not load" in compare(dense(), change)


def test_what_cannot_be_run_is_not_equal():
    before = model(node("Erf", ["x"], ["y"]), inputs={"x": (DOUBLE, [3])}, outputs={"y": (DOUBLE, [3])})
    assert "could not be compared" in compare(before, lambda _: None)


def kept():
    source = model(
        node("Relu", ["x"], ["r"]),
        node("Secret", ["r"], ["s"], domain="vendor"),
        node("Neg", ["s"], ["y"]),
        inputs={"x": (FLOAT, ["batch", 3])},
        outputs={"y": (FLOAT, ["batch", 3])},
        domains=["vendor"],
    )
    source.graph.value_info.append(helper.make_tensor_value_info("s", FLOAT, ["batch", 3]))
    return source


def test_operators_that_nothing_runs_are_cut_out():
    assert compare(kept(), lambda _: None) is None

    def before_it(after):
        after.graph.node[0].op_type = "Abs"

    assert "input 0 of vendor::Secret" in compare(kept(), before_it)

    def after_it(after):
        after.graph.node[2].op_type = "Abs"

    assert "output 'y'" in compare(kept(), after_it)

    def itself(after):
        after.graph.node[1].CopyFrom(node("Relu", ["r"], ["s"]))

    assert "kept" in compare(kept(), itself)

    def its_attributes(after):
        after.graph.node[1].attribute.add(name="k", type=2, i=1)

    assert "kept" in compare(kept(), its_attributes)
