"""Small models that several folders of tests share, as ONNX text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import numpy_helper, parser

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto

#: A roll by 2 along dim 1 after a matrix product, then a swish.
ROLL = """
<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
main (float[N, 6, 4] x) => (float[N, 6, 4] y)
<float[4, 4] w = {1, 0, 2, 0, 0, 1, 0, 3, 1, 1, 0, 0, 0, 2, 0, 1}>
{
    a = MatMul(x, w)
    r = com.example.Roll <shifts: ints = [2], dims: ints = [1]> (a)
    y = com.example.Swish (r)
}
"""

#: Nothing to replace, and something to simplify.
PLAIN = """
<ir_version: 8, opset_import: ["" : 17]>
main (float[2, 3] x) => (float[2, 3] y)
{
    a = Identity(x)
    b = Relu(a)
    y = Identity(b)
}
"""

#: A placeholder that no pass takes.
UNKNOWN = """
<ir_version: 8, opset_import: ["" : 17, "com.example" : 3]>
main (float[2, 3] x) => (float[2, 3] y)
{
    a = com.example.Roll <shifts: ints = [1], dims: ints = [1]> (x)
    y = com.example.MySpecialOp <strength: float = 0.5> (a)
}
"""

#: A runtime's own operator beside a placeholder.
OWNED = """
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "com.example" : 1]>
main (float[2, 3] x) => (float[2, 3] y)
{
    a = com.example.Roll <shifts: ints = [1], dims: ints = [1]> (x)
    y = com.microsoft.Gelu (a)
}
"""


def parse(text: str) -> ModelProto:
    return parser.parse_model(text)


def write(path: Path, text: str) -> Path:
    onnx.save(parse(text), path)
    return path


def write_external(path: Path, text: str, location: str) -> Path:
    """The model with every initializer in a data file beside it."""
    model = parse(text)
    for tensor in model.graph.initializer:
        # onnx moves only raw payloads, and its parser makes none.
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save(model, path, save_as_external_data=True, location=location, size_threshold=0)
    assert (path.parent / location).stat().st_size > 0
    return path
