"""External data: checked before it is read, and written so that old and new model always find theirs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from rewriter.errors import ExternalDataError, ModelReadError, ModelWriteError
from rewriter.storage import ModelFile
from rewriter.storage import save as save_module
from tests.storage.conftest import names
from tests.storage.models import everywhere, single, weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[..., Path]

A, B = weights(seed=1), weights(3, 5, seed=2)


def external(array: np.ndarray, name: str, **entries: object) -> TensorProto:
    tensor = TensorProto(name=name, dims=array.shape, data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def model_of(*tensors: TensorProto) -> ModelProto:
    return helper.make_model(helper.make_graph([], "g", [], [], tensors), ir_version=8)


@pytest.fixture
def two_files(tmp_path: Path) -> Path:
    """``in/in.onnx`` with A at an offset of one file, also in a Constant, B without a length in a file in a sub-folder,
    and C inline."""
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.bin").write_bytes(b"junk" * 5 + A.tobytes() + b"more")
    (folder / "sub" / "b.bin").write_bytes(B.tobytes())
    a = external(A, "a", location="a.bin", offset=20, length=A.nbytes, checksum="00ff")
    b = external(B, "b", location="sub/b.bin")
    model = model_of(a, b, onnx.numpy_helper.from_array(weights(seed=3), "c"))
    model.graph.node.add(op_type="Constant", output=["k"]).attribute.add(name="value", type=4).t.CopyFrom(a)
    (folder / "in.onnx").write_bytes(model.SerializeToString())
    return folder / "in.onnx"


def values(path: Path) -> list[bytes]:
    """What onnx's own loader finds."""
    model = onnx.load(path)
    return [*(t.raw_data for t in model.graph.initializer), model.graph.node[0].attribute[0].t.raw_data]


EXPECTED = [A.tobytes(), B.tobytes(), weights(seed=3).tobytes(), A.tobytes()]


def test_reading(two_files: Path) -> None:
    with ModelFile.open(two_files) as file:
        a, b, c = file.model.graph.initializer
        assert (file.array(a) == A).all()
        assert (file.array(b) == B).all()
        assert not file.array(a).flags.writeable
        assert not file.is_withheld(a)
        assert file.is_withheld(c)
        assert file.nbytes(a) == A.nbytes
        assert file.nbytes(b) == B.nbytes
        place = file.raw(a)
        assert place is not None
        assert (place.path, place.offset, place.length) == (two_files.parent / "a.bin", 20, A.nbytes)
        assert file.hydrate(file.model) == onnx.load(two_files)
        assert [e.value for e in a.external_data] == ["a.bin", "20", str(A.nbytes), "00ff"]


def test_arrays_outlive_the_file(two_files: Path) -> None:
    with ModelFile.open(two_files) as file:
        arrays = [file.array(t) for t in file.model.graph.initializer]
    assert [a.tobytes() for a in arrays] == EXPECTED[:3]


@pytest.mark.parametrize("same_folder", [True, False])
def test_saved_under_another_name(two_files: Path, tmp_path: Path, same_folder: bool) -> None:
    folder = two_files.parent if same_folder else tmp_path / "out"
    folder.mkdir(exist_ok=True)
    before = {name: (two_files.parent / name).read_bytes() for name in names(two_files.parent)}
    with ModelFile.open(two_files) as file:
        result = file.save(folder / "out.onnx")
    assert result.data == folder / "out.onnx.data"
    assert result.data_size == result.data.stat().st_size
    assert values(folder / "out.onnx") == EXPECTED
    saved = onnx.load(folder / "out.onnx", load_external_data=False)
    a, b, c = saved.graph.initializer
    assert {e.key: e.value for e in a.external_data} == {
        "location": "out.onnx.data",
        "offset": "0",
        "length": str(A.nbytes),
    }
    assert {e.key: e.value for e in b.external_data}["offset"] == str(A.nbytes)
    assert saved.graph.node[0].attribute[0].t == a  # the shared range is written once
    assert c.raw_data == EXPECTED[2]  # inline stays inline
    assert {name: (two_files.parent / name).read_bytes() for name in before} == before


def test_large_tensors_begin_at_a_page(tmp_path: Path) -> None:
    arrays = [weights(seed=i, rows=r) for i, r in enumerate((1, 40, 3, 50))]
    offset, tensors = 0, []
    for i, array in enumerate(arrays):
        tensors.append(external(array, f"t{i}", location="w", offset=offset, length=array.nbytes))
        offset += array.nbytes
    (tmp_path / "w").write_bytes(b"".join(a.tobytes() for a in arrays))
    (tmp_path / "in.onnx").write_bytes(model_of(*tensors).SerializeToString())
    with ModelFile.open(tmp_path / "in.onnx") as file:
        file.save(tmp_path / "out.onnx")
    saved = onnx.load(tmp_path / "out.onnx", load_external_data=False).graph.initializer
    offsets = [int(t.external_data[1].value) for t in saved]
    assert offsets[0] == 0
    assert offsets[1] == 4096
    assert offsets[2] % 64 == 0
    assert offsets[3] % 4096 == 0
    loaded = onnx.load(tmp_path / "out.onnx").graph.initializer
    assert [t.raw_data for t in loaded] == [a.tobytes() for a in arrays]


def test_saved_in_place(two_files: Path) -> None:
    before = {name: (two_files.parent / name).read_bytes() for name in names(two_files.parent)}
    with ModelFile.open(two_files) as file:
        file.model.graph.name = "renamed"
        assert file.save(two_files).data is None
    assert names(two_files.parent) == ["a.bin", "in.onnx", "sub/b.bin"]
    saved = onnx.load(two_files, load_external_data=False)
    original = ModelProto.FromString(before.pop("in.onnx"))
    original.graph.name = "renamed"
    assert saved == original
    assert {name: (two_files.parent / name).read_bytes() for name in before} == before


def test_a_file_for_each_tensor(tmp_path: Path, unsynced: None) -> None:
    """As some exporters write it: more data files than a process may have open."""
    import resource

    arrays = [weights(1, 8, seed=i) for i in range(400)]
    for i, array in enumerate(arrays):
        (tmp_path / f"w{i}").write_bytes(array.tobytes())
    model = model_of(*(external(a, f"w{i}", location=f"w{i}") for i, a in enumerate(arrays)))
    (tmp_path / "in.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "out").mkdir()
    expected = [a.tobytes() for a in arrays]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (250, hard))
    try:
        with ModelFile.open(tmp_path / "in.onnx") as file:
            assert [file.array(t).tobytes() for t in file.model.graph.initializer] == expected
            hydrated = file.hydrate(file.model)
            file.save(tmp_path / "out.onnx")
            file.copy_to(tmp_path / "out" / "copy.onnx")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [t.raw_data for t in hydrated.graph.initializer] == expected
    for path in (tmp_path / "out.onnx", tmp_path / "out" / "copy.onnx"):
        assert [t.raw_data for t in onnx.load(path).graph.initializer] == expected


def test_a_data_file_that_changes_while_it_is_read(tmp_path: Path, two_files: Path) -> None:
    with ModelFile.open(two_files) as file:
        with (two_files.parent / "a.bin").open("ab") as data:
            data.write(b"more")
        with pytest.raises(ModelReadError, match="changed by another program"):
            file.save(tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
    assert not (tmp_path / "out.onnx.data").exists()


# --- an older output at the target -----------------------------------------------------------------------------


def save_to(two_files: Path, target: Path, scale: float = 1.0) -> None:
    with (two_files.parent / "a.bin").open("r+b") as data:
        data.seek(20)
        data.write((A * np.float32(scale)).tobytes())
    with ModelFile.open(two_files) as file:
        file.save(target)


def test_the_data_of_an_old_model_is_replaced_last(
    two_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out" / "out.onnx"
    out.parent.mkdir()
    save_to(two_files, out)
    seen: list[tuple[list[str], bytes]] = []

    def watch(name: str) -> None:
        real = getattr(os, name)

        def watched(*args: object, **more: object) -> None:
            seen.append(
                (names(out.parent), values(out)[0])
            )  # before each step a reader finds a complete pair
            real(*args, **more)
            seen.append((names(out.parent), values(out)[0]))

        monkeypatch.setattr(os, name, watched)

    for name in ("link", "replace", "rename", "unlink"):
        watch(name)
    save_to(two_files, out, 2.0)
    old, new = A.tobytes(), (A * np.float32(2)).tobytes()
    found = [value for _, value in seen]
    assert len(found) >= 6
    assert found == sorted(found, key=[old, new].index)  # never back
    assert found[0] == old
    assert found[-1] == new
    assert names(out.parent) == ["out.onnx", "out.onnx.1.data"]
    monkeypatch.undo()
    save_to(two_files, out, 3.0)
    assert names(out.parent) == ["out.onnx", "out.onnx.data"]
    assert values(out)[0] == (A * np.float32(3)).tobytes()


def test_the_same_output_twice_is_the_same_bytes(two_files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    save_to(two_files, out)
    first = out.read_bytes(), (tmp_path / "out.onnx.data").read_bytes()
    save_to(two_files, out)
    assert (out.read_bytes(), (tmp_path / "out.onnx.data").read_bytes()) == first
    assert not (tmp_path / "out.onnx.1.data").exists()


def test_a_data_file_of_somebody_else_is_left(two_files: Path, tmp_path: Path) -> None:
    (tmp_path / "out.onnx.data").write_bytes(b"mine")
    save_to(two_files, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx.data").read_bytes() == b"mine"
    assert values(tmp_path / "out.onnx") == EXPECTED
    save_to(two_files, tmp_path / "out.onnx", 2.0)
    assert (tmp_path / "out.onnx.data").read_bytes() == b"mine"


def test_an_orphan_goes_when_the_new_model_is_inline(two_files: Path, tmp_path: Path, write: Write) -> None:
    save_to(two_files, tmp_path / "out.onnx")
    with ModelFile.open(write(single(A))) as file:
        file.save(tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx.data").exists()
    assert (tmp_path / "in" / "a.bin").exists()


def test_the_input_s_data_is_never_removed(tmp_path: Path) -> None:
    """An input that refers to the very data file of the model at the target."""
    shared = model_of(external(A, "a", location="out.onnx.data"))
    (tmp_path / "out.onnx.data").write_bytes(A.tobytes())
    for name in ("in.onnx", "out.onnx"):
        (tmp_path / name).write_bytes(shared.SerializeToString())
    with ModelFile.open(tmp_path / "in.onnx") as file:
        file.save(tmp_path / "out.onnx")
    assert names(tmp_path) == ["in.onnx", "out.onnx", "out.onnx.1.data", "out.onnx.data"]
    assert onnx.load(tmp_path / "in.onnx").graph.initializer[0].raw_data == A.tobytes()
    assert onnx.load(tmp_path / "out.onnx").graph.initializer[0].raw_data == A.tobytes()


def test_output_over_the_input_s_data_is_refused(two_files: Path) -> None:
    with ModelFile.open(two_files) as file, pytest.raises(ModelWriteError, match="data of the input"):
        file.save(two_files.parent / "a.bin")
    assert values(two_files) == EXPECTED


# --- copying ---------------------------------------------------------------------------------------------------


def test_copied_to_another_folder(two_files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for _ in range(2):  # the second time everything is there already
        with ModelFile.open(two_files) as file:
            file.model.Clear()  # the file is copied, whatever became of the skeleton
            file.copy_to(out / "copy.onnx")
        assert names(out) == ["a.bin", "copy.onnx", "sub/b.bin"]
        assert (out / "copy.onnx").read_bytes() == two_files.read_bytes()
        assert values(out / "copy.onnx") == EXPECTED


@pytest.mark.parametrize("taken", ["a.bin", "sub/b.bin", "sub"])
def test_copied_where_a_name_is_taken(two_files: Path, tmp_path: Path, taken: str) -> None:
    out = tmp_path / "out"
    (out / taken).parent.mkdir(parents=True)
    (out / taken).write_bytes(b"other")
    with ModelFile.open(two_files) as file:
        file.copy_to(out / "copy.onnx")
    assert names(out) == sorted(["copy.onnx", "copy.onnx.data", taken])
    assert (out / taken).read_bytes() == b"other"
    assert values(out / "copy.onnx") == EXPECTED


def test_copied_beside_the_input(two_files: Path) -> None:
    with ModelFile.open(two_files) as file:
        file.copy_to(two_files.parent / "copy.onnx")
    (two_files.parent / "a.bin").unlink()
    assert values(two_files.parent / "copy.onnx") == EXPECTED


def test_copied_onto_itself(two_files: Path) -> None:
    before = two_files.stat()
    with ModelFile.open(two_files) as file:
        file.copy_to(two_files)
    assert two_files.stat().st_ino == before.st_ino
    assert values(two_files) == EXPECTED


# --- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ({"location": "{outside}"}, "not a relative path"),
        ({"location": "/etc/passwd"}, "not a relative path"),
        ({"location": "C:\\secret"}, "not a relative path"),
        ({"location": "../secret"}, "leaves the model's folder"),
        ({"location": "sub/../../secret"}, "leaves the model's folder"),
        ({"location": "..\\secret"}, "leaves the model's folder"),
        ({"location": "link"}, "link that leaves"),
        ({"location": "linked/secret"}, "link that leaves"),
        ({"location": "absent"}, "does not exist"),
        ({"location": "file/below"}, "cannot be read"),
        ({"location": "folder"}, "directory"),
        ({"location": "."}, "directory"),
        ({"location": "pipe"}, "not a regular file"),
        ({"location": "loop"}, "cannot be read"),
        ({"location": "a\0b"}, "not a relative path"),
        ({"location": "x" * 5000}, "cannot be read"),
        ({"location": ""}, "names no file"),
        ({"offset": "0"}, "names no file"),
        ({"location": "file", "offset": "-1"}, "not a number"),
        ({"location": "file", "offset": "1e3"}, "not a number"),
        ({"location": "file", "offset": " 1"}, "not a number"),
        ({"location": "file", "offset": "1_0"}, "not a number"),
        ({"location": "file", "length": "-5"}, "not a number"),
        ({"location": "file", "length": "９"}, "not a number"),
        ({"location": "file", "length": "9" * 5000}, "not a number"),
        ({"location": "file", "length": "61"}, "only 60"),
        ({"location": "file", "offset": "1", "length": "60"}, "only 60"),
        ({"location": "file", "offset": "61", "length": "0"}, "only 60"),
        ({"location": "file", "offset": "9223372036854775807", "length": "9223372036854775807"}, "only 60"),
        ({"location": "file", "offset": "4"}, "only 60"),
    ],
)
def test_bad_references(tmp_path: Path, entries: dict[str, str], says: str) -> None:
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(B.tobytes())
    (folder / "file").write_bytes(B.tobytes())
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    entries = {key: value.replace("{outside}", str(tmp_path / "secret")) for key, value in entries.items()}
    tensor = external(B, "weight", **entries)
    path = folder / "in.onnx"
    body = model_of()
    body.graph.node.add(op_type="Constant").attribute.add(name="value").t.CopyFrom(tensor)
    for model in (model_of(tensor), body):
        path.write_bytes(model.SerializeToString())
        with pytest.raises(ExternalDataError, match=says) as caught:
            ModelFile.open(path).save(tmp_path / "out.onnx")
        assert caught.value.exit_code == 2
        assert "weight" in str(caught.value)
        with pytest.raises(ExternalDataError):
            ModelFile.from_proto(model, base=folder).save(tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_location_marks_in_unusual_encoding_are_not_followed(tmp_path: Path) -> None:
    """A padded varint hides the mark from a search of the bytes; the check when the tensor is used needs no search."""
    tensor = (
        external(B, "weight", location="../secret").SerializeToString().replace(b"p\x01", b"p\x81\x80\x00")
    )
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    (tmp_path / "secret").write_bytes(B.tobytes())
    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / "in.onnx"
    path.write_bytes(b"\x08\x08\x3a" + bytes([len(graph)]) + graph)
    for use in (lambda f: f.array(f.model.graph.initializer[0]), lambda f: f.save(tmp_path / "out.onnx")):
        with pytest.raises(ExternalDataError, match="leaves the model's folder"):
            use(ModelFile.open(path))


def test_a_reference_added_by_a_pass_is_checked(write: Write, tmp_path: Path) -> None:
    with ModelFile.open(write(single(A))) as file:
        file.model.graph.initializer.add().CopyFrom(external(B, "x", location="/etc/passwd"))
        with pytest.raises(ExternalDataError):
            file.save(tmp_path / "out.onnx")


def test_data_that_does_not_fit_the_dims(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(B.tobytes())
    path = tmp_path / "in.onnx"
    path.write_bytes(model_of(external(B, "w", location="file", length=8)).SerializeToString())
    with ModelFile.open(path) as file, pytest.raises(ModelReadError, match="8 bytes"):
        file.array(file.model.graph.initializer[0])


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(B.tobytes())
    (tmp_path / "link").symlink_to("real")
    path = tmp_path / "in.onnx"
    path.write_bytes(model_of(external(B, "w", location="link")).SerializeToString())
    with ModelFile.open(path) as file:
        assert (file.array(file.model.graph.initializer[0]) == B).all()


def test_a_model_in_a_linked_cache(tmp_path: Path) -> None:
    """Model and data are links into one folder of blobs, as in the Hugging Face cache."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "blobs" / "1").write_bytes(model_of(external(B, "w", location="in.data")).SerializeToString())
    (tmp_path / "blobs" / "2").write_bytes(B.tobytes())
    (tmp_path / "snapshot" / "in.onnx").symlink_to("../blobs/1")
    (tmp_path / "snapshot" / "in.data").symlink_to("../blobs/2")
    with ModelFile.open(tmp_path / "snapshot" / "in.onnx") as file:
        assert (file.array(file.model.graph.initializer[0]) == B).all()
        file.save(tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx").graph.initializer[0].raw_data == B.tobytes()


# --- models in memory ------------------------------------------------------------------------------------------


def test_in_memory_with_a_base(two_files: Path, tmp_path: Path) -> None:
    model = onnx.load(two_files, load_external_data=False)
    with pytest.raises(ExternalDataError, match="does not say in which folder"):
        ModelFile.from_proto(model)
    with ModelFile.from_proto(model, base=two_files.parent) as file:
        assert (file.array(file.model.graph.initializer[0]) == A).all()
        file.save(tmp_path / "out.onnx")
    assert values(tmp_path / "out.onnx") == EXPECTED


def test_in_memory_saved_over_the_file_it_came_from(two_files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    with ModelFile.open(two_files) as file:
        file.save(out)
    with ModelFile.from_proto(onnx.load(out, load_external_data=False), base=tmp_path) as file:
        file.save(out)
    assert values(out) == EXPECTED


# --- what is too large to be inline ----------------------------------------------------------------------------


def typed_model() -> ModelProto:
    make = helper.make_tensor
    rng = np.random.default_rng(0)
    integers = rng.integers(-(2**40), 2**40, 900)
    tensors = [
        onnx.numpy_helper.from_array(weights(), "raw"),
        make("float", TensorProto.FLOAT, [900], rng.random(900).astype(np.float32)),
        make("int64", TensorProto.INT64, [900], integers),
        make("int32", TensorProto.INT32, [900], integers % 1000 - 500),
        make("uint8", TensorProto.UINT8, [1200], np.arange(1200) % 256),
        make("half", TensorProto.FLOAT16, [900], rng.random(900).astype(np.float16)),
        make("double", TensorProto.DOUBLE, [900], rng.random(900)),
        make("uint32", TensorProto.UINT32, [900], np.arange(900, dtype=np.uint32) + 2**31),
        make("int4", TensorProto.INT4, [3001], rng.integers(-8, 8, 3001)),
        make("float6", TensorProto.FLOAT6E2M3, [1201], rng.random(1201)),
        make("complex", TensorProto.COMPLEX64, [450], rng.random(450) + 1j),
        make("text", TensorProto.STRING, [300], [b"words and words"] * 300),
    ]
    model = model_of(*tensors)
    model.graph.node.add(op_type="Constant").attribute.add(name="value", type=4).t.CopyFrom(tensors[0])
    return model


@pytest.mark.parametrize("limit", [5000, 30000])
@pytest.mark.parametrize("in_memory", [False, True])
def test_weights_move_out_when_the_file_gets_too_large(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, in_memory: bool
) -> None:
    monkeypatch.setattr(save_module, "INLINE_LIMIT", limit)
    model = typed_model()
    path = write(model)
    with ModelFile.from_proto(model) if in_memory else ModelFile.open(path) as file:
        file.save(tmp_path / "out.onnx")
    saved = onnx.load(tmp_path / "out.onnx", load_external_data=False)
    where = {t.name: t.data_location for t in saved.graph.initializer}
    assert where.pop("text") == TensorProto.DEFAULT
    assert set(where.values()) == {TensorProto.EXTERNAL}
    constant = saved.graph.node[0].attribute[0].t
    assert constant.data_location == (TensorProto.EXTERNAL if limit == 5000 else TensorProto.DEFAULT)
    loaded = onnx.load(tmp_path / "out.onnx")
    for got, expected in zip(loaded.graph.initializer, model.graph.initializer, strict=True):
        a, b = onnx.numpy_helper.to_array(got), onnx.numpy_helper.to_array(expected)
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes() if a.dtype != object else a.tolist() == b.tolist(), got.name
        assert got.dims == expected.dims


def test_moving_out_leaves_other_places_alone(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a model's places survive the move, sparse tensors and functions included."""
    monkeypatch.setattr(save_module, "INLINE_LIMIT", 10)
    with ModelFile.open(write(everywhere())) as file:
        file.save(tmp_path / "out.onnx")
        with ModelFile.open(tmp_path / "out.onnx") as again:
            hydrated = again.hydrate(again.model)
    expected = everywhere()
    for model in (hydrated, expected):  # loading marks tensors as inline explicitly
        text = model.SerializeToString()
        assert len(text) > 100_000
    assert str(hydrated).replace("data_location: DEFAULT", "").split() == str(expected).split()


def test_too_large_for_protobuf_without_weights(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save_module, "INLINE_LIMIT", 100)
    monkeypatch.setattr(save_module, "HARD_LIMIT", 1000)
    text = helper.make_tensor("text", TensorProto.STRING, [300], [b"words and words"] * 300)
    with ModelFile.open(write(model_of(text))) as file, pytest.raises(ModelWriteError, match="2 GiB"):
        file.save(tmp_path / "out.onnx")
    assert names(tmp_path) == ["in.onnx"]
