"""The whole model, brought to a target, against the model as it came."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import parser

import rewriter
from rewriter.errors import MismatchError
from rewriter.lower import schemas

AS_CAME = "the model as it came"

#: Softmax has one axis from 13 on, and flattens before.
SOFTMAX = """
<ir_version: 8, opset_import: ["" : 17]>
main (float[N,3,4] x) => (float[N,3,4] z)
{ a = Abs(x)  y = Softmax<axis=1>(a)  z = Neg(y) }"""

#: Rounding decides the least significant digit of an integer.
TIPPED = """
<ir_version: 8, opset_import: ["" : 17]>
main (float[N,32] x, float[32] s) => (float[N,32] y, int64[N,32] z)
{ y = LayerNormalization(x, s)  k = Constant<value_float=10000000.0>()  m = Mul(y, k)  z = Cast<to=7>(m) }"""


def proved(text: str, **options: Any) -> rewriter.Report:
    return rewriter.rewrite(parser.parse_model(text), simplify=False, **options)


def against(report: rewriter.Report) -> list[str]:
    assert report.manifest is not None
    found: list[str] = report.manifest["verification"]["against"]
    return found


def test_outputs_are_compared_with_those_of_the_model_as_it_came() -> None:
    assert AS_CAME in against(proved(SOFTMAX, opset=11))
    # No node is replaced; what they mean at the new opset is still to be shown.
    assert AS_CAME in against(proved(SOFTMAX, opset=13))


def test_without_a_target_there_is_no_such_comparison() -> None:
    text = SOFTMAX.replace("Neg(y)", "com.example.Swish(y)").replace('"" : 17', '"" : 17, "com.example" : 1')
    assert AS_CAME not in against(proved(text))


def test_a_node_that_stays_and_means_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "changed", lambda *_: False)
    with pytest.raises(MismatchError) as caught:
        proved(SOFTMAX, opset=11)
    assert isinstance(caught.value.where, rewriter.errors.Where)
    assert caught.value.where.operator == "Softmax"


def test_an_integer_that_rounding_decides_is_a_warning() -> None:
    report = proved(TIPPED, opset=13)
    assert report.outcome == "verified"
    assert AS_CAME in against(report)
    assert report.verification is not None
    assert any("near tie" in text and "Cast" in text for text in report.verification["warnings"])


def test_a_tie_does_not_excuse_another_output(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = schemas.changed
    monkeypatch.setattr(schemas, "changed", lambda op, *rest: op != "Softmax" and changed(op, *rest))
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    main (float[N,32] x, float[32] s, float[N,3,4] a) => (int64[N,32] z, float[N,3,4] b)
    {
      y = LayerNormalization(x, s)  k = Constant<value_float=10000000.0>()  m = Mul(y, k)  z = Cast<to=7>(m)
      b = Softmax<axis=1>(a)
    }"""
    with pytest.raises(MismatchError) as caught:
        proved(text, opset=11)
    assert isinstance(caught.value.where, rewriter.errors.Where)
    assert caught.value.where.operator == "Softmax"


def test_functions_and_bodies_are_run_as_they_came(tmp_path: Any) -> None:
    model = parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    main (bool c, float[N,4] x) => (float[N,4] y)
    {
      y = If (c) <
        then_branch = g () => (float[N,4] a) { h = Gelu(x)  a = local.twice(h) },
        else_branch = g () => (float[N,4] b) { s = ReduceSum<noop_with_empty_axes=1>(x)  b = Identity(s) }
      >
    }
    <domain: "local", opset_import: ["" : 21]>
    twice (x) => (y) { k = Constant<value_ints=[0]>()  m = ReduceMax(x, k)  y = Add(x, m) }
    """)
    onnx.save(model, tmp_path / "a.onnx")
    report = rewriter.rewrite(tmp_path / "a.onnx", opset=13)
    assert report.outcome == "verified"
    assert AS_CAME in against(report)


def test_what_draws_random_numbers_is_not_compared() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    main (float[N,4] x) => (float[N,4] y, float[N,4] r)
    { y = HardSwish(x)  r = RandomUniformLike(x) }"""
    report = proved(text, opset=13)
    assert AS_CAME not in against(report)
    assert report.verification is not None
    assert any(AS_CAME in note for note in report.verification["notes"])
