"""Ranks, sizes and the order of inputs: held against what the operator says they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F

import rewriter
from rewriter.errors import BindingError, PassDefinitionError, RewriteError
from rewriter.placeholder import Placeholder
from rewriter.placeholder.binding import Bound, Ref
from rewriter.placeholder.discovery import available
from rewriter.placeholder.shapes import misfit, parse
from rewriter.types import TensorType

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.example": 1, "aten": 1, "torchvision": 1]>\n'
RNG = np.random.default_rng(0)


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def delivered(text: str, feeds: dict[str, Any], **options: Any) -> Any:
    """The first output of what is delivered, on onnxruntime."""
    import onnxruntime

    result = rewriter.rewrite(model(text), simplify=False, **options).model
    assert result is not None
    session = onnxruntime.InferenceSession(result.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.mark.parametrize("placeholder", available(), ids=lambda p: p.pass_name())
def test_every_tensor_of_every_pass_has_a_declared_shape(placeholder: Placeholder) -> None:
    tensors = {p.name for p in placeholder.signature.parameters if p.is_tensor}
    assert set(parse(placeholder.shapes)) == tensors


@pytest.mark.parametrize(
    ("declared", "shapes", "wrong"),
    [
        ("x: N C H W", {"x": (1, 2, 3, 4)}, None),
        ("x: N C H W", {"x": (1, 2, 3)}, "x"),
        ("x: N C ...; w: C", {"x": (1, 2, 3, 4), "w": (2,)}, None),
        ("x: N C ...; w: C", {"x": (1, 2, 3, 4), "w": (3,)}, "w"),
        ("x: N C ...; w: C", {"x": (1, "c", 3, 4), "w": (3,)}, None),
        ("x: N C | C; w: N", {"x": (2, 3), "w": (3,)}, "w"),
        ("x: () | 1", {"x": ()}, None),
        ("x: () | 1", {"x": (2,)}, "x"),
        ("o: 2*_*K; w: K", {"o": (18,), "w": (9,)}, None),
        ("o: 2*_*K; w: K", {"o": (9,), "w": (9,)}, "o"),
        ("x: ...; w: =sizes", {"x": (2, 3), "w": (3,), "sizes": [3]}, None),
        ("x: ...; w: =sizes", {"x": (2, 3), "w": (2,), "sizes": [3]}, "w"),
        ("x: N 4", {"x": None}, None),
    ],
)
def test_shapes(declared: str, shapes: dict[str, Any], wrong: str | None) -> None:
    arguments = {
        name: tuple(shape) if isinstance(shape, list) else Ref(name, TensorType(1, shape))
        for name, shape in shapes.items()
    }
    found = misfit(declared, Bound(arguments))
    assert (found and found[0]) == wrong


def test_a_declaration_that_cannot_be_read() -> None:
    class Wrong(Placeholder):
        matches = ("Wrong",)
        shapes = "y: N"

        def reference(self, x: Any) -> Any:
            return x

        def decompose(self, g: Any, x: rewriter.placeholder.Value) -> Any:
            return g.op("Identity", x)

    with pytest.raises(PassDefinitionError, match="not a tensor parameter"):
        Wrong().validate()


# --- the order of inputs ---------------------------------------------------------------------------------------

_NORM = "g (float[2,3,4] x, float[3] a, float[3] b) => (float[2,3,4] y) {{ y = {}({}) }}"
_X = RNG.standard_normal((2, 3, 4), np.float32)
_A, _B = RNG.standard_normal(3, np.float32), np.abs(RNG.standard_normal(3, np.float32)) + 0.5


def test_an_order_that_two_public_functions_give_otherwise_is_asked_for() -> None:
    """``F.instance_norm`` takes running_mean and running_var first, ``torch.instance_norm`` weight and bias."""
    text = _NORM.format("com.example.InstanceNorm <use_input_stats = 0>", "x, a, b")
    with pytest.raises(BindingError) as caught:
        rewriter.rewrite(model(text))
    assert "running_mean=$1,running_var=$2" in str(caught.value.remedy)
    assert "weight=$1,bias=$2" in str(caught.value.remedy)
    found = delivered(
        text,
        {"x": _X, "a": _A, "b": _B},
        bind="com.example::InstanceNorm=instance_norm(running_mean=$1,running_var=$2)",
    )
    x, a, b = map(torch.from_numpy, (_X, _A, _B))
    expected = F.instance_norm(x, a, b, use_input_stats=False)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)


def test_the_domain_says_the_order() -> None:
    text = (
        _NORM.format("aten.instance_norm", "x, a, b, , ")
        .replace("{ y", "<int64 s = {1}, float m = {0.1}, float e = {0.001}, int64 c = {0}> { y")
        .replace(", , )", ", , , s, m, e, c)")
    )
    found = delivered(text, {"x": _X, "a": _A, "b": _B})
    x, a, b = map(torch.from_numpy, (_X, _A, _B))
    expected = torch.instance_norm(x, a, b, None, None, True, 0.1, 0.001, False)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)


_DEFORM = (
    "g (float[N,4,8,8] x, float[6,4,3,3] w, float[N,18,6,6] o, float[N,9,6,6] m, float[6] b) => (float[N,6,6,6] y) "
    "{{ y = {}({}) }}"
)


@pytest.mark.parametrize("order", ["x, w, o, , b", "x, o, w, b", "x, w, o, b"])
def test_shapes_tell_the_order(order: str) -> None:
    """torch.ops, torchvision's function, and ONNX's DeformConv: the bias of shape (C,) is never taken for the mask."""
    x, w = RNG.standard_normal((2, 4, 8, 8), np.float32), RNG.standard_normal((6, 4, 3, 3), np.float32)
    b = RNG.standard_normal(6, np.float32)
    feeds = {"x": x, "w": w, "o": np.zeros((2, 18, 6, 6), np.float32), "b": b}
    text = _DEFORM.format("com.example.DeformConv2d", order).replace(" float[N,9,6,6] m,", "")
    expected = F.conv2d(*map(torch.from_numpy, (x, w, b))).numpy()
    np.testing.assert_allclose(delivered(text, feeds), expected, rtol=1e-4, atol=1e-4)


def test_a_bias_in_the_place_of_the_mask() -> None:
    with pytest.raises(BindingError, match=r"'mask' must have the shape .* 'b'"):
        rewriter.rewrite(model(_DEFORM.format("torchvision.deform_conv2d <use_mask = 1>", "x, w, o, b")))


def test_rois_without_their_image() -> None:
    text = "g (float[1,2,8,8] x, float[3,4] r) => (float[3,2,1,1] y) { y = com.example.RoiAlign(x, r) }"
    with pytest.raises(BindingError, match=r"\(K, 5\)"):
        rewriter.rewrite(model(text))


def test_where_a_node_writes_its_result_is_not_an_argument() -> None:
    text = "g (float[2] x) => (float[2] y) { y = com.example.Elu <alpha = 1.0, inplace = 1> (x) }"
    x = np.float32([-1, 2])
    np.testing.assert_allclose(delivered(text, {"x": x}), F.elu(torch.from_numpy(x)).numpy(), rtol=1e-6)


def test_bind_ignores_what_it_is_told_to() -> None:
    text = "g (float[2] x, float[2] z) => (float[2] y) { y = com.example.Elu <plugin_version = 1> (x, z) }"
    with pytest.raises(BindingError, match="-=plugin_version"):
        rewriter.rewrite(model(text))
    x = np.float32([-1, 2])
    found = delivered(text, {"x": x, "z": x}, bind="com.example::Elu=elu(-=plugin_version, -=$1)")
    np.testing.assert_allclose(found, F.elu(torch.from_numpy(x)).numpy(), rtol=1e-6)


# --- a pass that was told to take an operator -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "rule"),
    [
        ("aten.special_expit(x)", "aten::special_expit=swish"),
        ("aten.renorm(x, p, d, m)", "aten::renorm=rms_norm(normalized_shape=[8],-=$1,-=$2,-=$3)"),
    ],
)
def test_a_known_operator_judges_the_pass(node: str, rule: str) -> None:
    constants = "<float p = {2.0}, int64 d = {1}, float m = {0.5}>"
    text = f"g (float[2,8] x) => (float[2,8] y) {constants} {{ y = {node} }}"
    with pytest.raises(RewriteError) as caught:
        rewriter.rewrite(model(text), bind=rule)
    assert caught.value.code == "mismatch"


def test_a_known_operator_accepts_a_right_pass() -> None:
    text = "g (float[2,8] x) => (float[2,8] y) { y = aten.fliplr(x) }"
    x = RNG.standard_normal((2, 8), np.float32)
    found = delivered(text, {"x": x}, bind="aten::fliplr=flip(dims=[1])")
    np.testing.assert_array_equal(found, torch.fliplr(torch.from_numpy(x)).numpy())


# --- nodes that look alike --------------------------------------------------------------------------------------

_TWICE = "g (float[2,8] x, float[2,8] s) => (float[2,8] v, float[2,8] w) {{ v = {0} w = {0} }}"
_STATE = (
    "com.example.StatefulPiecewise <breakpoints = [0.0], slopes = [1.0, 2.0], offsets = [0.0, 0.0]> (x, s)"
)


def test_a_symbolic_that_called_g_op_for_each_result() -> None:
    with pytest.raises(BindingError, match="outputs=2") as caught:
        rewriter.rewrite(model(_TWICE.format(_STATE)))
    assert "new_state" in caught.value.what
    bind = "com.example::StatefulPiecewise=stateful_piecewise"
    assert rewriter.rewrite(model(_TWICE.format(_STATE)), bind=bind).model is not None


def test_the_same_normalisation_twice() -> None:
    text = _TWICE.format("com.example.RmsNorm <normalized_shape = [8]> (x)").replace(
        "float[2,8] s", "float s"
    )
    assert rewriter.rewrite(model(text)).model is not None
