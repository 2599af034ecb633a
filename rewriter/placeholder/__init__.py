"""The contract of a pass: what a placeholder means, how its arguments are bound, and the builder that decomposes it."""

from rewriter.placeholder.binding import Bound, Ref, Site, bind
from rewriter.placeholder.builder import Builder
from rewriter.placeholder.case import Case, TensorSpec, b8, f32, i64
from rewriter.placeholder.contract import ELEMENTWISE, Decomposition, Placeholder, decomposition
from rewriter.placeholder.discovery import available
from rewriter.placeholder.expand import Expansion, expand, infer_types
from rewriter.placeholder.registry import Match, Selection
from rewriter.placeholder.signature import Floats, Ints, Parameter, Signature
from rewriter.placeholder.standard import Call
from rewriter.placeholder.value import Array, Value

__all__ = [
    "ELEMENTWISE",
    "Array",
    "Bound",
    "Builder",
    "Call",
    "Case",
    "Decomposition",
    "Expansion",
    "Floats",
    "Ints",
    "Match",
    "Parameter",
    "Placeholder",
    "Ref",
    "Selection",
    "Signature",
    "Site",
    "TensorSpec",
    "Value",
    "available",
    "b8",
    "bind",
    "decomposition",
    "expand",
    "f32",
    "i64",
    "infer_types",
]
