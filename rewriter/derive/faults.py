"""Translations of ``torch.onnx`` that are known to be wrong: a form that rests on one is not used.

Each entry is one operator and the case in which its translation is wrong, with what comes out instead.  A test of each
shows the fault, and fails when PyTorch has mended it (``tests/derive/test_faults.py``).  A pass that takes the operator
stands in for the translation, and the entry does not matter then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch


@dataclass(frozen=True)
class Fault:
    """A translation that is wrong."""

    #: The operator's name in ``aten``, whatever its overload.
    operator: str
    #: What comes out, as a clause.
    what: str
    #: Whether a call with these arguments, by name, is the case; tensors are those of the trace.
    holds: Callable[[Mapping[str, Any]], bool] = lambda arguments: True  # noqa: ARG005


def _is_training(arguments: Mapping[str, Any]) -> bool:
    return bool(arguments.get("training")) and arguments.get("running_mean") is not None


def _is_integer(arguments: Mapping[str, Any]) -> bool:
    tensor = arguments["self"]
    return not tensor.dtype.is_floating_point and not tensor.dtype.is_complex


FAULTS = (
    Fault("native_batch_norm", "the running statistics are used, not those of the batch", _is_training),
    Fault(
        "_native_batch_norm_legit_functional",
        "the running statistics are used, not those of the batch",
        _is_training,
    ),
    Fault(
        "avg_pool2d",
        "the divisor is ignored",
        lambda arguments: arguments.get("divisor_override") is not None,
    ),
    Fault(
        "avg_pool3d",
        "the divisor is ignored",
        lambda arguments: arguments.get("divisor_override") is not None,
    ),
    Fault(
        "scatter_reduce",
        "repeated indices are not averaged",
        lambda arguments: arguments.get("reduce") == "mean",
    ),
    Fault("special_erfcx", "0 for large arguments"),
    Fault("special_log_ndtr", "-inf for arguments far below 0"),
    Fault("logaddexp", "infinity from about 88 on"),
    Fault("logaddexp2", "infinity from 128 on"),
    Fault("logcumsumexp", "-inf where a later number is much larger"),
    Fault("nansum", "not valid ONNX for integers", _is_integer),
)

_BY_OPERATOR: dict[str, list[Fault]] = {}
for _fault in FAULTS:
    _BY_OPERATOR.setdefault(_fault.operator, []).append(_fault)


def fault_in(program: torch.export.ExportedProgram) -> tuple[Fault, str] | None:
    """The first known fault in a decomposed program, with the source line of its call where there is one."""
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None:
            continue
        for fault in _BY_OPERATOR.get(schema.name.partition("::")[2], ()):
            formals = [item.name for item in schema.arguments]
            given = dict(zip(formals, node.args, strict=False)) | dict(node.kwargs)
            values = {
                name: item.meta.get("val") if hasattr(item, "meta") else item for name, item in given.items()
            }
            if fault.holds(values):
                return fault, str(node.meta.get("stack_trace") or "")
    return None
