"""transformers' Mamba: the selective scan as a placeholder, and the norms around it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewriter.torch import placeholder
from tests.models.architectures import Architecture, jittered, replaced


@placeholder("com.example::SelectiveScan")
def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    D: Tensor | None = None,  # noqa: N803
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
) -> Tensor:
    """As `selective_scan_ref` of mamba_ssm/ops/selective_scan_interface.py."""
    delta = delta if delta_bias is None else delta + delta_bias[:, None]
    delta = F.softplus(delta) if delta_softplus else delta
    state = u.new_zeros(*u.shape[:2], A.shape[1])
    found = []
    for t in range(u.shape[2]):
        step = delta[:, :, t, None]
        state = torch.exp(step * A) * state + step * B[:, None, :, t] * u[:, :, t, None]
        found.append((state * C[:, None, :, t]).sum(-1))
    result = torch.stack(found, 2)
    result = result if D is None else result + u * D[:, None]
    return result if z is None else result * F.silu(z)


@selective_scan.register_fake
def _(u: Tensor, **_others: Any) -> Tensor:
    return torch.empty_like(u)


@placeholder("com.example::RMSNorm")
def rms_norm(input: Tensor, normalized_shape: list[int], weight: Tensor, eps: float) -> Tensor:  # noqa: A002
    return F.rms_norm(input, normalized_shape, weight, eps)


def _scan(u: Tensor, delta: Tensor, *matrices: Tensor, **options: Any) -> Any:
    assert not options["return_last_state"]
    given = {name: options[name] for name in ("D", "z", "delta_bias", "delta_softplus")}
    return selective_scan(u, delta, *matrices, **given)


def _norm(self: Any, hidden_states: Tensor) -> Any:
    return rms_norm(hidden_states, list(self.weight.shape), self.weight, self.variance_epsilon)


class Language(nn.Module):
    """Features (batch, length, channels) of tokens (batch, length)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens, use_cache=False).last_hidden_state


def mamba() -> nn.Module:
    from transformers import MambaConfig, MambaModel

    torch.manual_seed(0)
    config = MambaConfig(vocab_size=50, hidden_size=16, state_size=4, num_hidden_layers=2, time_step_rank=2)
    return Language(jittered(MambaModel(config)))


def _placeholders() -> Any:
    from transformers.models.mamba import modeling_mamba as source

    return replaced((source, "mamba_selective_scan", _scan), (source.MambaRMSNorm, "forward", _norm))


def tokens(batch: int, length: int, vocabulary: int = 50) -> Tensor:
    return torch.randint(
        2, vocabulary, (batch, length), generator=torch.Generator().manual_seed(batch + length)
    )


OPERATORS = {"com.example::SelectiveScan": 2, "com.example::RMSNorm": 3}
#: A length that is known, written out step by step; and any length.
MAMBA = Architecture(mamba, lambda size: (tokens(size, 20),), _placeholders, OPERATORS)
MAMBA_ANY_LENGTH = Architecture(
    mamba,
    lambda size: (tokens(2, size),),
    _placeholders,
    OPERATORS,
    sizes=(7, 70),
    example=11,
    dynamic=({0: "batch", 1: "length"},),
)
