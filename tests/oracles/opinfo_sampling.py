"""OpInfo's entries for the passes of passes/sampling/; see the package's docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracles.table import Row, Unrun

if TYPE_CHECKING:
    from collections.abc import Mapping


def _interpolate(sample: Any) -> Mapping[str, Any]:
    """A call of torch.nn.functional.interpolate(input, size, scale_factor, …) as the arguments of aten's operator."""
    names = ("output_size", "scale_factors", "mode", "align_corners")
    given = dict(zip(names, sample.args, strict=False))
    size = sample.kwargs.get("size", given.get("output_size"))
    scale = sample.kwargs.get("scale_factor", given.get("scale_factors"))
    dims = sample.input.dim() - 2
    if scale is not None and sample.kwargs.get("recompute_scale_factor"):
        # Sizes are computed first, and then count in place of the scales.
        size, scale = [int(s * scale) for s in sample.input.shape[2:]], None
    return {
        "x": sample.input,
        "output_size": [size] * dims if isinstance(size, int) else size,
        "align_corners": bool(sample.kwargs.get("align_corners", given.get("align_corners"))),
        "scale_factors": [scale] * dims if isinstance(scale, (int, float)) else scale,
    }


def _antialiased(sample: Any) -> Mapping[str, Any]:
    """aten's overload with a list of scales, or with one for each axis."""
    names = ("output_size", "align_corners", "scale_factors", "scales_2")
    given = dict(zip(names, sample.args, strict=False)) | dict(sample.kwargs)
    renamed = {"scales_h": "scale_factors", "scales_w": "scales_2"}
    return {"x": sample.input} | {renamed.get(k, k): v for k, v in given.items()}


ROWS: tuple[Row, ...] = (
    Row("grid_sample", ("nn.functional.grid_sample", "grid_sampler_2d", "grid_sampler_3d")),
    Row("upsample_trilinear3d", ("nn.functional.interpolate.trilinear",), _interpolate),
    Row("upsample_bilinear2d_aa", ("_upsample_bilinear2d_aa",), _antialiased),
)

UNRUN: tuple[Unrun, ...] = ()
