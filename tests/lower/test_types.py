"""Element types that only the older form of an operator lacks: computed in another type, and exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper, parser

import rewriter
from rewriter.errors import TargetError
from rewriter.lower.through import wider

if TYPE_CHECKING:
    from pathlib import Path

#: Neighbours that double does not tell apart, and the ends of the types.
INT64 = np.array([-(2**63), -(2**53) - 1, -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1], np.int64)
UINT64 = np.array([0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1], np.uint64)
INT16 = np.array([-32768, -181, -1, 0, 1, 182, 255, 32767], np.int16)


def brought(text: str, **options: Any) -> onnx.ModelProto:
    found = rewriter.rewrite(parser.parse_model(text), simplify=False, verify=False, **options).model
    assert found is not None
    onnx.checker.check_model(found)
    return found


def ran(model: onnx.ModelProto, **feeds: Any) -> Any:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def lacking(folder: Path, operator: str, dtype: str) -> str:
    path = folder / "mine.toml"
    path.write_text(
        f'max_opset = 17\nlacks = [{{operator = "{operator}", when = {{input = 0, dtype = ["{dtype}"]}}}}]\n'
    )
    return str(path)


def model(operator: str, dtype: str, result: str) -> str:
    return (
        f'<ir_version: 8, opset_import: ["" : 17]> main ({dtype}[N] a, {dtype}[N] b) => ({result}[N] y) '
        f"{{ y = {operator}(a, b) }}"
    )


@pytest.mark.parametrize(("operator", "expected"), [("Max", np.maximum), ("Min", np.minimum)])
def test_extremes_of_large_integers_are_exact_where_the_opset_has_floats_only(
    operator: str, expected: Any
) -> None:
    made = brought(model(operator, "int64", "int64"), opset=11)
    a, b = np.meshgrid(INT64, INT64)
    np.testing.assert_array_equal(ran(made, a=a.ravel(), b=b.ravel()), expected(a, b).ravel())


@pytest.mark.parametrize("opset", [11, 13])
def test_relu_and_clip_of_large_integers_are_exact(opset: int) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> main (int64[N] x) => (int64[N] y) { y = Relu(x) }'
    np.testing.assert_array_equal(ran(brought(text, opset=opset), x=INT64), np.maximum(INT64, 0))
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> main (int64[N] x, int64 a, int64 b) => (int64[N] y) '
        "{ y = Clip(x, a, b) }"
    )
    low, high = np.array(-(2**53) - 1), np.array(2**53 + 1)
    np.testing.assert_array_equal(
        ran(brought(text, opset=opset), x=INT64, a=low, b=high), np.clip(INT64, low, high)
    )


@pytest.mark.parametrize(
    ("operator", "expected"), [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)]
)
def test_arithmetic_of_unsigned_integers_by_their_residues(
    tmp_path: Path, operator: str, expected: Any
) -> None:
    made = brought(model(operator, "uint64", "uint64"), target=lacking(tmp_path, operator, "uint64"))
    a, b = np.meshgrid(UINT64, UINT64)
    np.testing.assert_array_equal(ran(made, a=a.ravel(), b=b.ravel()), expected(a, b).ravel())


@pytest.mark.parametrize(
    ("operator", "dtype", "result"),
    [
        ("Less", "uint64", "bool"),
        ("Div", "uint64", "uint64"),
        ("Max", "float", "float"),
        ("Greater", "int64", "bool"),
        ("Mul", "int64", "int64"),
    ],
)
def test_no_type_that_holds_every_value_is_an_error(
    tmp_path: Path, operator: str, dtype: str, result: str
) -> None:
    target = lacking(tmp_path, operator, dtype)
    if dtype == "float":  # double holds all of it
        brought(model(operator, dtype, result), target=target)
        return
    with pytest.raises(TargetError):
        brought(model(operator, dtype, result), target=target)


@pytest.mark.parametrize(
    ("operator", "expected"), [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)]
)
def test_arithmetic_of_small_integers_wraps_around(operator: str, expected: Any) -> None:
    made = brought(model(operator, "int16", "int16"), opset=13)
    a, b = np.meshgrid(INT16, INT16)
    np.testing.assert_array_equal(ran(made, a=a.ravel(), b=b.ravel()), expected(a, b).ravel())


@pytest.mark.parametrize(("dtype", "lowest", "highest"), [("int8", -128, 127), ("uint8", 0, 255)])
@pytest.mark.parametrize("size", [0, 3])
def test_extremes_of_bytes_along_an_axis(dtype: str, lowest: int, highest: int, size: int) -> None:
    x = np.array([[lowest, 1, highest], [lowest, lowest, 5]], dtype)[:, :size]
    for operator, end in (("ReduceMax", lowest), ("ReduceMin", highest)):
        text = (
            f'<ir_version: 8, opset_import: ["" : 17]> main ({dtype}[2,N] x) => ({dtype}[2] y) '
            f"{{ y = {operator}<axes=[1], keepdims=0>(x) }}"
        )
        expected = x.max(1, initial=end) if operator == "ReduceMax" else x.min(1, initial=end)
        found = ran(brought(text, opset=11), x=x)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, expected)


def test_every_type_that_is_computed_in_holds_every_value() -> None:
    kinds = {T.BFLOAT16: 8, T.FLOAT16: 11, T.FLOAT: 24, T.DOUBLE: 53}
    for narrow in (*kinds, T.INT8, T.INT16, T.INT32, T.INT64, T.UINT8, T.UINT16, T.UINT32):
        for operator in ("Add", "Max", "Gather", "Less", "Conv"):
            for wide in wider(operator, narrow):
                if narrow in kinds:
                    assert kinds[wide] >= kinds[narrow]
                    continue
                info = np.iinfo(helper.tensor_dtype_to_np_dtype(narrow))
                assert wide not in kinds or 2 ** kinds[wide] >= info.max + 1
                # Results of arithmetic that go beyond a float's integers would be cut off.
                assert wide not in kinds or operator not in ("Add", "Conv")
