"""Faults of runtimes with the passes of passes/detection/; see the package's docstring."""

from tests.runtimes.drive import Result
from tests.runtimes.faults import Fault

_EQUAL = "suppresses where the IoU equals the threshold"
_EMPTY = "its NonMaxSuppression takes no boxes that turn out to be none"
_NONE = "gives a constant without elements as one of rank 0"
_SORT = "its TopK takes no length that only NonMaxSuppression knows: give max_total"
_TIES = "its TopK has no order of equal scores"
_NAN = "NaN is greater than a number"
_DOUBLE = "sorts float64 in float32"

FAULTS: tuple[Fault, ...] = (
    Fault("openvino", "batched_nms", Result.WRONG, _NONE, cases="[0, 4]", sizes="static"),
    Fault("tract", "multiclass_nms", Result.REFUSED, _EMPTY, cases="[2, 0, 4]"),
    Fault("tract", "multiclass_nms", Result.REFUSED, _EMPTY, cases="[1, 0, 4]"),
    Fault("tract", "multiclass_nms", Result.REFUSED, _SORT, cases="3], score_threshold=0.25)"),
    Fault("tract", "multiclass_nms", Result.REFUSED, _SORT, cases="[6, 2], class_agnostic=False)"),
    Fault("tract", "multiclass_nms", Result.REFUSED, _SORT, cases="max_per_class=3)"),
    Fault(
        "openvino",
        "multiclass_nms",
        Result.CRASHED,
        "divides by the number of boxes",
        cases="[1, 0, 4], float32[1, 0, 3], max_total=3, padded=False",
        sizes="static",
    ),
    Fault("openvino", "multiclass_nms", Result.WRONG, _TIES, cases="[2, 12, 3], max_total=8, padded=True"),
    Fault("openvino", "multiclass_nms", Result.WRONG, _TIES, cases="[12, 3], max_total=8)"),
    Fault("openvino", "multiclass_nms", Result.WRONG, _TIES, cases="[6, 2], class_agnostic=False)"),
    Fault("openvino", "multiclass_nms", Result.WRONG, _TIES, cases="max_per_class=3)"),
    Fault("openvino", "multiclass_nms", Result.WRONG, _NAN, cases="[6, 2], class_agnostic=True)"),
    Fault("openvino", "nms", Result.WRONG, _NONE, cases="[0, 4]", sizes="static"),
    Fault("tract", "batched_nms", Result.REFUSED, _EMPTY, cases="[0, 4]", sizes="symbolic"),
    Fault(
        "openvino",
        "nms",
        Result.WRONG,
        _EQUAL,
        cases="Case(float32[3, 4], float32[3], iou_threshold=0.5)",
    ),
    Fault("openvino", "nms", Result.WRONG, _DOUBLE, cases="iou_threshold=0.375"),
    Fault(
        "openvino", "nms", Result.CRASHED, "divides by the number of boxes", cases="[0, 4]", sizes="static"
    ),
    Fault("tract", "nms", Result.REFUSED, "takes no empty tensors", cases="[0, 4]", sizes="symbolic"),
    Fault("tract", "nms", Result.REFUSED, "takes no Where of float64", cases="iou_threshold=0.375"),
)
