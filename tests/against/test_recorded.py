"""Recorded inputs and outputs: npz files, and folders in ONNX's convention."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import rewriter
from rewriter.against import Interface, load
from rewriter.errors import MismatchError, UsageError
from tests.texts import parse

#: x rolled by one along its rows, and its integers doubled.
MODEL = """
<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
main (float[n, 4] x, int64[m] k) => (float[n, 4] y, int64[m] twice)
{
    y = com.example.Roll <shifts: ints = [1], dims: ints = [1]> (x)
    twice = Add(k, k)
}
"""


def sample(n=3, m=2, seed=0):
    """Values by name, the outputs by numpy."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 4)).astype(np.float32)
    k = rng.integers(-5, 5, m)
    return {"x": x, "k": k, "y": np.roll(x, 1, 1), "twice": k * 2}


def whole(against, model=None):
    report = rewriter.rewrite(model or parse(MODEL), against=against, simplify=False)
    return report.verification["whole_model"]


def refused(against, model=None):
    with pytest.raises(UsageError) as caught:
        whole(against, model)
    assert caught.value.remedy or caught.value.what
    return str(caught.value)


def write_set(folder, values, model=None, *, names=False):
    folder.mkdir(parents=True)
    graph = (model or parse(MODEL)).graph
    for role, infos in (("input", graph.input), ("output", graph.output)):
        for position, info in enumerate(infos):
            tensor = numpy_helper.from_array(values[info.name], info.name if names else None)
            (folder / f"{role}_{position}.pb").write_bytes(tensor.SerializeToString())
    return folder


# --- npz -------------------------------------------------------------------------------------------------------


def test_one_sample_by_the_names_of_inputs_and_outputs(tmp_path):
    np.savez(tmp_path / "io.npz", **sample())
    found = whole(tmp_path / "io.npz")
    assert (found["kind"], found["name"], found["samples"]) == ("recorded values", "io.npz", 1)
    assert found["sizes"] == [{"n": 3, "m": 2}]
    assert [output["max_abs"] for output in found["outputs"]] == [0.0, 0.0]


def test_several_samples_are_numbered(tmp_path):
    samples = {0: sample(), 1: sample(1, 7, 1), 10: sample(5, 1, 2)}
    np.savez(tmp_path / "io.npz", **{f"{i}/{name}": a for i, s in samples.items() for name, a in s.items()})
    assert whole(tmp_path / "io.npz")["sizes"] == [{"n": 3, "m": 2}, {"n": 1, "m": 7}, {"n": 5, "m": 1}]


def test_arrays_from_python():
    assert whole(sample())["samples"] == 1


def test_recorded_values_that_differ_are_told_with_their_sample(tmp_path):
    wrong = sample(seed=1)
    wrong["y"][1, 2] += 1
    values = {f"0/{k}": v for k, v in sample().items()} | {f"1/{k}": v for k, v in wrong.items()}
    np.savez(tmp_path / "io.npz", **values)
    with pytest.raises(MismatchError, match=r"output 'y' differs from io.npz.*sample 1 of io.npz") as caught:
        whole(tmp_path / "io.npz")
    assert caught.value.blame.stage == "export"
    assert "no inner ones" in caught.value.blame.detail
    assert caught.value.report.verification["whole_model"]["samples"] == 2


def test_recorded_inputs_that_the_file_refuses_are_a_failure(tmp_path):
    """The reshape in the file fixes what the recording shows to be open."""
    model = parse(
        '<ir_version: 8, opset_import: ["" : 17]> main (float[n] x) => (float[a, b] y) '
        "<int64[2] s = {2, -1}> { y = Reshape(x, s) }"
    )
    values = {"x": np.arange(3.0, dtype=np.float32), "y": np.arange(3.0, dtype=np.float32).reshape(1, 3)}
    with pytest.raises(MismatchError, match="refuses what was recorded") as caught:
        rewriter.rewrite(model, against=values, dims={"n": 4}, simplify=False)
    assert caught.value.blame.stage == "export"
    assert caught.value.blame.where.operator == "Reshape"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: s.pop("y"), "no array for the output 'y'"),
        (lambda s: s.pop("x"), "no array for 'x'"),
        (lambda s: s.update(z=s["x"]), "has 'z', which the model has neither an input nor an output for"),
        (lambda s: s.update(x=s["x"].astype(np.float64)), "'x' is float64, the model takes float32"),
        (lambda s: s.update(y=s["y"].astype(np.float16)), "'y' is float16, the model gives float32"),
        (lambda s: s.update(x=s["x"][0]), "'x' has shape [4], the model takes 2 dims"),
        (lambda s: s.update(x=s["x"][:, :3]), "'x' has shape [3, 3]"),
        (lambda s: s.update(y=s["y"][None]), "'y' has shape [1, 3, 4], the model gives"),
        (lambda s: s.update({"1/x": s["x"]}), "without a number among samples that have one"),
        (lambda s: s.clear(), "holds no arrays"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path, change, told):
    values = sample()
    change(values)
    np.savez(tmp_path / "io.npz", **values)
    assert told in refused(tmp_path / "io.npz")


def test_files_that_are_none(tmp_path):
    assert "cannot be read" in refused(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("hello")
    assert "no .npz file" in refused(tmp_path / "text.npz")
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    assert "--against" in refused(tmp_path / "objects.npz")


# --- folders ---------------------------------------------------------------------------------------------------


def test_one_folder(tmp_path):
    assert whole(write_set(tmp_path / "test_data_set_0", sample()))["samples"] == 1


def test_the_folder_above_in_order_of_the_numbers(tmp_path):
    for number in (0, 2, 10):
        write_set(tmp_path / f"test_data_set_{number}", sample(number + 1))
    (tmp_path / "readme.txt").write_text("")
    assert [sizes["n"] for sizes in whole(tmp_path)["sizes"]] == [1, 3, 11]


def test_the_names_in_the_files_count_where_they_are_the_graphs(tmp_path):
    folder = write_set(tmp_path / "test_data_set_0", sample(), names=True)
    first, second = folder / "output_0.pb", folder / "output_1.pb"
    swapped = first.read_bytes(), second.read_bytes()
    first.write_bytes(swapped[1])
    second.write_bytes(swapped[0])
    assert whole(folder)["samples"] == 1


def test_inputs_that_are_initializers_may_be_left_out_or_given(tmp_path):
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> main (float[n] x, float[1] w) => (float[n] y) '
        "<float[1] w = {2}> { y = Mul(x, w) }"
    )
    x = np.arange(3.0, dtype=np.float32)
    short, full = tmp_path / "a" / "test_data_set_0", tmp_path / "b" / "test_data_set_0"
    values = {"x": x, "w": np.array([3.0], np.float32), "y": x * 3}
    write_set(full, values, parse(text))
    assert whole(full, parse(text))["samples"] == 1
    write_set(short, values | {"y": x * 2}, parse(text))
    (short / "input_1.pb").unlink()
    assert whole(short, parse(text))["samples"] == 1


def test_sequences_and_optionals(tmp_path):
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    sequence = helper.make_sequence_type_proto(tensor)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["s"], ["t"]), helper.make_node("OptionalHasElement", ["o"], ["has"])],
        "g",
        [
            helper.make_value_info("s", sequence),
            helper.make_value_info("o", helper.make_optional_type_proto(tensor)),
        ],
        [
            helper.make_value_info("t", sequence),
            helper.make_value_info("has", helper.make_tensor_type_proto(TensorProto.BOOL, [])),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    arrays = [np.arange(n, dtype=np.float32) for n in (2, 3)]
    for name in ("input_0", "output_0"):
        (folder / f"{name}.pb").write_bytes(numpy_helper.from_list(arrays).SerializeToString())
    (folder / "input_1.pb").write_bytes(numpy_helper.from_optional(arrays[0]).SerializeToString())
    (folder / "output_1.pb").write_bytes(numpy_helper.from_array(np.array(True)).SerializeToString())
    (recorded,) = load(folder, model).recorded
    assert [list(item) for item in recorded.feeds["s"]] == [[0, 1], [0, 1, 2]]
    assert list(recorded.feeds["o"]) == [0, 1]
    assert recorded.outputs["has"] == np.array(True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda f: (f / "output_1.pb").unlink(), "1 outputs, the graph 2: 'y', 'twice'"),
        (lambda f: (f / "input_0.pb").rename(f / "input_2.pb"), "no input_0.pb, but a later one"),
        (
            lambda f: (f / "input_0.pb").write_bytes(b"nonsense"),
            "'input_0.pb' in 'test_data_set_0' is no tensor",
        ),
        (lambda f: [p.unlink() for p in list(f.iterdir())], "holds no recorded values"),
    ],
)
def test_folders_that_do_not_fit(tmp_path, change, told):
    folder = write_set(tmp_path / "test_data_set_0", sample())
    change(folder)
    assert told in refused(folder)


def test_data_in_another_file_is_not_read(tmp_path):
    folder = write_set(tmp_path / "test_data_set_0", sample())
    tensor = TensorProto(dims=[3, 4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    assert "another file, which is not read" in refused(folder)


def test_an_empty_batch_may_be_recorded(tmp_path):
    np.savez(tmp_path / "io.npz", **sample(0, 0))
    assert whole(tmp_path / "io.npz")["sizes"] == [{"n": 0, "m": 0}]


def test_narrow_formats_come_back_from_npz(tmp_path):
    import ml_dtypes

    text = (
        '<ir_version: 8, opset_import: ["" : 17]> main (bfloat16[n] x) => (bfloat16[n] y) { y = Identity(x) }'
    )
    x = np.arange(3).astype(ml_dtypes.bfloat16)
    np.savez(tmp_path / "io.npz", x=x, y=x)
    assert whole(tmp_path / "io.npz", parse(text))["outputs"][0]["dtype"] == "bfloat16"


def test_the_interface_of_a_graph():
    interface = Interface.of(parse(MODEL))
    assert list(interface.inputs) == interface.order == ["x", "k"]
    assert list(interface.outputs) == ["y", "twice"]
