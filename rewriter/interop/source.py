"""Which line of the user's own code an error belongs to."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from rewriter.errors import DecompositionError

#: Frames of these packages are machinery: the line that matters is the last one before they are entered.
_MACHINERY = (
    "rewriter",
    "torch",
    "onnx",
    "onnx_graphsurgeon",
    "onnxscript",
    "onnx_ir",
    "numpy",
    "typing_extensions",
)

#: The builder's advice speaks of its own methods, which these bodies do not have.
_REMEDIES = (
    (re.compile(r"^it is an input since: use g\.\w+\(\)$"), "it is an input since"),
    (
        re.compile(r"^make constants with g\.const\(.*$"),
        "make the constant in the dtype of the other operand",
    ),
    (re.compile(r"^mark the decomposition with (opset=\d+),"), r"declare the pass with \1,"),
)


def line_of(error: BaseException, function: Callable[..., Any]) -> str:
    """``"file.py:12"``: the deepest line outside the libraries that ``error`` passed, or that of ``function``."""
    found: str | None = None
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not _is_machinery(name):
            found = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    if found is not None:
        return found
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


def placed(error: DecompositionError, function: Callable[..., Any]) -> DecompositionError:
    """``error`` with the user's line in front of what it says."""
    return prefixed(error, line_of(error, function))


def prefixed(error: DecompositionError, text: str) -> DecompositionError:
    error.what = f"{text}: {error.what}"
    error.args = (error.what,)
    if error.remedy is not None:
        for told, instead in _REMEDIES:
            error.remedy = told.sub(instead, error.remedy)
    return error


@functools.cache
def _is_machinery(file_name: str) -> bool:
    path = Path(file_name)
    if file_name.startswith("<frozen") or file_name == "<string>":
        return True  # the import system, and what dataclasses and the like generate
    return (
        any(folder in path.parents for folder in _folders()) or path.parent == Path(inspect.__file__).parent
    )


def _folders() -> list[Path]:
    files = [getattr(sys.modules.get(name), "__file__", None) for name in _MACHINERY]
    return [Path(file).parent for file in files if file is not None and Path(file).name == "__init__.py"]
