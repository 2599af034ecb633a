"""Regions of every form: several outputs, omitted ones, variadic inputs, identities, nested placeholders."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from rewriter.errors import CannotVerifyError, MismatchError
from rewriter.placeholder import Case, Placeholder, TensorSpec, Value, f32
from rewriter.verify import VerifyOptions, verify
from tests.verify.conftest import FLOAT, HALF, INT64, Double, example, model, node, prove, rewritten


class MinMax(Placeholder):
    """The smallest and the largest of each row."""

    matches = ("MinMax",)
    outputs = ("low", "high")
    swapped = False

    def reference(self, x):
        return x.amin(1), x.amax(1)

    def decompose(self, g, x: Value):
        low, high = (g.op(op, x, axes=[1], keepdims=0) for op in ("ReduceMin", "ReduceMax"))
        return (high, low) if self.swapped else (low, high)

    def cases(self):
        yield Case(f32(2, 3))


class Swapped(MinMax):
    name = "min_max"
    swapped = True


def min_max(*outputs):
    return model(
        example("MinMax", ["x"], list(outputs), name="it"),
        inputs={"x": (FLOAT, ["batch", 6])},
        outputs={name: (FLOAT, ["batch"]) for name in outputs if name},
        domains=["com.example"],
    )


def test_several_outputs():
    (region,) = prove(min_max("low", "high"), MinMax()).regions
    assert [checked.name for checked in region.outputs] == ["low", "high"]
    assert [checked.samples for checked in region.outputs] == [2, 2]
    with pytest.raises(MismatchError, match=r"'low'.*'high'"):
        prove(min_max("low", "high"), Swapped())


def test_an_omitted_output_keeps_the_positions():
    (region,) = prove(min_max("", "high"), MinMax()).regions
    assert [(checked.name, checked.samples) for checked in region.outputs] == [("", 0), ("high", 2)]
    with pytest.raises(MismatchError, match="'high'"):
        prove(min_max("", "high"), Swapped())


class Total(Placeholder):
    """The sum of all inputs, times a factor."""

    matches = ("Total",)

    def reference(self, *xs, factor=1.0):
        return sum(xs) * factor

    def decompose(self, g, *xs: Value, factor: float = 1.0):
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        return total * factor

    def cases(self):
        yield Case(f32(2, 3), f32(2, 3))


def test_variadic_inputs_and_parameters():
    source = model(
        example("Total", ["x", "y", "x"], ["z"], factor=0.5),
        inputs={"x": (FLOAT, ["n"]), "y": (FLOAT, ["n"])},
        outputs={"z": (FLOAT, ["n"])},
        domains=["com.example"],
    )
    proof = prove(source, Total())
    assert proof.verdict == "verified"
    assert "factor=0.5" in proof.regions[0].parameters


class Same(Placeholder):
    """x."""

    matches = ("Same",)

    def reference(self, x):
        return x

    def decompose(self, g, x: Value):
        return x

    def cases(self):
        yield Case(f32(2))


def test_an_identity_between_graph_input_and_output():
    source = model(
        example("Same", ["x"], ["y"]),
        inputs={"x": (FLOAT, ["n"])},
        outputs={"y": (FLOAT, ["n"])},
        domains=["com.example"],
    )
    assert prove(source, Same()).regions[0].samples == 2


def test_a_constant_input_is_read_from_the_model():
    source = model(
        example("Total", ["x", "w"], ["y"]),
        inputs={"x": (FLOAT, ["n", 2000])},
        outputs={"y": (FLOAT, ["n", 2000])},
        tensors={"w": np.arange(2000, dtype=np.float32)},
        domains=["com.example"],
    )
    assert prove(source, Total()).regions[0].samples == 2


class Quadruple(Placeholder):
    """4·x, by way of another placeholder."""

    matches = ("Quadruple",)

    def reference(self, x):
        return 4 * x

    def decompose(self, g, x: Value):
        twice = g.op("com.example::Double", x)
        return g.op("com.example::Double", twice)

    def cases(self):
        yield Case(f32(2))


class Triple(Double):
    name = "double"

    def decompose(self, g, x: Value):
        return x + x + x


def test_nested_placeholders_are_each_proved():
    source = model(
        example("Quadruple", ["x"], ["y"], name="it"),
        inputs={"x": (FLOAT, ["n"])},
        outputs={"y": (FLOAT, ["n"])},
        domains=["com.example"],
    )
    proof = prove(source, Quadruple(), Double())
    assert sorted(region.pass_name for region in proof.regions) == ["double", "double", "quadruple"]
    assert all(region.samples == 2 for region in proof.regions)
    with pytest.raises(MismatchError):
        prove(source, Quadruple(), Triple())


class Inverse(Placeholder):
    """The inverse of a matrix, which torch has in float16 on no CPU (2 by 2)."""

    matches = ("Inverse",)

    def reference(self, x):
        import torch

        return torch.linalg.inv(x)

    def decompose(self, g, x: Value):
        rows = [g.gather(x, [i], axis=0) for i in (0, 1)]
        (a, b), (c, d) = ([g.gather(row, [j], axis=1) for j in (0, 1)] for row in rows)
        det = a * d - b * c
        top = g.concat([d, -b], axis=1)
        low = g.concat([-c, a], axis=1)
        return g.concat([top, low], axis=0) / det

    def cases(self):
        yield Case(TensorSpec((2, 2), value=(2.0, 1.0, 1.0, 2.0)))


def test_a_reference_that_lacks_float16_is_computed_in_float32():
    source = model(
        example("Inverse", ["x"], ["y"]),
        inputs={"x": (HALF, [2, 2])},
        outputs={"y": (HALF, [2, 2])},
        domains=["com.example"],
    )
    given = {"x": np.array([[2, 1], [1, 2]], np.float16)}
    assert prove(source, Inverse(), inputs=given).verdict == "verified"


def test_bfloat16_is_compared():
    """Moved, not computed: onnxruntime computes little in bfloat16."""
    source = model(
        example("Same", ["x"], ["a"]),
        node("Identity", ["a"], ["y"]),
        inputs={"x": (TensorProto.BFLOAT16, ["n"])},
        outputs={"y": (TensorProto.BFLOAT16, ["n"])},
        domains=["com.example"],
    )
    assert prove(source, Same()).regions[0].outputs[0].dtype == np.dtype(ml_dtypes.bfloat16).name


class Judged(Double):
    """A pass that compares by itself."""

    name = "double"
    verdict: str | None = None

    def decompose(self, g, x: Value):
        return x * 3

    def compare(self, actual, expected):
        assert actual[0].shape == expected[0].shape
        return self.verdict


def test_a_pass_may_judge_by_itself():
    source = model(
        example("Double", ["x"], ["y"]),
        inputs={"x": (FLOAT, ["n"])},
        outputs={"y": (FLOAT, ["n"])},
        domains=["com.example"],
    )
    assert prove(source, Judged()).verdict == "verified"
    strict = Judged()
    strict.verdict = "three boxes have no partner"
    with pytest.raises(MismatchError, match="three boxes"):
        prove(source, strict)

    class Fails(Judged):
        def compare(self, actual, expected):
            return actual[0].nothing

    with pytest.raises(MismatchError, match=r"compare\(\) raised AttributeError"):
        prove(source, Fails())


def test_a_reference_with_more_results_than_the_pass_declares():
    class Two(Double):
        name = "double"

        def reference(self, x):
            return x + x, x

    source = model(
        example("Double", ["x"], ["y"]),
        inputs={"x": (FLOAT, ["n"])},
        outputs={"y": (FLOAT, ["n"])},
        domains=["com.example"],
    )
    with pytest.raises(MismatchError, match="gives 2 results, the pass declares 1"):
        prove(source, Two())


def test_a_function_that_nothing_calls_does_not_stop_the_run():
    function = helper.make_function(
        "local",
        "Dead",
        ["a"],
        ["b"],
        [example("Double", ["a"], ["b"])],
        [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)],
    )
    source = model(
        example("Double", ["x"], ["y"]),
        inputs={"x": (FLOAT, ["n"])},
        outputs={"y": (FLOAT, ["n"])},
        functions=[function],
        domains=["com.example", "local"],
    )
    assert prove(source, Double()).verdict == "verified"


def test_integers_of_unknown_meaning_are_drawn_smaller_until_they_fit():
    """Slice ends, repeats, positions in a table that only the run makes."""
    source = model(
        node("ConstantOfShape", ["two"], ["table"]),
        node("Gather", ["table", "where"], ["a"]),
        example("Double", ["a"], ["y"]),
        inputs={"where": (INT64, [3]), "two": (INT64, [1])},
        outputs={"y": (FLOAT, [3])},
        domains=["com.example"],
    )
    assert prove(source, Double(), input_ranges={"two": (2, 2)}).verdict == "verified"


# --- kept operators in other places ---------------------------------------------------------------------------


def keep(source, *passes):
    from rewriter.decompose import Keep, decompose
    from rewriter.placeholder import Selection
    from rewriter.storage import ModelFile

    file = ModelFile.from_proto(source)
    names = frozenset(p.pass_name() for p in passes)
    done = decompose(file, Selection(passes, names), Keep.parse("vendor::Secret"))
    return verify(file, file.model, file.model, done.regions, VerifyOptions())


def test_a_kept_operator_with_several_results():
    source = model(
        node("Secret", ["x"], ["s", "", "t"], domain="vendor"),
        node("Add", ["s", "t"], ["u"]),
        example("Double", ["u"], ["y"]),
        inputs={"x": (FLOAT, ["n"])},
        outputs={"y": (FLOAT, ["n"])},
        domains=["com.example", "vendor"],
    )
    source.graph.value_info.extend(helper.make_tensor_value_info(name, FLOAT, ["n"]) for name in "st")
    assert keep(source, Double()).cut == ["vendor::Secret"]


def test_a_kept_operator_in_a_branch():
    def branch(name, inner):
        graph = helper.make_graph(
            [inner], name, [], [helper.make_tensor_value_info(inner.output[0], FLOAT, ["n"])]
        )
        graph.value_info.append(helper.make_tensor_value_info(inner.output[0], FLOAT, ["n"]))
        return graph

    source = model(
        node(
            "If",
            ["flag"],
            ["a"],
            then_branch=branch("then", node("Secret", ["x"], ["s"], domain="vendor")),
            else_branch=branch("else", node("Neg", ["x"], ["e"])),
        ),
        example("Double", ["a"], ["y"]),
        inputs={"x": (FLOAT, ["n"]), "flag": (TensorProto.BOOL, [])},
        outputs={"y": (FLOAT, ["n"])},
        domains=["com.example", "vendor"],
    )
    assert keep(source, Double()).verdict == "verified"


def test_a_kept_operator_in_a_function_needs_a_known_type():
    function = helper.make_function(
        "local",
        "Block",
        ["a"],
        ["b"],
        [node("Secret", ["a"], ["s"], domain="vendor"), node("Neg", ["s"], ["b"])],
        [helper.make_opsetid("", 17), helper.make_opsetid("vendor", 1)],
    )
    source = model(
        node("Block", ["x"], ["h"], domain="local"),
        example("Double", ["h"], ["y"]),
        inputs={"x": (FLOAT, ["n"])},
        outputs={"y": (FLOAT, None)},
        functions=[function],
        domains=["com.example", "vendor", "local"],
    )
    with pytest.raises(CannotVerifyError, match="--library"):
        keep(source, Double())


def test_the_regions_of_a_rewritten_model_can_be_proved_twice():
    source = min_max("low", "high")
    with rewritten(source, MinMax()) as (file, done):
        copy = ModelProto()
        copy.CopyFrom(file.model)
        first = verify(file, file.model, copy, done.regions).to_dict()
        assert verify(file, file.model, copy, done.regions).to_dict() == first
