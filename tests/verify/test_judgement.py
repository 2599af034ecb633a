"""Metrics, thresholds and judges: figures from numpy, verdicts from what detections and top-k mean."""

from __future__ import annotations

import itertools
import json
from importlib.resources import files

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto, helper, numpy_helper

import rewriter
from rewriter.cli import run
from rewriter.errors import CannotVerifyError, MismatchError, UsageError
from rewriter.placeholder import Case, Placeholder, Value, f32
from rewriter.verify import VerifyOptions
from rewriter.verify.compare import REGION, Thresholds, Tolerance, judge, measure, tolerance_for
from rewriter.verify.judgement import Comparison, Judgement, comparisons
from rewriter.verify.judges import matched_detections, topk_ties
from rewriter.verify.proof import Checked
from tests.verify.conftest import FLOAT, INT64, Double, example, model, node, prove

FINITE = st.floats(-1e6, 1e6, width=32)
VECTORS = arrays.arrays(np.float32, st.integers(1, 40), elements=FINITE)
PAIRS = st.integers(1, 40).flatmap(
    lambda n: st.tuples(*[arrays.arrays(np.float32, n, elements=FINITE) for _ in range(2)])
)


# --- metrics --------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_metrics_are_those_of_numpy(pair):
    a, b = pair
    metrics = measure(a, b)
    error = np.abs(a.astype(np.float64) - b)
    assert metrics.max_abs == error.max()
    assert metrics.differing == (a != b).sum()
    size = np.abs(b.astype(np.float64))
    if size.any():
        assert metrics.max_rel == pytest.approx((error[size > 0] / size[size > 0]).max())
        assert metrics.max_scaled == pytest.approx(error.max() / size.max())
    norms = np.linalg.norm(a.astype(np.float64)) * np.linalg.norm(b.astype(np.float64))
    if norms > 1e-100:
        assert metrics.cosine == pytest.approx(float(a.astype(np.float64) @ b / norms), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(PAIRS, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e3))
def test_a_wider_threshold_accepts_no_less(pair, rtol, atol, more):
    a, b = pair
    metrics = measure(a, b)
    narrow = judge(a, b, metrics, Tolerance(rtol, atol))
    assert narrow is None or not np.allclose(
        a.astype(float), b.astype(float), rtol=rtol * 0.999, atol=atol * 0.999
    )
    if narrow is None:
        assert judge(a, b, metrics, Tolerance(rtol, atol + more)) is None
        assert judge(a, b, metrics, Tolerance(rtol + more, atol)) is None


@settings(max_examples=60, deadline=None)
@given(VECTORS)
def test_a_tensor_is_itself(a):
    metrics = measure(a, a.copy())
    assert (metrics.max_abs, metrics.differing, metrics.max_ulp) == (0, 0, 0)
    assert metrics.cosine == pytest.approx(1)
    assert judge(a, a, metrics, Tolerance()) is None


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_the_cosine_neither_overflows_nor_vanishes(scale):
    a, b = np.array([1.0, 0.0]) * scale, np.array([1.0, 1.0]) * scale
    # 1e300 is what masks are filled with, in one tensor; of both, nothing is left
    assert measure(a, b).cosine == (pytest.approx(np.sqrt(0.5)) if scale < 1e30 else 1)


@pytest.mark.parametrize(
    ("a", "b", "cosine"),
    [
        ([0, 0], [0, 0], 1),
        ([0, 0], [1, 0], 0),
        ([1, 0], [0, 0], 0),
        ([1, 0], [0, 1], 0),
        ([1, 2], [-1, -2], -1),
        ([1, np.nan, np.inf], [2, np.nan, np.inf], 1),
        ([1, -3.4028235e38, 1], [1, -3.4028235e38, -1], 0),
        ([np.nan], [np.nan], None),
        ([1 + 1j, 2], [1 + 1j, 2], 1),
        ([1j], [1], 0),
    ],
)
def test_the_cosine_of(a, b, cosine):
    dtype = np.complex64 if np.iscomplexobj(np.array([*a, *b])) else np.float32
    found = measure(np.array(a, dtype), np.array(b, dtype)).cosine
    assert found == (None if cosine is None else pytest.approx(cosine, abs=1e-7))


def test_the_cosine_over_several_parts():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((1 << 20) + 999) * s for s in (1e-3, 1e3))
    b[-1] = 1e7  # a part of another scale than the one before
    expected = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    assert measure(a, b).cosine == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([np.inf, -np.inf], "without a finite number"),
        ([np.inf, np.nan], "without a finite number"),
        ([np.nan, np.nan], "all NaN"),
        ([0, 0], "all equal"),
        ([0, np.nan], ""),
    ],
)
def test_what_agreement_says_nothing_of(values, why):
    tensor = np.array(values, np.float32)
    assert measure(tensor, tensor).vacuous == why


# --- thresholds -----------------------------------------------------------------------------------------------


def test_asked_thresholds_take_the_place_of_the_others():
    float32 = tolerance_for("float32", REGION)
    assert Thresholds().override(float32, "float32") is float32
    made = Thresholds(rtol=0.5).override(float32, "float32")
    assert (made.rtol, made.atol, made.scaled, made.ulp) == (0.5, float32.atol, 0, 0)
    made = Thresholds(atol=0.5, rtol=0).override(float32, "float32")
    assert (made.rtol, made.atol, made.scaled, made.ulp) == (0, 0.5, 0, 0)
    for dtype in ("float16", "bfloat16", "float8_e4m3fn", "complex64", "float64"):
        assert Thresholds(atol=2).override(Tolerance(), dtype).atol == 2
    for dtype in ("int64", "bool", "object", "uint8"):
        assert Thresholds(atol=2).override(Tolerance(), dtype).atol == 0


@pytest.mark.parametrize("name", ["atol", "rtol"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_thresholds_that_make_no_sense(name, value):
    with pytest.raises(UsageError, match=name):
        VerifyOptions(**{name: value})


class Rough(Placeholder):
    """x · 1.001, as if rounded: the reference multiplies by 1."""

    matches = ("Rough",)

    def reference(self, x):
        return x * 1.0

    def decompose(self, g, x: Value):
        return x * 1.001

    def cases(self):
        yield Case(f32(2, 3))


def rough_model():
    return model(
        example("Rough", ["x"], ["y"]),
        inputs={"x": (FLOAT, ["n", 8])},
        outputs={"y": (FLOAT, ["n", 8])},
        domains=["com.example"],
    )


def test_thresholds_of_a_region():
    with pytest.raises(MismatchError, match="beyond tolerance"):
        prove(rough_model(), Rough())
    with pytest.raises(MismatchError, match=r"allowed: rtol 0\.0005"):
        prove(rough_model(), Rough(), rtol=5e-4)
    proof = prove(rough_model(), Rough(), rtol=2e-3)
    (checked,) = proof.regions[0].outputs
    assert (checked.tolerance.rtol, checked.tolerance.scaled) == (2e-3, 0)
    assert checked.max_rel == pytest.approx(1e-3, rel=1e-2)
    assert proof.to_dict()["thresholds"] == {"atol": None, "rtol": 2e-3}
    assert proof.to_manifest()["tolerances"]["rough float32"].startswith("rtol 0.002")
    assert proof.to_manifest()["tolerances"]["outputs float32"].startswith("rtol 0.002")


def off_by(amount):
    """A change of the delivered model: its output is larger by ``amount``."""

    def change(delivered):
        graph = delivered.graph
        last = graph.node[-1]
        name = last.output[0]
        last.output[0] = "before"
        graph.initializer.append(numpy_helper.from_array(np.float32(amount), "amount"))
        graph.node.append(node("Add", ["before", "amount"], [name]))

    return change


@pytest.fixture
def double():
    return model(
        example("Double", ["x"], ["y"]),
        inputs={"x": (FLOAT, ["n", 8])},
        outputs={"y": (FLOAT, ["n", 8])},
        domains=["com.example"],
    )


def test_thresholds_of_whole_outputs(double):
    with pytest.raises(MismatchError):
        prove(double, Double(), delivered=off_by(0.01))
    with pytest.raises(MismatchError, match=r"allowed: .*atol 0\.005"):
        prove(double, Double(), delivered=off_by(0.01), atol=0.005)
    assert prove(double, Double(), delivered=off_by(0.01), atol=0.02).verdict == "verified"
    # a tighter one than the default is one, too
    prove(double, Double(), delivered=off_by(1e-5))
    with pytest.raises(MismatchError):
        prove(double, Double(), delivered=off_by(1e-5), atol=0, rtol=0)


def test_thresholds_never_excuse_nan_integers_or_shapes():
    judgement = Judgement(Thresholds(atol=1e9, rtol=1e9))
    nan = np.array([np.nan, 1], np.float32)
    assert "NaN" in judgement.differs(nan, np.array([1, 1], np.float32))
    assert "infinities" in judgement.differs(np.array([np.inf]), np.array([1.0]))
    assert judgement.differs(nan, nan) is None
    assert "differ" in judgement.differs(np.array([1]), np.array([2]))
    assert "shape" in judgement.differs(np.zeros((1, 2)), np.zeros(2))
    assert "float32" in judgement.differs(np.zeros(2, np.float32), np.zeros(2))


def test_the_command(tmp_path, double):
    import onnx

    passes = tmp_path / "rough.py"
    passes.write_text(
        "from rewriter import Case, Placeholder, Value, f32\n"
        "class Rough(Placeholder):\n"
        "    matches = ('Rough',)\n"
        "    def reference(self, x): return x * 1.0\n"
        "    def decompose(self, g, x: Value): return x * 1.001\n"
        "    def cases(self): yield Case(f32(2, 3))\n"
    )
    source, target, report = (tmp_path / name for name in ("in.onnx", "out.onnx", "report.json"))
    onnx.save(rough_model(), source)
    command = [str(source), str(target), "--passes", str(passes), "--report", str(report), "-q"]
    assert run(command) == 1
    assert run([*command, "--rtol", "1e-4"]) == 1
    assert not target.exists()
    assert run([*command, "--rtol", "1e-2", "--atol", "1e-3"]) == 0
    told = json.loads(report.read_text())["verification"]
    assert told["thresholds"] == {"atol": 1e-3, "rtol": 1e-2}
    assert told["regions"][0]["outputs"][0]["tolerance"]["rtol"] == 1e-2
    assert 0.999 < told["regions"][0]["outputs"][0]["cosine"] <= 1
    stamp = rewriter.explain(target).to_dict()["manifest"]
    assert stamp["verification"]["tolerances"]["rough float32"] == "rtol 0.01, atol 0.001"
    assert run([*command, "--rtol", "-1"]) == 2
    assert run([*command, "--rtol", "0.1", "--no-verify"]) == 2
    assert run([*command, "--compare", "y=nonsense"]) == 2
    assert run([*command, "--compare", "z=detections"]) == 2


# --- detections -----------------------------------------------------------------------------------------------


def detections(count=6, seed=0):
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 50, (count, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(5, 40, (count, 2))], 1).astype(np.float32)
    return boxes, rng.uniform(0.1, 1, count).astype(np.float32), rng.integers(0, 5, count)


def shuffled(arrays_, order):
    return tuple(array[order] for array in arrays_)


def test_detections_match_in_any_order():
    expected = detections()
    for order in ([5, 4, 3, 2, 1, 0], [1, 0, 2, 3, 5, 4], [0, 1, 2, 3, 4, 5]):
        assert matched_detections(shuffled(expected, order), expected) is None


@settings(max_examples=40, deadline=None)
@given(st.permutations(list(range(7))), st.integers(0, 6), st.sampled_from(["box", "score", "label"]))
def test_one_detection_that_is_another_is_found(order, which, what):
    expected = detections(7)
    actual = [array.copy() for array in shuffled(expected, order)]
    if what == "box":
        actual[0][which, 2] += 1
    elif what == "score":
        actual[1][which] += 0.01
    else:
        actual[2][which] += 7
    assert "1 of 7 detections have no counterpart" in matched_detections(tuple(actual), expected)


def test_columns_must_belong_together():
    # every box and every score is there, but not with one another
    boxes, scores, labels = detections()
    assert matched_detections((boxes, scores[::-1].copy(), labels), (boxes, scores, labels)) is not None


def test_each_detection_counts_once():
    boxes, scores, labels = detections()
    twice = (boxes[[0, 0, 2]], scores[[0, 0, 2]], labels[[0, 0, 2]])
    once = (boxes[[0, 1, 2]], scores[[0, 1, 2]], labels[[0, 1, 2]])
    assert "1 of 3" in matched_detections(twice, once)
    assert "1 of 3" in matched_detections(once, twice)
    assert matched_detections(twice, shuffled(twice, [2, 0, 1])) is None


def test_near_ones_are_paired_as_well_as_can_be():
    # 1.0 fits both, 1.9 only the second: taking the nearest first would leave 1.9 alone
    allowed = lambda dtype: Tolerance(atol=1.0)  # noqa: E731
    expected = (np.array([[1.0], [1.5]]), np.array([0.5, 0.5]))
    actual = (np.array([[2.4], [1.6]]), np.array([0.5, 0.5]))
    assert matched_detections(actual, expected, allowed) is None
    assert matched_detections((np.array([[2.4], [2.4]]), actual[1]), expected, allowed) is not None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_matching_is_a_largest_one(values, random):
    others = [value + random.choice([-1, 0, 1, 2]) for value in values]
    a, b = np.array(others, float)[:, None], np.array(values, float)[:, None]
    fits = np.abs(a.T - b) <= 1
    count = len(values)
    possible = any(fits[range(count), list(order)].all() for order in itertools.permutations(range(count)))
    problem = matched_detections((a, a[:, 0] * 0), (b, b[:, 0] * 0), lambda dtype: Tolerance(atol=1.0))
    assert (problem is None) == possible


def test_batches_have_sets_of_their_own():
    first, second = detections(4, 1), detections(4, 2)
    expected = tuple(np.stack(pair) for pair in zip(first, second, strict=True))
    inside = tuple(array[:, [2, 0, 3, 1]] for array in expected)
    across = tuple(array[[1, 0]] for array in expected)
    assert matched_detections(inside, expected) is None
    assert "in set 0" in matched_detections(across, expected)


@pytest.mark.parametrize("count", [0, 1])
def test_few_detections(count):
    expected = detections(count)
    assert matched_detections(expected, expected) is None


def test_one_table_and_padding():
    table = np.concatenate([detections()[0], np.full((300, 4), -1, np.float32)])
    assert matched_detections((table[::-1].copy(),), (table,)) is None
    nan = np.full((2, 4), np.nan, np.float32)
    assert matched_detections((nan,), (nan,)) is None
    assert matched_detections((nan,), (np.zeros((2, 4), np.float32),)) is not None


def test_detections_in_half_precision():
    table = detections()[0].astype(ml_dtypes.bfloat16)
    assert matched_detections((table[::-1].copy(),), (table,)) is None


def test_detections_of_other_shapes_and_dtypes():
    boxes, scores, labels = detections()
    assert "shape" in matched_detections((boxes[:5],), (boxes,))
    assert "float64" in matched_detections((boxes.astype(np.float64),), (boxes,))
    assert "1 arrays, expected 2" in matched_detections((boxes,), (boxes, scores))
    assert "one table" in matched_detections((boxes, labels[:5]), (boxes, labels[:5]))


# --- ties -----------------------------------------------------------------------------------------------------


def test_true_ties_of_a_top_k():
    # what torch and numpy make of the same data: equal values at 1 and 3
    data = np.array([1, 7, 3, 7, 5], np.float32)
    values = np.array([7, 7, 5], np.float32)
    first, second = np.array([1, 3, 4]), np.array([3, 1, 4])
    assert np.array_equal(data[first], values)
    assert np.array_equal(data[second], values)
    assert torch.topk(torch.from_numpy(data), 3).values.tolist() == values.tolist()
    assert topk_ties((values, second), (values, first)) is None
    assert topk_ties((values, np.array([1, 1, 4])), (values, first)) == "an index is given twice"
    # 4 and 3 do not hold the same
    assert topk_ties((values, np.array([1, 4, 3])), (values, first)) is not None


def test_a_tie_with_what_was_left_out():
    data = np.array([9, 4, 4, 4], np.float32)
    values = np.array([9, 4], np.float32)
    expected, actual = np.array([0, 1]), np.array([0, 3])
    assert "cannot be told" in topk_ties((values, actual), (values, expected))
    assert topk_ties((values, actual), (values, expected), data=data) is None
    wrong = np.array([0, 9])
    assert "outside" in topk_ties((values, wrong), (values, expected), data=data)
    other = np.array([9, 4, 4, 5], np.float32)
    assert "5.0 stands there" in topk_ties((values, actual), (values, expected), data=other)


@settings(max_examples=80, deadline=None)
@given(
    arrays.arrays(np.int32, st.tuples(st.integers(1, 3), st.integers(1, 8)), elements=st.integers(0, 3)),
    st.data(),
)
def test_any_way_of_picking_among_equals_is_accepted(data, draw):
    k = draw.draw(st.integers(1, data.shape[1]))
    data = data.astype(np.float32)

    def top(order):
        """The k largest, ties by the place in ``order``."""
        places = np.array([sorted(order, key=lambda i: -row[i])[:k] for row in data])
        return np.take_along_axis(data, places, 1), places

    orders = [draw.draw(st.permutations(list(range(data.shape[1])))) for _ in range(2)]
    actual, expected = top(orders[0]), top(orders[1])
    assert topk_ties(actual, expected, data=data) is None
    wrong = actual[1].copy()
    left = [i for i in range(data.shape[1]) if i not in wrong[0] and data[0, i] != actual[0][0, 0]]
    if left:
        wrong[0, 0] = left[0]
        assert topk_ties((actual[0], wrong), expected, data=data) is not None


def test_values_must_be_those_expected():
    values, indices = np.array([3, 2], np.float32), np.array([0, 1])
    assert "1 of 2 values differ" in topk_ties((np.array([3, 1], np.float32), indices), (values, indices))
    near = values * np.float32(1 + 1e-6)
    assert topk_ties((near, indices), (values, indices)) is None


def test_another_axis():
    values = np.array([[7, 3], [7, 2]], np.float32)
    a, b = np.array([[0, 1], [2, 0]]), np.array([[2, 1], [0, 0]])
    assert topk_ties((values, a), (values, b), axis=0) is None
    assert topk_ties((values, a), (values, b)) is not None


# --- whole outputs that are judged together -------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["y", "=detections", "a,=detections", "a=detections:b", "a=topk", "a,b=topk:c", "a=topk:", "a=cosine"],
)
def test_comparisons_that_say_nothing(text):
    with pytest.raises(UsageError, match="comparison"):
        Comparison.parse(text)


def test_forms_of_comparisons():
    assert Comparison.parse("a, b=detections") == Comparison(("a", "b"), "detections")
    assert Comparison.parse("i=topk:v:d") == Comparison(("i",), "topk", ("v", "d"))
    mine = lambda a, b: None  # noqa: E731
    assert comparisons({("a", "b"): "detections", "c": mine}) == (
        Comparison(("a", "b"), "detections"),
        Comparison(("c",), "function", function=mine),
    )
    with pytest.raises(UsageError, match="two ways"):
        comparisons(["a,b=detections", "a=topk:c"])
    with pytest.raises(UsageError, match=r"'q'.*outputs are: a, b"):
        Judgement(comparisons=comparisons("q=detections")).check(["a", "b"])


def permuting(order):
    """Boxes and scores from the inputs, given in ``order``."""
    return model(
        node("Mul", ["b", "two"], ["boxes2"]),
        node("Gather", ["boxes2", "order"], ["boxes"]),
        node("Gather", ["s", "order"], ["scores"]),
        example("Double", ["s"], ["z"]),
        inputs={"b": (FLOAT, [5, 4]), "s": (FLOAT, [5])},
        outputs={"boxes": (FLOAT, [5, 4]), "scores": (FLOAT, [5]), "z": (FLOAT, [5])},
        tensors={"two": np.float32(2), "order": np.array(order)},
        domains=["com.example"],
    )


def reorder(*order):
    def change(delivered):
        for tensor in delivered.graph.initializer:
            if tensor.name == "order":
                tensor.CopyFrom(numpy_helper.from_array(np.array(order), "order"))

    return change


def test_whole_outputs_as_detections():
    source = permuting([0, 1, 2, 3, 4])
    changed = reorder(4, 2, 0, 1, 3)
    with pytest.raises(MismatchError, match="'boxes'"):
        prove(source, Double(), delivered=changed)
    proof = prove(source, Double(), delivered=changed, compare="boxes,scores=detections")
    told = {item["name"]: item for item in proof.to_dict()["outputs"]}
    assert [told[name]["judged"] for name in ("boxes", "scores", "z")] == ["detections", "detections", ""]
    # the figures are of the pairs
    assert told["boxes"]["max_abs"] == 0
    assert proof.to_manifest()["judged"] == {"boxes": "detections", "scores": "detections"}
    with pytest.raises(MismatchError, match="no counterpart"):
        prove(source, Double(), delivered=reorder(4, 2, 0, 1, 1), compare="boxes,scores=detections")
    # a pass of one's own about the outputs
    with pytest.raises(MismatchError, match="not what I want"):
        prove(source, Double(), delivered=changed, compare={"boxes": lambda a, b: "not what I want"})
    accepted = {
        ("boxes", "scores"): lambda a, b: None if np.allclose(a[1].sum(), b[1].sum()) else "another sum"
    }
    assert prove(source, Double(), delivered=changed, compare=accepted).verdict == "verified"
    with pytest.raises(UsageError, match="'box'"):
        prove(source, Double(), compare="box=detections")


def test_whole_outputs_as_a_top_k_with_ties():
    # equal values in the first two columns: TopK gives the lower index first, the other model the higher
    def ties(first, second):
        return model(
            node("Concat", ["x", "x", "low"], ["data"], axis=1),
            node("Gather", ["data", "cut"], ["values"], axis=1),
            node("Add", ["zero", "pick"], ["indices"]),
            example("Double", ["x"], ["z"]),
            inputs={"x": (FLOAT, [1, 1])},
            outputs={"values": (FLOAT, [1, 2]), "indices": (INT64, [1, 2]), "z": (FLOAT, [1, 1])},
            tensors={
                "low": np.full((1, 1), -1e3, np.float32),
                "cut": np.array([0, 1]),
                "zero": np.zeros((1, 2), np.int64),
                "pick": np.array([[first, second]]),
            },
            domains=["com.example"],
        )

    def swap(delivered):
        for tensor in delivered.graph.initializer:
            if tensor.name == "pick":
                tensor.CopyFrom(numpy_helper.from_array(np.array([[1, 0]]), "pick"))

    with pytest.raises(MismatchError, match="'indices'"):
        prove(ties(0, 1), Double(), delivered=swap)
    proof = prove(ties(0, 1), Double(), delivered=swap, compare=["indices=topk:values"])
    assert proof.to_manifest()["judged"] == {"indices": "topk:values"}


def test_the_manifest_with_judged_outputs_fits_its_schema(tmp_path):
    import jsonschema

    report = rewriter.rewrite(
        permuting([0, 1, 2, 3, 4]), passes=[Double], compare="boxes,scores=detections", atol=1e-3
    )
    schema = json.loads(files("rewriter").joinpath("manifest.schema.json").read_text())
    jsonschema.validate(report.manifest, schema)
    assert report.manifest["verification"]["judged"]["boxes"] == "detections"


class Order(Placeholder):
    """The two largest and where they are; the decomposition takes the last of equal ones, torch another."""

    matches = ("Order",)
    outputs = ("values", "indices")

    def reference(self, x):
        found = torch.sort(x, dim=-1, descending=True, stable=True)
        return found.values[..., :2], found.indices[..., :2]

    def decompose(self, g, x: Value):
        flipped = g.gather(x, [3, 2, 1, 0], axis=1)
        values, indices = g.top_k(flipped, 2, axis=1)
        return values, 3 - indices

    def cases(self):
        yield Case(f32(2, 4))


class Tolerant(Order):
    """The same, which knows that ties have no order."""

    name = "order"

    def compare(self, actual, expected):
        return topk_ties(actual, expected)


def order_model():
    return model(
        node("Concat", ["x", "x", "low"], ["data"], axis=1),
        example("Order", ["data"], ["v", "i"]),
        inputs={"x": (FLOAT, ["n", 1])},
        outputs={"v": (FLOAT, ["n", 2]), "i": (INT64, ["n", 2])},
        tensors={"low": np.full((1, 2), -1e3, np.float32)},
        domains=["com.example"],
    )


def test_a_pass_that_accepts_ties():
    source = order_model()
    # one row: the constant has one
    feeds = {"inputs": {"x": np.array([[3]], np.float32)}}
    with pytest.raises(MismatchError, match="'i'"):
        prove(source, Order(), **feeds)
    proof = prove(source, Tolerant(), **feeds)
    assert [c.judged for c in proof.regions[0].outputs] == ["by the pass", "by the pass"]


class LastTaken(Placeholder):
    """The largest of each row, and the last place of those where it stands; torch gives the first."""

    matches = ("LastTaken",)
    outputs = ("values", "indices")

    def reference(self, x):
        return x.amax(-1, keepdim=True), x.argmax(-1, keepdim=True)

    def decompose(self, g, x: Value):
        return (
            g.op("ReduceMax", x, axes=[1], keepdims=1),
            g.op("ArgMax", x, axis=1, keepdims=1, select_last_index=1) + self.off,
        )

    off = 0

    def cases(self):
        yield Case(f32(2, 4))

    def compare(self, actual, expected, arguments):
        return topk_ties(actual, expected, data=arguments["x"])


class Beside(LastTaken):
    name = "last_taken"
    off = -2


class Blind(LastTaken):
    name = "last_taken"

    def compare(self, actual, expected):
        return topk_ties(actual, expected)


@pytest.mark.parametrize("in_body", [False, True])
def test_a_pass_that_looks_at_its_arguments(in_body):
    def placeholder(values, indices):
        return example("LastTaken", ["x"], [values, indices])

    nodes = [placeholder("v", "i")]
    if in_body:
        branches = [
            helper.make_graph(
                [placeholder(f"{key}v", f"{key}i")],
                key,
                [],
                [
                    helper.make_tensor_value_info(f"{key}{n}", k, None)
                    for n, k in (("v", FLOAT), ("i", INT64))
                ],
            )
            for key in ("then", "else")
        ]
        nodes = [node("If", ["yes"], ["v", "i"], then_branch=branches[0], else_branch=branches[1])]
    source = model(
        *nodes,
        inputs={"x": (FLOAT, [3, 4])},
        outputs={"v": (FLOAT, [3, 1]), "i": (INT64, [3, 1])},
        tensors={"yes": np.array(True)} if in_body else {},
        domains=["com.example"],
    )
    tied = {"x": np.array([[7, 1, 7, 7], [1, 2, 2, 0], [4, 4, 4, 4]], np.float32)}
    assert prove(source, LastTaken(), inputs=tied).verdict == "verified"
    with pytest.raises(MismatchError, match=r"is given for .* stands there"):
        prove(source, Beside(), inputs=tied)
    if not in_body:
        with pytest.raises(MismatchError, match="cannot be told"):
            prove(source, Blind(), inputs=tied)


# --- what says nothing -----------------------------------------------------------------------------------------


def test_a_sequence_without_elements_says_nothing():
    checked = Checked("s")
    assert Judgement().differs([], [], checked) is None
    assert checked.emptiness == "empty"
    assert Judgement().differs(None, None, other := Checked("o")) is None
    assert other.emptiness == "absent"


def test_maps_are_compared_by_their_numbers():
    near = [{1: np.float32(0.5), 2: np.float32(0.25)}]
    assert Judgement().differs(near, [{1: np.float32(0.5000001), 2: np.float32(0.25)}]) is None
    assert Judgement().differs(near, [{1: np.float32(0.6), 2: np.float32(0.25)}]) is not None
    assert Judgement().differs(near, [{1: np.float32(0.5), 3: np.float32(0.25)}]) is not None


def test_one_number_that_never_changes():
    checked = Checked("n")
    for _ in range(2):
        checked.add(measure(np.float32(3), np.float32(3)))
    assert checked.emptiness == "the one value 3.0"
    checked.add(measure(np.float32(4), np.float32(4)))
    assert checked.emptiness == ""
    once = Checked("n")
    once.add(measure(np.float32(3), np.float32(3)))
    assert once.emptiness == ""


def test_a_missing_kernel_was_not_run_and_a_refusal_is_a_failure():
    missing = model(
        node("Erf", ["x"], ["y"]),
        inputs={"x": (TensorProto.DOUBLE, [2])},
        outputs={"y": (TensorProto.DOUBLE, [2])},
    )
    with pytest.raises(CannotVerifyError, match="Erf"):
        prove(missing)

    def narrower(delivered):
        delivered.graph.node.insert(0, node("Reshape", ["x", "two"], ["fixed"]))
        delivered.graph.node[1].input[0] = "fixed"
        delivered.graph.initializer.append(numpy_helper.from_array(np.array([2, 2]), "two"))

    open_size = model(
        node("Relu", ["x"], ["y"]), inputs={"x": (FLOAT, ["n", 2])}, outputs={"y": (FLOAT, ["n", 2])}
    )
    with pytest.raises(MismatchError, match="refuses"):
        prove(open_size, delivered=narrower, dims={"n": (2, 3)})


@pytest.mark.parametrize(
    ("comparison", "shapes", "message"),
    [
        ("i=topk:v", {"i": (2, 3), "v": (2, 3, 5)}, r"--compare i=topk:v: values of shape \[2, 3, 5\]"),
        ("i=topk:v", {"i": (), "v": ()}, r"values of shape \[\] have no axis -1"),
        ("b,s=detections", {"b": (6, 4), "s": (5,)}, "not the columns of one table"),
    ],
)
def test_outputs_that_cannot_be_judged_so_are_bad_usage(comparison, shapes, message):
    values = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    with pytest.raises(UsageError, match=message):
        Comparison.parse(comparison).settle(values, values, lambda _: Tolerance())
