"""transformers' Longformer: attention within a window as a placeholder.

BigBird is not here: in evaluation transformers' BigBird takes the first block of keys for each of its random
blocks, and so counts it twice, which is no pattern of blocks; without random blocks it does not run.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewriter.torch import placeholder
from tests.models.architectures import Architecture, jittered, replaced
from tests.models.mamba import tokens

LENGTH = 32


@placeholder("com.example::SparseAttention")
def sparse_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_size: int,
    window: int,
) -> Tensor:
    block = torch.arange(query.shape[-2]) // block_size
    near = (block[:, None] - block).abs() <= window
    return F.scaled_dot_product_attention(query, key, value, near)


@sparse_attention.register_fake
def _(value: Tensor, **_others: Any) -> Tensor:
    return torch.empty_like(value)


def _longformer_attention(self: Any, hidden_states: Tensor, **_masks: Any) -> Any:
    """Each token attends to those at most half a window away: blocks of one token."""
    query, key, value = (
        projection(hidden_states).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        for projection in (self.query, self.key, self.value)
    )
    found = sparse_attention(query, key, value, 1, self.one_sided_attn_window_size)
    return (found.transpose(1, 2).flatten(2),)


class Features(nn.Module):
    """Features (batch, length, channels) of tokens (batch, length), none of them padding."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens).last_hidden_state


_SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
}


def longformer() -> nn.Module:
    from transformers import LongformerConfig, LongformerModel

    torch.manual_seed(0)
    config = LongformerConfig(attention_window=[4, 8], **_SIZES)
    return Features(jittered(LongformerModel(config, add_pooling_layer=False)))


def _longformer_placeholders() -> Any:
    from transformers.models.longformer import modeling_longformer as source

    return replaced((source.LongformerSelfAttention, "forward", _longformer_attention))


def _tokens(size: int) -> tuple[Tensor]:
    return (tokens(size, LENGTH),)


LONGFORMER = Architecture(longformer, _tokens, _longformer_placeholders, {"com.example::SparseAttention": 2})
