"""What has no gradient among the passes of passes/attention/; see the package's docstring."""

from __future__ import annotations

#: Pass and reason.
NOT_DIFFERENTIABLE: tuple[tuple[str, str], ...] = ()

#: Pass, a part of the case's text, and why the gradient fails there.
KINKS: tuple[tuple[str, str, str], ...] = (
    ("alibi", "is_causal=True", "its results hold −∞, of which there is no difference"),
    ("neighborhood_attention", "float32[1, 9, 1, 2]", "its values hold an infinity"),
    ("sparse_attention", "float32[6, 1]", "its values hold an infinity"),
    ("ms_deform_attn", "spatial_shapes=[3, 3]", "its values hold infinities and a NaN"),
)
