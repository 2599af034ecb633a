"""What is right and delicate is let through, or a message names the flag that lets it; the flag then does."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper

import rewriter
from rewriter.errors import MismatchError, UsageError
from rewriter.placeholder import Case, Placeholder, Value, f32
from rewriter.verify.compare import Beyond, Tolerance, accepting, judge, measure
from rewriter.verify.judgement import Judgement, comparisons
from rewriter.verify.judges import matched_detections, topk_ties
from tests.verify.conftest import FLOAT, INT64, Double, example, model, node, prove

# --- rounding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actual", "expected", "flag"),
    [
        ([1.0, 2.003], [1.0, 2.0], "--atol 0.007"),
        ([1.0, 2e-4], [1.0, 0.0], "--atol 0.0004"),
        ([3.2e-4, -2e-4], [-1e-4, 1e-4], "--atol 0.0009"),  # noise only, but small
        ([1.0, 2.0], [2.0, 1.0], ""),  # more than rounding
    ],
)
def test_a_threshold_that_accepts_the_difference_is_named(actual, expected, flag):
    a, b = np.float32(actual), np.float32(expected)
    problem = judge(a, b, measure(a, b), Tolerance(rtol=1e-6))
    assert accepting([problem, None]).endswith(f"{flag} accepts it" if flag else "")
    assert isinstance(problem, Beyond) == bool(flag)
    if flag:
        assert judge(a, b, measure(a, b), Tolerance(rtol=1e-6, atol=problem.atol)) is None


def test_no_threshold_is_named_where_results_must_be_equal_or_more_is_wrong():
    a, b = np.float32([1.0, 2.0]), np.float32([1.0, 2.000001])
    assert accepting([judge(a, b, measure(a, b), Tolerance())]) == ""
    assert accepting([Beyond("slightly", 1e-3), "has shape [2]"]) == ""
    assert accepting([]) == ""


class Rough(Placeholder):
    """x², off by a thousandth: a form that is right, and less exact than is allowed."""

    matches = ("Rough",)

    def reference(self, x):
        return x * x * 1.0005

    def decompose(self, g, x: Value):
        return x * x

    def cases(self):
        yield Case(f32(2, 3))


def test_the_threshold_that_a_region_names_delivers():
    source = model(
        example("Rough", ["x"], ["y"], name="it"),
        inputs={"x": (FLOAT, ["n", 6])},
        outputs={"y": (FLOAT, None)},
        domains=["com.example"],
    )
    with pytest.raises(MismatchError) as caught:
        prove(source, Rough())
    atol = float(re.search(r"--atol (\S+)", caught.value.remedy)[1])
    # The probes hold large values, so a relative threshold is added.
    assert prove(source, Rough(), atol=atol, rtol=1e-3).verdict == "verified"


# --- the runtime's own optimiser ------------------------------------------------------------------------------------


def blockwise(*, size=(128, 64), block=32):
    """A matrix product with INT4 weights in blocks, which onnxruntime fuses into a kernel of less accuracy."""
    rng = np.random.default_rng(0)
    rows, columns = size
    tensors = [
        numpy_helper.from_array(rng.integers(-8, 8, size).astype(ml_dtypes.int4), "w"),
        numpy_helper.from_array((rng.random((rows // block, columns)) * 0.1 + 0.05).astype(np.float32), "s"),
    ]
    source = model(
        node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=block),
        node("MatMul", ["x", "d"], ["m"], name="product"),
        example("Roll", ["m"], ["y"], shifts=[1], dims=[1]),
        inputs={"x": (FLOAT, ["n", rows])},
        outputs={"y": (FLOAT, ["n", columns])},
        domains=["com.example"],
        opset=21,
        ir=10,
    )
    source.graph.initializer.extend(tensors)
    return source


@pytest.mark.parametrize("simplify", [True, False])
def test_a_fusion_of_the_runtime_is_blamed_on_it_and_a_threshold_accepts_it(simplify, tmp_path):
    with pytest.raises(MismatchError) as caught:
        rewriter.rewrite(blockwise(), tmp_path / "out.onnx", simplify=simplify)
    assert caught.value.blame.stage == "runtime optimiser"
    assert caught.value.blame.where.node == "product"
    assert "--no-simplify" not in caught.value.remedy  # it was given, or changes nothing
    atol = float(re.search(r"--atol (\S+)", caught.value.remedy)[1])
    report = rewriter.rewrite(blockwise(), tmp_path / "out.onnx", simplify=simplify, atol=atol)
    assert report.verification["verdict"] == "verified"


@pytest.mark.parametrize(
    ("refused", "stage", "named"),
    [
        ({True}, "runtime optimiser", "ORT_DISABLE_ALL"),  # as it optimises it only
        ({True, False}, "simplification", "--no-simplify"),
    ],
)
def test_a_model_that_does_not_load_is_told_from_one_that_the_optimiser_spoils(
    monkeypatch, refused, stage, named, double_model
):
    from rewriter.execution.session import Refused
    from rewriter.verify import delivered

    class Fails(delivered.Session):
        def __init__(self, *arguments, optimise=True, **rest):
            if optimise in refused:
                raise Refused("onnxruntime does not load the model")
            super().__init__(*arguments, optimise=optimise, **rest)

    monkeypatch.setattr(delivered, "Session", Fails)
    with pytest.raises(MismatchError) as caught:
        prove(double_model, Double())
    assert caught.value.blame.stage == stage
    assert named in caught.value.remedy


# --- equal values in any order --------------------------------------------------------------------------------------


class Sort(Placeholder):
    """torch.sort, which promises that the first of equal values comes first; the last one does here."""

    matches = ("Sort",)
    outputs = ("values", "indices")

    def reference(self, x):
        return tuple(torch.sort(x, dim=-1, stable=True))

    def decompose(self, g, x: Value):
        size = x.size(-1)
        back = g.op("Gather", x, g.ints(list(range(size - 1, -1, -1))), axis=-1)
        values, places = g.op("TopK", back, g.ints([size]), axis=-1, largest=0, sorted=1, outputs=2)
        return values, g.op("Sub", g.ints([size - 1]), places)

    def cases(self):
        yield Case(f32(2, 5))


def sorting(size=200):
    return model(
        example("Sort", ["x"], ["v", "i"], name="it"),
        inputs={"x": (FLOAT, ["n", size])},
        outputs={"v": (FLOAT, None), "i": (INT64, None)},
        domains=["com.example"],
    )


def test_indices_of_equal_values_are_told_from_wrong_ones_and_the_flag_is_named():
    with pytest.raises(MismatchError) as caught:
        prove(sorting(), Sort())
    assert "--compare i=topk:v" in caught.value.remedy
    proof = prove(sorting(), Sort(), compare="i=topk:v")
    assert proof.verdict == "verified"
    assert [checked.judged for checked in proof.regions[0].outputs] == ["", "topk:v"]


class AnyOrder(Sort):
    """torch.sort, which promises no order of equal values."""

    matches = ("Sort",)

    def reference(self, x):
        return tuple(torch.sort(x, dim=-1))


def test_an_order_that_pytorch_leaves_open_is_no_difference():
    assert prove(sorting(), AnyOrder()).verdict == "verified"


class First(Sort):
    """torch.topk, the last of equal values first."""

    matches = ("First",)

    def reference(self, x):
        return tuple(torch.topk(x, 7, dim=-1))

    def decompose(self, g, x: Value):
        size = x.size(-1)
        back = g.op("Gather", x, g.ints(list(range(size - 1, -1, -1))), axis=-1)
        values, places = g.op("TopK", back, g.ints([7]), axis=-1, outputs=2)
        return values, g.op("Sub", g.ints([size - 1]), places)


def test_of_equal_values_another_may_be_picked():
    source = model(
        example("First", ["x"], ["v", "i"], name="it"),
        inputs={"x": (FLOAT, ["n", 64])},
        outputs={"v": (FLOAT, None), "i": (INT64, None)},
        domains=["com.example"],
    )
    assert prove(source, First()).verdict == "verified"  # torch.topk leaves the order open
    assert prove(source, First(), compare="i=topk:v").verdict == "verified"


def test_what_was_picked_from_may_be_what_the_region_took():
    source = model(
        node("Mul", ["x", "two"], ["s"]),
        example("Sort", ["s"], ["v", "i"], name="it"),
        inputs={"x": (FLOAT, ["n", 40])},
        outputs={"v": (FLOAT, None), "i": (INT64, None), "s": (FLOAT, None)},
        tensors={"two": np.float32(2)},
        domains=["com.example"],
    )
    assert prove(source, Sort(), compare="i=topk:v:s").verdict == "verified"


class WrongSort(Sort):
    name = "sort"

    def decompose(self, g, x: Value):
        values, places = super().decompose(g, x)
        return values, g.op("Mod", g.op("Add", places, g.ints([1])), g.ints([x.size(-1)]))


def test_wrong_indices_of_a_region_are_no_matter_of_order():
    with pytest.raises(MismatchError) as caught:
        prove(sorting(20), WrongSort())
    assert "--compare" not in caught.value.remedy
    with pytest.raises(MismatchError, match="is not among those expected"):
        prove(sorting(20), WrongSort(), compare="i=topk:v")


def test_a_function_judges_the_results_of_a_region_as_well():
    def sums(actual, expected):
        return None if actual[0].sum() == expected[0].sum() else "the sums differ"

    assert prove(sorting(50), Sort(), compare={"i": sums}).verdict == "verified"


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0), (2, 0, 4), (0,)])
def test_nothing_is_judged_without_an_error(shape):
    values, indices = np.zeros(shape, np.float32), np.zeros(shape, np.int64)
    assert topk_ties((values, indices), (values, indices)) is None
    assert topk_ties((values, indices), (values, indices), data=values) is None
    assert topk_ties((values, indices), (values, indices), axis=0) is None
    if len(shape) > 1:
        assert matched_detections((values,), (values,)) is None
    asked = Judgement(comparisons=comparisons("i=topk:v:s"))
    found = {"i": indices, "v": values, "s": np.zeros((*shape[:-1], 7), np.float32)}
    assert asked.outputs(found, found, {}) == {}


def test_values_that_were_not_picked_from_the_output_named_are_bad_usage():
    asked = Judgement(comparisons=comparisons("i=topk:v:s"))
    found = {
        "i": np.zeros((2, 3), np.int64),
        "v": np.zeros((2, 3), np.float32),
        "s": np.zeros((5, 7), np.float32),
    }
    with pytest.raises(UsageError, match="were not picked"):
        asked.outputs(found, found, {})


def test_a_size_of_zero_is_compared_against_the_whole_model(tmp_path):
    class Net(torch.nn.Module):
        def forward(self, scores):
            values, ids = scores.topk(3, dim=1)
            return ids, values, scores + 0

    source = helper.make_model(
        helper.make_graph(
            [
                node("TopK", ["scores", "k"], ["values", "ids"], axis=1),
                node("Identity", ["scores"], ["same"]),
            ],
            "g",
            [helper.make_tensor_value_info("scores", FLOAT, ["n", 9])],
            [
                helper.make_tensor_value_info("ids", INT64, ["n", 3]),
                helper.make_tensor_value_info("values", FLOAT, ["n", 3]),
                helper.make_tensor_value_info("same", FLOAT, ["n", 9]),
            ],
            [numpy_helper.from_array(np.array([3]), "k")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    report = rewriter.rewrite(source, tmp_path / "o.onnx", against=Net(), compare="ids=topk:values:same")
    assert {"n": 0} in report.verification["whole_model"]["sizes"]
