"""What has no gradient among the passes of passes/arithmetic/; see the package's docstring."""

from __future__ import annotations

#: Pass and reason.
NOT_DIFFERENTIABLE: tuple[tuple[str, str], ...] = (
    ("signbit", "its results are boolean"),
    ("floor_divide", "PyTorch has no derivative of it"),
    ("nextafter", "a step has no derivative"),
    ("heaviside", "PyTorch has no derivative of it"),
    ("left_shift", "its results are integers"),
    ("right_shift", "its results are integers"),
    ("gcd", "its results are integers"),
    ("lcm", "its results are integers"),
)

#: Pass, a part of the case's text, and why the gradient fails there.
KINKS: tuple[tuple[str, str, str], ...] = ()
