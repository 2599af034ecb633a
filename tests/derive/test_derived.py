"""Decompositions derived from a reference: values against PyTorch, conditions on sizes, what is refused and why."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch

import rewriter
from rewriter.derive import extend
from rewriter.derive.aten import is_bound
from rewriter.errors import DerivationError, LeftoverPlaceholderError, MismatchError
from rewriter.placeholder import Builder, Placeholder, Selection, Value

if TYPE_CHECKING:
    from pathlib import Path

ATEN = '<ir_version: 8, opset_import: ["": 18, "org.pytorch.aten": 1]>\n'
OWN = '<ir_version: 8, opset_import: ["": 18, "com.example": 1]>\n'


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def delivered(text: str, **options: Any) -> onnx.ModelProto:
    report = rewriter.rewrite(model(text), simplify=False, **options)
    assert report.outcome == "verified"
    assert report.model is not None
    return report.model


def run(proto: onnx.ModelProto, **inputs: np.ndarray) -> list[np.ndarray]:
    import onnxruntime

    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, inputs)


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


class Blend(Placeholder):
    """A pass of three lines: what it takes, and what it means."""

    matches = ("Blend",)

    def reference(self, x, y, weight=0.5, dims=(0,)):
        return torch.roll(x, 1, dims) * weight + y


@pytest.mark.parametrize("size", [1, 5])
def test_a_pass_needs_no_decomposition(size: int) -> None:
    made = delivered(
        OWN
        + "g (float[N, 3] x, float[N, 3] y) => (float[N, 3] z) { z = com.example.Blend <weight = 0.25> (x, y) }",
        passes=[Blend],
    )
    x, y = rows(size, 3), rows(size, 3)[::-1].copy()
    expected = torch.roll(torch.tensor(x), 1, 0) * 0.25 + torch.tensor(y)
    np.testing.assert_allclose(run(made, x=x, y=y)[0], expected.numpy(), rtol=1e-6)


def test_a_constant_input_is_a_tensor_and_a_parameter_a_number() -> None:
    made = delivered(
        OWN
        + """g (float[N, 3] x) => (float[N, 3] z)
        <float[3] w = {1.0, 2.0, 3.0}, float k = {0.75}> { z = com.example.Blend (x, w, k) }""",
        passes=[Blend],
    )
    x = rows(2, 3)
    expected = np.roll(x, 1, 0) * np.float32(0.75) + np.asarray([1, 2, 3], np.float32)
    np.testing.assert_allclose(run(made, x=x)[0], expected, rtol=1e-6)


DIFF = (
    ATEN
    + "g (float[N, 4] x) => (float[N, 3] y) <int64 n = {1}, int64 d = {-1}> { y = org.pytorch.aten.diff (x, n, d) }"
)


@pytest.mark.parametrize("size", [0, 1, 7])
def test_an_operator_of_pytorch_needs_no_pass(size: int) -> None:
    x = rows(size, 4)
    np.testing.assert_array_equal(run(delivered(DIFF), x=x)[0], torch.diff(torch.tensor(x)).numpy())


def test_the_report_says_whose_definition_it_is() -> None:
    report = rewriter.rewrite(model(DIFF), verify=False, simplify=False)
    assert report.replaced[0].decomposition == "derived"
    assert torch.__version__.partition("+")[0] in report.replaced[0].reason


@pytest.mark.parametrize(
    ("arguments", "constants", "expected"),
    [
        # isin.Tensor_Scalar, which a 0-d double means, and isin.Tensor_Tensor
        ("x, e, b, b", "double e = {0.5}, bool b = {0}", lambda x: torch.isin(x, 0.5)),
        ("x, e, b, t", "float[2] e = {0.5, 1.0}, bool b = {0}, bool t = {1}",
         lambda x: torch.isin(x, torch.tensor([0.5, 1.0]), invert=True)),
    ],
)  # fmt: skip
def test_the_overload_is_chosen_by_the_arguments(arguments: str, constants: str, expected: Any) -> None:
    made = delivered(
        ATEN
        + f"g (float[2, 3] x) => (bool[2, 3] y) <{constants}> {{ y = org.pytorch.aten.isin ({arguments}) }}"
    )
    x = np.asarray([[0.5, 1.0, 2.0], [-1.0, 0.5, 0.25]], np.float32)
    np.testing.assert_array_equal(run(made, x=x)[0], expected(torch.tensor(x)).numpy())


def test_equal_placeholders_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from rewriter.derive import form

    traced = []
    original = form.translate
    monkeypatch.setattr(form, "_memory", type(form._memory)())
    monkeypatch.setattr(form, "translate", lambda *a: traced.append(a) or original(*a))
    nodes = "\n".join(f"y{i} = org.pytorch.aten.sinh (x)" for i in range(20))
    outputs = ", ".join(f"float[N, 4] y{i}" for i in range(20))
    rewriter.rewrite(
        model(ATEN + f"g (float[N, 4] x) => ({outputs}) {{ {nodes} }}"), verify=False, simplify=False
    )
    assert len(traced) == 1


class Sinh(Placeholder):
    matches = ("aten::sinh",)

    def reference(self, x):
        return torch.sinh(x)

    def decompose(self, g: Builder, x: Value):
        return (g.op("Exp", x) - g.op("Exp", -x)) * 0.5


class Built(Placeholder):
    """Its reference uses an operator that :class:`Sinh` takes."""

    matches = ("Built",)

    def reference(self, x):
        return torch.sinh(x) + 1


def test_a_written_pass_serves_what_is_built_on_its_operator() -> None:
    made = delivered(
        OWN + "g (float[N, 3] x) => (float[N, 3] y) { y = com.example.Built (x) }", passes=[Sinh, Built]
    )
    assert {node.op_type for node in made.graph.node} == {"Exp", "Neg", "Sub", "Mul", "Add"}
    x = rows(4, 3)
    np.testing.assert_allclose(run(made, x=x)[0], np.sinh(x) + 1, rtol=1e-5)


class Branches(Placeholder):
    matches = ("Branches",)

    def reference(self, x):
        return x * 2 if x.shape[0] > 4 else x * 3


class Frozen(Placeholder):
    matches = ("Frozen",)

    def reference(self, x):
        return x.reshape(6, 3) + 0


def test_a_size_that_the_trace_fixes_is_refused() -> None:
    with pytest.raises(DerivationError, match=r"x\.shape\[0\]"):
        delivered(
            OWN + "g (float[N, 3] x) => (float[6, 3] y) { y = com.example.Frozen (x) }", passes=[Frozen]
        )


def test_a_branch_on_a_size_is_not_delivered_for_one_side_only() -> None:
    with pytest.raises((DerivationError, MismatchError)):
        delivered(
            OWN + "g (float[N, 3] x) => (float[N, 3] y) { y = com.example.Branches (x) }", passes=[Branches]
        )


FILE = """
from rewriter import Placeholder

class Decides(Placeholder):
    matches = ("Decides",)

    def reference(self, x):
        if x.sum() > 0:  # what no trace can follow
            return x
        return -x
"""


def test_what_cannot_be_traced_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "decides.py"
    path.write_text(textwrap.dedent(FILE))
    with pytest.raises(DerivationError) as caught:
        delivered(OWN + "g (float[2] x) => (float[2] y) { y = com.example.Decides (x) }", passes=[str(path)])
    assert "line 8: if x.sum() > 0:" in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "name", ["from_file", "bernoulli", "rand_like", "multinomial", "set_", "record_stream", "nosuch"]
)
def test_a_file_may_not_name_what_reaches_beyond_tensors(name: str) -> None:
    if name in ("from_file", "rand_like", "multinomial", "record_stream", "nosuch"):
        assert not is_bound("aten", name)
    with pytest.raises((DerivationError, LeftoverPlaceholderError)):
        delivered(ATEN + f"g (float[2] x) => (float[2] y) {{ y = org.pytorch.aten.{name} (x) }}")


@pytest.mark.parametrize("namespace", ["prim", "inductor", "quantized", "_c10d_functional"])
def test_other_namespaces_are_not_bound_from_a_file(namespace: str) -> None:
    assert extend(Selection.load("auto")).unknown(namespace, "add") is None  # type: ignore[misc]


@pytest.mark.parametrize("opset", [11, 13, 23])
def test_a_derived_form_is_written_in_the_forms_of_the_models_opset(opset: int) -> None:
    """The exporter writes opset 18, where ReduceSum has its axes as an input, among others."""
    head = ATEN.replace('"": 18', f'"": {opset}')
    made = delivered(
        head + "g (float[N, 4] x) => (float[N] y) <double step = {1.0}, int64 d = {-1}>"
        " { y = org.pytorch.aten.trapz (x, step, d) }"
    )
    x = rows(3, 4)
    np.testing.assert_allclose(run(made, x=x)[0], torch.trapz(torch.tensor(x)).numpy(), rtol=1e-5)


class Endless(Placeholder):
    matches = ("Endless",)

    def reference(self, x, rounds=1):
        for _ in range(rounds):
            x = x + 1
        return x


def test_a_loop_over_what_a_file_claims_is_bounded() -> None:
    with pytest.raises(DerivationError, match="more than 2000 calls"):
        delivered(
            OWN + "g (float[2] x) => (float[2] y) { y = com.example.Endless <rounds = 1000000000> (x) }",
            passes=[Endless],
        )
