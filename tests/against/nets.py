"""Small modules with placeholders, importable by path as a user's own would be."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rewriter.torch import placeholder


@placeholder("com.example::Roll")
def roll(x: Tensor, shifts: int, dims: int) -> Tensor:
    return torch.roll(x, shifts, dims)


class Net(nn.Module):
    """(x: n×6, other: n×6) → two tensors and an absent one; a roll in its middle."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.dropout = nn.Dropout(0.5)
        self.scale = scale

    def forward(self, x: Tensor, other: Tensor) -> dict[str, Tensor | tuple[Tensor, ...] | None]:
        h = torch.relu(self.linear(x))
        h = roll(h, 1, -1)
        h = self.dropout(self.norm(h))
        h = h * self.scale
        a, b = torch.split(h, 3, -1)
        return {"sum": h + other, "parts": (a * b,), "none": None}


class Pair(nn.Module):
    """A dict and a tuple of tensors as inputs."""

    def forward(self, options: dict[str, Tensor], pair: tuple[Tensor, Tensor]) -> Tensor:
        return pair[0] - 2 * pair[1] + options["bias"] * 3


def build() -> Net:
    return Net()


def rescaled() -> Net:
    """The net after its export, changed."""
    return Net(3.0)


def untrained() -> Net:
    """Other weights than those that were exported."""
    net = Net()
    with torch.no_grad():
        net.linear.weight += 0.1
    return net


def needs(size: int) -> Net:
    raise AssertionError(size)


def broken() -> Net:
    raise ValueError("no weights here")


instance = Net()
not_a_module = 7
