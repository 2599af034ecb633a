"""Values of attributes that ONNX does not define."""

from __future__ import annotations

import onnx
import pytest

import rewriter
from rewriter.errors import AttributeValueError

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'


@pytest.mark.parametrize(
    ("node", "outputs", "attribute"),
    [
        ("v, i = TopK <largest = -3> (x, k)", "float[2,2] v, int64[2,2] i", "largest"),
        ("v = ReduceMean <axes = [1], keepdims = 2> (x)", "float[2,1] v", "keepdims"),
        ('v = Pad <mode = "circular"> (x, p)', "float[2,3] v", "mode"),
        ("v = Trilu <upper = -1> (x)", "float[2,3] v", "upper"),
    ],
)
def test_a_value_outside_the_list(node: str, outputs: str, attribute: str) -> None:
    text = f"g (float[2,3] x) => ({outputs}) <int64[1] k = {{2}}, int64[4] p = {{0,0,0,0}}> {{ {node} }}"
    with pytest.raises(AttributeValueError, match=f"'{attribute}'"):
        rewriter.rewrite(onnx.parser.parse_model(HEAD + text))


def test_values_of_the_list() -> None:
    text = "g (float[2,3] x) => (float[2,2] v, int64[2,2] i) <int64[1] k = {2}> { v, i = TopK <largest = 0> (x, k) }"
    rewriter.rewrite(onnx.parser.parse_model(HEAD + text))
