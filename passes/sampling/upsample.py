"""Resampling of images and volumes as `torch.nn.functional.interpolate` does it where exporters fall short."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from passes.sampling import _places as places
from passes.sampling._upsample import Upsample, factors_of, resize_serves
from rewriter.placeholder import Case, decomposition, f32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rewriter.placeholder import Builder, Value


class UpsampleTrilinear3d(Upsample):
    """Volumes (N, C, D, H, W) resampled linearly along each axis; the meaning of `aten::upsample_trilinear3d`."""

    name = "upsample_trilinear3d"
    finite = True
    matches = ("UpsampleTrilinear3d", "aten::upsample_trilinear3d")
    shapes = "x: N C D H W; output_size: 3"
    mode: ClassVar[str] = "linear"
    dims: ClassVar[int] = 3
    interpolate: ClassVar[str] = "trilinear"

    @decomposition(
        when=lambda **_: True,
        requires=lambda **given: _by_resize(3, given),
        portable=False,
        reason="onnxruntime's Resize does three axes at once",
    )
    def resize(self, g: Builder, x: Value, **arguments: Any) -> Value:
        return self.by_resize(g, x, **arguments)

    def cases(self) -> Iterator[Case]:
        computed: Any = {"symbolic": False, "reason": "the length of output_size is that of the axes"}
        x = f32(2, 3, 3, 4, 5)
        yield Case(x, [5, 2, 7])
        yield Case(x, [4, 6, 5], True)
        once: Any = {"opsets": (13, 13), "dtypes": ["float32", "float64"]}
        yield Case(x, [3, 1, 1], True, **once)
        yield Case(x, None, False, [1.5, 2.0, 0.75], **once)
        yield Case(x, [4, 8, 3], False, 1.5, 2.0, 0.75, **once)
        yield Case(x, [3, 4, 5], **once)
        yield Case(f32(0, 3, 2, 2, 2), [3, 3, 3], opsets=(13, 13), dtypes=["float32"])
        yield Case(x, i64(3, value=(4, 2, 6)), False, **once, **computed)


class UpsampleBilinear2dAa(Upsample):
    """Images resampled linearly, antialiased where they become smaller; `aten::_upsample_bilinear2d_aa`."""

    name = "upsample_bilinear2d_aa"
    finite = True
    matches = ("UpsampleBilinear2dAa", "aten::_upsample_bilinear2d_aa")
    shapes = "x: N C H W; output_size: 2"
    mode: ClassVar[str] = "linear"
    antialias: ClassVar[bool] = True
    interpolate: ClassVar[str] = "bilinear"

    @decomposition(
        opset=18,
        requires=lambda **given: not given["align_corners"] and _by_resize(2, given),
        portable=False,
        reason="onnxruntime's Resize; with aligned corners it takes other places than PyTorch",
    )
    def resize(self, g: Builder, x: Value, **arguments: Any) -> Value:
        return self.by_resize(g, x, **arguments)

    def cases(self) -> Iterator[Case]:
        yield from _antialiased_cases()


class UpsampleBicubic2dAa(Upsample):
    """Images resampled by a cubic, antialiased where they become smaller; `aten::_upsample_bicubic2d_aa`."""

    name = "upsample_bicubic2d_aa"
    finite = True
    matches = ("UpsampleBicubic2dAa", "aten::_upsample_bicubic2d_aa")
    shapes = "x: N C H W; output_size: 2"
    mode: ClassVar[str] = "cubic"
    antialias: ClassVar[bool] = True
    interpolate: ClassVar[str] = "bicubic"

    @decomposition(
        opset=18,
        requires=lambda **given: not given["align_corners"] and _by_resize(2, given),
        portable=False,
        reason="onnxruntime's Resize; with aligned corners it takes other places than PyTorch",
    )
    def resize(self, g: Builder, x: Value, **arguments: Any) -> Value:
        return self.by_resize(g, x, **arguments)

    def cases(self) -> Iterator[Case]:
        yield from _antialiased_cases()


def _by_resize(dims: int, given: Mapping[str, Any]) -> bool:
    factors = factors_of(dims, given["scale_factors"], given["scales_2"], given["scales_3"])
    return places.has_kernel(given["x"]) and resize_serves(
        given["x"], given["output_size"], given["align_corners"], factors
    )


def _antialiased_cases() -> Iterator[Case]:
    computed: Any = {"symbolic": False, "reason": "the length of output_size is that of the axes"}
    x = f32(2, 3, 7, 9)
    yield Case(x, [13, 4], False)
    yield Case(x, [3, 9], True)
    once: Any = {"opsets": (13, 13), "dtypes": ["float32", "float64"]}
    yield Case(x, [1, 1], False, **once)
    yield Case(x, None, False, [0.5, 1.625], **once)
    yield Case(x, [3, 14], False, 0.5, 1.625, **once)
    yield Case(x, i64(2, value=(4, 11)), False, **once, **computed)
    yield Case(f32(0, 2, 3, 3), [2, 5], False, opsets=(13, 13), dtypes=["float32"])
    image = [1.0] * 48
    image[10] = float("inf")
    yield Case(f32(1, 1, 6, 8, value=image), [3, 3], False, opsets=(13, 13), dtypes=["float32"])
