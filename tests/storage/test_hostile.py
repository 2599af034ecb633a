"""A model is data: whatever the bytes, a sentence or the same model that onnx's own parser sees."""

from __future__ import annotations

import io
import pickle
import random
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, GraphProto, ModelProto

from rewriter.errors import ExternalDataError, ModelReadError
from rewriter.storage import ModelFile
from rewriter.storage.sniff import describe
from tests.storage.models import everywhere, filled, length, single, weights

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[..., Path]

SMALL = [
    single(weights(4, 4)).SerializeToString(),
    filled(random.Random(5), density=0.25).SerializeToString()[:20000],
    *(filled(random.Random(seed), density=0.12).SerializeToString() for seed in (1, 2, 3, 4)),
]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(SMALL)))
    for _ in range(draw(st.integers(1, 4))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(["set", "set", "cut", "insert", "remove", "double", "swap"])):
            case "set":
                data[at] = draw(st.integers(0, 255))
            case "cut":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=12))
            case "remove":
                del data[at : at + draw(st.integers(1, 20))]
            case "double":
                data += data[at:]
            case "swap":
                data[at:] = data[at:][::-1]
    return bytes(data)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutated(), st.sampled_from([0, 8, 64]))
def test_mutated_files(unsynced: None, data: bytes, threshold: int) -> None:
    try:
        expected: ModelProto | None = ModelProto.FromString(data)
    except DecodeError:
        expected = None
    with TemporaryDirectory() as folder:
        path = Path(folder) / "in.onnx"
        path.write_bytes(data)
        try:
            with ModelFile.open(path, threshold=threshold) as file:
                assert expected is not None, "accepted what protobuf refuses"
                assert file.hydrate(file.model).SerializeToString() == expected.SerializeToString()
                file.save(Path(folder) / "out.onnx")
            assert ModelProto.FromString((Path(folder) / "out.onnx").read_bytes()) is not None
        except ExternalDataError:
            assert expected is not None
        except ModelReadError:
            assert expected is None or not expected.HasField("graph"), "refused what protobuf accepts"


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "in.onnx"
        path.write_bytes(data)
        try:
            with ModelFile.open(path, threshold=0) as file:
                assert (
                    ModelProto.FromString(data).SerializeToString()
                    == file.hydrate(file.model).SerializeToString()
                )
        except ModelReadError:
            pass


def test_truncated_anywhere(write: Write) -> None:
    content = single(weights(8, 8)).SerializeToString()
    whole = 0
    for end in range(1, len(content)):
        try:
            complete = ModelProto.FromString(content[:end]).HasField("graph")
        except DecodeError:
            complete = False
        if complete:  # cut between two fields of the model, after the graph
            whole += 1
            continue
        with pytest.raises(ModelReadError):
            ModelFile.open(write(content[:end]), threshold=16)
    assert whole <= 2


@pytest.mark.parametrize(
    "content",
    [
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a graph of 2^64 bytes
        b"\x3a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",  # a length that does not end
        b"\x08" + b"\xff" * 5000,
        b"\x3a\x05\x2a\x80\x80\x80\x80",
        b"\x00\x00\x00\x00" * 100,
        b"\x0f\x0f\x0f",  # wire type 7
        b"\x3b\x08\x01",  # a group that does not end
        b"\x3b" * 100_000,  # a hundred thousand of them
        b"\x3c",  # the end of a group that did not begin
    ],
)
def test_broken_wire_format(write: Write, content: bytes) -> None:
    with pytest.raises(ModelReadError):
        ModelFile.open(write(content))


def test_packed_numbers_are_checked_when_opened(write: Write) -> None:
    """They are withheld, so protobuf never sees them; a broken one must not surface when the file is half written."""
    content = onnx.helper.make_model(
        onnx.helper.make_graph(
            [], "g", [], [], [onnx.helper.make_tensor("w", onnx.TensorProto.INT64, [2000], [300] * 2000)]
        )
    ).SerializeToString()
    packed = b"\xac\x02" * 2000
    assert packed in content
    for broken in (packed[:-1] + b"\x80", packed[:200] + b"\xff" * 12 + packed[212:]):
        with pytest.raises(ModelReadError):
            ModelFile.open(write(content.replace(packed, broken)))


def nested(depth: int) -> bytes:
    """Graphs in attributes of nodes in graphs, without recursion in the writer; the innermost has a large tensor."""
    body = single(weights()).graph.SerializeToString()
    for _ in range(depth):
        attribute = b"\x0a\x01g\x32" + length(body)
        node = b"\x2a" + length(attribute)
        body = b"\x0a" + length(node)
    return b"\x08\x08\x3a" + length(body)


@pytest.mark.parametrize("depth", [1, 10, 28, 31, 32, 33, 34, 40, 1000, 20_000])
def test_deep_nesting(write: Write, depth: int) -> None:
    content = nested(depth)
    try:
        expected = ModelProto.FromString(content)
    except DecodeError:
        with pytest.raises(ModelReadError):
            ModelFile.open(write(content))
        return
    with ModelFile.open(write(content)) as file:
        assert file.hydrate(file.model) == expected


def test_hostile_sizes_cost_no_more_than_the_file(write: Write) -> None:
    """A small file that claims huge tensors allocates nothing."""
    model = single(weights(1, 1))
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]
    with ModelFile.open(write(model)) as file, pytest.raises(ModelReadError, match="need"):
        file.array(file.model.graph.initializer[0])
    model.graph.initializer[0].dims[:] = [-1]
    with ModelFile.open(write(model)) as file, pytest.raises(ModelReadError, match="impossible dims"):
        file.array(file.model.graph.initializer[0])


@pytest.mark.timeout(300)  # quadratic would be hours
def test_many_small_records_take_linear_time(write: Write) -> None:
    """Unpacked elements and alternating fields by the hundred thousand."""
    tensor = b"".join(b"\x38\x01\x62\x00" for _ in range(200_000))
    content = b"\x08\x08\x3a" + length(b"\x2a" + length(tensor))
    with ModelFile.open(write(content)) as file:
        assert len(file.hydrate(file.model).graph.initializer[0].int64_data) == 200_000


# --- other files -----------------------------------------------------------------------------------------------


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("data.pkl", b"x" * 50)
    return out.getvalue()


def saved_array() -> bytes:
    out = io.BytesIO()
    np.save(out, weights())
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (zipped(), "a zip archive, perhaps a PyTorch checkpoint"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "a PNG image"),
        (pickle.dumps({"state": 1}, protocol=2), "a Python pickle, perhaps an old PyTorch checkpoint"),
        (pickle.dumps({"state": 1}, protocol=4), "a Python pickle"),
        (b'{"model": [1, 2]}', "JSON text"),
        (b"Hello, this is a note.\n", "text"),
        ("größe\n".encode() * 400, "text"),
        (b"<?xml version='1.0'?><net/>", "XML, perhaps an OpenVINO model"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "a Git LFS pointer"),
        (b"\x1c\x00\x00\x00TFL3" + bytes(30), "a TensorFlow Lite model"),
        (b"\x1f\x8b\x08\x00", "gzip-compressed"),
        (saved_array(), "a NumPy array"),
        (b"\x10\0\0\0\0\0\0\0" + b'{"a":{"dtype":1}', "a safetensors file"),
        (b"\x7fELF\x02\x01\x01", "a program or shared library"),
        (bytes(5000), "nothing but zeros"),
        (b"7767517\n75 83\n", "an ncnn model"),
        (b'ir_version: 8\ngraph { name: "g" }\n', "in text form"),
        (onnx.numpy_helper.from_array(weights()).SerializeToString(), "no graph"),
        (ModelProto(ir_version=8, producer_name="x").SerializeToString(), "no graph"),
        (single(weights()).SerializeToString()[:3000], "truncated"),
    ],
)
def test_what_is_no_model(write: Write, content: bytes, says: str) -> None:
    with pytest.raises(ModelReadError, match=says) as caught:
        ModelFile.open(write(content))
    assert caught.value.exit_code == 2
    assert caught.value.remedy
    assert "in.onnx" in str(caught.value)


def test_a_random_start_is_not_named() -> None:
    assert describe(bytes(range(128, 256))) is None


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    for path, says in (
        (tmp_path, "directory"),
        (tmp_path / "absent.onnx", "does not exist"),
        (tmp_path / "pipe", "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path / "a\0b", "cannot be read"),
        (tmp_path / "x" / "y.onnx", "does not exist"),
    ):
        with pytest.raises(ModelReadError, match=says):
            ModelFile.open(path)


def test_from_proto_without_graph() -> None:
    with pytest.raises(ModelReadError, match="no graph"):
        ModelFile.from_proto(ModelProto(ir_version=8))


def test_unexpected_wire_types_are_unknown_fields(write: Write) -> None:
    """A number where a message belongs is kept as protobuf keeps it."""
    graph = everywhere().graph.SerializeToString() + b"\x28\x07" + b"\x78\x01"
    content = b"\x08\x08\x3a" + length(graph) + b"\x38\x05"
    with ModelFile.open(write(content)) as file:
        assert (
            file.hydrate(file.model).SerializeToString() == ModelProto.FromString(content).SerializeToString()
        )


def test_recursion_in_protobuf_is_its_own_limit() -> None:
    """The scanner stops where protobuf does; if that limit moves, so must ours."""
    from rewriter.storage.wire import MAX_DEPTH

    def parses(levels: int) -> bool:
        body = b""
        for i in range(levels):
            field = b"\x0a" if i % 3 == 2 else b"\x2a" if i % 3 == 1 else b"\x32"
            body = field + length(body)
        try:
            (GraphProto if levels % 3 == 0 else AttributeProto).FromString(body)
        except DecodeError:
            return False
        return True

    assert not parses(3 * (MAX_DEPTH // 3 + 2))
