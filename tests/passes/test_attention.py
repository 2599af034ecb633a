"""The attention passes against transformers' own code, and with sizes that are open in part."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from passes.attention.alibi import Alibi, slopes_of
from passes.attention.ms_deform_attn import MsDeformAttn
from passes.attention.neighborhood_attention import NeighborhoodAttention
from passes.attention.rotary_embedding import RotaryEmbedding
from passes.attention.scaled_dot_product_attention import ScaledDotProductAttention
from passes.attention.sparse_attention import SparseAttention
from rewriter.decompose import decompose
from rewriter.errors import BindingError, RewriteError
from rewriter.execution.session import Session
from rewriter.placeholder import Placeholder, Selection
from rewriter.storage import ModelFile


def rewritten(
    placeholder: Placeholder, node: onnx.NodeProto, inputs: dict[str, tuple[int, list[Any]]], opset: int = 13
) -> onnx.ModelProto:
    """A model of one placeholder, whose inputs have the dtypes and (partly named) sizes given, decomposed."""
    infos = [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()]
    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(node.domain, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    with ModelFile.from_proto(model) as file:
        decompose(file, Selection((placeholder,), frozenset({placeholder.pass_name()})))
        return file.hydrate(file.model)


def ran(model: onnx.ModelProto, **feeds: torch.Tensor) -> torch.Tensor:
    with ModelFile.from_proto(model) as file:
        found = Session(file, file.model).run({name: t.numpy() for name, t in feeds.items()}, ["y"])
    return torch.from_numpy(np.array(found["y"]))


def test_deformable_attention_is_that_of_deformable_detr() -> None:
    module = importlib.import_module("transformers.models.deformable_detr.modeling_deformable_detr")
    shapes = [(5, 4), (3, 2), (1, 1)]
    torch.manual_seed(0)
    value = torch.randn(2, 27, 2, 4)
    locations = torch.rand(2, 6, 2, 3, 2, 2) * 1.4 - 0.2
    weights = torch.rand(2, 6, 2, 3, 2)
    starts = torch.tensor([0, 20, 26])
    expected = module.MultiScaleDeformableAttention()(
        value, torch.tensor(shapes), shapes, starts, locations, weights, 64
    )
    found = MsDeformAttn().reference(value, np.asarray(shapes), starts, locations, weights)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("batch", [1, 3])
def test_deformable_attention_of_a_dynamic_batch(batch: int) -> None:
    """As mmdeploy writes it, with the level shapes as inputs."""
    node = helper.make_node(
        "MMCVMultiScaleDeformableAttention",
        ["value", "shapes", "starts", "locations", "weights"],
        ["y"],
        domain="mmdeploy",
        im2col_step=64,
    )
    inputs = {
        "value": (TensorProto.FLOAT, ["n", 14, 2, 3]),
        "shapes": (TensorProto.INT64, [2, 2]),
        "starts": (TensorProto.INT64, [2]),
        "locations": (TensorProto.FLOAT, ["n", "q", 2, 2, 2, 2]),
        "weights": (TensorProto.FLOAT, ["n", "q", 2, 2, 2]),
    }
    torch.manual_seed(0)
    feeds = {
        "value": torch.randn(batch, 14, 2, 3),
        "shapes": torch.tensor([[3, 4], [1, 2]]),
        "starts": torch.tensor([0, 12]),
        "locations": torch.rand(batch, 5, 2, 2, 2, 2) * 1.4 - 0.2,
        "weights": torch.rand(batch, 5, 2, 2, 2),
    }
    expected = MsDeformAttn().reference(*feeds.values())
    torch.testing.assert_close(ran(rewritten(MsDeformAttn(), node, inputs), **feeds), expected)


@pytest.mark.parametrize("partial", [0, 4])
def test_rotary_embedding_is_that_of_llama_and_gptj(partial: int) -> None:
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    gptj = importlib.import_module("transformers.models.gptj.modeling_gptj")
    torch.manual_seed(0)
    x = torch.randn(2, 3, 5, 8)
    angles = torch.rand(2, 5, (partial or 8) // 2) * 6
    cos, sin = angles.cos(), angles.sin()
    given = {"rotary_embedding_dim": partial}
    turned, rest = x[..., : partial or 8], x[..., partial or 8 :]
    halves = [torch.cat((t, t), -1) for t in (cos, sin)]
    expected, _ = llama.apply_rotary_pos_emb(turned, turned, *halves)
    expected = torch.cat((expected, rest), -1)
    reference = RotaryEmbedding().reference
    torch.testing.assert_close(reference(x, cos, sin, **given), expected)
    torch.testing.assert_close(reference(x, *halves, **given), expected)
    # GPT-J has (batch, positions, heads, features).
    pairs = gptj.apply_rotary_pos_emb(turned.transpose(1, 2), sin, cos).transpose(1, 2)
    found = reference(x, cos, sin, interleaved=True, **given)
    torch.testing.assert_close(found, torch.cat((pairs, rest), -1))


@pytest.mark.parametrize("heads", [1, 2, 3, 7, 8, 12, 20])
def test_alibi_is_that_of_bloom(heads: int) -> None:
    bloom = importlib.import_module("transformers.models.bloom.modeling_bloom")
    expected = bloom.build_alibi_tensor(torch.ones(1, 5), heads, torch.float32)
    found = Alibi().reference(torch.zeros(heads, 1, 5), mode="key")
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.tensor(slopes_of(heads)), expected[:, 0, 1])


@pytest.mark.parametrize(
    ("placeholder", "shape", "options"),
    [
        (SparseAttention(), (4, 9, 4), {"block_size": 2, "global_tokens": 1, "is_causal": 1}),
        (NeighborhoodAttention(), (5, 6, 2, 4), {"kernel_size": [3], "dilation": [1, 2]}),
    ],
    ids=["sparse", "neighborhood"],
)
def test_patterns_take_a_dynamic_batch(
    placeholder: Placeholder, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    node = helper.make_node(placeholder.matches[0], ["q", "k", "v"], ["y"], domain="com.example", **options)
    model = rewritten(placeholder, node, {name: (TensorProto.FLOAT, ["n", *shape]) for name in "qkv"})
    torch.manual_seed(0)
    for batch in (1, 3):
        q, k, v = torch.randn(3, batch, *shape)
        torch.testing.assert_close(
            ran(model, q=q, k=k, v=v), placeholder.reference(q, k, v, **options), atol=1e-5, rtol=1e-5
        )


def test_patterns_say_which_size_must_be_known() -> None:
    node = helper.make_node("SparseAttention", ["q", "k", "v"], ["y"], domain="com.example", block_size=2)
    sizes = {name: (int(TensorProto.FLOAT), [2, "length", 4]) for name in "qkv"}
    with pytest.raises(RewriteError, match="length is not known"):
        rewritten(SparseAttention(), node, sizes)
    node = helper.make_node("na1d", ["q", "k", "v"], ["y"], domain="com.example", kernel_size=[3])
    sizes = {name: (int(TensorProto.FLOAT), [2, "length", 1, 4]) for name in "qkv"}
    with pytest.raises(RewriteError, match="size of axis 1 is not known"):
        rewritten(NeighborhoodAttention(), node, sizes)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("_scaled_dot_product_flash_attention_for_cpu", ["q", "k", "v", "p", "causal", "mask"]),
        ("_scaled_dot_product_efficient_attention", ["q", "k", "v", "mask", "no", "p", "causal", "scale"]),
        ("_scaled_dot_product_attention_math", ["q", "k", "v", "mask", "p", "causal", ""]),
    ],
)
def test_kernels_of_pytorch_by_their_own_argument_order(name: str, inputs: list[str]) -> None:
    constants = {
        "p": np.float64(0),
        "causal": np.bool_(False),
        "no": np.bool_(False),
        "scale": np.float64(0.5),
    }
    node = helper.make_node(name, inputs, ["y"], domain="aten")
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 3, 4]) for n in "qkv"]
    infos.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, [3, 3]))
    fixed = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name="y")], fixed)
    imports = [helper.make_opsetid("", 13), helper.make_opsetid("aten", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    with ModelFile.from_proto(model) as file:
        placeholder = ScaledDotProductAttention()
        decompose(file, Selection((placeholder,), frozenset({placeholder.pass_name()})))
        done = file.hydrate(file.model)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 3, 4)
    mask = torch.randn(3, 3)
    scale = 0.5 if "scale" in inputs else None
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=scale)
    torch.testing.assert_close(ran(done, q=q, k=k, v=v, mask=mask), expected)


def test_dropout_is_refused() -> None:
    node = helper.make_node("SDPA", ["q", "k", "v"], ["y"], domain="com.example", dropout_p=0.1)
    with pytest.raises(RewriteError, match="for training only"):
        rewritten(ScaledDotProductAttention(), node, {n: (int(TensorProto.FLOAT), [2, 3, 4]) for n in "qkv"})


def test_an_argument_too_many_is_refused() -> None:
    node = helper.make_node("Alibi", ["q", "k"], ["y"], domain="com.example")
    with pytest.raises(BindingError):
        rewritten(Alibi(), node, {n: (int(TensorProto.FLOAT), [1, 2, 3, 3]) for n in "qk"})
