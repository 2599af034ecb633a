"""Verdicts are never more than what was done: second runs, judges of a pass's own, vacuous agreement, forged text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import rewriter
from rewriter.cli import run as command
from rewriter.digest import digest
from rewriter.errors import UnprovedError
from rewriter.placeholder import Case, Placeholder, Value, f32
from rewriter.storage import ModelFile
from rewriter.text import printable
from tests.stamp.test_manifest import read
from tests.texts import PLAIN, ROLL, parse

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto


def deliver(model: ModelProto, **options: Any) -> ModelProto:
    made = rewriter.rewrite(model, simplify=False, **options).model
    assert made is not None
    return made


def with_manifest(model: ModelProto, **changes: Any) -> ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (entry,) = (prop for prop in copy.metadata_props if prop.key == "rewriter.manifest")
    entry.value = json.dumps(json.loads(entry.value) | changes)
    return copy


# --- second runs ----------------------------------------------------------------------------------------------


def test_a_second_run_does_not_launder() -> None:
    first = deliver(parse(ROLL), verify=False)
    report = rewriter.rewrite(first, simplify=False)
    assert report.model is not None
    data = read(report.model)
    assert report.outcome == "unverified"
    assert (data["verification"]["verdict"], data["verification"]["proved"]) == ("partly verified", 0)
    assert [entry["verdicts"] for entry in data["replaced"]] == [{"not verified": 1}] * 2
    assert "verified" not in [label for label, _ in report.lines()]
    with pytest.raises(UnprovedError):
        rewriter.rewrite(first, simplify=False, strict=True)
    third = rewriter.rewrite(report.model, simplify=False)
    assert third.outcome == "copied"


def test_each_operator_keeps_its_own_verdict() -> None:
    half = deliver(parse(ROLL), verify=False, passes="roll", keep="com.example::Swish")
    model = deliver(with_manifest(half, kept=[]), passes="swish")  # else it would be kept again
    assert {entry["pass"]: entry["verdicts"] for entry in read(model)["replaced"]} == {
        "roll": {"not verified": 1},
        "swish": {"verified": 1},
    }
    assert read(model)["verification"]["verdict"] == "partly verified"


def test_older_manifests_are_read_and_claim_no_more_than_they_proved() -> None:
    first = deliver(parse(ROLL), verify=False)
    data = read(first)
    with ModelFile.from_proto(first) as file:
        old = digest(file.model, file, 1)
    replaced = [{k: v for k, v in entry.items() if k != "verdicts"} for entry in data["replaced"]]
    proof = {"verdict": "verified", "against": [], "inputs": "drawn", "samples": 2, "seed": 0, "sizes": []}
    proof |= {"tolerances": {}, "proved": 0, "unproved": [], "cut_out": []}
    laundered = with_manifest(first, replaced=replaced, digest=old, digest_version=1, verification=proof)
    assert rewriter.explain(laundered).fits
    model = deliver(laundered, strip_debug=True)
    assert [entry["verdicts"] for entry in read(model)["replaced"]] == [{"not verified": 1}] * 2


def test_a_forged_stamp_is_told_as_a_claim() -> None:
    forged = with_manifest(
        deliver(parse(ROLL), verify=False), verification=read(deliver(parse(ROLL)))["verification"]
    )
    report = rewriter.rewrite(forged, simplify=False)
    assert report.outcome == "copied"
    assert "the file says verified; this run verified nothing" in report.text()
    with pytest.raises(UnprovedError):
        rewriter.rewrite(forged, simplify=False, strict=True)
    x = np.arange(24, dtype=np.float32).reshape(1, 6, 4)
    with pytest.raises(rewriter.RewriteError) as caught:
        rewriter.rewrite(forged, simplify=False, against={"x": x, "y": x})
    assert caught.value.code == "mismatch"


def test_two_manifests_count_as_none(tmp_path: Path) -> None:
    model = deliver(parse(ROLL), verify=False)
    (entry,) = (prop for prop in model.metadata_props if prop.key == "rewriter.manifest")
    model.metadata_props.add(key=entry.key, value=entry.value)
    told = rewriter.explain(model)
    assert (told.manifest, told.entries) == (None, 2)
    onnx.save(model, tmp_path / "two.onnx")
    assert command(["--explain", str(tmp_path / "two.onnx"), "-q"]) == 1
    again = deliver(model, verify=False, strip_debug=True)
    assert [prop.key for prop in again.metadata_props].count("rewriter.manifest") == 1


def test_a_small_float_constant_is_covered() -> None:
    model = deliver(parse(ROLL), verify=False)
    weight = next(t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT)
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) + 1, weight.name))
    assert not rewriter.explain(model).fits


# --- what agreement says --------------------------------------------------------------------------------------


class Twice(Placeholder):
    """x + x, judged by a judge of its own."""

    matches = ("Twice",)

    def reference(self, x: Any) -> Any:
        return x + x

    def decompose(self, g: Any, x: Value) -> Any:
        return x + x

    def cases(self) -> Any:
        yield Case(f32(2, 3))


class Anything(Twice):
    name = "twice"

    def compare(self, actual: Any, expected: Any) -> str | None:
        return None


class SameSum(Twice):
    name = "twice"

    def compare(self, actual: Any, expected: Any) -> str | None:
        return None if np.isclose(actual[0].sum(), expected[0].sum(), rtol=1e-4, atol=1e-4) else "another sum"


class Careful(Twice):
    name = "twice"

    def compare(self, actual: Any, expected: Any) -> str | None:
        return None if np.allclose(actual[0], expected[0]) else "differs"


TWICE = """
<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
main (float[2, 3] x) => (float[2, 3] y) { y = com.example.Twice (x) }
"""


@pytest.mark.parametrize(
    ("made", "accepts"), [(Anything, ["constant", "shuffled"]), (SameSum, ["shuffled"]), (Careful, [])]
)
def test_a_judge_is_put_to_the_test(made: type[Placeholder], accepts: list[str]) -> None:
    report = rewriter.rewrite(parse(TWICE), passes=[made], simplify=False)
    assert report.model is not None
    proof = read(report.model)["verification"]
    assert proof["own_judges"] == {"twice": accepts}
    assert report.verification is not None
    assert report.verification["own_judges"] == {"twice": accepts}
    labels = {label for label, text in rewriter.explain(report.model).lines() if "judged its own" in text}
    assert labels == {"warning" if accepts else "note"}
    assert "judge" in report.text()
    if accepts:
        with pytest.raises(UnprovedError):
            rewriter.rewrite(parse(TWICE), passes=[made], simplify=False, strict=True)
    else:
        rewriter.rewrite(parse(TWICE), passes=[made], simplify=False, strict=True)


def test_vacuous_agreement_and_ranges_are_in_the_manifest() -> None:
    options: dict[str, Any] = {"passes": [Twice], "simplify": False, "input_ranges": {"x": (0.0, 0.0)}}
    report = rewriter.rewrite(parse(TWICE), **options)
    assert report.model is not None
    proof = read(report.model)["verification"]
    assert proof["input_ranges"] == {"x": [0.0, 0.0]}
    assert "output 'y'" in proof["vacuous"]
    text = rewriter.explain(report.model).text()
    assert "without saying anything" in text
    assert "input 'x' from 0.0 to 0.0" in text
    with pytest.raises(UnprovedError):
        rewriter.rewrite(parse(TWICE), strict=True, **options)


# --- text of files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\rc\td", "a\\nb\\rc\\td"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202etxt", "\\u202etxt"),
        ("\u2028", "\\u2028"),
        ("größe 名", "größe 名"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_names_forge_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "Evil\nverified  against everything\x1b[2J\u202e"
    model = parse(PLAIN)
    model.opset_import.add(domain="com.example", version=1)
    for kind in (evil, evil + "2"):
        model.graph.node.append(
            onnx.helper.make_node(kind, ["x"], ["o" + kind], name=kind, domain="com.example")
        )
        model.graph.output.append(onnx.helper.make_tensor_value_info("o" + kind, 1, [2, 3]))
    onnx.save(model, tmp_path / "m.onnx")
    source, target = str(tmp_path / "m.onnx"), str(tmp_path / "o.onnx")
    assert command([source]) == 0
    assert command([source, target]) == 1
    kept = ["--keep", f"com.example::{evil}", "--keep", f"com.example::{evil}2"]
    assert command([source, target, "--no-verify", "--no-simplify", "-v", *kept]) == 0
    command(["--explain", target])
    command(["--check", target])
    shown = "".join(capsys.readouterr())
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert not any(line.lstrip().startswith("verified  against everything") for line in shown.splitlines())
