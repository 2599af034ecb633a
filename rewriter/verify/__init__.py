"""Proof that a delivered model computes what PyTorch does.

:func:`verify` proves each replaced region against its pass's reference and the delivered file against the rewritten
one; :func:`equal` is the check that simplification is held to.  Neither prints, and both leave the models alone.
"""

from rewriter.verify.equality import equal
from rewriter.verify.options import VerifyOptions
from rewriter.verify.proof import Checked, Proof, RegionResult
from rewriter.verify.proving import verify

__all__ = ["Checked", "Proof", "RegionResult", "VerifyOptions", "equal", "verify"]
