"""transformers' RT-DETR and Deformable DETR: multi-scale deformable attention as a placeholder."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.onnx import OperatorExportTypes

from rewriter.torch import placeholder
from tests.models.architectures import Architecture, jittered, noise, replaced


def _attend(
    value: Tensor, spatial_shapes: Tensor, sampling_locations: Tensor, attention_weights: Tensor
) -> Tensor:
    """As `multi_scale_deformable_attn_pytorch` of mmcv/ops/multi_scale_deform_attn.py."""
    n, _, heads, channels = value.shape
    queries = sampling_locations.shape[1]
    sizes = spatial_shapes.tolist()
    sampled = []
    for level, part in enumerate(value.split([h * w for h, w in sizes], 1)):
        plane = part.flatten(2).transpose(1, 2).reshape(n * heads, channels, *sizes[level])
        grid = (2 * sampling_locations - 1)[:, :, :, level].transpose(1, 2).flatten(0, 1)
        sampled.append(F.grid_sample(plane, grid, align_corners=False))
    weights = attention_weights.transpose(1, 2).reshape(n * heads, 1, queries, -1)
    summed = (torch.stack(sampled, -2).flatten(-2) * weights).sum(-1)
    return summed.view(n, heads * channels, queries).transpose(1, 2).contiguous()


@placeholder("mmcv::MultiScaleDeformableAttention")
def ms_deform_attn(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    im2col_step: int = 64,
) -> Tensor:
    return _attend(value, value_spatial_shapes, sampling_locations, attention_weights)


@ms_deform_attn.register_fake
def _(value: Tensor, sampling_locations: Tensor, **_others: Any) -> Tensor:
    n, _, heads, channels = value.shape
    return value.new_empty(n, sampling_locations.shape[1], heads * channels)


@torch.library.custom_op("onnx_rewrite_tests::ms_deform_attn", mutates_args=())
def library_ms_deform_attn(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    im2col_step: int,
) -> Tensor:
    return _attend(value, spatial_shapes, sampling_locations, attention_weights)


def _placeholder_forward(
    self: nn.Module,
    value: Tensor,
    shapes: Tensor,
    _shapes_list: Any,
    starts: Tensor,
    locations: Tensor,
    weights: Tensor,
    step: int,
) -> Any:
    return ms_deform_attn(value, shapes, starts, locations, weights, step)


def _library_forward(
    self: nn.Module,
    value: Tensor,
    shapes: Tensor,
    _shapes_list: Any,
    starts: Tensor,
    locations: Tensor,
    weights: Tensor,
    step: int,
) -> Any:
    return library_ms_deform_attn(value, shapes, starts, locations, weights, step)


class Detector(nn.Module):
    """Class logits (batch, queries, classes) and boxes (batch, queries, 4) of images."""

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        out = self.detector(pixels)
        return out.logits, out.pred_boxes


def _resnet(**options: Any) -> Any:
    from transformers import RTDetrResNetConfig

    return RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], layer_type="basic", **options
    )


def rt_detr() -> nn.Module:
    from transformers import RTDetrConfig, RTDetrForObjectDetection

    torch.manual_seed(0)
    config = RTDetrConfig(
        backbone_config=_resnet(out_features=["stage2", "stage3", "stage4"]),
        encoder_in_channels=[8, 16, 16],
        encoder_hidden_dim=16,
        encoder_ffn_dim=16,
        encoder_attention_heads=2,
        decoder_in_channels=[16, 16, 16],
        d_model=16,
        decoder_ffn_dim=16,
        decoder_attention_heads=2,
        decoder_layers=2,
        num_queries=12,
        num_labels=5,
        attn_implementation="eager",
    )
    return Detector(jittered(RTDetrForObjectDetection(config)))


def deformable_detr() -> nn.Module:
    from transformers import DeformableDetrConfig, DeformableDetrForObjectDetection

    torch.manual_seed(0)
    config = DeformableDetrConfig(
        backbone_config=_resnet(out_features=["stage2", "stage3", "stage4"]),
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        num_queries=10,
        num_labels=5,
        attn_implementation="eager",
    )
    return Detector(jittered(DeformableDetrForObjectDetection(config)))


def _rt_detr_placeholders() -> Any:
    from transformers.models.rt_detr import modeling_rt_detr as source

    return replaced((source.MultiScaleDeformableAttention, "forward", _placeholder_forward))


def _deformable_detr_placeholders() -> Any:
    from transformers.models.deformable_detr import modeling_deformable_detr as source

    return replaced((source.MultiScaleDeformableAttention, "forward", _placeholder_forward))


def _deformable_detr_library() -> Any:
    from transformers.models.deformable_detr import modeling_deformable_detr as source

    return replaced((source.MultiScaleDeformableAttention, "forward", _library_forward))


def _pixels(size: int) -> tuple[Tensor]:
    return (noise(size, 3, 96, 96),)


RT_DETR = Architecture(
    rt_detr, _pixels, _rt_detr_placeholders, {"mmcv::MultiScaleDeformableAttention": 2}, tolerance=1e-4
)
DEFORMABLE_DETR = Architecture(
    deformable_detr,
    _pixels,
    _deformable_detr_placeholders,
    {"mmcv::MultiScaleDeformableAttention": 3},
    tolerance=1e-4,
)
#: The same by an operator of the dispatcher's that the exporter lets through, named by the user.
DEFORMABLE_DETR_THROUGH = Architecture(
    deformable_detr,
    _pixels,
    _deformable_detr_library,
    {"onnx_rewrite_tests::ms_deform_attn": 3},
    passes=("ms_deform_attn",),
    tolerance=1e-4,
    legacy={"operator_export_type": OperatorExportTypes.ONNX_FALLTHROUGH},
)
