"""A file of inputs is looked at before it is unpacked."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import parser

from rewriter import rewrite
from rewriter.errors import UsageError
from rewriter.inputs.given import load_given, outline

if TYPE_CHECKING:
    from pathlib import Path


def claim(path: Path, shape: tuple[int, ...], name: str = "x") -> Path:
    """An archive whose array has no elements, and says that it has ``shape``."""
    with zipfile.ZipFile(path, "w") as archive, archive.open(f"{name}.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return path


def test_outline(tmp_path: Path) -> None:
    arrays = {"x": np.ones((2, 3)), "text": np.asarray(["a", "bc"]), "é": np.asarray(3, np.int8)}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    found = outline(tmp_path / "a.npz")
    assert {name: (array.shape, array.dtype) for name, array in found.items()} == {
        name: (array.shape, array.dtype) for name, array in arrays.items()
    }
    assert (load_given(tmp_path / "a.npz")["x"] == 1).all()
    assert outline(claim(tmp_path / "b.npz", (10**6, 10**6)))["x"].shape == (10**6, 10**6)


@pytest.mark.parametrize("shape", [(10**9,), (2, 10**9), (10**12, 3), (10**15, 10**15)])
@pytest.mark.parametrize("flag", ["inputs", "against"])
def test_what_does_not_fit_is_not_unpacked(tmp_path: Path, shape: tuple[int, ...], flag: str) -> None:
    """These arrays exist nowhere: unpacking one would be another error."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18, "com.example": 1]> graph (float[2, 3] x) => (float[2, 3] y)'
        " { y = com.example.Swish (x) }"
    )
    path = claim(tmp_path / "a.npz", shape)
    if flag == "against":
        with zipfile.ZipFile(path, "a") as archive, archive.open("y.npy", "w") as file:
            np.lib.format.write_array(file, np.ones((2, 3), np.float32))
    with pytest.raises(UsageError, match=r"shape|dims|too large") as caught:
        rewrite(model, passes="swish", **{flag: path})
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "content", [b"", b"text", b"\x93NUMPY\x01\x00\x00\x00", b"\x93NUMPY\x09\x00\x10\x00" + b" " * 16]
)
def test_a_member_that_is_no_array(tmp_path: Path, content: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(UsageError):
        outline(tmp_path / "a.npz")
