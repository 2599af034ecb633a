"""What is allowed for the errors of kernels: as much as they make, at any number of elements, and not ten times that.

Right values are of float64, and of torch.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from onnx import helper

import rewriter
from passes.activation.elu import Celu, Elu, Selu
from passes.activation.gelu import Gelu, gelu
from passes.activation.glu import GeGlu, Glu, SwiGlu
from passes.activation.hard import HardSwish
from passes.activation.mish import Mish
from passes.activation.softplus import LogSigmoid, Softplus
from passes.activation.swish import Swish
from passes.detection.detection import Detection
from passes.fused.conv_bn import ConvBnSilu
from passes.fused.selective_scan import SelectiveScan
from rewriter.errors import MismatchError, PassDefinitionError
from rewriter.execution.session import Session
from rewriter.placeholder import Case, Placeholder, Value, decomposition, f32
from rewriter.storage import ModelFile
from rewriter.testing.check import compare
from rewriter.verify.compare import Tolerance, judge, measure
from rewriter.verify.kernels import ERRORS, allowance
from tests.verify.conftest import FLOAT, example, model, node, prove

#: Passes whose results rest on kernels, with arguments; the first is x.
FORMS = [
    (Swish(), {}),
    (Swish(), {"beta": 1.5}),
    (Gelu(), {"approximate": "none"}),
    (Gelu(), {"approximate": "tanh"}),
    (Glu(), {"dim": 0}),
    (SwiGlu(), {"dim": 0}),
    (GeGlu(), {"dim": 0}),
    (Softplus(), {}),
    (Softplus(), {"beta": 0.1}),
    (LogSigmoid(), {}),
    (Elu(), {"alpha": 10.0}),
    (Celu(), {"alpha": 3.0}),
    (Selu(), {}),
]
WITHOUT_TERMS = [(Mish(), {})]


def name_of(item):
    placeholder, arguments = item
    return "-".join([placeholder.pass_name(), *(f"{k}={v}" for k, v in arguments.items())])


def values(count=1 << 16):
    """Both tails and the middle, in equal parts."""
    rng = np.random.default_rng(5)
    parts = [rng.standard_normal(count) * scale for scale in (1e-3, 1.0, 8.0, 30.0)]
    return np.concatenate(parts).astype(np.float32).reshape(2, -1)


def exact(placeholder, x, arguments):
    """In float64."""
    found = placeholder.reference(x=torch.from_numpy(x.astype(np.float64)), **arguments)
    return (found[0] if isinstance(found, tuple) else found).numpy()


@pytest.mark.parametrize("operator", ERRORS)
def test_the_runtimes_kernels_are_as_good_as_is_said(operator):
    functions = {
        "Sigmoid": torch.sigmoid,
        "Tanh": torch.tanh,
        "Erf": torch.erf,
        "Elu": torch.nn.functional.elu,
    }
    x = np.concatenate([np.linspace(-100, 100, 400_001), np.linspace(-10, 10, 400_001)]).astype(np.float32)
    source = model(node(operator, ["x"], ["y"]), inputs={"x": (FLOAT, ["n"])}, outputs={"y": (FLOAT, ["n"])})
    with ModelFile.from_proto(source) as file:
        found = Session(file, source).run({"x": x}, ["y"])["y"]
    expected = functions[operator](torch.from_numpy(x.astype(np.float64))).numpy()
    # Where the function is larger than 1, what remains is rounding of the result.
    error = np.abs(found.astype(np.float64) - expected) / np.maximum(np.abs(expected), 1)
    assert 0 < error.max() <= ERRORS[operator]


@pytest.mark.parametrize("item", FORMS + WITHOUT_TERMS, ids=name_of)
def test_what_torch_computes_in_float32_is_within_it(item):
    placeholder, arguments = item
    x = values()
    found = placeholder.reference(x=torch.from_numpy(x), **arguments)
    found = (found[0] if isinstance(found, tuple) else found).numpy()
    expected = exact(placeholder, x, arguments).astype(np.float32)
    assert compare(placeholder, found, expected, lambda: {"x": x, **arguments}) is None


@pytest.mark.parametrize("item", FORMS, ids=name_of)
@pytest.mark.parametrize("count", [64, 1 << 16])
def test_an_error_of_the_kernel_passes_and_ten_times_that_does_not(item, count):
    placeholder, arguments = item
    x = -np.abs(values(count)) - np.float32(0.5)  # where results are small
    expected = exact(placeholder, x, arguments).astype(np.float32)
    given = {"x": x, **arguments}
    allowed = allowance(placeholder, lambda: given, expected)
    assert allowed.max() > 0
    rng = np.random.default_rng(0)
    within = expected + (allowed * rng.uniform(-0.9, 0.9, expected.shape)).astype(np.float32)
    assert compare(placeholder, within, expected, lambda: given) is None
    beyond = (expected + 10 * allowed).astype(np.float32)
    assert "beyond tolerance" in compare(placeholder, beyond, expected, lambda: given)


def test_thresholds_that_were_asked_for_hold_alone():
    from rewriter.verify.compare import Thresholds
    from rewriter.verify.judgement import Judgement

    asked = Judgement(Thresholds(atol=0.0))
    assert asked.terms(Swish(), dict, np.zeros(3, np.float32)) is None
    assert Judgement().terms(Swish(), dict, np.zeros(3, np.float32)) is not None


def test_a_result_of_another_shape_and_a_wide_one_have_no_terms():
    given = {"x": np.full((2, 3), 4.0, np.float32)}
    assert allowance(Swish(), lambda: given, np.zeros((2, 3), np.float32)).max() == pytest.approx(
        4 * ERRORS["Sigmoid"]
    )
    assert allowance(Swish(), lambda: given, np.zeros((2, 3), np.float64)) is None
    assert allowance(Swish(), lambda: given, np.zeros((3, 2, 3, 1), np.float32)).max() == 0
    infinite = {"x": np.array([np.inf, 1.0], np.float32)}
    assert allowance(Swish(), lambda: infinite, np.zeros(2, np.float32)).tolist() == [0.0, ERRORS["Sigmoid"]]


def test_an_operator_of_unknown_error_is_the_passes_fault():
    class Odd(Swish):
        def terms(self, x, beta=1.0):
            return {"Softsign": x}

    with pytest.raises(PassDefinitionError, match="Softsign"):
        allowance(Odd(), lambda: {"x": np.ones(2, np.float32)}, np.ones(2, np.float32))


def test_the_element_that_is_shown_is_the_one_that_offends():
    expected = np.array([1e6, 1.0, 2.0, 0.5], np.float32)
    actual = np.array([1e6 + 1, 1.0, 2.0, 0.5004], np.float32)
    metrics = measure(actual, expected)
    assert metrics.worst_index == (0,)  # the largest difference, which is within
    problem = judge(actual, expected, metrics, Tolerance(rtol=1e-5))
    assert problem.startswith("1 of 4")
    assert problem.endswith("; at [3] 0.5004000067710876, expected 0.5")


def test_the_place_of_a_nan_of_an_infinity_and_of_a_text_is_shown():
    nan, inf = math.nan, math.inf

    def told(a, b):
        return judge(np.asarray(a), np.asarray(b), measure(np.asarray(a), np.asarray(b)), Tolerance())

    assert told(np.float32([[1, 2], [nan, nan]]), np.float32([[1, 2], [nan, 4]])).endswith(
        "; at [1, 1] nan, expected 4.0"
    )
    assert told(np.float32([1, inf, -inf]), np.float32([1, inf, inf])).endswith("; at [2] -inf, expected inf")
    assert told(np.array(["a", "b"], object), np.array(["a", "c"], object)).endswith("; at [1] b, expected c")
    assert told(np.array([7, 7, 9]), np.array([7, 8, 9])).endswith("; at [1] 7, expected 8")


# --- whole runs ---------------------------------------------------------------------------------------------------


def silu(*, scale=8.0, size=64, op_type="SiLU", opset=13):
    return model(
        node("Mul", ["x", "scale"], ["a"]),
        example(op_type, ["a"], ["y"], name="it"),
        inputs={"x": (FLOAT, [2, 3, size, size])},
        outputs={"y": (FLOAT, [2, 3, size, size])},
        tensors={"scale": np.float32(scale)},
        domains=["com.example"],
        opset=opset,
    )


@pytest.mark.parametrize(("scale", "size"), [(8, 64), (8, 224), (30, 64), (-100, 16)])
def test_silu_of_large_values_is_verified_at_any_size(scale, size):
    assert prove(silu(scale=scale, size=size), Swish()).verdict == "verified"


def test_silu_of_large_values_is_verified_by_a_default_run(tmp_path):
    assert rewriter.rewrite(silu(), tmp_path / "out.onnx").verification["verdict"] == "verified"


@pytest.mark.parametrize(
    "placeholder",
    [Gelu(), Mish(), Softplus(), LogSigmoid(), Elu(), Selu(), HardSwish()],
    ids=lambda placeholder: placeholder.pass_name(),
)
def test_other_activations_of_large_values_are_verified(placeholder):
    for opset in (13, 20):
        source = silu(op_type=placeholder.matches[0], opset=opset)
        assert prove(source, placeholder).verdict == "verified"


class SlightlyOff(Swish):
    """x · (sigmoid(x) + 2.5e-6): ten times the error of the kernel."""

    name = "swish"

    def decompose(self, g, x: Value, beta: float | Value = 1.0):
        return x * (g.sigmoid(x) + 10 * ERRORS["Sigmoid"])


class Offset(Gelu):
    name = "gelu"

    @decomposition()
    def formula(self, g, x: Value, approximate: str = "none"):
        return gelu(g, x, approximate) + x * (5 * ERRORS["Erf"])


@pytest.mark.parametrize(("op_type", "wrong"), [("SiLU", SlightlyOff()), ("Gelu", Offset())])
def test_ten_times_the_error_is_caught_in_a_whole_run(op_type, wrong):
    for scale in (1.0, 8.0):
        with pytest.raises(MismatchError, match="beyond tolerance"):
            prove(silu(op_type=op_type, scale=scale, size=16), wrong)


def test_a_convolution_with_silu_far_below_zero_is_verified(tmp_path):
    """All results lie where Sigmoid has no correct digit, so that none of them is large enough to excuse another."""
    rng = np.random.default_rng(3)
    weights = {
        "w": (rng.standard_normal((4, 3, 3, 3)) * 0.3).astype(np.float32),
        "b": np.full(4, -24.0, np.float32),
        "one": np.ones(4, np.float32),
        "zero": np.zeros(4, np.float32),
    }
    source = model(
        example("ConvBnSilu", ["x", "w", "b", "one", "zero", "zero", "one"], ["y"], padding=[1]),
        inputs={"x": (FLOAT, [1, 3, 16, 16])},
        outputs={"y": (FLOAT, None)},
        tensors=weights,
        domains=["com.example"],
    )
    assert rewriter.rewrite(source, tmp_path / "out.onnx").verification["verdict"] == "verified"


def test_the_terms_of_a_gated_scan_are_those_of_its_gate():
    placeholder = SelectiveScan()
    case = next(
        c for c in placeholder.cases() if c.arguments(placeholder.signature.names).get("z") is not None
    )
    from rewriter.testing.models import build

    built = build(
        placeholder, case, dtype="float32", opset=17, symbolic=False, place="graph", outputs=1
    ).arguments
    ungated = placeholder.reference(
        **{k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in built.items() if k != "z"}
    )[0].numpy()
    found = allowance(placeholder, lambda: built, ungated)
    assert found == pytest.approx(np.abs(ungated * built["z"]) * ERRORS["Sigmoid"], rel=1e-4)


def test_terms_of_the_fused_form_are_those_of_what_the_convolution_gives():
    x = np.full((1, 1, 2, 2), 3.0, np.float32)
    one = np.ones(1, np.float32)
    given = {
        "input": x, "weight": np.full((1, 1, 1, 1), 2.0, np.float32), "bias": None, "bn_weight": one,
        "bn_bias": -one, "running_mean": 0 * one, "running_var": one, "eps": 0.0,
    }  # fmt: skip
    assert allowance(ConvBnSilu(), lambda: given, x).ravel() == pytest.approx([5 * ERRORS["Sigmoid"]] * 4)


def test_small_scores_of_detections_are_allowed_the_error_of_their_sigmoid():
    scores = np.full((1, 4), 1e-4, np.float32)
    given = {"activation": "sigmoid", "padded": True}
    assert compare(Detection(), scores + np.float32(1.9e-7), scores, lambda: given) is None
    assert compare(Detection(), scores + np.float32(3e-6), scores, lambda: given) is not None
    assert (
        compare(Detection(), scores + np.float32(1.9e-7), scores, lambda: {"activation": "none"}) is not None
    )


def test_a_pass_of_ones_own_says_its_terms():
    class Gate(Placeholder):
        matches = ("Gate",)
        tolerances = {"float32": (2e-6, 0.0)}  # noqa: RUF012

        def reference(self, x, y):
            return y * torch.sigmoid(x)

        def terms(self, x, y):
            return {"Sigmoid": y}

        def decompose(self, g, x: Value, y: Value):
            return y * g.sigmoid(x)

        def cases(self):
            yield Case(f32(2, 3), f32(2, 3))

    source = model(
        node("Mul", ["x", "k"], ["a"]),
        helper.make_node("Gate", ["a", "y"], ["z"], domain="com.example"),
        inputs={"x": (FLOAT, [64, 64]), "y": (FLOAT, [64, 64])},
        outputs={"z": (FLOAT, None)},
        tensors={"k": np.float32(10)},
        domains=["com.example"],
    )
    assert prove(source, Gate()).verdict == "verified"
