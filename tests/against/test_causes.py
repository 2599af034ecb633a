"""A test for each cause of a difference: its sign is there, the cause is named, and its remedy is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import rewriter
from rewriter.errors import CannotVerifyError, MismatchError
from rewriter.verify.causes import CAUSES, Evidence, cause_of

HEAD = '<ir_version: 8, opset_import: ["": {}, "com.example": 1]>\n'


class Net(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def blamed(text: str, function: Any, opset: int = 17, **options: Any) -> tuple[MismatchError, dict[str, Any]]:
    model = onnx.parser.parse_model(HEAD.format(opset) + text)
    with pytest.raises(MismatchError) as caught:
        rewriter.rewrite(model, against=lambda: Net(function), simplify=False, **options)
    assert caught.value.blame is not None
    return caught.value, caught.value.blame.to_dict()


def counted(x: Tensor) -> Tensor:
    return x + x.shape[0]


def _loop() -> str:
    return (
        "g (float[N, 3] x) => (float[N, 3] y) <int64 count = {5}, bool go = {1}, float one = {1.0}> { "
        "s = com.example.Swish(x) y = Loop (count, go, x) <body = b (int64 i, bool c, float[N, 3] a) "
        "=> (bool d, float[N, 3] e) { d = Identity(c) e = Add(a, one) }> }"
    )


@pytest.mark.parametrize(
    ("cause", "text", "function", "opset", "said"),
    [
        (
            "size frozen by tracing",
            "g (float[N, 4] x) => (float[M, 2] y) <int64[2] s = {6, 2}> "
            "{ a = com.example.Swish(x) y = Reshape(a, s) }",
            lambda x: nn.functional.silu(x).reshape(-1, 2),
            17,
            "dynamic_shapes",
        ),
        (
            "size frozen by tracing",
            "g (float[N, W] x) => (float[N, W] y) <float c = {0.006269592}> "
            "{ a = com.example.Swish(x) y = Mul(a, c) }",
            lambda x: nn.functional.silu(x) * (2 / max(x.shape[1] - 1, 1)),
            17,
            "320",
        ),
        ("constant trip count", _loop(), counted, 17, "5 times"),
        (
            "ties",
            "g (float[N, 8] x) => (int64[N, 2] i) <int64[1] k = {2}> "
            "{ s = com.example.Swish(x) r = Round(s) v, i = TopK(r, k) }",
            lambda x: 7 - nn.functional.silu(x).round().flip(1).topk(2)[1],
            17,
            "--compare",
        ),
        (
            "operator below its opset",
            "g (float[N, 3, 4] x) => (float[N, 3, 4] y) { a = com.example.Swish(x) y = Softmax <axis = 1> (a) }",
            lambda x: nn.functional.silu(x).softmax(1),
            11,
            "later opset",
        ),
        (
            "the pass's reference",
            "g (float[N, 4] x) => (float[N, 4] y) { y = com.example.Swish(x) }",
            lambda x: x.relu(),
            17,
            "reference",
        ),
        (
            "other weights",
            "g (float[N, 2] x) => (float[N, 2] y, float[N, 2] a) <float[2, 2] w = {1.0, 2.0, 3.0, 4.0}> "
            "{ a = com.example.Swish(x) y = MatMul(x, w) }",
            lambda x: (x @ torch.eye(2), nn.functional.silu(x)),
            17,
            "same weights",
        ),
    ],
)
def test_causes(cause: str, text: str, function: Any, opset: int, said: str) -> None:
    error, blame = blamed(text, function, opset)
    assert (blame["stage"], blame["cause"]) == ("export", cause)
    assert said in str(error.remedy)


def test_recorded_values(tmp_path: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    np.savez(tmp_path / "io.npz", x=x, y=np.abs(x))
    model = onnx.parser.parse_model(
        HEAD.format(17) + "g (float[N, 4] x) => (float[N, 4] y) { a = com.example.Swish(x) y = Relu(a) }"
    )
    with pytest.raises(MismatchError) as caught:
        rewriter.rewrite(model, against=tmp_path / "io.npz", simplify=False)
    assert caught.value.blame is not None
    assert caught.value.blame.cause == "recorded values"
    assert "record them again" in str(caught.value.remedy)


def test_training_mode() -> None:
    node = onnx.helper.make_node("BatchNormalization", list("xabcd"), ["y"], training_mode=1)
    model = onnx.parser.parse_model(HEAD.format(17) + "g (float[N] x) => (float[N] y) { y = Relu(x) }")
    found = cause_of(Evidence(model, node))
    assert found is not None
    assert found[0].name == "training mode"
    assert "eval()" in found[0].remedy


def test_a_file_that_does_not_load_as_it_came() -> None:
    """The exporter wrote int32 indices, which ScatterND does not take."""
    model = onnx.parser.parse_model(
        HEAD.format(17) + "g (float[3] x, float[1] u) => (float[3] y) <int32[1, 1] i = {1}> "
        "{ a = com.example.Swish(x) y = ScatterND(a, i, u) }"
    )
    with pytest.raises(CannotVerifyError) as caught:
        rewriter.rewrite(model, simplify=False)
    assert "as it came" in caught.value.what


def test_where_nothing_shows_nothing_is_claimed() -> None:
    error, blame = blamed(
        "g (float[N, 4] x) => (float[N, 4] y) { a = com.example.Swish(x) y = Neg(a) }",
        lambda x: nn.functional.silu(x) * 0.5,
    )
    assert blame["cause"] == ""
    assert "Nothing at the node shows why" in str(error.remedy)


def test_equal_constants_without_open_sizes_are_not_frozen_sizes() -> None:
    _, blame = blamed(
        "g (float[3, 7] x) => (float[3, 7] y) <float c = {0.006269592}> { a = com.example.Swish(x) y = Mul(a, c) }",
        lambda x: nn.functional.silu(x) * (2 / 6),
    )
    assert blame["cause"] != "size frozen by tracing"


def test_every_cause_has_another_name_and_remedy() -> None:
    assert len({cause.name for cause in CAUSES}) == len({cause.remedy for cause in CAUSES}) == len(CAUSES)
