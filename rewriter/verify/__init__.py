"""Proof that a delivered model computes what PyTorch does.

:func:`verify` proves each replaced region against its pass's reference and the delivered file against the rewritten
one; :func:`equal` is the check that simplification is held to; :func:`run` runs a model that still holds placeholders.
None of them prints, and all leave the models alone.  Each is imported when it is first used: a run without proof needs
none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewriter.standin.model import StandIn, run
    from rewriter.verify.equality import equal
    from rewriter.verify.options import VerifyOptions
    from rewriter.verify.proof import Checked, Proof, RegionResult
    from rewriter.verify.proving import verify

__all__ = ["Checked", "Proof", "RegionResult", "StandIn", "VerifyOptions", "equal", "run", "verify"]

#: What is fetched from its module when it is first used.
_LAZY = {
    "Checked": "rewriter.verify.proof",
    "Proof": "rewriter.verify.proof",
    "RegionResult": "rewriter.verify.proof",
    "StandIn": "rewriter.standin.model",
    "VerifyOptions": "rewriter.verify.options",
    "equal": "rewriter.verify.equality",
    "run": "rewriter.standin.model",
    "verify": "rewriter.verify.proving",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'rewriter.verify' has no attribute '{name}'")
