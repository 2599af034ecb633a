"""Rows for the passes of passes/activation/; see the package's docstring."""

from collections.abc import Callable

import torch

from operator_cases import Row
from rewriter.placeholder import Case, f32

F = torch.nn.functional

#: A feature map, a small one, and a transformer's hidden layer.
_SIZES = ((1, 96, 56, 56), (8, 64, 14, 14), (1, 197, 3072))

_PLAIN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "swish": F.silu,
    "mish": F.mish,
    "gelu": F.gelu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
}


def _call(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """PyTorch's name for the first argument differs; the passes call it x."""
    return lambda x: function(x)


def _gelu_tanh(x: torch.Tensor, approximate: str) -> torch.Tensor:
    return F.gelu(x, approximate=approximate)


def _glu(x: torch.Tensor, dim: int) -> torch.Tensor:
    return F.glu(x, dim)


ROWS: tuple[Row, ...] = (
    *(
        Row(name, f"{name} {'x'.join(map(str, size))}", Case(f32(*size)), _call(function))
        for name, function in _PLAIN.items()
        for size in _SIZES
    ),
    Row("gelu", "gelu tanh 1x197x3072", Case(f32(1, 197, 3072), approximate="tanh"), _gelu_tanh),
    Row("glu", "glu 1x197x3072", Case(f32(1, 197, 3072), dim=-1), _glu),
    Row("glu", "glu 1x128x56x56, channels", Case(f32(1, 128, 56, 56), dim=1), _glu),
    Row("swiglu", "swiglu 1x197x3072", Case(f32(1, 197, 3072))),
    Row("geglu", "geglu 1x197x3072", Case(f32(1, 197, 3072))),
)
