"""ONNX's own node tests, run in the interpreter."""

from __future__ import annotations

import functools
import warnings
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, TensorProto, defs, numpy_helper

from rewriter.errors import CannotInterpretError, OpsetError
from rewriter.execution.values import from_torch, to_torch
from rewriter.interpret import Interpreter

LOWEST = 11


class Outcome(Enum):
    AGREES = "agrees"
    #: The interpreter says that it lacks something.
    UNSUPPORTED = "unsupported"
    DIFFERS = "differs"


@functools.cache
def cases() -> dict[str, Any]:
    """All node tests, also those of several nodes, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases()
    return {case.name: case for case in found if case.model is not None and case.data_sets}


def outcome(case: Any, dtype: Any = None) -> tuple[Outcome, str]:
    """What comes of one test, with ``dtype`` for all floating-point types."""
    try:
        interpreter = Interpreter(_raised(case.model), dtype=dtype)
        for given, expected in case.data_sets:
            names = [item.name for item in case.model.graph.input]
            found = interpreter({name: _tensor(value) for name, value in zip(names, given, strict=False)})
            for output, want in zip(case.model.graph.output, expected, strict=True):
                problem = _difference(found[output.name], want, case, widened=dtype is not None)
                if problem is not None:
                    return Outcome.DIFFERS, f"{output.name}: {problem}"
    except (CannotInterpretError, OpsetError) as error:
        return Outcome.UNSUPPORTED, str(error)
    except TypeError as error:
        if "PyTorch has no" not in str(error):
            raise
        return Outcome.UNSUPPORTED, str(error)  # the inputs cannot be made to begin with
    return Outcome.AGREES, ""


def _raised(model: Any) -> Any:
    """The model at opset 11, the lowest that the interpreter takes, where its operators are the same there."""
    version = next((item.version for item in model.opset_import if not item.domain), LOWEST)
    # Scan has negative axes since 11, and is as it was otherwise.
    operators = {node.op_type for node in model.graph.node if not node.domain} - (
        {"Scan"} if version == 9 else set()
    )
    if version >= LOWEST or any(_since(name, version) != _since(name, LOWEST) for name in operators):
        return model
    raised = ModelProto()
    raised.CopyFrom(model)
    raised.opset_import[0].version = LOWEST
    return raised


def _since(name: str, version: int) -> int:
    return int(defs.get_schema(name, version, "").since_version)


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def _tensor(value: Any) -> Any:
    if isinstance(value, list):
        return [_tensor(item) for item in value]
    return None if value is None else to_torch(_array(value))


def _difference(found: Any, expected: Any, case: Any, *, widened: bool) -> str | None:
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return f"not a sequence of {len(expected)}"
        problems = (_difference(a, b, case, widened=widened) for a, b in zip(found, expected, strict=True))
        return next((problem for problem in problems if problem is not None), None)
    if expected is None:
        return None if found is None else "not empty"
    array, want = from_torch(found), _array(expected)
    if array.shape != want.shape:
        return f"shape {array.shape}, not {want.shape}"
    floating = (
        want.dtype.kind == "f" or want.dtype.kind == "V" or want.dtype.name.startswith(("bfloat", "float"))
    )
    if array.dtype != (np.dtype("float64") if widened and floating else want.dtype):
        return f"{array.dtype}, not {want.dtype}"
    if not floating and want.dtype.kind != "c":
        return None if np.array_equal(array, want) else "other values"
    kind, narrow = want.dtype, want.dtype.itemsize < 4
    if floating:
        array, want = array.astype(np.float64), want.astype(np.float64)
    # What was computed in a narrow format is off by its rounding where it is computed in a wide one.
    step = 2.0**-7 if widened and narrow else 2 * float(ml_dtypes.finfo(kind).eps) if floating else 0.0
    size = float(np.nanmax(np.abs(want), initial=0, where=np.isfinite(want)))
    if np.allclose(array, want, rtol=max(case.rtol, step), atol=max(case.atol, step * size), equal_nan=True):
        return None
    return f"off by {np.nanmax(np.abs(array - want)):.2g}"
