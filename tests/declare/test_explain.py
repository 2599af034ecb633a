"""``--explain``: the manifest for people, and whether the file is still the one that it was written for."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import jsonschema
import onnx
import pytest
from onnx import helper

import rewriter
from rewriter.cli import run as command
from tests.stamp.test_manifest import SCHEMA
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
    assert "none: not written by onnx-rewrite; rewrite IN OUT" in capsys.readouterr().out
    assert command(["--check", str(tmp_path / "plain.onnx")]) == 0
    assert "none: not written by onnx-rewrite; rewrite IN OUT" in capsys.readouterr().out


def test_a_manifest_that_is_not_understood_is_no_absent_one() -> None:
    model = parse(PLAIN)
    model.metadata_props.add(key="rewriter.manifest", value="{}")
    assert "one that this version does not understand" in rewriter.explain(model).text()
    assert "one that this version does not understand" in rewriter.requirements(model).text()


def test_tells_no_more_of_simplification_than_is_known() -> None:
    slow = rewriter.rewrite(parse(ROLL), simplify_timeout=1e-6, verify=False)
    assert slow.manifest is not None
    assert (slow.manifest["simplification"], "simplification_reason" in slow.manifest) == ("refused", False)
    told = rewriter.explain(slow.model).lines()
    assert ("simplified", "no: the simplifier gave nothing that could be taken") in told
    again = rewriter.rewrite(slow.model, verify=False, strip_debug=True)
    assert again.manifest is not None
    assert again.simplification is not None
    assert again.simplification.reason == "nothing to simplify"
    jsonschema.validate(again.manifest, SCHEMA)
    assert ("simplified", "nothing to simplify") in rewriter.explain(again.model).lines()


def test_names_what_it_was_compared_with(verified: ModelProto) -> None:
    manifest = json.loads(next(p.value for p in verified.metadata_props if p.key == "rewriter.manifest"))
    manifest["verification"] |= {"against": ["A", "B", "C"], "runtimes": ["openvino", "tract"]}
    model = onnx.ModelProto()
    model.CopyFrom(verified)
    next(p for p in model.metadata_props if p.key == "rewriter.manifest").value = json.dumps(manifest)
    told = rewriter.explain(model).lines()
    assert ("verified", "against A, B and C") in told
    assert ("verified", "openvino and tract agree on the same inputs") in told


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
