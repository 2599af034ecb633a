"""``--explain``: the manifest for people, and whether the file is still the one that it was written for."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import onnx
import pytest
from onnx import helper

import rewriter
from rewriter.cli import run as command
from tests.texts import PLAIN, ROLL, parse, write

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto


def delivered(**options: Any) -> ModelProto:
    model = rewriter.rewrite(parse(ROLL), simplify=False, **options).model
    assert model is not None
    return model


@pytest.fixture(scope="module")
def verified() -> ModelProto:
    return delivered(samples=3, seed=7, dims={"N": [2, 5]})


def test_says_how_it_was_made_and_verified(verified: ModelProto) -> None:
    told = rewriter.explain(verified)
    assert told.fits
    text = told.text()
    assert "1 × com.example::Roll → Concat, Slice  (pass roll, slices)" in text
    assert "opset ai.onnx 17; IR version 8" in text
    assert "the PyTorch reference of each pass" in text
    assert "on 3 drawn inputs, seed 7: N=2; N=5; N=2" in text
    assert "tolerance of roll float32: exact" in text
    assert "unchanged since" in text


def test_says_what_was_refused() -> None:
    lines = rewriter.explain(delivered(verify=False)).lines()
    assert ("unverified", "refused by flag") in lines
    assert ("simplified", "no: not asked for") in lines


def test_says_what_is_needed(tmp_path: Path) -> None:
    (tmp_path / "libmyop.so").write_bytes(b"a library")
    told = rewriter.explain(
        delivered(
            verify=False,
            passes="roll",
            keep=["com.example::Swish"],
            library={"com.example": tmp_path / "libmyop.so"},
        )
    )
    sha256 = hashlib.sha256(b"a library").hexdigest()
    (needed,) = (text for label, text in told.lines() if "Swish" in text)
    assert needed == f"the custom operator com.example::Swish version 1 from libmyop.so (sha256 {sha256})"


def test_says_what_stays_as_a_function() -> None:
    text = rewriter.explain(delivered(verify=False, as_function=True)).text()
    assert "1 × com.example::Roll stays, as a call to a function of Concat, Slice" in text


def _edit_node(model: ModelProto) -> None:
    model.graph.node.append(helper.make_node("Neg", ["y"], ["z"]))


def _edit_attribute(model: ModelProto) -> None:
    concat = next(node for node in model.graph.node if node.op_type == "Concat")
    concat.attribute[0].i = 2


def _edit_constant(model: ModelProto) -> None:
    constant = next(t for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT64)
    constant.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(constant) + 1, constant.name))


def _edit_opset(model: ModelProto) -> None:
    model.opset_import[0].version += 1


@pytest.mark.parametrize("edit", [_edit_node, _edit_attribute, _edit_constant, _edit_opset])
def test_an_edited_file_is_noticed(tmp_path: Path, verified: ModelProto, edit: Any) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(verified)
    edit(model)
    onnx.save(model, tmp_path / "m.onnx")
    told = rewriter.explain(tmp_path / "m.onnx")
    assert not told.fits
    assert told.to_dict()["outcome"] == "changed"
    assert "edited since" in told.text()
    assert command(["--explain", str(tmp_path / "m.onnx"), "-q"]) == 1
    inspected = rewriter.inspect(tmp_path / "m.onnx")
    assert not inspected.manifest_fits
    assert "edited since" in inspected.text()
    checked = rewriter.requirements(tmp_path / "m.onnx")
    assert not checked.manifest_fits
    assert checked.warnings


def test_metadata_and_producer_are_no_edit(verified: ModelProto) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(verified)
    model.producer_name = "another"
    model.metadata_props.add(key="author", value="somebody")
    model.graph.node[0].doc_string = "a remark"
    assert rewriter.explain(model).fits


def test_command(tmp_path: Path, verified: ModelProto, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(verified, tmp_path / "m.onnx")
    report = tmp_path / "told.json"
    assert command(["--explain", str(tmp_path / "m.onnx"), "--report", str(report)]) == 0
    assert "verified" in capsys.readouterr().out
    data = json.loads(report.read_text())
    assert (data["outcome"], data["manifest_fits"]) == ("explained", True)
    assert data["manifest"]["verification"]["seed"] == 7
    assert command(["--explain", str(write(tmp_path / "plain.onnx", PLAIN))]) == 1
    assert "none that this version understands" in capsys.readouterr().out


@pytest.mark.parametrize("junk", [None, 3, "text", [], [3], {}, {"a": [{}]}, [{"file": 1}], True])
@pytest.mark.parametrize(
    "field",
    ["replaced", "kept", "runtime_operators", "functions", "opset_imports", "verification", "tool", "sizes"],
)
def test_a_hostile_manifest_does_no_harm(verified: ModelProto, field: str, junk: Any) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(verified)
    (entry,) = (prop for prop in model.metadata_props if prop.key == "rewriter.manifest")
    data = json.loads(entry.value)
    if field == "sizes":
        data["verification"]["sizes"] = data["verification"]["tolerances"] = junk
        data["verification"]["against"] = data["verification"]["unproved"] = junk
    else:
        data[field] = junk
    entry.value = json.dumps(data)
    told = rewriter.explain(model)
    told.text()
    told.to_json()
    rewriter.inspect(model, passes="roll").text()
    found = rewriter.requirements(model)
    assert found.runs
    found.text(verbose=True)
