"""Nothing is lost: what is opened and saved is, to onnx's own parser, what it was."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto
from onnx.backend.test.loader import load_model_tests

from rewriter.errors import ModelWriteError
from rewriter.storage import ModelFile
from tests.storage.models import UNKNOWN, complete, everywhere, filled, length, single, weights

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[..., Path]


def check_round_trip(path: Path, out: Path, threshold: int) -> int:
    """Number of payloads withheld."""
    content = path.read_bytes()
    with ModelFile.open(path, threshold=threshold) as file:
        hydrated = file.hydrate(file.model)
        assert file.save(out).size == out.stat().st_size
        file.copy_to(out.with_suffix(".copy"))
        withheld = len(file._payloads)
    original = onnx.load_from_string(content)
    # compared as bytes: protobuf's own comparison calls NaN different from itself
    assert hydrated.SerializeToString() == original.SerializeToString()
    assert ModelProto.FromString(out.read_bytes()).SerializeToString() == original.SerializeToString()
    assert out.with_suffix(".copy").read_bytes() == content
    with ModelFile.from_proto(original) as file:
        assert file.hydrate(file.model).SerializeToString() == original.SerializeToString()
        file.save(out)
    assert ModelProto.FromString(out.read_bytes()).SerializeToString() == original.SerializeToString()
    return withheld


def test_backend_corpus(tmp_path: Path, unsynced: None) -> None:
    """Every model that onnx ships or generates for its backend tests."""
    from onnx.backend.test.case.node import collect_testcases

    models = [case.model for case in collect_testcases(None) if case.model is not None]
    files = [Path(case.model_dir) / "model.onnx" for kind in ("simple", "pytorch-operator", "pytorch-converted")
             for case in load_model_tests(kind=kind) if case.model_dir]  # fmt: skip
    assert len(models) > 500
    for i, model in enumerate(models + [onnx.load(path) for path in files if path.exists()]):
        path = tmp_path / f"{i % 2}.onnx"
        path.write_bytes(model.SerializeToString())
        check_round_trip(path, tmp_path / "out.onnx", threshold=(64, 1024)[i % 2])


def test_every_field(write: Write, tmp_path: Path) -> None:
    model = complete()
    assert model.SerializeToString().count(UNKNOWN) > 100
    assert check_round_trip(write(model), tmp_path / "out.onnx", threshold=64) > 5


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from([0, 16, 1024]))
def test_random_models(unsynced: None, seed: int, threshold: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "in.onnx"
        path.write_bytes(filled(random.Random(seed)).SerializeToString())
        check_round_trip(path, Path(folder) / "out.onnx", threshold)


def test_payloads_are_withheld_wherever_they_stand(write: Write, tmp_path: Path) -> None:
    path = write(everywhere())
    assert check_round_trip(path, tmp_path / "out.onnx", 1024) == 14
    with ModelFile.open(path) as file:
        assert file.model.ByteSize() < 8192 < file.size
        sparse = file.model.graph.sparse_initializer[0]
        found = [sparse.values, sparse.indices, *file.model.graph.node[1].attribute[0].tensors]
        found.append(file.model.functions[0].node[0].attribute[0].t)
        found.append(file.model.training_info[0].algorithm.initializer[0])
        assert all(file.is_withheld(tensor) for tensor in found)
    with ModelFile.from_proto(everywhere()) as file:
        assert file.model.ByteSize() < 8192


def test_strings_that_are_not_utf8(write: Write, tmp_path: Path) -> None:
    model = single(weights(), "weight")
    content = (
        model.SerializeToString().replace(b"weight", b"w\xff\xfe\x80ht").replace(b"Identity", b"Id\xc3ntity")
    )
    path = write(content)
    with ModelFile.open(path) as file:
        file.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == content
    with ModelFile.from_proto(onnx.load_from_string(content)) as file:
        file.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == content


def test_the_same_bytes_as_onnx_writes(write: Write, tmp_path: Path) -> None:
    """Payloads go back to their place in the record, so that an unedited model comes out as protobuf would write it."""
    path = write(everywhere())
    with ModelFile.open(path) as file:
        file.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == path.read_bytes()
    with ModelFile.from_proto(everywhere()) as file:
        file.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == path.read_bytes()


def test_a_graph_in_two_parts_is_merged(write: Write, tmp_path: Path) -> None:
    """Protobuf merges the occurrences of a singular field; so do models, when files are concatenated."""
    first, second = single(weights(seed=1), "a"), single(weights(seed=2), "b")
    content = first.SerializeToString() + second.SerializeToString()
    path = write(content)
    with ModelFile.open(path) as file:
        assert [t.name for t in file.model.graph.initializer] == ["a", "b"]
        assert all(file.is_withheld(t) for t in file.model.graph.initializer)
        assert (file.array(file.model.graph.initializer[1]) == weights(seed=2)).all()
        file.save(tmp_path / "out.onnx")
    assert ModelProto.FromString((tmp_path / "out.onnx").read_bytes()) == onnx.load_from_string(content)


def test_elements_one_record_each(write: Write, tmp_path: Path) -> None:
    """Repeated numbers need not be packed, and may be packed in several runs."""
    tensor = TensorProto(dims=[600], data_type=TensorProto.INT64, name="w").SerializeToString()
    tensor += b"".join(b"\x38" + bytes([i % 100]) for i in range(200))
    tensor += b"\x3a\xc8\x01" + bytes(200)  # 200 zeros, packed
    tensor += b"\x62\x03doc"
    tensor += b"".join(b"\x38" + bytes([i % 100]) for i in range(200))
    body = single(weights(1, 1), "x").graph.SerializeToString() + b"\x2a" + length(tensor)
    content = b"\x08\x08\x3a" + length(body)
    path = write(content)
    with ModelFile.open(path, threshold=100) as file:
        stub = file.model.graph.initializer[1]
        assert file.is_withheld(stub)
        assert file.array(stub).tolist() == [
            *(i % 100 for i in range(200)),
            *[0] * 200,
            *(i % 100 for i in range(200)),
        ]
    check_round_trip(path, tmp_path / "out.onnx", 100)


# --- stubs -----------------------------------------------------------------------------------------------------


def test_stubs_survive_every_way_of_copying(write: Write, tmp_path: Path) -> None:
    with ModelFile.open(write(single(weights()))) as file:
        stub = file.model.graph.initializer[0]
        new = ModelProto()
        new.CopyFrom(file.model)
        new.graph.initializer.add().CopyFrom(stub)
        new.graph.initializer.add().MergeFrom(stub)
        new.graph.initializer.add().MergeFromString(stub.SerializeToString())
        new.graph.node.add(op_type="Constant").attribute.add(name="value").t.CopyFrom(stub)
        for i, tensor in enumerate(new.graph.initializer):
            tensor.name = f"copy{i}"
        file.save(tmp_path / "out.onnx", ModelProto.FromString(new.SerializeToString()))
    out = onnx.load(tmp_path / "out.onnx")
    assert [t.name for t in out.graph.initializer] == ["copy0", "copy1", "copy2", "copy3"]
    assert {t.raw_data for t in out.graph.initializer} == {weights().tobytes()}
    assert out.graph.node[1].attribute[0].t.raw_data == weights().tobytes()


def test_what_is_edited_of_a_stub_is_written(write: Write, tmp_path: Path) -> None:
    with ModelFile.open(write(single(weights()))) as file:
        stub = file.model.graph.initializer[0]
        stub.doc_string = "edited " * 1000
        stub.dims[:] = [32, 64]
        stub.metadata_props.add(key="k", value="v")
        stub.MergeFromString(UNKNOWN)
        file.save(tmp_path / "out.onnx")
    expected = onnx.numpy_helper.from_array(weights().reshape(32, 64), "w")
    expected.doc_string = "edited " * 1000
    expected.metadata_props.add(key="k", value="v")
    expected.MergeFromString(UNKNOWN)
    assert onnx.load(tmp_path / "out.onnx").graph.initializer[0] == expected


@pytest.mark.parametrize("location", [None, TensorProto.DEFAULT])
def test_data_location_is_restored(write: Write, location: int | None) -> None:
    model = single(weights())
    if location is not None:
        model.graph.initializer[0].data_location = location
    for file in (ModelFile.open(write(model)), ModelFile.from_proto(model)):
        with file:
            assert file.model.graph.initializer[0].data_location == TensorProto.EXTERNAL
            back = file.hydrate(file.model).graph.initializer[0]
            assert back.HasField("data_location") == (location is not None)
            assert back == model.graph.initializer[0]


def test_external_data_entries_of_an_inline_tensor_are_kept(write: Write) -> None:
    model = single(weights())
    model.graph.initializer[0].external_data.add(key="location", value="left over")
    with ModelFile.open(write(model)) as file:
        assert file.is_withheld(file.model.graph.initializer[0])
        assert file.hydrate(file.model) == model


def test_a_file_cannot_forge_a_stub(write: Write) -> None:
    model = single(weights(), "w" * 6000, other=weights(seed=1))
    for _ in range(2):
        with ModelFile.open(write(model)) as file:
            token = file._token
            assert file.model.graph.initializer[0].external_data[0].value == f"{token}0"
        # the same size and the same ends of the file, so the same first token
        model.graph.initializer[0].name = token.ljust(6000, "w")
    with ModelFile.open(write(model)) as file:
        assert file._token != token
        assert file.hydrate(file.model) == model


def test_stubs_of_another_file_are_not_taken(write: Write, tmp_path: Path) -> None:
    with (
        ModelFile.open(write(single(weights(), "a"), "a.onnx")) as a,
        ModelFile.open(write(single(weights(seed=1), "b"), "b.onnx")) as b,
    ):
        assert not a.is_withheld(b.model.graph.initializer[0])
        with pytest.raises(Exception, match="does not exist"):
            a.save(tmp_path / "out.onnx", b.model)


def test_a_stub_given_new_elements_is_refused(write: Write, tmp_path: Path) -> None:
    with ModelFile.open(write(single(weights()))) as file:
        file.model.graph.initializer[0].raw_data = weights(seed=9).tobytes()
        with pytest.raises(ModelWriteError, match="given new elements"):
            file.save(tmp_path / "out.onnx")


def test_a_stub_hidden_in_text_is_refused(write: Write, tmp_path: Path) -> None:
    with ModelFile.open(write(single(weights()))) as file:
        file.model.doc_string = file.model.graph.initializer[0].external_data[0].value
        with pytest.raises(ModelWriteError, match="where no tensor can stand"):
            file.save(tmp_path / "out.onnx")


def test_opening_twice_gives_the_same_skeleton(write: Write) -> None:
    path = write(everywhere())
    with ModelFile.open(path) as a, ModelFile.open(path) as b:
        assert a.model.SerializeToString() == b.model.SerializeToString()


def test_from_proto_does_not_change_its_argument() -> None:
    model = everywhere()
    before = model.SerializeToString()
    with ModelFile.from_proto(model) as file:
        file.model.graph.name = "changed"
        file.model.graph.initializer[0].name = "changed"
        file.hydrate(file.model)
    assert model.SerializeToString() == before
