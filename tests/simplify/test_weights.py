"""Weights stay where they are: they are not sent, not loaded, and not read outside the model's folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, external_data_helper, numpy_helper

from rewriter.simplify import driver, simplify
from rewriter.storage import ModelFile
from tests.simplify.conftest import draw, in_onnxruntime, model_of, with_weights

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """g (float[N, 64] x) => (float[N, 64] y) {
  i = Identity(x)  a = MatMul(i, w)  b = Relu(a)  j = Identity(b)  y = MatMul(j, v)
}"""


def deliver(path: Path, target: Path) -> driver.Simplification:
    with ModelFile.open(path) as file:
        result = simplify(file, file.model)
        file.save(target, result.model)
    return result


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is sent to the worker."""
    sent: list[bytes] = []
    run = driver.run_worker

    def recorded(request: bytes, *args: object, **options: object) -> bytes:
        sent.append(request)
        return run(request, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(driver, "run_worker", recorded)
    return sent


def test_inline_weights_are_not_sent(tmp_path: Path, requests: list[bytes]) -> None:
    model = with_weights(model_of(MODEL), w=draw(64, 64), v=draw(64, 64, seed=1))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    result = deliver(tmp_path / "m.onnx", tmp_path / "out.onnx")
    assert result.accepted
    assert len(requests) == 1
    assert len(requests[0]) < 2000
    after = onnx.load(tmp_path / "out.onnx")
    assert [node.op_type for node in after.graph.node] == ["MatMul", "Relu", "MatMul"]
    assert list(after.graph.initializer) == list(model.graph.initializer)
    x = {"x": draw(3, 64)}
    np.testing.assert_array_equal(in_onnxruntime(after, x)[0], in_onnxruntime(model, x)[0])


def test_external_weights_of_gigabytes(tmp_path: Path, requests: list[bytes]) -> None:
    """2.5 GB that are a hole in a file: reading them would show, in memory and time."""
    rows = 2_500_000
    model = model_of(
        "g (int64[N] ids) => (float[N, 256] y) { i = Identity(ids)  a = Gather(table, i)  y = Relu(a) }"
    )
    tensor = model.graph.initializer.add(name="table", data_type=TensorProto.FLOAT, dims=[rows, 256])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "m.data", "offset": 0, "length": rows * 1024}.items():
        tensor.external_data.add(key=key, value=str(value))
    with (tmp_path / "m.data").open("wb") as data:
        data.truncate(rows * 1024)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with ModelFile.open(tmp_path / "m.onnx") as file:
        result = simplify(file, file.model, memory=1 << 30)
    assert result.accepted
    assert result.bytes_before > rows * 1024
    assert [node.op_type for node in result.model.graph.node] == ["Gather", "Relu"]
    assert len(requests) == 1
    assert len(requests[0]) < 2000


def test_small_external_tensors_are_folded_and_stay_external(tmp_path: Path, requests: list[bytes]) -> None:
    model = model_of(
        "g (float[N, 64] x) => (float[N, 64] y) { n = Neg(small)  a = Add(x, n)  y = Mul(a, other) }"
    )
    with_weights(model, small=draw(64), other=draw(64, seed=1))
    expected = in_onnxruntime(model, {"x": draw(2, 64)})[0]
    external_data_helper.convert_model_to_external_data(model, location="m.data", size_threshold=0)
    onnx.save(model, tmp_path / "m.onnx")
    source = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    with ModelFile.open(tmp_path / "m.onnx") as file:
        result = simplify(file, file.model)
        assert result.accepted, result
        assert [node.op_type for node in result.model.graph.node] == ["Add", "Mul"]
        other = next(t for t in result.model.graph.initializer if t.name == "other")
        assert other == next(t for t in source.graph.initializer if t.name == "other")
        after = file.hydrate(result.model)
    np.testing.assert_array_equal(in_onnxruntime(after, {"x": draw(2, 64)})[0], expected)


def test_data_outside_the_folder_is_not_read(tmp_path: Path, requests: list[bytes]) -> None:
    """Storage refuses such a model; if one came this far, the worker would still not be told where the data is."""
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"secret" * 400)
    model = model_of("g (float[N, 600] x) => (float[N, 600] y) { i = Identity(x)  y = Add(i, w) }")
    tensor = model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[600])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret.bin")

    class File:
        """A storage that checks nothing."""

        def nbytes(self, tensor: TensorProto) -> int:
            return 2400

    result = simplify(File(), model)  # type: ignore[arg-type]
    assert result.accepted
    assert len(requests) == 1
    assert b"secret" not in requests[0]
    assert list(result.model.graph.initializer) == list(model.graph.initializer)


def test_many_nodes() -> None:
    """1,000 nodes, half of them superfluous, with progress."""
    lines = [f"a{k + 1} = Relu(i{k})  i{k + 1} = Identity(a{k + 1})" for k in range(500)]
    model = model_of(f"g (float[N] x) => (float[N] i500) {{ i0 = Identity(x)  {'  '.join(lines)} }}")
    said: list[str] = []
    with ModelFile.from_proto(model) as file:
        result = simplify(file, file.model, progress=said.append)
    assert result.accepted
    assert (result.nodes_before, result.nodes_after) == (1001, 1)  # Relu is idempotent
    assert said[0] == "preparing"
    assert "checking" in said


def test_the_result_is_a_skeleton(tmp_path: Path) -> None:
    """Its stubs are those that storage knows."""
    model = with_weights(model_of(MODEL), w=draw(64, 64), v=draw(64, 64, seed=1))
    with ModelFile.from_proto(model) as file:
        result = simplify(file, file.model)
        assert all(file.is_withheld(tensor) for tensor in result.model.graph.initializer)
        assert result.model.ByteSize() < 2000
        for tensor in result.model.graph.initializer:
            original = next(t for t in model.graph.initializer if t.name == tensor.name)
            np.testing.assert_array_equal(file.array(tensor), numpy_helper.to_array(original))
    assert ModelProto.FromString(model.SerializeToString()) == model
