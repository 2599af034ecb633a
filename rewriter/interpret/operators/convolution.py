"""Convolutions, their transposes, and the deformable one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from rewriter.interpret.operators.windows import padded, windows
from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rewriter.interpret.call import Call

KERNELS = Kernels()

_FORWARD: tuple[Callable[..., Tensor], ...] = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED: tuple[Callable[..., Tensor], ...] = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


@KERNELS.operator("Conv")
def conv(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rank = _rank(call, x)
    found = windows(call, x.shape[2:], weight.shape[2:])
    padding: Sequence[int] = [0] * rank
    if found.begins == found.ends and min(found.begins) >= 0:
        padding = found.begins
    else:
        x = padded(x, found.begins, found.ends)
    return _FORWARD[rank - 1](x, weight, bias, found.strides, padding, found.dilations, call["group"])


@KERNELS.operator("ConvTranspose")
def conv_transpose(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Computed without padding, then lengthened and cropped, which covers pads of any kind."""
    rank = _rank(call, x)
    strides = call.get("strides") or [1] * rank
    dilations = call.get("dilations") or [1] * rank
    extra = call.get("output_padding") or [0] * rank
    wanted = call.get("output_shape")
    mode = call["auto_pad"]
    pads = call.get("pads") or [0] * (2 * rank)
    made = _TRANSPOSED[rank - 1](x, weight, None, strides, 0, 0, call["group"], dilations)
    begins, ends = [], []
    for i in range(rank):
        full = made.shape[2 + i] + extra[i]
        if wanted or mode in ("SAME_UPPER", "SAME_LOWER"):
            size = wanted[-rank:][i] if wanted else x.shape[2 + i] * strides[i]
            total = full - size
            low = total // 2 if mode == "SAME_UPPER" else total - total // 2
            low = max(low, 0)  # what is missing is added at the end
            high = total - low
        else:
            low, high = (0, 0) if mode == "VALID" else (pads[i], pads[i + rank])
        begins.append(-low)
        ends.append(extra[i] - high)
    made = padded(made, begins, ends)
    return made if bias is None else made + bias.reshape(-1, *[1] * rank)


@KERNELS.operator("ConvInteger")
def conv_integer(
    call: Call, x: Tensor, weight: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Tensor:
    """In int32; what is padded is the zero point, thus 0 after it is taken off."""
    wide = x.to(torch.int32) - (0 if x_zero is None else x_zero.to(torch.int32))
    shift = torch.zeros((), dtype=torch.int32) if w_zero is None else w_zero.to(torch.int32)
    if shift.ndim == 1:
        shift = shift.reshape(-1, *[1] * (weight.ndim - 1))
    exact: Tensor = conv(call, wide.double(), (weight.to(torch.int32) - shift).double())
    return torch.round(exact).to(torch.int32)


@KERNELS.operator("DeformConv")
def deform_conv(
    call: Call,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Two spatial dims: each element of a window is read, bilinearly, where its offset says; zero outside."""
    if x.ndim != 4:
        raise call.unsupported("deformable convolution in other than two dims")
    n, c, height, width = x.shape
    kh, kw = weight.shape[2:]
    found = windows(call, x.shape[2:], weight.shape[2:])
    oh, ow = found.counts
    groups = call["offset_group"]
    moved = offset.reshape(n, groups, kh, kw, 2, oh, ow)
    base_y = (torch.arange(kh) * found.dilations[0] - found.begins[0]).reshape(kh, 1, 1, 1)
    base_y = base_y + (torch.arange(oh) * found.strides[0]).reshape(1, 1, oh, 1)
    base_x = (torch.arange(kw) * found.dilations[1] - found.begins[1]).reshape(1, kw, 1, 1)
    base_x = base_x + (torch.arange(ow) * found.strides[1]).reshape(1, 1, 1, ow)
    y, xx = moved[:, :, :, :, 0] + base_y, moved[:, :, :, :, 1] + base_x  # (N, groups, kh, kw, oh, ow)
    data = x.reshape(n * groups, c // groups, height * width)
    points = kh * kw * oh * ow
    read = _bilinear(data, y.reshape(n * groups, points), xx.reshape(n * groups, points), height, width)
    read = read.reshape(n, groups, c // groups, kh, kw, oh, ow)
    if mask is not None:
        read = read * mask.reshape(n, groups, 1, kh, kw, oh, ow)
    share = call["group"]
    columns = read.reshape(n, share, c // share, kh, kw, oh, ow)
    kernel = weight.reshape(share, weight.shape[0] // share, c // share, kh, kw)
    made = torch.einsum("ngcijhw,gocij->ngohw", columns, kernel).reshape(n, weight.shape[0], oh, ow)
    return made if bias is None else made + bias.reshape(-1, 1, 1)


def _bilinear(data: Tensor, y: Tensor, x: Tensor, height: int, width: int) -> Tensor:
    """(B, C, H·W) at (B, P) coordinates → (B, C, P)."""
    top, left = y.detach().floor(), x.detach().floor()
    result: Tensor | None = None
    for row, weight_y in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, weight_x in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            at = torch.where(inside, row * width + column, 0).to(torch.int64)
            value = data.gather(2, at[:, None].expand(-1, data.shape[1], -1))
            weight = torch.where(inside, weight_y * weight_x, torch.zeros_like(y))
            term = value * weight[:, None]
            result = term if result is None else result + term
    assert result is not None
    return result


def _rank(call: Call, x: Tensor) -> int:
    if not 1 <= x.ndim - 2 <= 3:
        raise call.unsupported(f"PyTorch has no convolution in {x.ndim - 2} dims")
    return x.ndim - 2
