"""Real architectures with random weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Swin(nn.Module):
    """transformers' Swin as a plain function from pixels to features and pooled features; random weights."""

    def __init__(self, attention: str) -> None:
        super().__init__()
        from transformers import SwinConfig, SwinModel

        torch.manual_seed(0)
        config = SwinConfig(
            image_size=56, patch_size=4, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=7
        )
        self.swin = SwinModel._from_config(config, attn_implementation=attention).eval()

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        out = self.swin(pixels)
        return out.last_hidden_state, out.pooler_output


def pixels(batch: int) -> tuple[Tensor]:
    return (torch.randn(batch, 3, 56, 56, generator=torch.Generator().manual_seed(batch)),)
