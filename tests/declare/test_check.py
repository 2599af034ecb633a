"""``--check``: whether everything that a file needs is here."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import rewriter
from rewriter.cli import run as command
from rewriter.errors import ModelReadError, UsageError
from tests.declare.library import build
from tests.stamp.test_manifest import SCHEMA
from tests.texts import OWNED, PLAIN, ROLL, UNKNOWN, parse, write, write_external

if TYPE_CHECKING:
    from pathlib import Path

#: An operator to be kept after one that is replaced.
KEPT = """
<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
main (float[N, 3] x) => (float[N, 3] y)
{
    a = com.example.Roll <shifts: ints = [1], dims: ints = [1]> (x)
    y = com.example.Triple (a)
}
"""

ROLLED = "com.example.Roll <shifts: ints = [1], dims: ints = [1]>"


@pytest.fixture
def stamped(tmp_path: Path) -> tuple[Path, Path]:
    """A delivered model that needs a library, alone in a folder, and the library, elsewhere."""
    library = build(tmp_path)
    (tmp_path / "model").mkdir()
    model = tmp_path / "model" / "out.onnx"
    report = rewriter.rewrite(
        write(tmp_path / "in.onnx", KEPT),
        model,
        passes="roll",
        keep="com.example::Triple",
        library={"com.example": library},
        simplify=False,
    )
    assert report.outcome == "verified"
    assert report.verification is not None
    assert report.verification["cut_out"] == []  # the library ran it
    return model, library


def test_plain_model_runs(tmp_path: Path) -> None:
    found = rewriter.requirements(write(tmp_path / "m.onnx", PLAIN))
    assert found.runs
    assert (found.operators, found.functions, found.manifest) == ([], {}, None)
    assert [(i.domain, i.version, i.taken) for i in found.opset_imports] == [("", 17, True)]
    assert (found.ir_version.version, found.ir_version.taken) == (8, True)
    assert found.onnxruntime == onnxruntime.__version__


# --- libraries ------------------------------------------------------------------------------------------------


def test_with_the_library_it_runs(stamped: tuple[Path, Path]) -> None:
    model, library = stamped
    found = rewriter.requirements(model, library={"com.example": library})
    assert found.runs
    (operator,) = found.operators
    assert (operator.operator, operator.version, operator.count) == ("com.example::Triple", 1, 1)
    assert (operator.library.state, operator.library.file) == ("matches", "libtriple.so")
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, 3 * np.roll(x, 1, axis=1))


def test_without_the_library_it_does_not(stamped: tuple[Path, Path]) -> None:
    model, _ = stamped
    found = rewriter.requirements(model)
    assert not found.runs
    assert found.operators[0].library.state == "missing"
    assert found.operators[0].library.sha256 is not None
    assert "com.example::Triple" in str(found.refusal)
    assert "libtriple.so" in found.text()


def test_another_library_of_that_name_is_not_loaded(
    stamped: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = stamped
    (tmp_path / "other").mkdir()
    other = build(tmp_path / "other", factor=5)
    monkeypatch.setattr(onnxruntime, "SessionOptions", _Guarded)
    found = rewriter.requirements(model, library={"com.example": other})
    assert not found.runs
    assert found.operators[0].library.state == "differs"
    assert "is not the recorded" in str(found.refusal)


def test_a_library_beside_the_model_is_found_and_not_loaded(
    stamped: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, library = stamped
    beside = model.with_name(library.name)
    beside.write_bytes(library.read_bytes())
    monkeypatch.setattr(onnxruntime, "SessionOptions", _Guarded)
    found = rewriter.requirements(model)
    assert not found.runs
    assert found.operators[0].library.state == "beside"
    assert "--library" in found.operators[0].library.text
    beside.write_bytes(b"something else")
    assert rewriter.requirements(model).operators[0].library.state == "missing"


class _Guarded(onnxruntime.SessionOptions):  # type: ignore[misc]
    """Options that no library may be loaded into."""

    def register_custom_ops_library(self, path: str) -> None:
        raise AssertionError(f"'{path}' would be loaded")


def test_the_name_of_a_library_leads_nowhere_else(stamped: tuple[Path, Path]) -> None:
    path, library = stamped
    model = onnx.load(path)
    (entry,) = (prop for prop in model.metadata_props if prop.key == "rewriter.manifest")
    for name in (f"../{library.name}", str(library), "..", ".", ""):
        data = json.loads(entry.value)
        data["kept"][0]["library"]["file"] = name
        entry.value = json.dumps(data)
        onnx.save(model, path)
        found = rewriter.requirements(path).operators[0].library
        assert found.state == "missing"


def test_a_library_without_a_record_is_loaded_when_named(tmp_path: Path) -> None:
    library = build(tmp_path)
    source = write(tmp_path / "in.onnx", KEPT.replace(ROLLED, "Relu"))
    found = rewriter.requirements(source, library={"com.example": library})
    assert found.runs
    assert found.operators[0].library.state == "given"


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    source = write(tmp_path / "in.onnx", KEPT)
    (tmp_path / "lib.so").write_text("not a library")
    found = rewriter.requirements(source, library={"com.example": tmp_path / "lib.so"})
    assert not found.runs
    assert "does not load the library" in str(found.refusal)


def test_bare_name_in_the_working_folder(stamped: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    model, library = stamped
    monkeypatch.chdir(library.parent)
    assert rewriter.requirements(model, library={"com.example": library.name}).runs


def test_a_library_for_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_text("")
    source = write(tmp_path / "m.onnx", PLAIN)
    with pytest.raises(UsageError, match="no operator of that domain"):
        rewriter.requirements(source, library={"com.example": tmp_path / "lib.so"})
    with pytest.raises(UsageError, match="cannot be read"):
        rewriter.requirements(source, library={"com.example": tmp_path / "none.so"})


def test_operators_of_the_runtime_are_its_own() -> None:
    found = rewriter.requirements(parse(OWNED.replace(ROLLED, "Relu")))
    assert found.runs
    (operator,) = found.operators
    assert (operator.operator, operator.runtime, operator.library.state) == (
        "com.microsoft::Gelu",
        "onnxruntime",
        "built in",
    )


def test_the_library_of_a_runtimes_operator_is_recorded(tmp_path: Path) -> None:
    """Extensions of onnxruntime are libraries like any other."""
    (tmp_path / "libextensions.so").write_bytes(b"a library")
    text = OWNED.replace(ROLLED, "Relu").replace("com.microsoft", "ai.onnx.contrib")
    report = rewriter.rewrite(
        parse(text), library={"ai.onnx.contrib": tmp_path / "libextensions.so"}, simplify=False, verify=False
    )
    assert report.manifest is not None
    jsonschema.Draft202012Validator(SCHEMA).validate(report.manifest)
    sha256 = hashlib.sha256(b"a library").hexdigest()
    (entry,) = report.manifest["runtime_operators"]
    assert entry["library"] == {"file": "libextensions.so", "sha256": sha256}
    (operator,) = rewriter.requirements(report.model).operators
    assert (operator.runtime, operator.library.state, operator.library.sha256) == (
        "onnxruntime-extensions",
        "missing",
        sha256,
    )


def test_placeholders_are_missed() -> None:
    found = rewriter.requirements(parse(UNKNOWN))
    assert [(o.operator, o.version, o.library.state) for o in found.operators] == [
        ("com.example::MySpecialOp", 3, "missing"),
        ("com.example::Roll", 3, "missing"),
    ]
    assert "com.example::MySpecialOp, com.example::Roll" in str(found.refusal)


# --- versions -------------------------------------------------------------------------------------------------


def of_version(ir_version: int, opset: int) -> onnx.ModelProto:
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_value_info("x", value)],
        [helper.make_value_info("y", value)],
    )
    return helper.make_model(graph, ir_version=ir_version, opset_imports=[helper.make_opsetid("", opset)])


def test_an_opset_that_the_runtime_does_not_take() -> None:
    found = rewriter.requirements(of_version(8, 999))
    assert not found.runs
    assert (found.opset_imports[0].taken, found.ir_version.taken) == (False, True)
    assert found.opset_imports[0].refusal


def test_an_ir_version_that_the_runtime_does_not_take() -> None:
    found = rewriter.requirements(of_version(99, 17))
    assert not found.runs
    assert (found.opset_imports[0].taken, found.ir_version.taken) == (True, False)


def test_external_data_is_found_where_it_lies(tmp_path: Path) -> None:
    text = ROLL.replace("com.example.Roll <shifts: ints = [2], dims: ints = [1]>", "Relu")
    path = write_external(tmp_path / "m.onnx", text.replace("com.example.Swish", "Relu"), "m.data")
    found = rewriter.requirements(path)
    assert found.runs
    reasons = {item.name: item.reasons for item in found.runtimes}
    assert reasons["onnxruntime-web 1.30"] == ("external data",)
    (tmp_path / "m.data").unlink()
    with pytest.raises(ModelReadError):
        rewriter.requirements(path)


# --- the stamp ------------------------------------------------------------------------------------------------


def test_a_file_changed_after_stamping_is_noticed(stamped: tuple[Path, Path]) -> None:
    path, library = stamped
    assert rewriter.requirements(path).manifest_fits
    model = onnx.load(path)
    model.graph.node.append(helper.make_node("Neg", ["y"], ["z"]))
    onnx.save(model, path)
    found = rewriter.requirements(path, library={"com.example": library})
    assert found.runs  # it does, only nobody knows what it computes
    assert not found.manifest_fits
    assert any("edited after it was stamped" in text for text in found.warnings)
    assert "edited since" in found.text()
    # A manifest of an edited file still says which library is the right one.
    assert found.operators[0].library.state == "matches"


def test_functions_are_listed() -> None:
    model = rewriter.rewrite(parse(ROLL), as_function=True, simplify=False, verify=False).model
    found = rewriter.requirements(model)
    assert found.runs
    assert found.operators == []
    assert found.functions == {"com.example::Roll": 1, "com.example::Swish": 1}


# --- the command ----------------------------------------------------------------------------------------------


def test_command(stamped: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, library = stamped
    before = model.read_bytes()
    report = tmp_path / "check.json"
    assert command(["--check", str(model), "--report", str(report)]) == 1
    assert "cannot run" in capsys.readouterr().out
    data: dict[str, Any] = json.loads(report.read_text())
    assert (data["outcome"], data["onnxruntime"]["loads"]) == ("cannot run", False)
    assert data["operators"][0]["library"]["state"] == "missing"
    arguments = ["--check", str(model), "--library", f"com.example={library}", "--report", str(report)]
    assert command(arguments) == 0
    assert "loads the model here" in capsys.readouterr().out
    data = json.loads(report.read_text())
    assert (data["outcome"], data["manifest_fits"]) == ("runs", True)
    assert data["opset_imports"] == [
        {"domain": "", "version": 17, "taken": True, "refusal": None},
        {"domain": "com.example", "version": 1, "taken": None, "refusal": None},
    ]
    assert data["runtimes"]["date"]
    assert str(tmp_path) not in report.read_text()
    assert command([*arguments, "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert model.read_bytes() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["--check"],
        ["--check", "IN", "OUT"],
        ["--check", "--explain", "IN"],
        ["--check", "--list"],
        ["--explain"],
    ],
)
def test_bad_usage(tmp_path: Path, arguments: list[str]) -> None:
    source = write(tmp_path / "m.onnx", PLAIN)
    names = {"IN": str(source), "OUT": str(tmp_path / "out.onnx")}
    assert command([names.get(item, item) for item in arguments]) == 2
    assert not (tmp_path / "out.onnx").exists()


def test_unreadable(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x00\x01 nonsense")
    for flag in ("--check", "--explain"):
        assert command([flag, str(tmp_path / "m.onnx")]) == 2
        assert command([flag, str(tmp_path / "none.onnx")]) == 2
