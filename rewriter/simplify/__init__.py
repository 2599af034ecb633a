"""Simplification: onnxsim in a process of its own, its result accepted only after checks.

Nothing heavy is imported here; onnxsim is never imported by this process at all.
"""

from rewriter.simplify.driver import DEFAULT_MEMORY, DEFAULT_TIMEOUT, NOTHING, Simplification, simplify

__all__ = ["DEFAULT_MEMORY", "DEFAULT_TIMEOUT", "NOTHING", "Simplification", "simplify"]
