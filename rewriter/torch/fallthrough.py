"""The legacy exporter's fall-through, made safe.

Under ``ONNX_FALLTHROUGH`` an operator that the exporter does not know stays in the file, as a placeholder.  But a
translation that refuses an argument (``_unimplemented``) only says so and goes on.  It then writes a node that means
something else: a stable sort becomes a ``TopK`` along the wrong axis, with attributes that ONNX allows.  Nothing in the
file shows it.  Here such a refusal raises, upon which the exporter lets the operator through.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from rewriter.derive.translate import LOCK

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def safe_fallthrough() -> Iterator[None]:
    """Within this context ``torch.onnx.export(dynamo=False, operator_export_type=ONNX_FALLTHROUGH)`` is safe::

        with safe_fallthrough():
            torch.onnx.export(
                model, args, "model.onnx", dynamo=False, opset_version=17,
                operator_export_type=torch.onnx.OperatorExportTypes.ONNX_FALLTHROUGH,
            )

    The exporter's table belongs to the process: other threads that export wait.
    """
    from torch.onnx import OnnxExporterError
    from torch.onnx._internal.torchscript_exporter import symbolic_helper

    def refuse(op: str, msg: str, value: Any = None) -> NoReturn:  # noqa: ARG001  (the exporter's own signature)
        raise OnnxExporterError(f"{op}, {msg}")

    with LOCK:
        original = symbolic_helper._unimplemented
        symbolic_helper._unimplemented = refuse
        try:
            yield
        finally:
            symbolic_helper._unimplemented = original
