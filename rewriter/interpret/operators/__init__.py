"""What each operator means, one module per group."""

from importlib import import_module
from typing import Final

_GROUPS: Final = (
    "activation",
    "control",
    "convolution",
    "detection",
    "elementwise",
    "indexing",
    "linear",
    "movement",
    "normalisation",
    "pooling",
    "quantisation",
    "random",
    "recurrent",
    "reduction",
    "resize",
    "sampling",
    "scatter",
    "sequences",
    "shape",
    "signal",
    "sorting",
)

#: The kernels of each group.
GROUPS = tuple(import_module(f"{__name__}.{group}").KERNELS for group in _GROUPS)
