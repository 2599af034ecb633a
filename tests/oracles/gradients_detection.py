"""What has no gradient among the passes of passes/detection/; see the package's docstring."""

from __future__ import annotations

#: Pass and reason.
NOT_DIFFERENTIABLE: tuple[tuple[str, str], ...] = (
    ("batched_nms", "the result is indices"),
    ("nms", "the result is indices"),
)

#: Pass, a part of the case's text, and why the gradient fails there.
KINKS: tuple[tuple[str, str, str], ...] = (
    ("box_decode", "float32[4, 4], float32[4, 4]", "the deltas are NaN and infinite, and so are the boxes"),
)
