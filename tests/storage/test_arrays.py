"""One payload as an array: every type, every form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewriter.errors import ModelReadError
from rewriter.storage import ModelFile
from tests.storage.models import single, weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[..., Path]

TYPES = [v for v in TensorProto.DataType.values() if v not in (TensorProto.UNDEFINED, TensorProto.STRING)]
#: An odd number of elements, so that packed types end inside a byte.
COUNT = 1501


def sample(data_type: int) -> np.ndarray:
    """Values of the type, among them its extremes, as numpy or ml_dtypes has them."""
    dtype = helper.tensor_dtype_to_np_dtype(data_type)
    rng = np.random.default_rng(data_type)
    if data_type == TensorProto.BOOL:
        return rng.random(COUNT) < 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, COUNT, dtype, endpoint=True)
    if dtype.kind == "c":
        return (rng.standard_normal(COUNT) + 1j * rng.standard_normal(COUNT)).astype(dtype)
    if dtype in (np.float16, np.float32, np.float64):
        values = rng.standard_normal(COUNT).astype(dtype)
        values[:3] = np.nan, np.inf, -0.0
        return values
    numbers = rng.integers(-2, 2, COUNT)
    if "uint" in dtype.name or dtype.name == "float8_e8m0fnu":
        numbers = np.abs(numbers) + (dtype.name == "float8_e8m0fnu")
    return numbers.astype(dtype)


def models(data_type: int) -> dict[str, onnx.ModelProto]:
    """The same values raw, in typed fields and as external data."""
    values = sample(data_type)
    raw = single(np.zeros(1, np.float32))
    raw.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w"))
    typed = onnx.ModelProto()
    typed.CopyFrom(raw)
    typed.graph.initializer[0].CopyFrom(helper.make_tensor("w", data_type, [COUNT], values))
    assert not typed.graph.initializer[0].HasField("raw_data")
    outside = onnx.ModelProto()
    outside.CopyFrom(raw)
    tensor = outside.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="data.bin")
    tensor.external_data.add(key="offset", value="3")  # nowhere aligned
    return {"raw": raw, "typed": typed, "external": outside}


@pytest.mark.parametrize("data_type", TYPES, ids=lambda t: TensorProto.DataType.Name(t))
def test_every_type(write: Write, tmp_path: Path, data_type: int) -> None:
    values = sample(data_type)
    raw = numpy_helper.from_array(values).raw_data
    (tmp_path / "data.bin").write_bytes(b"123" + raw + b"456")
    for form, model in models(data_type).items():
        path = write(model)
        for threshold in (0, 100_000):
            with ModelFile.open(path, threshold=threshold) as file:
                tensor = file.model.graph.initializer[0]
                assert file.is_withheld(tensor) == (threshold == 0 and form != "external")
                array = file.array(tensor)
                assert array.dtype == values.dtype
                assert array.shape == (COUNT,)
                assert array.tobytes() == values.tobytes()
                assert not array.flags.writeable
                assert array.ctypes.data % array.dtype.alignment == 0
                assert file.nbytes(tensor) == len(raw)
                place = file.raw(tensor)
                if place is not None:
                    content = place.path.read_bytes()[place.offset : place.offset + place.length]
                    assert content == raw
                else:
                    assert form == "typed" or threshold
        if form != "external":
            with ModelFile.from_proto(model) as file:
                tensor = file.model.graph.initializer[0]
                assert file.array(tensor).tobytes() == values.tobytes()
                assert file.nbytes(tensor) == len(raw)
                assert file.raw(tensor) is None


def test_typed_floats_are_raw_in_the_file(write: Write) -> None:
    """Packed floats and doubles are laid out as raw data is; runtimes can be pointed at them."""
    for data_type in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        with ModelFile.open(write(models(data_type)["typed"])) as file:
            assert file.raw(file.model.graph.initializer[0]) is not None


def test_a_float_field_of_another_type_is_not_raw(write: Write) -> None:
    model = models(TensorProto.FLOAT)["typed"]
    model.graph.initializer[0].data_type = TensorProto.INT32
    with ModelFile.open(write(model)) as file:
        assert file.raw(file.model.graph.initializer[0]) is None
        with pytest.raises(ModelReadError):
            file.array(file.model.graph.initializer[0])


def test_aligned_arrays_look_into_the_file(write: Write) -> None:
    """Loading a weight costs no memory where it happens to be aligned."""
    for padding in range(4):
        model = single(weights())
        model.producer_name = "x" * padding
        with ModelFile.open(write(model)) as file:
            tensor = file.model.graph.initializer[0]
            place = file.raw(tensor)
            assert place is not None
            array = file.array(tensor)
            if place.offset % 4 == 0:
                assert not array.flags.owndata
                first, second = (file.array(tensor).ctypes.data for _ in range(2))
                assert first == second
                break
    else:
        pytest.fail("four paddings, and none aligned")


def test_shapes(write: Write) -> None:
    for shape in ((), (0,), (3, 0, 2), (2, 3)):
        model = single(weights(1, 6).reshape(-1)[: int(np.prod(shape))].reshape(shape))
        with ModelFile.open(write(model), threshold=0) as file:
            array = file.array(file.model.graph.initializer[0])
            assert array.shape == shape
            assert (array == numpy_helper.to_array(model.graph.initializer[0])).all()


def test_strings(write: Write) -> None:
    words = ["größe", "", "b" * 2000, "d"]
    model = single(weights(1, 1))
    model.graph.initializer[0].CopyFrom(
        helper.make_tensor("w", TensorProto.STRING, [2, 2], [w.encode() for w in words])
    )
    with ModelFile.open(write(model)) as file:
        tensor = file.model.graph.initializer[0]
        assert file.is_withheld(tensor)
        assert file.array(tensor).tolist() == [words[:2], words[2:]]
        assert file.nbytes(tensor) == 7 + 2000 + 1
        assert file.raw(tensor) is None
    model.graph.initializer[0].string_data[1] = b"\xff"
    with ModelFile.open(write(model)) as file:
        assert file.array(file.model.graph.initializer[0])[0, 1] == b"\xff"


@pytest.mark.parametrize("threshold", [0, 100_000])
def test_what_does_not_fit(write: Write, threshold: int) -> None:
    def broken(**changes: object) -> onnx.ModelProto:
        model = single(weights())
        tensor = model.graph.initializer[0]
        for name, value in changes.items():
            if name == "dims":
                tensor.dims[:] = value
            else:
                setattr(tensor, name, value)
        return model

    segmented = single(weights())
    segmented.graph.initializer[0].segment.begin = 1
    segmented.graph.initializer[0].ClearField("raw_data")
    segmented.graph.initializer[0].float_data.extend([1.0] * 2048)
    text = single(weights())
    text.graph.initializer[0].CopyFrom(helper.make_tensor("w", TensorProto.STRING, [2], [b"a", b"b"]))
    text.graph.initializer[0].dims[:] = [3]
    for model, says in (
        (broken(dims=[64, 33]), "8192 bytes, but its type and dims .* need 8448"),
        (broken(dims=[-64, -32]), "impossible dims"),
        (broken(dims=[2**62, 2**62]), "need"),
        (broken(data_type=0), "no raw form"),
        (broken(data_type=999), "no raw form"),
        (broken(data_type=TensorProto.STRING), "0 strings"),
        (segmented, "segments"),
        (text, "2 strings"),
    ):
        with ModelFile.open(write(model), threshold=threshold) as file:
            with pytest.raises(ModelReadError, match=says) as caught:
                file.array(file.model.graph.initializer[0])
            assert "'w'" in str(caught.value)
            assert file.hydrate(file.model) == model  # it is still copied faithfully


def test_after_closing(write: Write) -> None:
    with ModelFile.open(write(single(weights()))) as file:
        array = file.array(file.model.graph.initializer[0])
    assert (array == weights()).all()
    with pytest.raises(ModelReadError, match="closed"):
        file.array(file.model.graph.initializer[0])
    with pytest.raises(ModelReadError, match="closed"):
        file.save(file.path.with_name("out.onnx"))
