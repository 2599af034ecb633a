"""Drawn inputs are valid for what reads them; given ones are held against the model."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from rewriter.errors import CannotVerifyError, UsageError
from rewriter.execution.types import value_types
from rewriter.graph.constants import Constants
from rewriter.graph.scopes import main_scope
from rewriter.inputs.draw import inputs_of
from rewriter.storage import ModelFile
from rewriter.verify.options import VerifyOptions
from tests.verify.conftest import BOOL, FLOAT, HALF, INT64, model, node


def inputs(source, **options):
    with ModelFile.from_proto(source) as file:
        constants = Constants(file, main_scope(file.model))
        return inputs_of(file.model, value_types(file.model), constants.find, VerifyOptions(**options))


def draw(source, index=0, **options):
    return inputs(source, **options).draw(index).feeds


def test_shapes_dtypes_and_dims_of_one_name():
    feeds = draw(
        model(
            inputs={
                "x": (FLOAT, ["batch", 3]),
                "h": (HALF, ["batch", "length"]),
                "b": (BOOL, ["length"]),
                "z": (TensorProto.BFLOAT16, [2]),
                "i": (TensorProto.INT32, []),
            },
            outputs={},
        )
    )
    assert {name: str(value.dtype) for name, value in feeds.items()} == {
        "x": "float32",
        "h": "float16",
        "b": "bool",
        "z": "bfloat16",
        "i": "int32",
    }
    assert feeds["x"].shape[0] == feeds["h"].shape[0]
    assert feeds["h"].shape[1] == feeds["b"].shape[0]
    assert feeds["x"].shape[0] != feeds["h"].shape[1]


def test_samples_differ_in_size_and_seeds_in_value():
    source = model(inputs={"x": (FLOAT, ["batch", 3])}, outputs={})
    assert draw(source, 0)["x"].shape != draw(source, 1)["x"].shape
    assert (draw(source, seed=0)["x"] != draw(source, seed=1)["x"]).any()
    assert (draw(source, seed=1)["x"] == draw(source, seed=1)["x"]).all()


def test_what_one_input_draws_does_not_depend_on_the_others():
    alone = model(inputs={"x": (FLOAT, [3])}, outputs={})
    among = model(inputs={"a": (FLOAT, [3]), "x": (FLOAT, [3])}, outputs={})
    assert (draw(alone)["x"] == draw(among)["x"]).all()
    assert (draw(among)["x"] != draw(among)["a"]).all()


def test_the_same_under_every_hash_seed():
    script = (
        "from tests.inputs.test_inputs import draw, model;"
        "f = draw(model(inputs={'x': (1, ['n']), 'i': (7, [9])}, outputs={}));"
        "print(f['x'].tobytes().hex(), f['i'].tobytes().hex())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(seen) == 1


# --- what integers index --------------------------------------------------------------------------------------


def embedding(*between, last, rows=50, **more):
    return model(
        *between,
        node("Gather", ["table", last], ["y"]),
        inputs={"ids": (INT64, ["batch", 64]), **more},
        outputs={"y": (FLOAT, None)},
        tensors={"table": np.zeros((rows, 4), np.float32), "two": np.array(2), "shape": np.array([-1])},
    )


def ends(source, name="ids", **options):
    values = np.concatenate([draw(source, i, **options)[name].ravel() for i in range(3)])
    return int(values.min()), int(values.max())


@pytest.mark.parametrize(
    "between",
    [
        [],
        [node("Identity", ["ids"], ["i"])],
        [node("Cast", ["ids"], ["c"], to=TensorProto.INT32), node("Reshape", ["c", "shape"], ["i"])],
        [node("Transpose", ["ids"], ["t"]), node("Flatten", ["t"], ["i"])],
        [node("Concat", ["ids", "ids"], ["i"], axis=0)],
    ],
    ids=["direct", "identity", "cast", "transpose", "concat"],
)
def test_ids_lie_within_the_table(between):
    low, high = ends(embedding(*between, last="i" if between else "ids"))
    assert low >= 0
    assert 25 < high < 50


def test_an_offset_is_taken_into_account():
    low, high = ends(embedding(node("Add", ["ids", "two"], ["i"]), last="i"))
    assert low >= 0
    assert 25 < high < 48
    low, high = ends(embedding(node("Sub", ["ids", "two"], ["i"]), last="i"))
    assert low >= 2
    assert 45 < high < 52


def test_the_smallest_of_several_tables_decides():
    source = embedding(node("Gather", ["small", "ids"], ["s"]), last="ids")
    source.graph.initializer.append(helper.make_tensor("small", FLOAT, [5, 1], [0.0] * 5))
    assert ends(source) == (0, 4)


def test_a_table_of_symbolic_size_follows_the_drawn_size():
    source = model(
        node("Gather", ["table", "ids"], ["y"]),
        inputs={"table": (FLOAT, ["rows", 4]), "ids": (INT64, [200])},
        outputs={"y": (FLOAT, None)},
    )
    feeds = draw(source, dims={"rows": (17,)})
    assert feeds["table"].shape == (17, 4)
    assert feeds["ids"].max() == 16


def test_other_operators_that_index():
    source = model(
        node("GatherElements", ["x", "elements"], ["a"], axis=1),
        node("GatherND", ["x", "pairs"], ["b"]),
        node("OneHot", ["classes", "depth", "values"], ["c"]),
        inputs={
            "x": (FLOAT, [40, 7]),
            "elements": (INT64, [40, 7]),
            "pairs": (INT64, [90, 2]),
            "classes": (INT64, [90]),
        },
        outputs=dict.fromkeys("abc", (FLOAT, None)),
        tensors={"depth": np.array(6), "values": np.array([0, 1], np.float32)},
    )
    assert ends(source, "elements") == (0, 6)
    assert ends(source, "pairs") == (0, 6)
    assert ends(source, "classes") == (0, 5)


def test_indices_are_followed_into_a_branch():
    then = helper.make_graph(
        [node("Gather", ["table", "ids"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", FLOAT, None)],
    )
    other = helper.make_graph(
        [node("Identity", ["table"], ["e"])], "else", [], [helper.make_tensor_value_info("e", FLOAT, None)]
    )
    source = model(
        node("If", ["flag"], ["y"], then_branch=then, else_branch=other),
        inputs={"ids": (INT64, [100]), "flag": (BOOL, [])},
        outputs={"y": (FLOAT, None)},
        tensors={"table": np.zeros((30, 4), np.float32)},
    )
    low, high = ends(source)
    assert low == 0
    assert 20 < high < 30


def test_indices_are_followed_into_a_function():
    inner = helper.make_function(
        "local", "Look", ["t", "i"], ["o"], [node("Gather", ["t", "i"], ["o"])], [helper.make_opsetid("", 17)]
    )
    outer = helper.make_function(
        "local",
        "Outer",
        ["i", "t"],
        ["o"],
        [node("Look", ["t", "i"], ["o"], domain="local")],
        [helper.make_opsetid("local", 1)],
    )
    source = model(
        node("Outer", ["ids", "table"], ["y"], domain="local"),
        inputs={"ids": (INT64, [100])},
        outputs={"y": (FLOAT, None)},
        tensors={"table": np.zeros((30, 4), np.float32)},
        functions=[inner, outer],
        domains=["local"],
    )
    low, high = ends(source)
    assert low == 0
    assert 20 < high < 30


def test_indices_are_followed_through_a_loop():
    body = helper.make_graph(
        [
            node("Gather", ["table", "inner"], ["row"]),
            node("Identity", ["go"], ["on"]),
            node("Identity", ["inner"], ["same"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", INT64, []),
            helper.make_tensor_value_info("go", BOOL, []),
            helper.make_tensor_value_info("inner", INT64, [100]),
        ],
        [
            helper.make_tensor_value_info("on", BOOL, []),
            helper.make_tensor_value_info("same", INT64, [100]),
            helper.make_tensor_value_info("row", FLOAT, [100, 4]),
        ],
    )
    source = model(
        node("Loop", ["trips", "", "ids"], ["last", "y"], body=body),
        inputs={"ids": (INT64, [100])},
        outputs={"y": (FLOAT, None)},
        tensors={"table": np.zeros((30, 4), np.float32), "trips": np.array(2)},
    )
    low, high = ends(source)
    assert low == 0
    assert 20 < high < 30


def test_masks_leave_something_in_every_row():
    source = model(inputs={"attention_mask": (INT64, [9, 5]), "bool_mask": (BOOL, [9, 5])}, outputs={})
    for mask in draw(source).values():
        assert set(np.unique(mask).tolist()) == {0, 1}
        assert mask[:, 0].all()


# --- what the user says ---------------------------------------------------------------------------------------


def test_a_range_that_is_asked_for_includes_both_ends():
    source = embedding(last="ids")
    assert ends(source, input_ranges={"ids": (3, 5)}) == (3, 5)
    floats = draw(model(inputs={"x": (FLOAT, [1000])}, outputs={}), input_ranges={"x": (-1, 2)})["x"]
    assert -1 <= floats.min() < -0.9
    assert 1.9 < floats.max() <= 2


@pytest.mark.parametrize("bounds", [(0.2, 0.8), (0, 1e30), (3, 1)])
def test_a_range_without_a_fitting_number_is_a_usage_error(bounds):
    with pytest.raises(UsageError, match="--input-range ids"):
        inputs(embedding(last="ids"), input_ranges={"ids": bounds})


def test_every_size_asked_for_is_drawn():
    source = model(inputs={"x": (FLOAT, ["batch"])}, outputs={})
    found = inputs(source, samples=1, dims={"batch": (1, 3, 8)})
    assert found.count == 3
    assert [found.draw(i).sizes["batch"] for i in range(3)] == [1, 3, 8]


@pytest.mark.parametrize(
    "ends", [(-np.inf, np.inf), (0, np.inf), (np.nan, 1), (0, np.nan), (-1.7e308, 1.7e308)]
)
@pytest.mark.parametrize("kind", [FLOAT, INT64])
def test_a_range_without_ends(kind, ends):
    source = model(inputs={"x": (kind, [2])}, outputs={})
    with pytest.raises(UsageError, match="--input-range x"):
        inputs(source, input_ranges={"x": ends})


@pytest.mark.parametrize("size", [10**13, 10**18, 10**30])
def test_sizes_that_no_memory_holds(size):
    source = model(inputs={"x": (FLOAT, ["batch", 64])}, outputs={})
    with pytest.raises(CannotVerifyError, match=r"'x' of shape .* cannot be drawn") as caught:
        inputs(source, dims={"batch": (size,)}).draw(0)
    assert "--dim" in caught.value.remedy


def test_an_initializer_that_is_an_input_is_not_drawn():
    source = model(
        inputs={"x": (FLOAT, [2]), "w": (FLOAT, [2])}, outputs={}, tensors={"w": np.zeros(2, np.float32)}
    )
    assert set(draw(source)) == {"x"}


def two_inputs():
    return model(inputs={"x": (FLOAT, ["batch", 3]), "y": (FLOAT, ["batch", 2])}, outputs={})


def ok(rows=2):
    return {"x": np.zeros((rows, 3), np.float32), "y": np.zeros((rows, 2), np.float32)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None}, "no array for 'y'"),
        ({"z": np.zeros(1)}, "'z', which the model has no input for"),
        ({"x": np.zeros((2, 3))}, "'x' is float64, the model takes float32"),
        ({"x": np.zeros((2, 3, 1), np.float32)}, "takes 2 dims"),
        ({"x": np.zeros((2, 4), np.float32)}, "the model takes float32"),
        ({"x": np.zeros((5, 3), np.float32)}, "'batch' is 5 in 'x' but 2 in 'y'"),
    ],
)
def test_given_inputs_that_do_not_fit(tmp_path, change, message):
    arrays = {name: value for name, value in {**ok(), **change}.items() if value is not None}
    np.savez(tmp_path / "in.npz", **arrays)
    for given in (arrays, tmp_path / "in.npz"):
        with pytest.raises(UsageError, match=message):
            inputs(two_inputs(), inputs=given)


def test_given_inputs_are_one_sample_with_their_sizes():
    found = inputs(two_inputs(), inputs=ok(5), samples=4)
    assert found.count == 1
    assert found.draw(0).sizes == {"batch": 5}
    assert set(found.draw(0).feeds) == {"x", "y"}


@pytest.mark.parametrize("content", [None, b"", b"nonsense", "single"])
def test_a_file_that_is_no_npz(tmp_path, content):
    file = tmp_path / "in.npz"
    if content == "single":
        with file.open("wb") as stream:
            np.save(stream, np.zeros(2))
    elif content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match="--inputs"):
        inputs(two_inputs(), inputs=file)


def test_pickles_are_not_loaded(tmp_path):
    np.savez(tmp_path / "in.npz", x=np.array([{"a": 1}], dtype=object), y=np.zeros((1, 2), np.float32))
    with pytest.raises(UsageError, match="--inputs"):
        inputs(two_inputs(), inputs=tmp_path / "in.npz")


def test_bfloat16_survives_npz(tmp_path):
    source = model(inputs={"x": (TensorProto.BFLOAT16, [2])}, outputs={})
    np.savez(tmp_path / "in.npz", x=np.array([1.5, -2], ml_dtypes.bfloat16))
    value = inputs(source, inputs=tmp_path / "in.npz").draw(0).feeds["x"]
    assert value.dtype == ml_dtypes.bfloat16
    assert value.astype(float).tolist() == [1.5, -2]


def test_torch_tensors_may_be_given():
    import torch

    given = {"x": torch.ones(4, 3), "y": torch.zeros(4, 2, requires_grad=True)}
    feeds = inputs(two_inputs(), inputs=given).draw(0).feeds
    assert feeds["x"].dtype == np.float32
    assert feeds["x"].shape == (4, 3)


def test_what_cannot_be_drawn_is_said():
    unknown_rank = model(inputs={"x": (FLOAT, None)}, outputs={})
    with pytest.raises(CannotVerifyError, match="rank of input 'x'") as caught:
        inputs(unknown_rank)
    assert "--inputs" in caught.value.remedy
    sequence = model(inputs={}, outputs={})
    sequence.graph.input.append(helper.make_tensor_sequence_value_info("s", FLOAT, [2]))
    with pytest.raises(CannotVerifyError, match="'s' is sequence"):
        inputs(sequence)
    assert inputs(unknown_rank, inputs={"x": np.zeros(3, np.float32)}).draw(0).feeds["x"].shape == (3,)


def test_a_range_of_text_is_refused():
    source = model(inputs={"t": (TensorProto.STRING, [3]), "x": (FLOAT, [3])}, outputs={})
    with pytest.raises(UsageError, match="holds text") as caught:
        inputs(source, input_ranges={"t": (0, 1)})
    assert "--inputs" in caught.value.remedy
