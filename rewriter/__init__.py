"""Exported ONNX models with placeholder operators, turned into plain ONNX that is proved equal to PyTorch.

The public names stand in ``__init__.pyi``, and each is loaded when it is used.  Importing this package therefore loads
none of the libraries that a rewrite needs.  Also public, each with its own names:

``rewriter.errors``     every exception
``rewriter.torch``      operators that export as placeholders, and the export in one call
``rewriter.testing``    checks for the tests of a pass
``rewriter.verify``     a model that still holds placeholders, run; judges for passes
``rewriter.interpret``  an ONNX graph computed by PyTorch, with gradients
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("rewriter.version").VERSION
    if name in __all__:
        return _load(name)
    errors = importlib.import_module("rewriter.errors")
    if not name.startswith("_") and hasattr(errors, name):
        warnings.warn(
            f"rewriter.{name} is rewriter.errors.{name}; the old name goes with the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(errors, name)
    raise AttributeError(f"module 'rewriter' has no attribute '{name}'")
