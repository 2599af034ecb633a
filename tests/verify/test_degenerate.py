"""What a region takes may be nothing worth computing with: then there is a warning, and not otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from passes.detection.nms import Nms
from rewriter.placeholder import Case, Placeholder, Value, f32
from tests.verify.conftest import FLOAT, INT64, Double, example, model, node, prove


def ahead(*nodes, tensors=None, inputs=None, kind=FLOAT, shape=("n", 8), opset=17):
    """``nodes`` make "a" of "x", which a Double takes."""
    return model(
        *nodes,
        example("Double", ["a"], ["d"], name="twice"),
        inputs=inputs or {"x": (FLOAT, list(shape))},
        outputs={"d": (kind, None)},
        tensors=tensors or {},
        domains=["com.example"],
        opset=opset,
        ir=9,
    )


def told(source, *passes, **options):
    """The warnings about what a region takes."""
    return [w for w in prove(source, *passes, **options).warnings if "com.example::" in w]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        pytest.param(
            ahead(
                node("Sub", ["x", "far"], ["s"]), node("Relu", ["s"], ["a"]), tensors={"far": np.float32(100)}
            ),
            "0.0 throughout",
            id="all zero behind a Relu",
        ),
        pytest.param(
            ahead(
                node("Mul", ["x", "far"], ["s"]),
                node("Softmax", ["s"], ["p"]),
                node("Transpose", ["p"], ["a"]),
                tensors={"far": np.float32(1e6)},
            ),
            "0 or 1 throughout, the limits of Softmax",
            id="one-hot behind a Softmax",
        ),
        pytest.param(
            ahead(
                node("Mul", ["x", "far"], ["s"]),
                node("Clip", ["s", "low", "high"], ["a"]),
                tensors={"far": np.float32(1e6), "low": np.float32(-1), "high": np.float32(2)},
            ),
            "-1 or 2 throughout, the limits of Clip",
            id="all at the bounds of a Clip",
        ),
        pytest.param(
            ahead(
                node("Mul", ["x", "far"], ["s"]), node("Tanh", ["s"], ["a"]), tensors={"far": np.float32(1e6)}
            ),
            "-1 or 1 throughout, the limits of Tanh",
            id="saturated",
        ),
        pytest.param(
            ahead(
                node("Mod", ["i", "one"], ["a"]),
                inputs={"i": (INT64, ["n", 8])},
                kind=INT64,
                tensors={"one": np.array(1)},
            ),
            "0 throughout",
            id="indices all equal",
        ),
        pytest.param(
            ahead(node("Abs", ["x"], ["q"]), node("Neg", ["q"], ["m"]), node("Log", ["m"], ["a"])),
            "nan throughout",
            id="all NaN",
        ),
    ],
)
def test_a_region_that_gets_nothing_worth_computing(source, said):
    (warning,) = told(source, Double())
    assert "'twice'" in warning
    assert f"'x' ('a') is {said}" in warning
    assert "in every sample" in warning
    assert f"--input-range {source.graph.input[0].name}=LOW:HIGH" in warning


def test_other_values_silence_it():
    source = ahead(
        node("Sub", ["x", "far"], ["s"]), node("Relu", ["s"], ["a"]), tensors={"far": np.float32(100)}
    )
    assert told(source, Double())
    assert not told(source, Double(), input_ranges={"x": (0, 200)})
    given = {"x": np.full((2, 8), 99, np.float32)}
    (warning,) = told(source, Double(), inputs=given)
    assert warning.endswith("give other inputs (--inputs)")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            # of the sizes alone: no input could change it
            ahead(node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["a"])),
            id="a constant of the shape",
        ),
        pytest.param(
            ahead(
                node("Greater", ["x", "zero"], ["g"]),
                node("Cast", ["g"], ["a"], to=TensorProto.FLOAT),
                tensors={"zero": np.float32(0)},
            ),
            id="a mask has two values by nature",
        ),
        pytest.param(ahead(node("Relu", ["x"], ["a"])), id="half of it zero"),
        pytest.param(ahead(node("Softmax", ["x"], ["a"])), id="a Softmax of ordinary values"),
        pytest.param(ahead(node("ReduceSum", ["x"], ["a"], keepdims=0)), id="a single number"),
    ],
)
def test_no_warning_of_what_is_right(source):
    assert [w for w in told(source, Double()) if "('a')" in w] == []


def test_an_output_that_never_changes_names_the_inputs_behind_it():
    source = model(
        example("Double", ["x"], ["d"]),
        node("Mul", ["x", "zero"], ["y"]),
        node("Neg", ["z"], ["other"]),
        inputs={"x": (FLOAT, ["n", 4]), "z": (FLOAT, [3])},
        outputs={"y": (FLOAT, ["n", 4]), "d": (FLOAT, ["n", 4]), "other": (FLOAT, [3])},
        tensors={"zero": np.float32(0)},
        domains=["com.example"],
    )
    (warning,) = prove(source, Double()).warnings
    assert warning.startswith("output 'y' is all equal in every sample")
    assert "--input-range x=LOW:HIGH" in warning
    assert "z=" not in warning


def test_a_result_that_is_empty_in_every_sample():
    class Positive(Placeholder):
        """The numbers above 100."""

        matches = ("Positive",)

        def reference(self, x):
            return x[x > 100]

        def decompose(self, g, x: Value):
            flat = g.reshape(x, [-1])
            return g.op("Compress", flat, g.op("Greater", flat, g.const(100.0, flat)), axis=0)

        def cases(self):
            yield Case(f32(4))

    source = model(
        example("Positive", ["x"], ["y"]),
        inputs={"x": (FLOAT, ["n"])},
        outputs={"y": (FLOAT, ["m"])},
        domains=["com.example"],
    )
    proof = prove(source, Positive())
    assert any("its result 'y' is empty" in w and "--input-range x=LOW:HIGH" in w for w in proof.warnings)
    assert proof.regions[0].to_dict()["says_little"] == ["its result 'y' is empty"]
    assert prove(source, Positive(), input_ranges={"x": (90, 300)}).warnings == []


def boxes_model(*nodes, tensors=None):
    return model(
        *nodes,
        example("Nms", ["boxes", "s"], ["y"], iou_threshold=0.5),
        inputs={"b": (FLOAT, [12, 4]), "s": (FLOAT, [12])},
        outputs={"y": (INT64, ["m"])},
        tensors=tensors or {},
        domains=["com.example"],
    )


def test_boxes_that_say_nothing():
    # the second corner is the first
    empty = boxes_model(
        node("Gather", ["b", "twice"], ["boxes"], axis=1), tensors={"twice": np.array([0, 1, 0, 1])}
    )
    (warning,) = told(empty, Nms())
    assert "no box has an area" in warning
    assert "--input-range b=LOW:HIGH" in warning
    # each a unit apart from the next
    apart = boxes_model(
        node("Mul", ["b", "none"], ["none_of_it"]),
        node("Add", ["none_of_it", "fixed"], ["boxes"]),
        tensors={
            "none": np.float32(0),
            "fixed": np.array([[3 * i, 0, 3 * i + 2, 1] for i in range(12)], np.float32),
        },
    )
    assert any("nothing is suppressed" in warning for warning in told(apart, Nms()))


def test_boxes_that_say_something():
    source = boxes_model(
        node("Gather", ["b", "first"], ["near"], axis=1),
        node("Add", ["near", "side"], ["far"]),
        node("Concat", ["near", "far"], ["boxes"], axis=1),
        tensors={"first": np.array([0, 1]), "side": np.float32(2)},
    )
    assert told(source, Nms()) == []


def test_a_pass_whose_remark_raises_is_told_of():
    class Faulty(Double):
        name = "double"

        def says_little(self, arguments, results):
            return arguments["nothing"]

    (warning,) = told(ahead(node("Neg", ["x"], ["a"])), Faulty())
    assert "says_little() raised KeyError" in warning


def test_no_range_is_named_for_text():
    source = ahead(
        node("Equal", ["t", "word"], ["e"]),
        node("Cast", ["e"], ["a"], to=FLOAT),
        inputs={"t": (TensorProto.STRING, ["n", 8])},
        tensors={"word": np.array("absent", object)},
        opset=19,
    )
    (warning,) = told(source, Double())
    assert "--input-range" not in warning
    assert "--inputs" in warning
