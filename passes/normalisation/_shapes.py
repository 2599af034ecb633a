"""Shapes that the normalisations over the last axes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewriter.errors import UnsupportedParameter

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Ints, Value
    from rewriter.types import Dim


def check_normalized(g: Builder, x: Value, normalized_shape: Ints) -> None:
    """UnsupportedParameter unless ``x`` may end in ``normalized_shape``."""
    if not normalized_shape:
        raise UnsupportedParameter("normalized_shape is empty", where=g.where)
    if not x.has_rank:
        return
    ending = x.shape[-len(normalized_shape) :]
    fits = len(ending) == len(normalized_shape) and all(
        not isinstance(d, int) or d == n for d, n in zip(ending, normalized_shape, strict=True)
    )
    if not fits:
        raise UnsupportedParameter(
            f"normalized_shape is {list(normalized_shape)} and the input has shape {list(x.shape)}",
            where=g.where,
            remedy="the input's last axes have the sizes of normalized_shape",
        )


def statistics_shape(shape: tuple[Dim, ...] | None, count: int) -> tuple[Dim, ...] | None:
    """``shape`` with its last ``count`` axes reduced to ones."""
    return None if shape is None else (*shape[: len(shape) - count], *[1] * count)
