"""Merging what is known of a type from several sources."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rewriter.types import Dim, TensorType

if TYPE_CHECKING:
    from collections.abc import Collection

    from onnx import TypeProto

#: Names that onnx's inference makes up for sizes that it does not know.
_UNKNOWN = re.compile(r"^unk__\d+$")


def without_made_up(known: TensorType | None, given: Collection[str] = ()) -> TensorType | None:
    """``known`` without the names that inference made up; they mean nothing outside the run that made them."""
    if known is None or known.shape is None:
        return known
    if not any(isinstance(dim, str) and _UNKNOWN.match(dim) for dim in known.shape):
        return known
    return known.with_shape(
        None if isinstance(dim, str) and _UNKNOWN.match(dim) and dim not in given else dim
        for dim in known.shape
    )


def contradicts(a: TensorType | None, b: TensorType | None, free: Collection[str] = ()) -> bool:
    """Whether no tensor can have both types; differing names of sizes are no contradiction.

    ``free`` are sizes that the model's inputs leave open.  Where ``a`` has one, no number in ``b`` holds for all of
    them (an exporter that knows nothing of an operator may leave the size that it traced).
    """
    if a is None or b is None:
        return False
    if a.dtype != b.dtype:
        return True
    if a.shape is None or b.shape is None:
        return False
    return len(a.shape) != len(b.shape) or bool(wrong_sizes(a, b, free))


def wrong_sizes(a: TensorType | None, b: TensorType | None, free: Collection[str] = ()) -> set[int]:
    """The sizes in ``b`` by which it contradicts ``a``."""
    if a is None or b is None or a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return set()
    return {
        y
        for x, y in zip(a.shape, b.shape, strict=True)
        if isinstance(y, int) and (x != y if isinstance(x, int) else x in free)
    }


def without_sizes(known: TensorType | None, sizes: Collection[int]) -> TensorType | None:
    """``known`` with the ``sizes`` left open."""
    if not sizes or known is None or known.shape is None:
        return known
    return known.with_shape(None if dim in sizes else dim for dim in known.shape)


def refine(
    inferred: TensorType | None, declared: TensorType | None, free: Collection[str] = ()
) -> TensorType | None:
    """What is known from both; ``inferred`` where they contradict, a declared name of a size where no number is
    known.
    """
    if inferred is None or declared is None or contradicts(inferred, declared, free):
        return inferred or declared
    if inferred.shape is None or declared.shape is None:
        return declared if inferred.shape is None else inferred

    def better(new: Dim, old: Dim) -> Dim:
        if isinstance(new, int) or old is None:
            return new
        return old

    return inferred.with_shape(better(x, y) for x, y in zip(inferred.shape, declared.shape, strict=True))


def common(a: TensorType | None, b: TensorType | None) -> TensorType | None:
    """What holds for a value that has now one type and now the other; None where nothing does."""
    if a is None or b is None or a.dtype != b.dtype:
        return None
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return TensorType(a.dtype)
    return a.with_shape(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True))


def to_proto(known: TensorType | None) -> TypeProto | None:
    return None if known is None else known.to_proto()
