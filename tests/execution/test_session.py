"""Models run as they lie in the file; what cannot run here is told from what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewriter.errors import CannotVerifyError
from rewriter.execution.session import Refused, Session
from rewriter.storage import ModelFile
from tests.verify.conftest import BOOL, DOUBLE, FLOAT, INT64, model, node


def run(source, feeds, *, extra=(), **options):
    with ModelFile.from_proto(source) as file:
        return Session(file, file.model, extra_outputs=extra, **options).run(feeds)


def matmul(**more):
    w = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    source = model(
        node("MatMul", ["x", "w"], ["h"]),
        node("Relu", ["h"], ["y"]),
        inputs={"x": (FLOAT, ["n", 64])},
        outputs={"y": (FLOAT, ["n", 32])},
        tensors={"w": w},
        **more,
    )
    return source, w


@pytest.mark.parametrize("optimise", [True, False])
def test_inner_values_are_exposed(optimise):
    source, w = matmul()
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    found = run(source, {"x": x}, extra=["h", "h", "y"], optimise=optimise)
    np.testing.assert_allclose(found["h"], x @ w, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found["y"], np.maximum(found["h"], 0))


def test_names_of_inputs_and_weights_are_answered():
    source, w = matmul()
    x = np.ones((1, 64), np.float32)
    with ModelFile.from_proto(source) as file:
        session = Session(file, file.model, extra_outputs=["x", "w"])
        found = session.run({"x": x}, ["x", "w"])
    np.testing.assert_array_equal(found["w"], w)
    np.testing.assert_array_equal(found["x"], x)


@pytest.mark.parametrize("as_input", [False, True])
@pytest.mark.parametrize("given_out", [False, True])
@pytest.mark.parametrize("saved", [False, True])
def test_weights_that_no_node_reads(tmp_path, saved, given_out, as_input):
    """What a placeholder's parameters leave behind, tables of unused heads, weights that are results."""
    source, w = matmul()
    spare = np.arange(2048, dtype=np.int64)
    source.graph.initializer.add().CopyFrom(numpy_helper.from_array(spare, "spare"))
    if given_out:
        source.graph.output.add().CopyFrom(helper.make_tensor_value_info("spare", INT64, [2048]))
    if as_input:
        source.graph.input.add().CopyFrom(helper.make_tensor_value_info("spare", INT64, [2048]))
    onnx.save(source, tmp_path / "m.onnx")
    x = np.ones((2, 64), np.float32)
    with ModelFile.open(tmp_path / "m.onnx") if saved else ModelFile.from_proto(source) as file:
        found = Session(file, file.model).run({"x": x}, ["y", "spare"])
    np.testing.assert_allclose(found["y"], np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found["spare"], spare)


@pytest.mark.parametrize("offset", range(8))
def test_weights_at_any_alignment(tmp_path, offset):
    source, w = matmul()
    source.doc_string = "a" * offset
    onnx.save(source, tmp_path / "m.onnx")
    x = np.ones((2, 64), np.float32)
    with ModelFile.open(tmp_path / "m.onnx") as file:
        assert file.is_withheld(file.model.graph.initializer[0])
        found = Session(file, file.model).run({"x": x})
    np.testing.assert_allclose(found["y"], np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)


def test_external_data(tmp_path):
    source, w = matmul()
    onnx.save(source, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    x = np.ones((2, 64), np.float32)
    with ModelFile.open(tmp_path / "m.onnx") as file:
        found = Session(file, file.model).run({"x": x})
    np.testing.assert_allclose(found["y"], np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)


def test_links_and_folders_are_followed(tmp_path):
    """As model caches keep them: the model is a link into another folder, its data in a folder below that."""
    source, w = matmul()
    (tmp_path / "store" / "deep").mkdir(parents=True)
    (tmp_path / "shown").mkdir()
    tensor = source.graph.initializer[0]
    (tmp_path / "store" / "deep" / "m.data").write_bytes(b"abc" + w.tobytes())
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "deep/m.data"), ("offset", "3"), ("length", str(w.nbytes))):
        tensor.external_data.add(key=key, value=value)
    (tmp_path / "store" / "m.onnx").write_bytes(source.SerializeToString())
    (tmp_path / "shown" / "m.onnx").symlink_to(tmp_path / "store" / "m.onnx")
    (tmp_path / "shown" / "deep").symlink_to(tmp_path / "store" / "deep")
    x = np.ones((2, 64), np.float32)
    with ModelFile.open(tmp_path / "shown" / "m.onnx") as file:
        found = Session(file, file.model).run({"x": x}, ["y", "w"])
    np.testing.assert_allclose(found["y"], np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found["w"], w)


_MEASURE = """
import sys
import numpy as np, onnxruntime
from rewriter.storage import ModelFile
from rewriter.execution.session import Session

def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))

before = anonymous()
with ModelFile.open(sys.argv[1]) as file:
    session = Session(file, file.model, optimise=sys.argv[2] == "True")
    y = session.run({"ids": np.array([0, int(sys.argv[3])])})["y"]
    print(anonymous() - before, y[0, 0], y[1, 255])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("optimise", [True, False])
def test_weights_are_not_copied(tmp_path, optimise):
    """256 MB at an odd offset of the model file; zeros, which take no room on the disk."""
    size = 256 << 20
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[size // 1024, 256])
    source = model(
        node("Gather", ["w", "ids"], ["y"]), inputs={"ids": (INT64, [2])}, outputs={"y": (FLOAT, [2, 256])}
    )
    head = source.graph.SerializeToString()
    key = b"\x4a" + varint(size)  # TensorProto.raw_data
    body = tensor.SerializeToString() + key
    initializer = b"\x2a" + varint(len(body) + size) + body  # GraphProto.initializer
    del source.graph.node[:]
    source.ClearField("graph")
    graph = b"\x3a" + varint(len(head) + len(initializer) + size) + head + initializer  # ModelProto.graph
    with (tmp_path / "m.onnx").open("wb") as stream:
        stream.write(source.SerializeToString() + graph)
        stream.seek(size - 4, 1)
        stream.write(np.float32(7).tobytes())
    command = [sys.executable, "-c", _MEASURE, str(tmp_path / "m.onnx"), str(optimise), str(size // 1024 - 1)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, first, last = run.stdout.split()
    assert (first, last) == ("0.0", "7.0")
    assert int(grown) < 64 << 10  # KiB


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def test_a_default_that_may_be_overridden():
    source, w = matmul()
    source.graph.input.append(helper.make_tensor_value_info("w", FLOAT, [64, 32]))
    x = np.ones((1, 64), np.float32)
    np.testing.assert_allclose(run(source, {"x": x})["y"], np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)


def test_two_gigabytes_and_more(tmp_path):
    """Three tables whose bytes are zeros: sparse on disk, and mapped, never loaded."""
    rows, columns = 600_000, 512
    file = tmp_path / "big.onnx"
    names = ["a", "b"]
    source = model(
        *(node("Gather", [name, "ids"], [f"{name}_rows"]) for name in names),
        node("Add", ["a_rows", "b_rows"], ["y"]),
        inputs={"ids": (INT64, [3])},
        outputs={"y": (FLOAT, [3, columns])},
    )
    size = rows * columns * 4
    for at, name in enumerate(names):
        tensor = TensorProto(
            name=name, data_type=FLOAT, dims=[rows, columns], data_location=TensorProto.EXTERNAL
        )
        for key, value in (("location", "big.data"), ("offset", str(at * size)), ("length", str(size))):
            tensor.external_data.add(key=key, value=value)
        source.graph.initializer.append(tensor)
    file.write_bytes(source.SerializeToString())
    with (tmp_path / "big.data").open("wb") as stream:
        stream.truncate(2 * size)
        stream.seek(2 * size - 4)
        stream.write(np.float32(5).tobytes())
    assert 2 * size > 2**31
    with ModelFile.open(file) as opened:
        found = Session(opened, opened.model).run({"ids": np.array([0, 1, rows - 1])})
    assert found["y"][-1, -1] == 5
    assert np.count_nonzero(found["y"]) == 1


def test_bfloat16_and_float8():
    bf16, f8 = np.array([1.5, -2.0], ml_dtypes.bfloat16), np.array([0.5, 3.0], ml_dtypes.float8_e4m3fn)
    source = model(
        node("Identity", ["x"], ["y"]),
        node("Identity", ["z"], ["u"]),
        inputs={"x": (TensorProto.BFLOAT16, [2]), "z": (TensorProto.FLOAT8E4M3FN, [2])},
        outputs={"y": (TensorProto.BFLOAT16, [2]), "u": (TensorProto.FLOAT8E4M3FN, [2])},
        opset=19,
        ir=9,
    )
    found = run(source, {"x": bf16, "z": f8})
    assert found["y"].dtype == bf16.dtype
    assert found["u"].dtype == f8.dtype
    np.testing.assert_array_equal(found["y"].astype(float), bf16.astype(float))
    np.testing.assert_array_equal(found["u"].astype(float), f8.astype(float))


def test_large_bfloat16_weights_and_four_bit_ones():
    w = np.arange(1024).reshape(2, 512).astype(ml_dtypes.bfloat16)
    four = np.arange(4096).astype(ml_dtypes.int4)
    source = model(
        node("Cast", ["w"], ["y"], to=FLOAT),
        node("Cast", ["four"], ["u"], to=FLOAT),
        inputs={},
        outputs={"y": (FLOAT, [2, 512]), "u": (FLOAT, [4096])},
        tensors={"w": w, "four": four},
        opset=21,
        ir=10,
    )
    found = run(source, {}, optimise=False)
    np.testing.assert_array_equal(found["y"], w.astype(np.float32))
    np.testing.assert_array_equal(found["u"], four.astype(np.float32))


def test_sequences_and_text():
    source = model(
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("Identity", ["t"], ["u"]),
        inputs={"x": (FLOAT, [2]), "t": (TensorProto.STRING, [2])},
        outputs={"u": (TensorProto.STRING, [2])},
    )
    source.graph.output.append(helper.make_tensor_sequence_value_info("s", FLOAT, [2]))
    found = run(source, {"x": np.array([1, 2], np.float32), "t": np.array(["a", "b"], object)})
    assert [item.tolist() for item in found["s"]] == [[1, 2], [1, 2]]
    assert found["u"].tolist() == ["a", "b"]


def unknown(op_type="Unheard", domain="com.example"):
    return model(
        node(op_type, ["x"], ["y"], domain=domain),
        inputs={"x": (FLOAT, [2])},
        outputs={"y": (FLOAT, [2])},
        domains=[domain],
    )


def no_kernel():
    return model(node("Erf", ["x"], ["y"]), inputs={"x": (DOUBLE, [2])}, outputs={"y": (DOUBLE, [2])})


def newer_format():
    return model(node("Relu", ["x"], ["y"]), inputs={"x": (FLOAT, [2])}, outputs={"y": (FLOAT, [2])}, ir=99)


def newer_opset():
    return model(
        node("Relu", ["x"], ["y"]), inputs={"x": (FLOAT, [2])}, outputs={"y": (FLOAT, [2])}, opset=99
    )


@pytest.mark.parametrize(
    "source", [unknown(), no_kernel(), newer_format(), newer_opset()], ids=["op", "kernel", "ir", "opset"]
)
def test_what_cannot_run_here_is_no_difference(source):
    with ModelFile.from_proto(source) as file, pytest.raises(CannotVerifyError) as caught:
        Session(file, file.model)
    assert "--no-verify" in caught.value.remedy
    assert "onnxruntime_src" not in str(caught.value)


def test_an_invalid_model_is_refused():
    source = model(
        node("Add", ["x", "z"], ["y"]),
        inputs={"x": (FLOAT, [2]), "z": (DOUBLE, [2])},
        outputs={"y": (FLOAT, [2])},
    )
    with ModelFile.from_proto(source) as file, pytest.raises(Refused, match="does not load"):
        Session(file, file.model)


def reshaping():
    return model(
        node("Reshape", ["x", "shape"], ["y"], name="seven"),
        inputs={"x": (FLOAT, ["n"])},
        outputs={"y": (FLOAT, None)},
        tensors={"shape": np.array([7, -1])},
    )


def test_refused_inputs_name_the_operator():
    with ModelFile.from_proto(reshaping()) as file:
        session = Session(file, file.model)
        with pytest.raises(Refused, match="Reshape") as caught:
            session.run({"x": np.ones(6, np.float32)})
        assert (caught.value.operator, caught.value.node) == ("Reshape", "seven")
        assert "onnxruntime_src" not in str(caught.value)
        assert session.run({"x": np.ones(14, np.float32)})["y"].shape == (7, 2)


def test_the_runtime_prints_nothing(capfd):
    with ModelFile.from_proto(reshaping()) as file, pytest.raises(Refused):
        Session(file, file.model).run({"x": np.ones(6, np.float32)})
    with ModelFile.from_proto(no_kernel()) as file, pytest.raises(CannotVerifyError):
        Session(file, file.model)
    assert capfd.readouterr() == ("", "")


def test_a_library_that_is_none():
    with (
        ModelFile.from_proto(reshaping()) as file,
        pytest.raises(CannotVerifyError, match="does not load the library"),
    ):
        Session(file, file.model, libraries=["/nonexistent/lib.so"])


@pytest.mark.parametrize("in_memory", [True, False])
def test_bodies_and_functions_get_their_weights(tmp_path, in_memory):
    w = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    branch = helper.make_graph(
        [node("MatMul", ["x", "inner"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", FLOAT, ["n", 40])],
        [numpy_helper.from_array(w, "inner")],
    )
    other = helper.make_graph(
        [node("Identity", ["x"], ["e"])], "else", [], [helper.make_tensor_value_info("e", FLOAT, ["n", 40])]
    )
    function = helper.make_function(
        "local",
        "Plus",
        ["a"],
        ["b"],
        [node("Constant", [], ["k"], value=numpy_helper.from_array(w)), node("MatMul", ["a", "k"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    source = model(
        node("If", ["flag"], ["h"], then_branch=branch, else_branch=other),
        node("Plus", ["h"], ["y"], domain="local"),
        inputs={"x": (FLOAT, ["n", 40]), "flag": (BOOL, [])},
        outputs={"y": (FLOAT, ["n", 40])},
        functions=[function],
        domains=["local"],
    )
    x = np.ones((2, 40), np.float32)
    feeds = {"x": x, "flag": np.array(True)}
    if in_memory:
        found = run(source, feeds)
    else:
        onnx.save(source, tmp_path / "m.onnx")
        with ModelFile.open(tmp_path / "m.onnx") as file:
            found = Session(file, file.model).run(feeds)
    np.testing.assert_allclose(found["y"], x @ w @ w, rtol=1e-3, atol=1e-3)


def test_the_model_is_left_alone():
    source, _ = matmul()
    with ModelFile.from_proto(source) as file:
        before = file.model.SerializeToString(deterministic=True)
        Session(file, file.model, extra_outputs=["h"])
        assert file.model.SerializeToString(deterministic=True) == before


def test_sequences_and_strings_beside_formats_that_numpy_lacks():
    source = model(
        node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16),
        node("SequenceInsert", ["s", "x"], ["longer"]),
        node("Identity", ["t"], ["u"]),
        inputs={"x": (FLOAT, [2]), "t": (TensorProto.STRING, [1])},
        outputs={"b": (TensorProto.BFLOAT16, [2]), "longer": (FLOAT, None), "u": (TensorProto.STRING, [1])},
    )
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    source.graph.input.add(name="s").type.CopyFrom(kind)
    source.graph.output[1].type.CopyFrom(kind)
    x = np.array([1, 2], np.float32)
    with ModelFile.from_proto(source) as file:
        session = Session(file, file.model)
        for items in ([], [np.array([3.0], np.float32)]):
            found = session.run({"x": x, "s": items, "t": np.array(["ü"], object)})
            assert found["b"].astype(np.float32).tolist() == [1, 2]
            assert [item.tolist() for item in found["longer"]] == [*(i.tolist() for i in items), [1, 2]]
            assert found["u"].tolist() == ["ü"]
