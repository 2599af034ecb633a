"""``as_function``: a placeholder stays as a call to a function of its name, whose body is the decomposition."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import onnx
import onnx.inliner
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

import rewriter
from rewriter.errors import DecompositionError, MismatchError, UsageError
from rewriter.graph import outline
from rewriter.graph.scopes import ScopeRef
from tests.declare.library import build
from tests.stamp.test_manifest import SCHEMA
from tests.texts import ROLL, parse, write

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto

    from rewriter import Builder, Report, TensorType, Value

#: Two equal rolls and two that differ, in the main graph, a body and a function.
PLACES = """
<ir_version: 7, opset_import: ["" : 17, "com.example" : 1, "local" : 1]>
main (float[N, 6, 4] x, bool c) => (float[N, 6, 4] y)
{
    first = com.example.Roll <shifts: ints = [2], dims: ints = [1]> (x)
    second = com.example.Roll <shifts: ints = [2], dims: ints = [1]> (first)
    third = local.block (second)
    y = If (c) <
        then_branch = t () => (float[N, 6, 4] a) { a = com.example.Swish (third) },
        else_branch = e () => (float[N, 6, 4] b) {
            b = com.example.Roll <shifts: ints = [3], dims: ints = [1]> (third)
        }
    >
}
<domain: "local", opset_import: ["" : 17, "com.example" : 1]>
block (x) => (y) { y = com.example.Roll <shifts: ints = [-1], dims: ints = [2]> (x) }
"""


def as_function(text: str, **options: Any) -> tuple[ModelProto, Report]:
    report = rewriter.rewrite(parse(text), as_function=True, **{"simplify": False, **options})
    assert report.model is not None
    onnx.checker.check_model(report.model)
    return report.model, report


def run(model: ModelProto, feeds: dict[str, Any], library: Path | None = None) -> np.ndarray[Any, Any]:
    options = onnxruntime.SessionOptions()
    if library is not None:
        options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, feeds)
    return np.asarray(found)


def functions(model: ModelProto) -> list[tuple[str, str, str]]:
    return [(f.domain, f.name, f.overload) for f in model.functions]


@pytest.mark.parametrize("simplify", [True, False])
def test_the_call_stays_and_the_body_is_the_decomposition(simplify: bool) -> None:
    model, report = as_function(ROLL, simplify=simplify)
    before = parse(ROLL)
    assert list(model.graph.node) == list(before.graph.node)
    assert functions(model) == [("com.example", "Roll", ""), ("com.example", "Swish", "")]
    assert {n.op_type for n in model.functions[0].node} == {"Constant", "Slice", "Concat"}
    assert report.outcome == "verified"
    assert (model.ir_version, report.ir_version_before) == (8, None)
    x = np.random.default_rng(0).normal(size=(3, 6, 4)).astype(np.float32)
    weight = onnx.numpy_helper.to_array(before.graph.initializer[0])
    rolled = np.roll(x @ weight, 2, axis=1)
    expected = rolled / (1 + np.exp(-rolled))
    np.testing.assert_allclose(run(model, {"x": x}), expected, rtol=1e-5, atol=1e-6)
    (by_reference,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(by_reference, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("condition", [True, False])
def test_in_bodies_and_functions_and_equal_ones_share(condition: bool) -> None:
    model, report = as_function(PLACES)
    assert functions(model) == [
        ("local", "block", ""),
        ("com.example", "Roll", ""),
        ("com.example", "Swish", ""),
        ("com.example", "Roll", "2"),
    ]
    assert [(r.operator, r.function) for r in report.replaced] == [
        ("com.example::Roll", "com.example::Roll"),
        ("com.example::Roll", "com.example::Roll"),
        # In a function, where onnxruntime would not tell it from the other: decomposed in its place.
        ("com.example::Roll", None),
        ("com.example::Swish", "com.example::Swish"),
        ("com.example::Roll", "com.example::Roll:2"),
    ]
    assert "Slice" in {node.op_type for node in model.functions[0].node}
    x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)
    third = np.roll(np.roll(x, 4, axis=1), -1, axis=2)
    expected = third / (1 + np.exp(-third)) if condition else np.roll(third, 3, axis=1)
    np.testing.assert_allclose(run(model, {"x": x, "c": np.array(condition)}), expected, rtol=1e-5, atol=1e-6)


def test_ir_version_is_raised_as_far_as_functions_need_and_no_further() -> None:
    once = ROLL.replace("ir_version: 8", "ir_version: 6")
    model, report = as_function(once, verify=False)
    assert (model.ir_version, report.ir_version_before) == (8, 6)
    assert (
        "needs",
        "opset ai.onnx 17, com.example 1; IR version 8 (was 6: functions need it)",
    ) in report.lines()
    assert report.to_dict()["ir_version_before"] == 6
    # Of several functions of one name onnxruntimes that take IR version 13 run the last for all.
    assert as_function(PLACES, verify=False)[0].ir_version == 14
    newer, report = as_function(ROLL.replace("ir_version: 8", "ir_version: 11"), verify=False)
    assert (newer.ir_version, report.ir_version_before) == (11, None)


def test_says_who_runs_it() -> None:
    _, report = as_function(ROLL, verify=False)
    (warning,) = report.warnings
    assert "only onnxruntime and onnx's reference evaluator" in warning
    _, report = as_function(PLACES, verify=False)
    assert any("com.example::Roll:2" in text and "before 1.32 refuses" in text for text in report.warnings)
    assert rewriter.rewrite(parse(ROLL), verify=False, simplify=False).warnings == []


def test_manifest_says_what_stays() -> None:
    model, report = as_function(ROLL)
    assert report.manifest is not None
    jsonschema.Draft202012Validator(SCHEMA).validate(report.manifest)
    assert report.manifest["replaced"] == []
    assert report.manifest["kept"] == []
    assert report.manifest["functions"] == [
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
    (sentence,) = (p.value for p in model.metadata_props if p.key == "custom_op_info")
    assert "Requires a runtime with model-local functions" in sentence
    assert "no custom operators needed" not in sentence


@pytest.mark.parametrize("again", [True, False])
def test_a_second_run_has_nothing_to_do(tmp_path: Path, again: bool) -> None:
    options: dict[str, Any] = {"simplify": False, "verify": False}
    rewriter.rewrite(write(tmp_path / "in.onnx", PLACES), tmp_path / "out.onnx", as_function=True, **options)
    report = rewriter.rewrite(tmp_path / "out.onnx", tmp_path / "twice.onnx", as_function=again, **options)
    assert report.outcome == "copied"
    assert (tmp_path / "twice.onnx").read_bytes() == (tmp_path / "out.onnx").read_bytes()


class Doubled(rewriter.Placeholder):
    """x · 2, by an operator that another pass takes."""

    matches = ("Doubled",)

    def reference(self, x):  # type: ignore[no-untyped-def]
        return x * 2

    def decompose(self, g: Builder, x: Value) -> Value:
        return g.op("Twice", x, domain="com.example")

    def infer(self, x: Value) -> TensorType | None:
        return x.type

    def cases(self):  # type: ignore[no-untyped-def]
        yield rewriter.Case(rewriter.f32(2, 3))


class Twice(rewriter.Placeholder):
    """x · 2."""

    matches = ("Twice",)
    factor = 2.0

    def reference(self, x):  # type: ignore[no-untyped-def]
        return x * 2

    def decompose(self, g: Builder, x: Value) -> Value:
        return x * self.factor

    def cases(self):  # type: ignore[no-untyped-def]
        yield rewriter.Case(rewriter.f32(2, 3))


class Wrong(Twice):
    """Claims to double, and triples."""

    factor = 3.0


NESTED = """
<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
main (float[N, 3] x) => (float[N, 3] y)
{
    a = com.example.Doubled (x)
    y = com.example.Doubled (a)
}
"""


def test_what_a_decomposition_is_made_of_is_decomposed_in_the_body() -> None:
    model, report = as_function(NESTED, passes=[Doubled, Twice])
    assert functions(model) == [("com.example", "Doubled", "")]
    assert {node.op_type for node in model.functions[0].node} == {"Constant", "Mul"}
    assert report.verification is not None
    # The inner one once, in the one function.
    assert [(r["pass"], r["how"]) for r in report.verification["regions"]] == [
        ("doubled", "in place"),
        ("twice", "alone"),
        ("doubled", "in place"),
    ]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(model, {"x": x}), 4 * x)


@pytest.mark.parametrize("text", [NESTED.replace("Doubled", "Twice"), NESTED])
def test_a_wrong_body_is_not_delivered(text: str) -> None:
    with pytest.raises(MismatchError, match="differs from PyTorch"):
        as_function(text, passes=[Doubled, Wrong])


def test_unused_outputs_are_computed_all_the_same() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17, "org.pytorch.aten" : 1]>
    main (float[2, 4] x) => (float[2, 4] y)
    {
        y, , rstd = org.pytorch.aten.native_layer_norm <normalized_shape: ints = [4], eps: float = 0.00001> (x)
    }
    """
    model, report = as_function(text)
    (function,) = model.functions
    assert list(function.output) == ["output_0", "output_1", "output_2"]
    produced = {name for node in function.node for name in node.output}
    assert produced >= set(function.output)
    assert list(model.graph.node[0].output) == ["y", "", "rstd"]
    assert report.outcome == "verified"


def test_a_kernel_of_its_own_goes_before_the_body(tmp_path: Path) -> None:
    library = build(tmp_path)
    text = NESTED.replace("Doubled", "Triple")

    class Triple(Twice):
        """The name of the library's operator, with another meaning, so that one sees who computes."""

        matches = ("Triple",)

    model, _ = as_function(text, passes=[Triple])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(model, {"x": x}), 4 * x)
    np.testing.assert_array_equal(run(model, {"x": x}, library), 9 * x)


def test_a_call_that_the_runtime_takes_for_another_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were an overload called in a function, onnxruntime would run the wrong body: verification must see it."""
    original = outline.Outliner.outline

    def anywhere(self: Any, here: Any, *rest: Any) -> Any:
        return original(self, dataclasses.replace(here, ref=ScopeRef()), *rest)

    monkeypatch.setattr(outline.Outliner, "outline", anywhere)
    model, _ = as_function(PLACES, verify=False)
    assert ("com.example", "Roll", "2") in functions(model)
    x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)
    feeds = {"x": x, "c": np.array(False)}
    if np.array_equal(run(model, feeds), run(onnx.inliner.inline_local_functions(model), feeds)):
        pytest.skip("this onnxruntime heeds the overload of a call in a function")
    with pytest.raises(MismatchError, match="a call to a function changed output 'y'"):
        as_function(PLACES)


def test_in_onnxs_own_domain_there_is_no_such_function() -> None:
    text = ROLL.replace("com.example.Roll", "Roll")
    with pytest.raises(DecompositionError, match="no function in a domain of ONNX's own") as caught:
        as_function(text, bind="Roll=roll")
    assert "--as-function" in str(caught.value.remedy)


def test_portable_files_have_no_functions() -> None:
    with pytest.raises(UsageError, match="contradict"):
        as_function(ROLL, portable=True)


def test_report_is_json_with_the_functions() -> None:
    _, report = as_function(ROLL, verify=False)
    data = json.loads(report.to_json())
    assert [r["function"] for r in data["replaced"]] == ["com.example::Roll", "com.example::Swish"]
    assert (
        "function",
        "1 × com.example::Roll → call to the function com.example::Roll of Concat, 2 Slice  "
        "(pass roll, slices)",
    ) in report.lines()
