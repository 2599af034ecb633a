"""Faults of runtimes with the passes of passes/sampling/; see the package's docstring."""

from tests.runtimes.drive import Result
from tests.runtimes.faults import Fault

_CHOOSE = "GatherElements by numpy's choose, which takes at most 64 rows"
_VARIABLE = "takes no sizes that are an input of the model"
_FLOOR = "Floor of an infinity is finite"

_COMPUTED = ("affine_grid", "upsample_trilinear3d", "upsample_bilinear2d_aa", "upsample_bicubic2d_aa")

#: Cases whose padded planes, with few channels, have more pixels.
_GRIDS = (
    "float32[2, 3, 5, 4], float32[2, 3, 2, 2], mode='bilinear', padding_mode='zeros', align_corners=False",
    "float32[2, 3, 5, 4], float32[2, 3, 2, 2], padding_mode='zeros'",
    "float32[1, 2, 3, 2, 4], float32[1, 2, 1, 3, 3], mode='bilinear', padding_mode='zeros'",
    "float32[1, 1, 1, 4, 3], padding_mode='zeros'",
)
_CONVOLUTIONS = ("float32[4, 2, 3, 2]", "float32[3, 4, 3, 2]")

FAULTS: tuple[Fault, ...] = (
    Fault(
        "onnxruntime-1.15.1",
        "grid_sample",
        Result.WRONG,
        _FLOOR,
        cases="float32[1, 1, 1, 4, 3], padding_mode='reflection'",
    ),
    *(Fault("tract", name, Result.REFUSED, _VARIABLE, cases="int64[") for name in _COMPUTED),
    *(
        Fault("reference", "grid_sample", Result.REFUSED, _CHOOSE, cases=cases, sizes="static")
        for cases in _GRIDS
    ),
    Fault(
        "reference",
        "grid_sample",
        Result.REFUSED,
        _CHOOSE,
        cases="[1, 2, 1, 3, 3], mode='nearest', padding_mode='zeros', align",
    ),
    *(
        Fault("reference", "deform_conv2d", Result.REFUSED, _CHOOSE, cases=cases, sizes="static")
        for cases in _CONVOLUTIONS
    ),
)
