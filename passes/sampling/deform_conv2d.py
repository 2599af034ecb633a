"""Deformable convolution (Dai et al., 2017, arXiv:1703.06211; modulated: Zhu et al., 2018, arXiv:1811.11168).

The reference is written from torchvision's kernel (torchvision/csrc/ops/cpu/deform_conv2d_kernel.cpp, 0.29); mmcv's
operators have the same layout of offsets (offset group, kernel row and column, then y before x) and of masks.

ONNX's own DeformConv is not used: onnxruntime has a kernel only since 1.25, and it multiplies pixels by a weight of
zero where a tap lies outside, so that an infinity in the first pixel becomes NaN elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes.sampling import _places as places
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Call, Ints, Value

_MMCV = ("x", "offset", "weight")
_MMCV_MODULATED = ("x", "offset", "mask", "weight", "b")


class DeformConv2d(Placeholder):
    """Convolution of `x` (N, C, H, W) whose taps are moved by `offset` (N, 2·G·kh·kw, Ho, Wo) and scaled by `mask`.

    `b` is the bias; `use_mask` false ignores the mask.  `im2col_step` and the flag `bias` are mmcv's, without effect.
    """

    matches = (
        "DeformConv2d",
        "DeformConv",
        "torchvision::deform_conv2d",
        "mmcv::MMCVDeformConv2d",
        "mmcv::MMCVModulatedDeformConv2d",
        "mmdeploy::MMCVDeformConv2d",
        "mmdeploy::MMCVModulatedDeformConv2d",
    )
    standard = {"DeformConv": lambda op: _of_onnx(op)}  # noqa: RUF012
    shapes = "x: N _*CG H W; weight: O CG KH KW; offset: N 2*KH*KW OH OW; mask: N KH*KW OH OW; b: O"
    spellings = {  # noqa: RUF012
        "torchvision.ops.deform_conv2d": ("x", "offset", "weight", "b", "mask"),
        "DeformConv of ONNX": ("x", "weight", "offset", "b", "mask"),
    }
    aliases = {  # noqa: RUF012
        "strides": "stride",
        "pads": "padding",
        "pad": "padding",
        "dilations": "dilation",
        "group": "n_weight_grps",
        "groups": "n_weight_grps",
        "offset_group": "n_offset_grps",
        "offset_groups": "n_offset_grps",
        "deform_groups": "n_offset_grps",
        "deformable_groups": "n_offset_grps",
    }
    schemas = {  # noqa: RUF012
        "torchvision::deform_conv2d": (
            "x",
            "weight",
            "offset",
            "mask",
            "b",
            "stride.0",
            "stride.1",
            "padding.0",
            "padding.1",
            "dilation.0",
            "dilation.1",
            "n_weight_grps",
            "n_offset_grps",
            "use_mask",
        ),
        "mmcv::MMCVDeformConv2d": _MMCV,
        "mmdeploy::MMCVDeformConv2d": _MMCV,
        "mmcv::MMCVModulatedDeformConv2d": _MMCV_MODULATED,
        "mmdeploy::MMCVModulatedDeformConv2d": _MMCV_MODULATED,
    }
    # Sums over many taps and channels, in an order of onnxruntime's own.
    tolerances = {"float32": (2e-5, 2e-5)}  # noqa: RUF012

    def reference(
        self,
        x: Any,
        weight: Any,
        offset: Any,
        mask: Any = None,
        b: Any = None,
        stride: Any = (1, 1),
        padding: Any = (0, 0),
        dilation: Any = (1, 1),
        n_weight_grps: int = 1,
        n_offset_grps: int = 1,
        use_mask: bool = True,
        im2col_step: int = 32,
        bias: bool = False,
    ) -> Any:
        import torch

        fine = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
        image, moved = x.to(fine), offset.to(fine)
        batch, channels, height, width = x.shape
        outputs, _, kh, kw = weight.shape
        (sy, sx), (py, px), (dy, dx) = (_pair(v) for v in (stride, padding, dilation))
        ho, wo = offset.shape[2:]
        groups, taps = n_offset_grps, kh * kw
        moved = moved.reshape(batch, groups, taps, 2, ho, wo)
        rows = torch.arange(ho, dtype=fine) * sy - py
        columns = torch.arange(wo, dtype=fine) * sx - px
        down = (torch.arange(taps) // kw * dy).to(fine)[:, None, None]
        right = (torch.arange(taps) % kw * dx).to(fine)[:, None, None]
        y = moved[:, :, :, 0] + down + rows[:, None]
        across = moved[:, :, :, 1] + right + columns
        # A pixel of zeros on each side, and nothing beyond.
        inside = (y > -1) & (y < height) & (across > -1) & (across < width)
        y, across = y.clamp(-1, height) + 1, across.clamp(-1, width) + 1
        y0, x0 = y.detach().floor().clamp(0, height).long(), across.detach().floor().clamp(0, width).long()
        fy, fx = y - y0, across - x0
        padded = torch.nn.functional.pad(image, (1, 1, 1, 1)).reshape(
            batch, groups, -1, 1, height + 2, width + 2
        )

        def at(rows: Any, columns: Any) -> Any:
            """(N, G, C / G, taps, Ho, Wo)."""
            flat = padded.flatten(4).expand(-1, -1, -1, taps, -1)
            index = (rows * (width + 2) + columns).flatten(3)[:, :, None]
            index = index.expand(-1, -1, channels // groups, -1, -1)
            gathered: Any = flat.gather(4, index)
            return gathered.reshape(*gathered.shape[:4], ho, wo)

        def share(value: Any) -> Any:
            return value[:, :, None]

        value = (
            share((1 - fy) * (1 - fx)) * at(y0, x0)
            + share((1 - fy) * fx) * at(y0, x0 + 1)
            + share(fy * (1 - fx)) * at(y0 + 1, x0)
            + share(fy * fx) * at(y0 + 1, x0 + 1)
        )
        value = torch.where(share(inside), value, torch.zeros_like(value))
        if mask is not None and use_mask:
            value = value * share(mask.to(fine).reshape(batch, groups, taps, ho, wo))
        parts = value.reshape(batch, n_weight_grps, -1, ho * wo)
        kernel = weight.to(fine).reshape(n_weight_grps, outputs // n_weight_grps, -1)
        result = (kernel @ parts).reshape(batch, outputs, ho, wo)
        if b is not None:
            result = result + b.to(fine)[:, None, None]
        return result.to(x.dtype)

    def infer(self, x: Value, weight: Value, offset: Value, **_: Any) -> Any:
        if x.type is None or not (x.has_rank and weight.has_rank and offset.has_rank):
            return None
        return x.type.with_shape((x.shape[0], weight.shape[0], *offset.shape[2:]))

    @decomposition(
        opset=16,
        portable=False,
        requires=lambda x, **_: places.has_kernel(x),
        reason="columns by GridSample's fast path, 5 times as fast as PyTorch",
    )
    def grid_sample(
        self,
        g: Builder,
        x: Value,
        weight: Value,
        offset: Value,
        mask: Value | None = None,
        b: Value | None = None,
        stride: Ints = (1, 1),
        padding: Ints = (0, 0),
        dilation: Ints = (1, 1),
        n_weight_grps: int = 1,
        n_offset_grps: int = 1,
        use_mask: bool = True,
        im2col_step: int = 32,
        bias: bool = False,
    ) -> Value:
        plan = _Plan(g, x, weight, offset, stride, padding, dilation, n_weight_grps, n_offset_grps)
        if plan.is_empty:
            return plan.nothing(g, x)
        scaled = []
        for place, axis in ((plan.columns(g), 3), (plan.rows(g), 2)):
            size = g.dim(x, axis)
            limit = g.const(float(size), place) if isinstance(size, int) else g.cast(size, place)
            # The kernel's integers would overflow far outside, and NaN would be the first pixel.
            place = g.minimum(places.at_least(g, place, -2.0), limit + 1)
            scaled.append((place * 2 + 1) / limit - 1)
        grid = g.transpose(g.concat(scaled, axis=2), [0, 1, 3, 4, 2])
        grid = g.reshape(grid, [plan.images, g.product([plan.taps, plan.height]), plan.width, 2])
        mode = "linear" if g.opset >= 20 else "bilinear"
        parts = plan.parted(g, g.cast(x, plan.dtype))
        made = g.op("GridSample", parts, grid, mode=mode, padding_mode="zeros", align_corners=0)
        value = g.reshape(made, [plan.images, plan.channels_each, g.product([plan.taps, plan.area])])
        if mask is not None and use_mask:
            value = value * plan.mask(g, mask)
        return plan.product(g, value, weight, b, x)

    @decomposition()
    def gathers(
        self,
        g: Builder,
        x: Value,
        weight: Value,
        offset: Value,
        mask: Value | None,
        b: Value | None,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        n_weight_grps: int,
        n_offset_grps: int,
        use_mask: bool,
        **_: Any,
    ) -> Value:
        plan = _Plan(g, x, weight, offset, stride, padding, dilation, n_weight_grps, n_offset_grps)
        if plan.is_empty:
            return plan.nothing(g, x)
        count = g.product([plan.taps, plan.area])
        flat = [g.reshape(p, [plan.images, 1, count]) for p in (plan.columns(g), plan.rows(g))]
        sizes = [g.dim(x, 3), g.dim(x, 2)]
        scale = plan.mask(g, mask) if mask is not None and use_mask else None
        found = places.linear_zeros(g, g.concat(flat, axis=1), sizes, scale)
        value = places.read(g, plan.parted(g, g.cast(x, plan.dtype)), found, 2, 2)
        return plan.product(g, value, weight, b, x)

    def cases(self) -> Iterator[Case]:
        known: Any = {"symbolic": False, "reason": "the kernel's size must be known"}
        once: Any = {"opsets": (16, 16), "dtypes": ["float32", "float64"], **known}
        x, weight = f32(2, 4, 5, 6), f32(3, 4, 3, 2)

        def moved(*shape: int) -> Any:
            return f32(*shape, draw=lambda rng, s: rng.uniform(-2.4, 2.4, s))

        yield Case(
            x,
            f32(4, 2, 3, 2),
            moved(2, 24, 3, 3),
            f32(2, 12, 3, 3),
            f32(4),
            stride=[2, 2],
            padding=[1, 0],
            n_weight_grps=2,
            n_offset_grps=2,
            **known,
        )
        yield Case(x, weight, moved(2, 12, 3, 5), **once)
        yield Case(x, weight, moved(2, 12, 5, 5), None, f32(3), padding=[2, 1], dilation=[2, 3], **once)
        yield Case(x, weight, moved(2, 12, 2, 3), f32(2, 6, 2, 3), stride=[2, 2], **once)
        yield Case(x, weight, moved(2, 12, 3, 5), f32(2, 6, 3, 5), f32(3), use_mask=False, **once)
        yield Case(x, weight, moved(2, 12, 4, 7), None, None, padding=[1, 0, 0, 2], **once)
        yield Case(f32(1, 32, 3, 3), f32(2, 32, 1, 1), moved(1, 2, 3, 3), **once)
        yield Case(f32(1, 4, 3, 3), f32(4, 1, 2, 2), moved(1, 8, 2, 2), n_weight_grps=4, **once)
        # Far outside, and an infinity that no tap touches.
        far = [1e9, -1e9, 1e30, 0.0, -1e30, 0.25, 0.5, -40.0]
        once["dtypes"] = ["float32"]
        yield Case(f32(1, 1, 3, 4), f32(1, 1, 1, 1), f32(1, 2, 2, 2, value=far), stride=[2], **once)
        image = [float("inf"), *[0.5 * i for i in range(1, 12)]]
        inner = [1.25, 1.0, -0.5, -9.0, 1.5, 0.5, 1.5, 1.0]
        yield Case(
            f32(1, 1, 3, 4, value=image), f32(1, 1, 1, 1), f32(1, 2, 2, 2, value=inner), stride=[2], **once
        )


def _of_onnx(op: Call) -> dict[str, Any] | None:
    """Arguments for ONNX's DeformConv on images; padding that differs between the sides is put around the image."""
    x, weight, offset = op.x, op.input(1), op.input(2)
    if x.rank != 4 or weight is None or offset is None:
        return None
    pads = op.get("pads", [0, 0, 0, 0])
    around = (pads[0], pads[1])
    if pads[:2] != pads[2:]:
        x, around = x.builder.pad(x, [0, 0, *pads[:2]], [0, 0, *pads[2:]], value=0.0), (0, 0)
    return {
        "x": x,
        "weight": weight,
        "offset": offset,
        "b": op.input(3),
        "mask": op.input(4),
        "stride": tuple(op.get("strides", [1, 1])),
        "padding": around,
        "dilation": tuple(op.get("dilations", [1, 1])),
        "n_weight_grps": op.get("group"),
        "n_offset_grps": op.get("offset_group"),
        "use_mask": op.input(4) is not None,
    }


class _Plan:
    """Shapes of one deformable convolution; G offset groups, T = kh·kw taps."""

    def __init__(
        self,
        g: Builder,
        x: Value,
        weight: Value,
        offset: Value,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        weight_groups: int,
        offset_groups: int,
    ) -> None:
        if (x.rank, weight.rank, offset.rank) != (4, 4, 4):
            raise UnsupportedParameter(
                f"input, weight and offset have ranks {x.rank}, {weight.rank} and {offset.rank}, not 4",
                where=g.where,
            )
        kernel = weight.size(2), weight.size(3)
        if kernel[0] is None or kernel[1] is None:
            raise UnsupportedParameter(
                "the kernel's size must be known", where=g.where, remedy="export with a weight of known shape"
            )
        self.kernel = (kernel[0], kernel[1])
        self.taps = kernel[0] * kernel[1]
        g.afford(2 * self.taps)
        self.weight_groups, self.groups = weight_groups, offset_groups
        self.stride, self.dilation = _pair(stride), _pair(dilation)
        self.pads = tuple(padding) if len(padding) == 4 else (*_pair(padding), *_pair(padding))
        self.dtype = places.wide(x)
        self.batch, channels = g.dim(x, 0), g.dim(x, 1)
        if not isinstance(channels, int):
            per_group = weight.size(1)
            if per_group is None:
                raise UnsupportedParameter(
                    "the number of channels must be known",
                    where=g.where,
                    remedy="export with static channels",
                )
            channels = per_group * weight_groups
        if channels % offset_groups or channels % weight_groups:
            raise UnsupportedParameter(
                f"{channels} channels cannot be parted into {offset_groups} offset and {weight_groups} weight groups",
                where=g.where,
            )
        self.channels, self.channels_each = channels, channels // offset_groups
        self.images = g.product([self.batch, offset_groups])
        self.outputs = g.dim(weight, 0)
        self.height, self.width = g.dim(offset, 2), g.dim(offset, 3)
        self.area = g.product([self.height, self.width])
        self.offset = offset
        self._axes: tuple[Value, ...] | None = None
        self._x, self._weight = x, weight

    @property
    def is_empty(self) -> bool:
        return places.is_empty(self.batch, self.outputs, self.channels, self.height, self.width)

    def nothing(self, g: Builder, x: Value) -> Value:
        if self.channels == 0:
            raise UnsupportedParameter("there are no channels to sum over", where=g.where)
        return g.constant_of_shape([self.batch, self.outputs, self.height, self.width], 0.0, x)

    def _moved(self, g: Builder) -> tuple[Value, ...]:
        """Offsets in y and in x, (N·G, T, 1, Ho, Wo) each."""
        if self._axes is None:
            shape = [self.images, self.taps, 2, self.height, self.width]
            self._axes = g.split(g.reshape(g.cast(self.offset, self.dtype), shape), [1, 1], 2)
        return self._axes

    def rows(self, g: Builder) -> Value:
        tap = np.arange(self.taps) // self.kernel[1] * self.dilation[0] - self.pads[0]
        return self._placed(g, 0, tap, self.height, self.stride[0])

    def columns(self, g: Builder) -> Value:
        tap = np.arange(self.taps) % self.kernel[1] * self.dilation[1] - self.pads[1]
        return self._placed(g, 1, tap, self.width, self.stride[1])

    def _placed(self, g: Builder, axis: int, tap: Any, size: int | Value, stride: int) -> Value:
        """Where the taps lie, in pixels, (N·G, T, 1, Ho, Wo)."""
        moved = self._moved(g)[axis]
        around = [0, 1, 3] if axis == 0 else [0, 1, 2]
        if isinstance(size, int):
            base = tap.reshape(-1, 1, 1, 1) + np.expand_dims(np.arange(size) * stride, around)
            return moved + g.const(base, moved)
        index = g.cast(g.range(g.ints(0), g.squeeze(size, [0]), g.ints(1)), moved) * stride
        return moved + (g.unsqueeze(index, around) + g.const(tap.reshape(-1, 1, 1, 1), moved))

    def parted(self, g: Builder, x: Value) -> Value:
        """Offset groups as images of their own, (N·G, C / G, H, W)."""
        if self.groups == 1:
            return x
        return g.reshape(x, [self.images, self.channels_each, g.dim(x, 2), g.dim(x, 3)])

    def mask(self, g: Builder, mask: Value) -> Value:
        """(N·G, 1, T·Ho·Wo)."""
        return g.reshape(g.cast(mask, self.dtype), [self.images, 1, g.product([self.taps, self.area])])

    def product(self, g: Builder, value: Value, weight: Value, bias: Value | None, x: Value) -> Value:
        """Columns (N·G, C / G, T·Ho·Wo) times the weight."""
        groups = self.weight_groups
        length = self.channels // groups * self.taps
        kernel = g.cast(weight, self.dtype)
        if groups == 1:
            parts = g.reshape(value, [self.batch, length, self.area])
            made = g.matmul(g.reshape(kernel, [self.outputs, length]), parts)
        else:
            each = weight.size(0)
            if each is None:
                raise UnsupportedParameter("the number of outputs must be known in groups", where=g.where)
            parts = g.reshape(value, [self.batch, groups, length, self.area])
            made = g.matmul(g.reshape(kernel, [groups, each // groups, length]), parts)
        result = g.reshape(made, [self.batch, self.outputs, self.height, self.width])
        if bias is not None:
            result = result + g.reshape(g.cast(bias, self.dtype), [self.outputs, 1, 1])
        known = (self._x.shape[0], self._weight.shape[0], *self.offset.shape[2:])
        return g.cast(g.retyped(result, known), x)


def _pair(values: Any) -> tuple[int, int]:
    if isinstance(values, int):
        return values, values
    return (values[0], values[0]) if len(values) == 1 else (values[0], values[1])
