"""What an error of a decomposition needs beside its own words: the arguments as bound, and the line of the pass."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.errors import DecompositionFault, UnsupportedAtOpset
from rewriter.placeholder.orders import said

if TYPE_CHECKING:
    from rewriter.errors import DecompositionError
    from rewriter.placeholder.binding import Bound, Site
    from rewriter.placeholder.contract import Decomposition, Placeholder

#: This package, whose files are no user's pass.
_PACKAGE = Path(__file__).parents[1]


def explain(
    error: DecompositionError, placeholder: Placeholder, item: Decomposition, site: Site, bound: Bound
) -> None:
    """Add to ``error`` the line of ``item`` that raised it, the inputs by parameter, and ``--bind``.

    An operator that does not take its inputs has one of two causes: the pass is wrong, or the node's inputs are in
    another order than the pass reads them.  Errors that a pass raises itself have words of their own.
    """
    if not isinstance(error, (DecompositionFault, UnsupportedAtOpset)) or getattr(error, "explained", False):
        return
    line = _line(error, item)
    if line is None:
        return
    error.explained = True  # type: ignore[union-attr]
    pairs = said(bound, site)
    error.what += f" (pass '{placeholder.pass_name()}', {line}{f'; bound as {pairs}' if pairs else ''})"
    operator = f"{site.node.domain}::{site.node.op_type}" if site.node.domain else site.node.op_type
    first = next(iter(placeholder.signature.names), "x")
    order = f'if the node\'s inputs are in another order: --bind "{operator}={placeholder.pass_name()}({first}=$0,…)"'
    error.remedy = f"{error.remedy}; {order}" if error.remedy else f"correct the pass, or, {order}"


def _line(error: DecompositionError, item: Decomposition) -> str | None:
    """``"my_ops.py:12"``: the last line of the pass's own file, where the builder raised it for that line."""
    try:
        own = inspect.getsourcefile(inspect.unwrap(item.build))
    except TypeError:
        return None
    if own is not None and _PACKAGE in Path(own).parents:
        return None  # a body in another idiom, whose errors name its line already
    line, last = None, None
    trace = error.__traceback__
    while trace is not None:
        last = trace.tb_frame.f_code.co_filename
        if own is not None and Path(last) == Path(own):
            line = f"{Path(own).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return None if last is not None and own is not None and Path(last) == Path(own) else line
