"""Turns exported ONNX models with placeholder operators into plain, portable, verified ONNX.

``import rewriter`` loads nothing heavy: each public name is fetched from its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewriter.declare import Explanation, Requirements, explain, requirements
    from rewriter.derive.function import from_torch
    from rewriter.errors import (
        AmbiguousMatchError,
        BindingError,
        CannotInterpretError,
        CannotVerifyError,
        CyclicDecompositionError,
        DecompositionError,
        DecompositionFault,
        DerivationError,
        ExportError,
        ExternalDataError,
        GradientError,
        InterfaceChangedError,
        InterpreterRefusedError,
        LeftoverPlaceholderError,
        LimitError,
        MismatchError,
        ModelReadError,
        ModelWriteError,
        NeedsRank,
        OpsetError,
        PassDefinitionError,
        RewriteError,
        UnknownPassError,
        UnmatchedError,
        UnprovedError,
        UnsupportedAtOpset,
        UnsupportedParameter,
        UsageError,
        VerificationError,
        Where,
        WorkerDiedError,
    )
    from rewriter.inspection import Inspection, inspect
    from rewriter.interop import from_function, from_onnxscript, from_surgeon, from_symbolic
    from rewriter.pipeline import rewrite
    from rewriter.placeholder import (
        Builder,
        Case,
        Floats,
        Ints,
        Placeholder,
        TensorSpec,
        Value,
        b8,
        decomposition,
        f32,
        i64,
    )
    from rewriter.report import Report
    from rewriter.types import TensorType

    __version__: str

_ERRORS = (
    "AmbiguousMatchError",
    "BindingError",
    "CannotInterpretError",
    "CannotVerifyError",
    "CyclicDecompositionError",
    "DecompositionError",
    "DecompositionFault",
    "DerivationError",
    "ExportError",
    "ExternalDataError",
    "GradientError",
    "InterfaceChangedError",
    "InterpreterRefusedError",
    "LeftoverPlaceholderError",
    "LimitError",
    "MismatchError",
    "ModelReadError",
    "ModelWriteError",
    "NeedsRank",
    "OpsetError",
    "PassDefinitionError",
    "RewriteError",
    "UnknownPassError",
    "UnmatchedError",
    "UnprovedError",
    "UnsupportedAtOpset",
    "UnsupportedParameter",
    "UsageError",
    "VerificationError",
    "Where",
    "WorkerDiedError",
)
_PLACEHOLDER = (
    "Builder",
    "Case",
    "Floats",
    "Ints",
    "Placeholder",
    "TensorSpec",
    "Value",
    "b8",
    "decomposition",
    "f32",
    "i64",
)

#: Public name → the module that defines it.
_HOME = {
    **dict.fromkeys(_ERRORS, "rewriter.errors"),
    **dict.fromkeys(_PLACEHOLDER, "rewriter.placeholder"),
    **dict.fromkeys(
        ("from_function", "from_onnxscript", "from_surgeon", "from_symbolic"), "rewriter.interop"
    ),
    "from_torch": "rewriter.derive.function",
    **dict.fromkeys(("Inspection", "inspect"), "rewriter.inspection"),
    **dict.fromkeys(("Explanation", "Requirements", "explain", "requirements"), "rewriter.declare"),
    "Report": "rewriter.report",
    "TensorType": "rewriter.types",
    "rewrite": "rewriter.pipeline",
}

#: Subpackages that are reached as attributes, without an import of their own: ``rewriter.torch.placeholder``.
_SUBPACKAGES = frozenset({"errors", "torch"})

__all__ = [
    "AmbiguousMatchError",
    "BindingError",
    "Builder",
    "CannotInterpretError",
    "CannotVerifyError",
    "Case",
    "CyclicDecompositionError",
    "DecompositionError",
    "DecompositionFault",
    "DerivationError",
    "Explanation",
    "ExportError",
    "ExternalDataError",
    "Floats",
    "GradientError",
    "Inspection",
    "InterfaceChangedError",
    "InterpreterRefusedError",
    "Ints",
    "LeftoverPlaceholderError",
    "LimitError",
    "MismatchError",
    "ModelReadError",
    "ModelWriteError",
    "NeedsRank",
    "OpsetError",
    "PassDefinitionError",
    "Placeholder",
    "Report",
    "Requirements",
    "RewriteError",
    "TensorSpec",
    "TensorType",
    "UnknownPassError",
    "UnmatchedError",
    "UnprovedError",
    "UnsupportedAtOpset",
    "UnsupportedParameter",
    "UsageError",
    "Value",
    "VerificationError",
    "Where",
    "WorkerDiedError",
    "__version__",
    "b8",
    "decomposition",
    "explain",
    "f32",
    "from_function",
    "from_onnxscript",
    "from_surgeon",
    "from_symbolic",
    "from_torch",
    "i64",
    "inspect",
    "requirements",
    "rewrite",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("rewriter.version").VERSION
    if name in _SUBPACKAGES:
        return importlib.import_module(f"rewriter.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'rewriter' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
