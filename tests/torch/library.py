"""A library as users have them: a registered operator behind a Python function, and a class with a method."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("onnx_rewrite_library::shifted", mutates_args=())
def _shifted(x: Tensor, by: int) -> Tensor:
    return torch.roll(x, by, -1)


@_shifted.register_fake
def _(x: Tensor, by: int) -> Tensor:
    return torch.empty_like(x)


def shifted(x: Tensor, by: int) -> Tensor:
    return torch.ops.onnx_rewrite_library.shifted(x, by)  # type: ignore[no-any-return]


@torch.jit.script
def scripted(x: Tensor, by: int) -> Tensor:
    return torch.roll(x, [by], [-1])


class Shifter:
    @staticmethod
    def shift(x: Tensor, by: int) -> Tensor:
        return torch.roll(x, by, -1)
