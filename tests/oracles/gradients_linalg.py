"""What has no gradient among the passes of passes/linalg/; see the package's docstring."""

from __future__ import annotations

#: Pass and reason.
NOT_DIFFERENTIABLE: tuple[tuple[str, str], ...] = (("geqrf", "PyTorch has no derivative of it"),)

#: Pass, a part of the case's text, and why the gradient fails there.
KINKS: tuple[tuple[str, str, str], ...] = ()
