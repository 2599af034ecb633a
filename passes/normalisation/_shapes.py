"""Shapes that the normalisations over the last axes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.errors import UnsupportedParameter

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Call, Ints, Value
    from rewriter.types import Dim


def of_onnx(op: Call) -> dict[str, Any] | None:
    """Arguments for ONNX's LayerNormalization and RMSNormalization, where they are those of PyTorch's.

    ONNX names the first axis instead of the sizes, broadcasts the weights, and has statistics of a type of their own.
    """
    x, weight, bias = op.x, op.input(1), op.input(2)
    sizes = x.shape[op.get("axis") % x.rank :]
    if not all(isinstance(d, int) for d in sizes) or any(
        w is not None and (not w.is_static or tuple(w.shape) != tuple(sizes)) for w in (weight, bias)
    ):
        return None
    if op.outputs > 1 and x.dtype != op.get("stash_type", 1):
        return None
    found = {"x": x, "normalized_shape": tuple(sizes), "weight": weight, "eps": op.get("epsilon")}
    return found if op.op_type.startswith("RMS") else found | {"bias": bias}


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
