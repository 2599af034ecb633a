"""transformers' EfficientNet with fused convolutions, and ConvNeXt with layer_norm and gelu, as placeholders."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewriter.torch import export_placeholders, placeholder
from tests.models.architectures import Architecture, jittered, noise, replaced


def _convolved(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    statistics: tuple[Tensor, Tensor, Tensor, Tensor],
    stride: list[int],
    padding: list[int],
    groups: int,
    eps: float,
) -> Tensor:
    scale, shift, mean, variance = statistics
    made = F.conv2d(x, weight, bias, stride, padding, 1, groups)
    return F.batch_norm(made, mean, variance, scale, shift, eps=eps)


@placeholder("com.example::ConvBnSilu")
def conv_bn_silu(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None,
    bn_weight: Tensor,
    bn_bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    stride: list[int],
    padding: list[int],
    groups: int,
    eps: float,
) -> Tensor:
    statistics = (bn_weight, bn_bias, running_mean, running_var)
    return F.silu(_convolved(input, weight, bias, statistics, stride, padding, groups, eps))


@placeholder("com.example::ConvBn")
def conv_bn(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None,
    bn_weight: Tensor,
    bn_bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    stride: list[int],
    padding: list[int],
    groups: int,
    eps: float,
) -> Tensor:
    statistics = (bn_weight, bn_bias, running_mean, running_var)
    return _convolved(input, weight, bias, statistics, stride, padding, groups, eps)


def _fused(operator: Any, x: Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> Any:
    around = [size // 2 for size in conv.kernel_size] if conv.padding == "same" else [0, 0]
    return operator(
        x,
        conv.weight,
        conv.bias,
        norm.weight,
        norm.bias,
        norm.running_mean,
        norm.running_var,
        list(conv.stride),
        around,
        conv.groups,
        norm.eps,
    )


def _stem(self: Any, pixel_values: Tensor) -> Any:
    return _fused(conv_bn_silu, self.padding(pixel_values), self.convolution, self.batchnorm)


def _expansion(self: Any, x: Tensor) -> Any:
    return _fused(conv_bn_silu, x, self.expand_conv, self.expand_bn)


def _depthwise(self: Any, x: Tensor) -> Any:
    padded = self.depthwise_conv_pad(x) if self.stride == 2 else x
    return _fused(conv_bn_silu, padded, self.depthwise_conv, self.depthwise_norm)


def _projection(self: Any, embeddings: Tensor, x: Tensor) -> Any:
    made = _fused(conv_bn, x, self.project_conv, self.project_bn)
    return made + embeddings if self.apply_dropout else made


class Features(nn.Module):
    """Features of images, and their mean."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        out = self.model(pixels)
        return out.last_hidden_state, out.pooler_output


def efficientnet() -> nn.Module:
    from transformers import EfficientNetConfig, EfficientNetModel

    torch.manual_seed(0)
    config = EfficientNetConfig(
        image_size=64,
        width_coefficient=0.25,
        depth_coefficient=1.0,
        depth_divisor=4,
        hidden_dim=320,
        kernel_sizes=[3, 3, 5],
        in_channels=[32, 16, 24],
        out_channels=[16, 24, 40],
        strides=[1, 2, 2],
        num_block_repeats=[1, 2, 1],
        expand_ratios=[1, 4, 4],
        depthwise_padding=[],
        hidden_act="swish",
    )
    model = jittered(EfficientNetModel(config))
    # Statistics of what the layers see, as training leaves them; else the signal dies out from block to block.
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
            module.reset_running_stats()
    with torch.no_grad():
        model.train()(noise(8, 3, 64, 64))
    return Features(model.eval())


def convnext() -> nn.Module:
    from transformers import ConvNextConfig, ConvNextModel

    torch.manual_seed(0)
    config = ConvNextConfig(hidden_sizes=[8, 12, 16, 24], depths=[1, 1, 2, 1], image_size=64)
    return Features(jittered(ConvNextModel(config)))


def _efficientnet_placeholders() -> Any:
    from transformers.models.efficientnet import modeling_efficientnet as source

    return replaced(
        (source.EfficientNetEmbeddings, "forward", _stem),
        (source.EfficientNetExpansionLayer, "forward", _expansion),
        (source.EfficientNetDepthwiseLayer, "forward", _depthwise),
        (source.EfficientNetFinalBlockLayer, "forward", _projection),
    )


@placeholder("com.example::Gelu")
def gelu(input: Tensor, approximate: str = "none") -> Tensor:  # noqa: A002
    return F.gelu(input, approximate=approximate)


@placeholder("com.example::LayerNorm")
def layer_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def gelu_and_layer_norm() -> Any:
    return export_placeholders(
        {
            (F.gelu, torch._C._nn.gelu, torch.ops.aten.gelu): gelu,
            F.layer_norm: layer_norm,
        }
    )


def _pixels(size: int) -> tuple[Tensor]:
    return (noise(size, 3, 64, 64),)


EFFICIENTNET = Architecture(
    efficientnet,
    _pixels,
    _efficientnet_placeholders,
    # Stem; four depthwise layers, three of them behind an expansion; four projections.
    {"com.example::ConvBnSilu": 8, "com.example::ConvBn": 4},
)
CONVNEXT = Architecture(
    convnext,
    _pixels,
    gelu_and_layer_norm,
    # A norm in each of five blocks, before each downsampling, in the stem and at the end.
    {"com.example::LayerNorm": 10, "com.example::Gelu": 5},
)
