"""The whole verification, on models with right and deliberately wrong passes."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewriter.errors import CannotVerifyError, MismatchError, UnprovedError, UsageError
from rewriter.placeholder import Case, Placeholder, Value, f32
from tests.verify.conftest import (
    BOOL,
    DOUBLE,
    FLOAT,
    HALF,
    INT64,
    Double,
    Shift,
    example,
    model,
    node,
    prove,
    rewritten,
)


def one(op_type, *, dtype=FLOAT, shape=("batch", 6), out=None, **attributes):
    """A model of a single placeholder called ``it`` between two Identities."""
    return model(
        node("Identity", ["x"], ["a"]),
        example(op_type, ["a"], ["b"], name="it", **attributes),
        node("Identity", ["b"], ["y"]),
        inputs={"x": (dtype, list(shape))},
        outputs={"y": (out or dtype, None)},
        domains=["com.example"],
    )


def test_a_right_pass_is_verified(double_model):
    proof = prove(double_model, Double())
    assert proof.verdict == "verified"
    (region,) = proof.regions
    assert (region.pass_name, region.decomposition, region.where.node) == ("double", "decompose", "twice")
    assert (region.how, region.samples) == ("in place", 2)
    assert region.outputs[0].max_abs == 0.0
    assert len(region.outputs[0].shapes) == 2
    assert [output.name for output in proof.outputs] == ["y"]
    assert proof.outputs[0].max_scaled < 1e-5
    assert len({sizes["batch"] for sizes in proof.sizes}) == 2
    assert proof.warnings == []


def test_the_proof_is_plain_data_and_the_manifest_has_no_figures(double_model):
    proof = prove(double_model, Double(), samples=3, seed=7)
    data = json.loads(json.dumps(proof.to_dict()))
    assert data["verdict"] == "verified"
    assert data["seed"] == 7
    assert len(data["sizes"]) == 3
    assert data["regions"][0]["outputs"][0]["tolerance"]["rtol"] > 0
    assert {"onnxruntime", "torch"} <= set(data["versions"])
    manifest = json.dumps(proof.to_manifest())
    assert "max_abs" not in manifest
    assert "versions" not in manifest
    assert json.loads(manifest)["proved"] == 1


class WrongSign(Shift):
    name = "shift"

    def build(self, g, x, shift, dim):
        return super().build(g, x, -shift, dim)


def test_the_wrong_sign_of_a_shift_is_caught():
    with pytest.raises(MismatchError, match="elements beyond tolerance") as caught:
        prove(one("Shift", shift=1, dim=1), WrongSign())
    assert caught.value.where.node == "it"
    assert caught.value.where.operator == "com.example::Shift"
    assert "shift" in caught.value.remedy
    prove(one("Shift", shift=1, dim=1), Shift())


class WideConstant(Double):
    """2·x, with the 2 in float32 whatever x is."""

    name = "double"

    def decompose(self, g, x: Value):
        return g.op("Mul", x, g.const(np.array(2, np.float32)))


class WideResult(Double):
    """2·x computed, and left, in float32."""

    name = "double"

    def decompose(self, g, x: Value):
        wide = g.op("Cast", x, to=TensorProto.FLOAT)
        return wide + wide


@pytest.mark.parametrize("wrong", [WideConstant, WideResult])
def test_float32_in_a_float16_graph_is_caught(wrong):
    from rewriter.errors import RewriteError

    with pytest.raises(RewriteError) as caught:
        prove(one("Double", dtype=HALF), wrong())
    assert caught.value.exit_code == 1
    assert caught.value.where.node == "it"
    prove(one("Double", dtype=HALF), Double())


class Overflowing(Double):
    """2·x by way of NaN."""

    name = "double"

    def decompose(self, g, x: Value):
        zero = x - x
        return g.op("Div", zero, zero)


def test_nan_everywhere_is_caught():
    with pytest.raises(MismatchError, match="NaN in 12 of 12"):
        prove(one("Double"), Overflowing())


class Rows(Placeholder):
    """The mean of each row, as a column."""

    matches = ("Rows",)

    def reference(self, x):
        return x.mean(1, keepdim=True)

    def decompose(self, g, x: Value):
        return g.op("ReduceMean", x, axes=[1], keepdims=1)

    def cases(self):
        yield Case(f32(2, 3))


class FlatRows(Rows):
    name = "rows"

    def decompose(self, g, x: Value):
        return g.op("ReduceMean", x, axes=[1], keepdims=0)


def test_a_shape_that_broadcasts_is_caught():
    source = model(
        example("Rows", ["x"], ["m"], name="it"),
        node("Add", ["x", "m"], ["y"]),
        inputs={"x": (FLOAT, [6, 6])},
        outputs={"y": (FLOAT, [6, 6])},
        domains=["com.example"],
    )
    with pytest.raises(MismatchError, match=r"has shape \[6\], expected \[6, 1\]") as caught:
        prove(source, FlatRows())
    assert caught.value.where.node == "it"
    prove(source, Rows())


class Halves(Placeholder):
    """x as two rows of half the length; odd lengths too, in PyTorch."""

    matches = ("Halves",)

    def reference(self, x):
        import torch

        return torch.stack([x[: x.shape[0] // 2], x[x.shape[0] - x.shape[0] // 2 :]])

    def decompose(self, g, x: Value):
        return g.op("Reshape", x, g.const(np.array([2, -1])))

    def cases(self):
        yield Case(f32(4))


def test_what_the_runtime_refuses_and_the_reference_accepts_is_a_failure():
    source = model(
        example("Halves", ["x"], ["y"], name="it"),
        inputs={"x": (FLOAT, ["n"])},
        outputs={"y": (FLOAT, None)},
        domains=["com.example"],
    )
    with pytest.raises(MismatchError, match=r"refuses what PyTorch accepts.*refuses the inputs") as caught:
        prove(source, Halves(), dims={"n": (4, 5)})
    assert caught.value.where.node == "it"
    assert prove(source, Halves(), dims={"n": (4, 6)}).verdict == "verified"


def test_only_the_guilty_region_is_named():
    source = model(
        example("Double", ["x"], ["a"], name="right"),
        example("Shift", ["a"], ["b"], name="wrong", shift=1, dim=1),
        example("Double", ["b"], ["y"], name="right too"),
        inputs={"x": (FLOAT, ["batch", 5])},
        outputs={"y": (FLOAT, ["batch", 5])},
        domains=["com.example"],
    )
    with pytest.raises(MismatchError) as caught:
        prove(source, Double(), WrongSign())
    assert caught.value.where.node == "wrong"


def test_a_changed_delivered_model_is_caught(double_model):
    def drop_relu(result):
        next(n for n in result.graph.node if n.op_type == "Relu").op_type = "Identity"

    with pytest.raises(MismatchError, match="simplification changed output 'y'") as caught:
        prove(double_model, Double(), delivered=drop_relu)
    assert "--no-simplify" in caught.value.remedy


def test_a_delivered_model_that_does_not_load_is_a_mismatch(double_model):
    def break_it(result):
        result.graph.node[0].input[0] = "nowhere"

    with pytest.raises(MismatchError, match="to be delivered"):
        prove(double_model, Double(), delivered=break_it)


def test_a_model_without_placeholders_is_verified_against_itself(double_model):
    double_model.graph.node[1].CopyFrom(node("Add", ["r", "r"], ["d"]))
    proof = prove(double_model)
    assert proof.verdict == "verified"
    assert proof.regions == []
    assert proof.to_dict()["against"] == ["the model before simplification and optimisation"]
    assert "torch" not in proof.versions


# --- bodies and functions -------------------------------------------------------------------------------------


def conditional(*then_nodes, shape=("batch", 6)):
    then = helper.make_graph(
        list(then_nodes), "then", [], [helper.make_tensor_value_info("t", FLOAT, list(shape))]
    )
    other = helper.make_graph(
        [node("Neg", ["x"], ["e"])], "else", [], [helper.make_tensor_value_info("e", FLOAT, list(shape))]
    )
    return model(
        node("If", ["flag"], ["y"], name="choice", then_branch=then, else_branch=other),
        inputs={"x": (FLOAT, list(shape)), "flag": (BOOL, [])},
        outputs={"y": (FLOAT, list(shape))},
        domains=["com.example"],
    )


def test_a_region_in_a_branch_is_proved_alone():
    proof = prove(conditional(example("Shift", ["x"], ["t"], name="it", shift=2, dim=1)), Shift())
    (region,) = proof.regions
    assert (region.how, region.samples) == ("alone", 2)
    assert len(region.outputs[0].shapes) == 2


def test_a_wrong_region_in_a_branch_is_caught_whether_it_runs_or_not():
    source = conditional(example("Shift", ["x"], ["t"], name="it", shift=2, dim=1))
    for seed in range(3):
        with pytest.raises(MismatchError) as caught:
            prove(source, WrongSign(), seed=seed)
        assert caught.value.where.node == "it"
        assert "If 'choice' then_branch" in caught.value.where.scope


def test_equal_regions_in_bodies_need_one_proof():
    nodes = [
        example("Double", ["x"], ["a"]),
        example("Double", ["a"], ["b"]),
        example("Double", ["b"], ["t"]),
    ]
    proof = prove(conditional(*nodes), Double())
    assert sorted(region.how for region in proof.regions) == ["alone", "as another", "as another"]
    assert all(region.samples == 2 for region in proof.regions)


def test_regions_that_differ_in_a_parameter_are_both_proved():
    nodes = [
        example("Shift", ["x"], ["a"], shift=1, dim=1),
        example("Shift", ["a"], ["t"], shift=2, dim=1),
    ]
    assert [region.how for region in prove(conditional(*nodes), Shift()).regions] == ["alone", "alone"]


def in_function(op_type):
    function = helper.make_function(
        "local",
        "Block",
        ["a"],
        ["b"],
        [example(op_type, ["a"], ["b"], name="it")],
        [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)],
    )
    return model(
        node("Block", ["x"], ["h"], domain="local"),
        node("Block", ["h"], ["y"], domain="local"),
        inputs={"x": (FLOAT, ["batch", 6])},
        outputs={"y": (FLOAT, ["batch", 6])},
        functions=[function],
        domains=["com.example", "local"],
    )


def test_a_region_in_a_function_is_proved_alone():
    proof = prove(in_function("Double"), Double())
    assert [region.how for region in proof.regions] == ["alone"]


def test_a_wrong_region_in_a_function_is_caught():
    with pytest.raises(MismatchError) as caught:
        prove(in_function("Double"), Overflowing())
    assert "local::Block" in caught.value.where.scope


def unknown_type():
    """A region in a body whose input's rank only the run tells."""
    source = conditional(
        node("Reshape", ["x", "shape"], ["a"]), example("Double", ["a"], ["t"], name="it"), shape=("n",)
    )
    source.graph.input.append(helper.make_tensor_value_info("shape", INT64, ["k"]))
    del source.graph.node[0].attribute[0].g.output[0].type.tensor_type.shape.dim[:]
    source.graph.node[0].attribute[0].g.output[0].type.tensor_type.ClearField("shape")
    source.graph.output[0].type.tensor_type.ClearField("shape")
    return source


def test_a_region_of_unknown_types_is_unproved():
    given = {"x": np.ones(4, np.float32), "flag": np.array(False), "shape": np.array([2, 2])}
    with pytest.raises(UnprovedError, match="unknown") as caught:
        prove(unknown_type(), Double(), inputs=given)
    assert caught.value.where.node == "it"
    assert "--allow-unproved" in caught.value.remedy
    proof = prove(unknown_type(), Double(), inputs=given, allow_unproved=True)
    assert proof.verdict == "unproved"
    assert proof.regions[0].reason
    assert any("unproved" in warning for warning in proof.warnings)


@pytest.mark.parametrize("place", ["graph", "body"])
def test_strings_have_no_reference_and_the_message_says_how_to_go_on(place):
    if place == "graph":
        source = one("Shift", dtype=TensorProto.STRING, shift=1, dim=1)
    else:
        source = conditional(example("Shift", ["x"], ["t"], shift=1, dim=1))
        branches = [attribute.g for attribute in source.graph.node[0].attribute]
        next(n for b in branches for n in b.node if n.op_type == "Neg").op_type = "Identity"
        for value in (source.graph.input[0], source.graph.output[0], *(b.output[0] for b in branches)):
            value.type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(UnprovedError, match="PyTorch has no tensors of strings") as caught:
        prove(source, Shift())
    assert "--allow-unproved" in caught.value.remedy
    assert "--no-verify" in caught.value.remedy
    assert prove(source, Shift(), allow_unproved=True).verdict == "unproved"


def test_an_element_type_that_the_runtime_lacks_is_no_mismatch():
    with pytest.raises(CannotVerifyError, match="complex64"):
        prove(one("Shift", dtype=TensorProto.COMPLEX64, shift=1, dim=1), Shift())


# --- inputs ---------------------------------------------------------------------------------------------------


def test_sizes_that_the_model_refuses_are_drawn_again():
    """The graph only takes multiples of 32; the placeholder takes anything."""
    source = model(
        node("Reshape", ["x", "shape"], ["a"]),
        example("Double", ["a"], ["y"]),
        inputs={"x": (FLOAT, ["batch", "length"])},
        outputs={"y": (FLOAT, None)},
        tensors={"shape": np.array([0, -1, 32])},
        domains=["com.example"],
    )
    proof = prove(source, Double())
    assert proof.verdict == "verified"
    assert all(sizes["length"] % 32 == 0 for sizes in proof.sizes)
    assert len({sizes["length"] for sizes in proof.sizes}) == 2


def test_a_long_axis_and_a_state_of_the_same_batch_are_found():
    """Reflection by 200 needs an axis of more than that; the state must have the batch of the input."""
    source = model(
        node("Pad", ["x", "pads"], ["p"], mode="reflect"),
        node("ReduceMean", ["p"], ["m"], axes=[1], keepdims=1),
        node("Concat", ["m", "state"], ["c"], axis=1),
        example("Double", ["c"], ["y"]),
        inputs={"x": (FLOAT, [None, None]), "state": (FLOAT, [None, 4])},
        outputs={"y": (FLOAT, None)},
        tensors={"pads": np.array([0, 200, 0, 200])},
        domains=["com.example"],
    )
    proof = prove(source, Double())
    assert all(sizes["x.1"] > 200 and sizes["x.0"] == sizes["state.0"] for sizes in proof.sizes)
    assert [sizes["x.0"] for sizes in proof.sizes] == [2, 3]


def test_values_out_of_a_table_and_the_remedy_names_the_flags():
    source = model(
        node("Gather", ["table", "ids"], ["a"]),
        example("Double", ["a"], ["y"]),
        inputs={"ids": (INT64, ["n"])},
        outputs={"y": (FLOAT, None)},
        tensors={"table": np.ones((7, 4), np.float32)},
        domains=["com.example"],
    )
    with pytest.raises(CannotVerifyError, match="no valid input") as caught:
        prove(source, Double(), input_ranges={"ids": (1000, 2000)})
    assert "--input-range ids=LOW:HIGH" in caught.value.remedy
    assert "--dim n=…" in caught.value.remedy
    assert prove(source, Double(), input_ranges={"ids": (0, 6)}).verdict == "verified"
    with pytest.raises(UsageError) as caught:
        prove(source, Double(), input_ranges={"ids": (0, float("inf"))})
    assert "--input-range ids=0:100" in caught.value.remedy


class WrongBeyondFifty(Double):
    """Right up to a size of 50, as with a table that is too short."""

    name = "double"

    def decompose(self, g, x: Value):
        length = g.gather(g.shape(x), [1], axis=0)
        return x + x + g.cast(g.op("Greater", length, g.ints([50])), TensorProto.FLOAT)


def test_what_is_wrong_at_large_sizes_only_needs_dim():
    """As docs/verification.md says."""
    source = one("Double", shape=("batch", "n"))
    assert prove(source, WrongBeyondFifty()).verdict == "verified"
    with pytest.raises(MismatchError, match="n=64"):
        prove(source, WrongBeyondFifty(), dims={"n": (2, 64)})


def test_when_no_size_is_accepted_the_remedy_names_the_dim():
    source = model(
        node("Reshape", ["x", "shape"], ["a"]),
        example("Double", ["a"], ["y"]),
        inputs={"x": (FLOAT, ["batch", "length"])},
        outputs={"y": (FLOAT, None)},
        tensors={"shape": np.array([0, -1, 31])},
        domains=["com.example"],
    )
    with pytest.raises(CannotVerifyError, match="no valid input") as caught:
        prove(source, Double())
    assert "Reshape" in caught.value.what
    assert "--dim" in caught.value.remedy
    assert "--inputs" in caught.value.remedy
    assert prove(source, Double(), dims={"length": (31, 62)}).sizes[1]["length"] == 62


def test_a_dim_that_is_open_in_name_only_is_a_warning():
    source = model(
        node("Reshape", ["x", "shape"], ["a"]),
        example("Double", ["a"], ["y"]),
        inputs={"x": (FLOAT, ["batch", 3])},
        outputs={"y": (FLOAT, None)},
        tensors={"shape": np.array([1, 3])},
        domains=["com.example"],
    )
    proof = prove(source, Double())
    assert {sizes["batch"] for sizes in proof.sizes} == {1}
    assert any("every size of 'batch' but 1" in warning for warning in proof.warnings)


def test_sequences_can_be_passed_from_python():
    source = model(
        node("ConcatFromSequence", ["s"], ["a"], axis=0),
        example("Double", ["a"], ["y"]),
        inputs={},
        outputs={"y": (FLOAT, None)},
        domains=["com.example"],
    )
    source.graph.input.append(helper.make_tensor_sequence_value_info("s", FLOAT, ["n"]))
    parts = [np.ones(2, np.float32), np.zeros(3, np.float32)]
    assert prove(source, Double(), inputs={"s": parts}).regions[0].outputs[0].shapes == [(5,)]
    with pytest.raises(CannotVerifyError, match="'s' is sequence"):
        prove(source, Double())


def test_given_inputs_are_used(tmp_path, double_model):
    file = tmp_path / "inputs.npz"
    np.savez(file, x=np.ones((5, 64), np.float32))
    proof = prove(double_model, Double(), inputs=file)
    assert proof.inputs == "given"
    assert proof.sizes == [{"batch": 5}]
    assert any("all equal" in warning for warning in proof.warnings)


def test_options_that_do_not_fit_are_usage_errors(double_model):
    for options in (
        {"dims": {"bathc": (1,)}},
        {"input_ranges": {"z": (0, 1)}},
        {"inputs": {"z": np.ones(1, np.float32)}},
        {"samples": 0},
        {"samples": -1},
        {"seed": -1},
    ):
        with pytest.raises(UsageError):
            prove(double_model, Double(), **options)


def test_negative_sizes_are_open_ones():
    """As Paddle2ONNX writes them; a shift of 2 is not one of 2 modulo -1."""
    source = model(
        node("Slice", ["x", "two", "three", "one"], ["s"]),
        example("Double", ["s"], ["d"]),
        node("Shape", ["x"], ["shape"]),
        node("Expand", ["d", "shape"], ["y"]),
        inputs={"x": (FLOAT, [-1, -1])},
        outputs={"y": (FLOAT, [-1, -1])},
        tensors={"one": np.array([1]), "two": np.array([2]), "three": np.array([3])},
        domains=["com.example"],
    )
    proof = prove(source, Double(), dims={"x.1": (3, 5)})
    assert proof.verdict == "verified"
    assert [sizes["x.1"] for sizes in proof.sizes] == [3, 5]


def test_a_missing_kernel_is_not_a_difference():
    source = model(
        example("Double", ["x"], ["a"]),
        node("Erf", ["a"], ["y"]),
        inputs={"x": (DOUBLE, [3])},
        outputs={"y": (DOUBLE, [3])},
        domains=["com.example"],
    )
    with pytest.raises(CannotVerifyError, match="Erf") as caught:
        prove(source, Double())
    assert "--no-verify" in caught.value.remedy


def test_agreement_of_constants_is_a_warning():
    source = model(
        node("Sub", ["x", "x"], ["zero"]),
        example("Double", ["zero"], ["y"], name="it"),
        inputs={"x": (FLOAT, ["batch", 3])},
        outputs={"y": (FLOAT, ["batch", 3])},
        domains=["com.example"],
    )
    proof = prove(source, Double())
    assert any("output 'y' is all equal" in warning for warning in proof.warnings)
    assert any("'it': 'x' ('zero') is 0.0 throughout" in warning for warning in proof.warnings)
    assert any("its result 'y' is all equal" in warning for warning in proof.warnings)


# --- operators that nothing here runs -------------------------------------------------------------------------


def with_kept(*, then=(), before=()):
    return model(
        *before,
        node("Relu", ["x"], ["r"]),
        node("Secret", ["r"], ["s"], name="secret", domain="vendor"),
        example("Double", ["s"], ["d"], name="it"),
        node("Neg", ["d"], ["y"]),
        *then,
        inputs={"x": (FLOAT, ["batch", 3])},
        outputs={"y": (FLOAT, ["batch", 3])},
        domains=["com.example", "vendor"],
    )


def prove_keeping(source, *passes, delivered=None, **options):
    from onnx import ModelProto

    from rewriter.decompose import Keep, decompose
    from rewriter.placeholder import Selection
    from rewriter.storage import ModelFile
    from rewriter.verify import VerifyOptions, verify

    with ModelFile.from_proto(source) as file:
        done = decompose(
            file, Selection(passes, frozenset(p.pass_name() for p in passes)), Keep.parse("vendor::Secret")
        )
        result = ModelProto()
        result.CopyFrom(file.model)
        if delivered:
            delivered(result)
        return verify(file, file.model, result, done.regions, VerifyOptions(**options))


def test_kept_operators_are_cut_out_and_said_so():
    source = with_kept()
    source.graph.value_info.append(helper.make_tensor_value_info("s", FLOAT, ["batch", 3]))
    proof = prove_keeping(source, Double())
    assert proof.verdict == "verified"
    assert proof.cut == ["vendor::Secret"]
    assert any("vendor::Secret" in note for note in proof.notes)
    with pytest.raises(MismatchError):
        prove_keeping(source, Overflowing())


def test_what_a_kept_operator_takes_is_compared_too():
    source = with_kept()
    source.graph.value_info.append(helper.make_tensor_value_info("s", FLOAT, ["batch", 3]))

    def wrong(result):
        result.graph.node[0].op_type = "Neg"

    with pytest.raises(MismatchError, match="input 0 of vendor::Secret 's'"):
        prove_keeping(source, Double(), delivered=wrong)


def test_a_kept_operator_of_unknown_type_cannot_be_verified():
    with pytest.raises(CannotVerifyError, match="'s'") as caught:
        prove_keeping(with_kept(), Double())
    assert "--library" in caught.value.remedy


# --- without torch --------------------------------------------------------------------------------------------


def test_without_torch_it_says_how_to_go_on(tmp_path, double_model):
    import onnx

    onnx.save(double_model, tmp_path / "model.onnx")
    script = textwrap.dedent(
        """
        import sys
        sys.modules["torch"] = None
        from rewriter.errors import CannotVerifyError
        from rewriter.verify import verify, VerifyOptions
        from rewriter.storage import ModelFile
        from rewriter.decompose import decompose
        from rewriter.placeholder import Placeholder, Case, Selection, Value, f32

        class Double(Placeholder):
            matches = ("Double",)
            def reference(self, x): return x + x
            def decompose(self, g, x: Value): return x + x
            def cases(self): yield Case(f32(2))

        with ModelFile.open(sys.argv[1]) as file:
            done = decompose(file, Selection((Double(),), frozenset({"double"})))
            assert verify(file, file.model, file.model, []).verdict == "verified"
            try:
                verify(file, file.model, file.model, done.regions)
            except CannotVerifyError as error:
                print(error)
        """
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "model.onnx")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "pip install onnx-rewrite[torch]" in run.stdout
    assert "--no-verify" in run.stdout


def test_many_regions_are_exposed_in_parts(monkeypatch):
    from rewriter.verify import inplace

    monkeypatch.setattr(inplace, "BUDGET", 4096)
    nodes = [example("Double", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(20)]
    source = model(
        *nodes,
        inputs={"v0": (FLOAT, ["batch", 64])},
        outputs={"v20": (FLOAT, ["batch", 64])},
        domains=["com.example"],
    )
    proof = prove(source, Double())
    assert len(proof.regions) == 20
    assert all(region.samples == 2 for region in proof.regions)


def test_rewritten_is_not_touched(double_model):
    from rewriter.verify import verify

    with rewritten(double_model, Double()) as (file, done):
        before = file.model.SerializeToString(deterministic=True)
        verify(file, file.model, file.model, done.regions)
        assert file.model.SerializeToString(deterministic=True) == before


def test_weights_of_every_kind_of_place_reach_the_runtime():
    big = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    then = helper.make_graph(
        [node("MatMul", ["x", "inner"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", FLOAT, ["batch", 40])],
        [numpy_helper.from_array(big + 2, "inner")],
    )
    other = helper.make_graph(
        [node("Identity", ["x"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", FLOAT, ["batch", 40])],
    )
    source = model(
        node("Constant", [], ["k"], value=numpy_helper.from_array(big + 1)),
        node("MatMul", ["x", "k"], ["a"]),
        node("If", ["flag"], ["b"], then_branch=then, else_branch=other),
        node("Add", ["a", "b"], ["c"]),
        example("Double", ["c"], ["y"]),
        inputs={"x": (FLOAT, ["batch", 40]), "flag": (BOOL, [])},
        outputs={"y": (FLOAT, ["batch", 40])},
        domains=["com.example"],
    )
    assert prove(source, Double()).verdict == "verified"
