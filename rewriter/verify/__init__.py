"""Proof that a delivered model computes what PyTorch does.

:func:`verify` proves each replaced region against its pass's reference and the delivered file against the rewritten
one; :func:`equal` is the check that simplification is held to; :func:`run` runs a model that still holds placeholders.
None of them prints, and all leave the models alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rewriter.verify.equality import equal
from rewriter.verify.options import VerifyOptions
from rewriter.verify.proof import Checked, Proof, RegionResult
from rewriter.verify.proving import verify

if TYPE_CHECKING:
    from rewriter.standin.model import StandIn, run

__all__ = ["Checked", "Proof", "RegionResult", "StandIn", "VerifyOptions", "equal", "run", "verify"]

#: What is fetched from its module when it is first used.
_LAZY = {"StandIn": "rewriter.standin.model", "run": "rewriter.standin.model"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'rewriter.verify' has no attribute '{name}'")
