"""Bodies in the places of calls compute what the calls do; right values by hand, from the specification."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import rewriter
from rewriter.errors import CannotVerifyError
from rewriter.execution.cut import inlined
from rewriter.execution.session import Session
from rewriter.storage import ModelFile

HEAD = """<ir_version: 10, opset_import: ["":17,"local":1,"com.example":1]>
g (float[n] x) => (float[n] y, float[n] z)
"""
#: A default of its own, one of an inner function reached by a reference to what is omitted, and calls within calls.
NESTED = (
    HEAD
    + """{ y = local.Outer(x)  z = local.Outer<b = 3.0>(x) }
<domain: "local", opset_import: ["":17,"local":1]>
Outer <b> (x) => (y) { y = local.Inner<a: float = @b>(x) }
<domain: "local", opset_import: ["":17]>
Inner <a: float = 2.0, c: float = 0.5> (x) => (y) { t = LeakyRelu<alpha: float = @a>(x)  y = Elu<alpha: float = @c>(t) }
"""
)


def elu(x, alpha):
    return np.where(x < 0, alpha * (np.exp(x) - 1), x)


def results(model, x):
    with ModelFile.from_proto(model) as file:
        return list(Session(file, file.model).run({"x": x}, ["y", "z"]).values())


def test_defaults_of_omitted_attributes_hold():
    source = parser.parse_model(NESTED)
    before = source.SerializeToString()
    plain = inlined(source)
    assert source.SerializeToString() == before
    assert not plain.functions
    x = np.float32([-1, -0.5, 2])
    for found, slope in zip(results(plain, x), (2.0, 3.0), strict=True):
        assert found == pytest.approx(elu(np.where(x < 0, slope * x, x), 0.5), rel=1e-5)


def test_defaults_hold_in_branches():
    source = parser.parse_model(
        """<ir_version: 10, opset_import: ["":17,"local":1]>
        g (float[n] x, bool c) => (float[n] y, float[n] z) {
          y = If (c) <then_branch = a () => (float[n] p) { p = local.L(x) },
                      else_branch = b () => (float[n] q) { q = local.L<s = 4.0>(x) }>
          z = Identity(x)
        }
        <domain: "local", opset_import: ["":17]>
        L <s: float = 2.0> (x) => (y) { y = LeakyRelu<alpha: float = @s>(x) }"""
    )
    with ModelFile.from_proto(inlined(source)) as file:
        session = Session(file, file.model)
        for condition, slope in ((True, 2.0), (False, 4.0)):
            found = session.run({"x": np.float32([-1, 3]), "c": np.asarray(condition)}, ["y"])["y"]
            assert found.tolist() == [-slope, 3]


def test_functions_in_a_circle_cannot_be_put_in_place():
    source = parser.parse_model(
        HEAD
        + """{ y = local.A(x)  z = Identity(x) }
        <domain: "local", opset_import: ["local":1]> A <k: int = 1> (x) => (y) { y = local.B(x) }
        <domain: "local", opset_import: ["local":1]> B (x) => (y) { y = local.A(x) }"""
    )
    with pytest.raises(CannotVerifyError):
        inlined(source)


@pytest.mark.parametrize(
    ("body", "call", "expected"),
    [
        ("Swish<beta: float = @b>", "", lambda x: x / (1 + np.exp(-2 * x))),
        ("Swish<beta: float = @b>", "<b = 3.0>", lambda x: x / (1 + np.exp(-3 * x))),
        ("Roll<shifts: ints = @s, dims: ints = @d>", "", lambda x: np.roll(x, 1)),
        ("Roll<shifts: ints = @s, dims: ints = @d>", "<s = [2]>", lambda x: np.roll(x, 2)),
    ],
)
def test_a_placeholder_in_a_function_is_verified_with_defaults(body, call, expected, tmp_path):
    source = parser.parse_model(
        HEAD
        + f"""{{ y = local.Outer{call}(x)  z = Identity(x) }}
        <domain: "local", opset_import: ["":17,"com.example":1]>
        Outer <b: float = 2.0, s: ints = [1], d: ints = [0]> (x) => (y) {{ y = com.example.{body}(x) }}"""
    )
    report = rewriter.rewrite(source, tmp_path / "out.onnx", simplify=False)
    assert report.verification["verdict"] == "verified"
    x = np.float32([-1, 0.5, 2, 4])
    assert results(onnx.load(tmp_path / "out.onnx"), x)[0] == pytest.approx(expected(x), rel=1e-5)
