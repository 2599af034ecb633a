"""Random numbers, drawn by torch's generator; a node's own ``seed`` gives the same ones each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rewriter.interpret.call import Call

KERNELS = Kernels()


def _generator(call: Call) -> torch.Generator | None:
    seed = call.get("seed")
    return None if seed is None else torch.Generator().manual_seed(int(seed))


def _uniform(call: Call, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    drawn = torch.rand(tuple(shape), dtype=torch.float64, generator=_generator(call))
    spread: float = call["high"] - call["low"]
    return torch.add(drawn * spread, call["low"]).to(dtype)


def _normal(call: Call, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    drawn = torch.randn(tuple(shape), dtype=torch.float64, generator=_generator(call))
    spread: float = call["scale"]
    return torch.add(drawn * spread, call["mean"]).to(dtype)


def _like(call: Call, x: Tensor) -> torch.dtype:
    return x.dtype if call.get("dtype") is None else call.dtype(call["dtype"])


@KERNELS.operator("RandomUniform")
def random_uniform(call: Call) -> Tensor:
    return _uniform(call, call["shape"], call.dtype(call["dtype"]))


@KERNELS.operator("RandomUniformLike")
def random_uniform_like(call: Call, x: Tensor) -> Tensor:
    return _uniform(call, x.shape, _like(call, x))


@KERNELS.operator("RandomNormal")
def random_normal(call: Call) -> Tensor:
    return _normal(call, call["shape"], call.dtype(call["dtype"]))


@KERNELS.operator("RandomNormalLike")
def random_normal_like(call: Call, x: Tensor) -> Tensor:
    return _normal(call, x.shape, _like(call, x))
