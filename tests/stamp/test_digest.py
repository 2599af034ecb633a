"""The digest tells an edited model from one that was only stored another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from rewriter.digest import digest
from rewriter.storage import ModelFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXT = """
<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
main (float[N, 4] x, bool c) => (float[N, 4] y)
<float[4] bias = {1.0, 2.0, 3.0, 4.0}, int64[1] axis = {1}, int64[2] starts = {0, 1}>
{
    a = Add(x, bias)
    b = local.block <alpha: float = 0.5> (a)
    y = If (c) <
        then_branch = then () => (float[N, 4] t) { k = Constant <value = float[1] {2.0}> ()  t = Mul(b, k) },
        else_branch = other () => (float[N, 4] e) { e = Neg(b) }
    >
}
<domain: "local", opset_import: ["" : 18]>
block <alpha> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }
"""


def model() -> ModelProto:
    made = parser.parse_model(TEXT)
    made.graph.initializer.append(
        numpy_helper.from_array(np.arange(1000, dtype=np.float32).reshape(10, 100), "large")
    )
    made.graph.node.append(
        helper.make_node("Constant", [], ["unused"], value=numpy_helper.from_array(np.ones(500, np.float64)))
    )
    return made


def digest_of(proto: ModelProto) -> str:
    with ModelFile.from_proto(proto) as file:
        return digest(file.model, file)


def digest_on_disk(path: Path) -> str:
    with ModelFile.open(path) as file:
        return digest(file.model, file)


def test_stable_across_parsing_writing_and_reading(tmp_path: Path) -> None:
    expected = digest_of(model())
    assert digest_of(ModelProto.FromString(model().SerializeToString())) == expected
    onnx.save(model(), tmp_path / "a.onnx")
    assert digest_on_disk(tmp_path / "a.onnx") == expected
    with ModelFile.open(tmp_path / "a.onnx") as file:
        file.save(tmp_path / "b.onnx")
        assert digest_of(file.hydrate(file.model)) == expected
    assert digest_on_disk(tmp_path / "b.onnx") == expected


def test_independent_of_how_payloads_are_stored(tmp_path: Path) -> None:
    expected = digest_of(model())
    onnx.save(
        model(),
        tmp_path / "external.onnx",
        save_as_external_data=True,
        size_threshold=0,
        convert_attribute=True,
        location="weights",
    )
    assert digest_on_disk(tmp_path / "external.onnx") == expected
    typed = model()
    for tensor in typed.graph.initializer:
        array = numpy_helper.to_array(tensor)
        tensor.CopyFrom(
            helper.make_tensor(tensor.name, tensor.data_type, array.shape, array.flatten().tolist())
        )
    assert digest_of(typed) == expected


@pytest.mark.parametrize(
    "dtype", [TensorProto.INT4, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.BOOL]
)
def test_small_constants_of_every_kind_count_by_value_in_both_forms(dtype: int) -> None:
    def constant(raw: bool, values: list[float]) -> ModelProto:
        made = model()
        array = helper.make_tensor("", dtype, [3], values)
        if raw:
            array = numpy_helper.from_array(numpy_helper.to_array(array))
        made.graph.node.append(helper.make_node("Constant", [], ["k"], value=array))
        return made

    assert digest_of(constant(True, [1, 0, 1])) == digest_of(constant(False, [1, 0, 1]))
    assert digest_of(constant(True, [1, 0, 1])) != digest_of(constant(True, [1, 1, 1]))


def _set(model: ModelProto, path: str, value: object) -> None:
    place: object = model
    *steps, last = path.split(".")
    for step in steps:
        place = place[int(step)] if step.isdecimal() else getattr(place, step)  # type: ignore[index]
    setattr(place, last, value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("graph.node.1.attribute.0.f", 0.25),
        ("graph.node.0.op_type", "Sub"),
        ("graph.node.0.domain", "com.example"),
        ("graph.node.2.attribute.1.g.node.0.op_type", "Abs"),
        ("functions.0.node.0.attribute.0.ref_attr_name", "beta"),
        ("functions.0.node.0.op_type", "Elu"),
        ("functions.0.opset_import.0.version", 17),
        ("opset_import.0.version", 17),
        ("graph.input.0.type.tensor_type.elem_type", TensorProto.FLOAT16),
        ("graph.output.0.name", "z"),
        ("graph.initializer.0.name", "other"),
        ("graph.initializer.0.data_type", TensorProto.DOUBLE),
    ],
)
def test_an_edit_changes_it(path: str, value: object) -> None:
    edited = model()
    _set(edited, path, value)
    assert digest_of(edited) != digest_of(model())


def test_small_tensors_count_by_value_and_weights_by_shape() -> None:
    def with_initializer(name: str, array: np.ndarray) -> str:
        made = model()
        for tensor in made.graph.initializer:
            if tensor.name == name:
                tensor.CopyFrom(numpy_helper.from_array(array, name))
        return digest_of(made)

    expected = digest_of(model())
    assert with_initializer("bias", np.zeros(4, np.float32)) != expected
    assert with_initializer("large", np.zeros((10, 100), np.float32)) == expected
    assert with_initializer("large", np.zeros((100, 10), np.float32)) != expected
    assert with_initializer("starts", np.array([0, 2])) != expected


def test_strings_count(tmp_path: Path) -> None:
    def with_strings(*texts: str) -> str:
        made = model()
        tensor = helper.make_tensor("s", TensorProto.STRING, [len(texts)], [text.encode() for text in texts])
        made.graph.node.append(helper.make_node("Constant", [], ["k"], value=tensor))
        return digest_of(made)

    assert with_strings("a", "bc") != with_strings("ab", "c")
    assert with_strings("a", "bc") == with_strings("a", "bc")


def _metadata(proto: ModelProto) -> None:
    proto.metadata_props.add(key="k", value="v")
    proto.doc_string = "d"
    proto.producer_name = "someone"
    proto.ir_version = 9
    proto.graph.doc_string = "d"
    proto.graph.metadata_props.add(key="k", value="v")
    for message in (
        *proto.graph.node,
        *proto.graph.input,
        *proto.graph.output,
        *proto.graph.initializer,
        *proto.functions,
        *proto.functions[0].node,
        proto.graph.node[2].attribute[0].g,
        proto.graph.node[2].attribute[0].g.node[0],
        proto.graph.node[2].attribute[0].g.output[0],
        proto.graph.node[2].attribute[0].g.node[0].attribute[0].t,
    ):
        message.doc_string = "d"
        message.metadata_props.add(key="k", value="v")
    proto.graph.node[1].attribute[0].doc_string = "d"


@pytest.mark.parametrize("edit", [_metadata])
def test_metadata_and_header_fields_do_not(edit: Callable[[ModelProto], None]) -> None:
    edited = model()
    edit(edited)
    assert digest_of(edited) == digest_of(model())


def test_unknown_fields_count() -> None:
    # Field 150 of NodeProto, a varint: what a later version of ONNX may put there is part of what the node computes.
    edited = model()
    edited.graph.node[0].MergeFromString(b"\xb0\x09\x01")
    assert digest_of(edited) != digest_of(model())


def test_computing_it_leaves_the_model_alone() -> None:
    proto = model()
    _metadata(proto)
    with ModelFile.from_proto(proto) as file:
        before = file.model.SerializeToString()
        digest(file.model, file)
        assert file.model.SerializeToString() == before
