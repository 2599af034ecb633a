"""Fourier transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()


@KERNELS.operator("DFT", since=20)
def dft(call: Call, x: Tensor, length: Tensor | None = None, axis: Tensor | None = None) -> Tensor:
    return _dft(call, x, length, -2 if axis is None else int(axis.item()))


@KERNELS.operator("DFT")
def dft_with_attribute(call: Call, x: Tensor, length: Tensor | None = None) -> Tensor:
    return _dft(call, x, length, call["axis"])


def _dft(call: Call, x: Tensor, length: Tensor | None, axis: int) -> Tensor:
    """The last axis holds real parts, with imaginary ones or without."""
    axis = axis % x.ndim
    size = None if length is None else int(length.item())
    inverse, onesided = bool(call["inverse"]), bool(call["onesided"])
    if inverse and onesided:
        return torch.unsqueeze(torch.fft.irfft(_complex(x), size, dim=axis), -1)
    if onesided:
        return torch.view_as_real(torch.fft.rfft(x[..., 0], size, dim=axis))
    given = _complex(x)
    transform = torch.fft.ifft if inverse else torch.fft.fft
    return torch.view_as_real(transform(given, size, dim=axis))


def _complex(x: Tensor) -> Tensor:
    imaginary = x[..., 1] if x.shape[-1] == 2 else torch.zeros_like(x[..., 0])
    return torch.complex(x[..., 0], imaginary)


@KERNELS.operator("STFT")
def stft(
    call: Call, x: Tensor, step: Tensor, window: Tensor | None = None, length: Tensor | None = None
) -> Tensor:
    """(batch, frames, bins, 2) of (batch, samples, 1 or 2)."""
    size = (
        len(window)
        if length is None and window is not None
        else int(length.item())
        if length is not None
        else 0
    )
    if not size:
        raise call.refused("neither window nor frame_length are given")
    signal = x if x.ndim == 3 else x.unsqueeze(-1)
    frames = signal.unfold(1, size, int(step.item())).permute(0, 1, 3, 2)  # (batch, frames, size, parts)
    if window is not None:
        frames = frames * window.reshape(-1, 1)
    if call["onesided"]:
        return torch.view_as_real(torch.fft.rfft(frames[..., 0], dim=2))
    return torch.view_as_real(torch.fft.fft(_complex(frames), dim=2))
