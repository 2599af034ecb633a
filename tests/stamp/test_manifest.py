"""The stamp: exact opset imports, a sentence, and a manifest that fits its schema."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import onnx
import pytest

import rewriter
from rewriter import manifest
from rewriter.errors import LeftoverPlaceholderError, UsageError
from rewriter.storage import ModelFile
from tests.texts import OWNED, PLAIN, ROLL, UNKNOWN, parse, write

if TYPE_CHECKING:
    from onnx import ModelProto

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "manifest.schema.json").read_text(encoding="utf-8"))


def entry(model: ModelProto, key: str) -> str:
    (value,) = (prop.value for prop in model.metadata_props if prop.key == key)
    return str(value)


def delivered(text: str, **options: Any) -> ModelProto:
    model = rewriter.rewrite(parse(text), **options).model
    assert model is not None
    return model


def read(model: ModelProto) -> dict[str, Any]:
    data = json.loads(entry(model, "rewriter.manifest"))
    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    assert isinstance(data, dict)
    return data


def test_schema_is_packaged_and_a_schema() -> None:
    packaged = Path(rewriter.__file__).with_name("manifest.schema.json")
    assert json.loads(packaged.read_text(encoding="utf-8")) == SCHEMA
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_verified() -> None:
    model = delivered(ROLL, samples=3, seed=7, dims={"N": [2, 5]})
    data = read(model)
    assert data["replaced"] == [
        {
            "operator": "com.example::Roll",
            "pass": "roll",
            "decomposition": "slices",
            "into": ["Concat", "Slice"],
            "count": 1,
            "verdicts": {"verified": 1},
        },
        {
            "operator": "com.example::Swish",
            "pass": "swish",
            "decomposition": "decompose",
            "into": ["Mul", "Sigmoid"],
            "count": 1,
            "verdicts": {"verified": 1},
        },
    ]
    assert data["kept"] == data["runtime_operators"] == []
    assert data["opset_imports"] == {"": 17}
    assert data["ir_version"] == 8
    proof = data["verification"]
    assert (proof["verdict"], proof["samples"], proof["seed"], proof["proved"]) == ("verified", 3, 7, 2)
    assert [sizes["N"] for sizes in proof["sizes"]] == [2, 5, 2]
    assert any("PyTorch" in against for against in proof["against"])
    assert proof["tolerances"]
    sentence = entry(model, "custom_op_info")
    assert "1 com.example::Roll into Concat and Slice" in sentence
    assert "no custom operators needed" in sentence


def test_text_is_canonical() -> None:
    text = entry(delivered(ROLL, verify=False), "rewriter.manifest")
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


def test_refused_verification_says_so() -> None:
    assert read(delivered(ROLL, verify=False))["verification"] == {
        "verdict": "not verified",
        "reason": "refused by flag",
    }


@pytest.mark.parametrize("simplify", [True, False])
def test_digest_is_that_of_the_written_file(tmp_path: Path, simplify: bool) -> None:
    rewriter.rewrite(
        write(tmp_path / "in.onnx", ROLL), tmp_path / "out.onnx", simplify=simplify, verify=False
    )
    with ModelFile.open(tmp_path / "out.onnx") as file:
        assert manifest.read_valid(file.model, file) is not None
        file.model.graph.node[0].op_type = "Add"
        assert manifest.read_valid(file.model, file) is None


# --- opset imports --------------------------------------------------------------------------------------------

DOMAINS = """
<ir_version: 8, opset_import: ["ai.onnx" : 17, "com.example" : 1, "never.used" : 2, "local" : 1, "com.microsoft" : 1]>
main (float[2, 3] x) => (float[2, 3] y)
{
    a = com.example.Swish (x)
    b = local.block (a)
    y = ai.onnx.Relu (b)
}
<domain: "local", opset_import: ["" : 17, "never.used" : 2, "com.microsoft" : 1]>
block (x) => (y) { y = com.microsoft.Gelu (x) }
"""


def test_imports_are_exactly_the_domains_used() -> None:
    model = delivered(DOMAINS)
    assert {o.domain: o.version for o in model.opset_import} == {"": 17, "local": 1, "com.microsoft": 1}
    (function,) = model.functions
    assert {o.domain for o in function.opset_import} == {"com.microsoft"}
    assert {node.domain for node in model.graph.node} == {"", "local"}
    assert read(model)["opset_imports"] == {"": 17, "local": 1, "com.microsoft": 1}


def test_without_simplification_only_imports_that_became_unused_go() -> None:
    model = delivered(DOMAINS, simplify=False)
    assert {o.domain for o in model.opset_import} == {"ai.onnx", "never.used", "local", "com.microsoft"}
    assert [node.domain for node in model.graph.node][-1] == "ai.onnx"


def test_a_model_without_placeholders_is_stamped_too() -> None:
    model = delivered(PLAIN)
    assert read(model)["replaced"] == []
    assert entry(model, "custom_op_info").startswith("Standard ONNX operators only (opset 17)")


# --- what is kept, and what runtimes own ----------------------------------------------------------------------


def test_runtime_operators_stay_and_are_declared() -> None:
    model = delivered(OWNED)
    assert read(model)["runtime_operators"] == [{"domain": "com.microsoft", "name": "Gelu", "version": 1}]
    assert "Requires a runtime with com.microsoft::Gelu version 1" in entry(model, "custom_op_info")


def test_kept_with_library(tmp_path: Path) -> None:
    library = tmp_path / "libmyop.so"
    library.write_bytes(b"not really a library")
    report = rewriter.rewrite(
        parse(UNKNOWN), keep="com.example::MySpecialOp", library={"com.example": library}, verify=False
    )
    assert report.model is not None
    checksum = hashlib.sha256(b"not really a library").hexdigest()
    declared = {"file": "libmyop.so", "sha256": checksum}
    assert read(report.model)["kept"] == [
        {"domain": "com.example", "name": "MySpecialOp", "version": 3, "library": declared}
    ]
    sentence = entry(report.model, "custom_op_info")
    assert "Requires the custom operator com.example::MySpecialOp version 3 from libmyop.so" in sentence
    (node,) = (node for node in report.model.graph.node if node.domain)
    assert (node.domain, node.op_type, node.attribute[0].f) == ("com.example", "MySpecialOp", 0.5)
    assert str(tmp_path) not in report.to_json()


def test_kept_without_library_is_verified_around_it_and_says_so() -> None:
    report = rewriter.rewrite(parse(UNKNOWN), keep=["com.example::MySpecialOp"])
    assert report.model is not None
    data = read(report.model)
    assert data["kept"][0]["library"] is None
    assert data["verification"]["cut_out"] == ["com.example::MySpecialOp"]
    assert "com.example::MySpecialOp was cut out" in report.text()


def test_not_kept_is_an_error_that_names_it() -> None:
    with pytest.raises(LeftoverPlaceholderError) as caught:
        rewriter.rewrite(parse(UNKNOWN))
    assert "com.example::MySpecialOp" in str(caught.value)
    assert "--keep com.example::MySpecialOp" in str(caught.value)


def test_a_library_for_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(b"")
    with pytest.raises(UsageError, match=r"other\.domain"):
        rewriter.rewrite(parse(ROLL), library={"other.domain": tmp_path / "lib.so"})


# --- second runs ----------------------------------------------------------------------------------------------


def copied(source: Path, **options: Any) -> bool:
    target = source.with_name("again.onnx")
    report = rewriter.rewrite(source, target, **options)
    same = source.read_bytes() == target.read_bytes()
    assert same == (report.outcome == "copied")
    return same


@pytest.mark.parametrize(
    "options", [{}, {"verify": False}, {"simplify": False}, {"simplify": False, "verify": False}]
)
def test_a_second_run_copies(tmp_path: Path, options: dict[str, Any]) -> None:
    rewriter.rewrite(write(tmp_path / "in.onnx", ROLL), tmp_path / "out.onnx", **options)
    assert copied(tmp_path / "out.onnx", **options)


def test_a_second_run_needs_no_second_keep(tmp_path: Path) -> None:
    rewriter.rewrite(
        write(tmp_path / "in.onnx", UNKNOWN), tmp_path / "out.onnx", keep="com.example::MySpecialOp"
    )
    assert copied(tmp_path / "out.onnx")
    assert rewriter.inspect(tmp_path / "out.onnx").unmatched == []


def test_a_second_run_does_what_the_first_was_told_not_to(tmp_path: Path) -> None:
    rewriter.rewrite(write(tmp_path / "in.onnx", ROLL), tmp_path / "out.onnx", simplify=False, verify=False)
    assert not copied(tmp_path / "out.onnx")
    data = read(onnx.load(tmp_path / "again.onnx"))
    assert data["verification"]["verdict"] == "partly verified"
    assert [entry["verdicts"] for entry in data["replaced"]] == [{"not verified": 1}] * 2
    assert [entry["operator"] for entry in data["replaced"]] == ["com.example::Roll", "com.example::Swish"]


def test_an_edited_model_is_not_taken_for_verified(tmp_path: Path) -> None:
    rewriter.rewrite(write(tmp_path / "in.onnx", ROLL), tmp_path / "out.onnx")
    model = onnx.load(tmp_path / "out.onnx")
    model.graph.node.append(onnx.helper.make_node("Relu", ["x"], ["more"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("more", 1, ["N", 6, 4]))
    onnx.save(model, tmp_path / "edited.onnx")
    assert not copied(tmp_path / "edited.onnx")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 2}',
        '{"format": 1, "digest": "sha256:0"}',
        '{"format":1,"kept":[1]}',
        "[" * 9999,
    ],
)
def test_a_broken_manifest_counts_as_none(tmp_path: Path, text: str) -> None:
    model = parse(PLAIN)
    model.metadata_props.add(key="rewriter.manifest", value=text)
    report = rewriter.rewrite(model, verify=False)
    assert report.model is not None
    read(report.model)
