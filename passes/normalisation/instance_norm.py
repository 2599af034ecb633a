"""Instance normalisation (Ulyanov et al., 2016, arXiv:1607.08022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes.normalisation._channels import (
    are_instances,
    batch_norm,
    by_instances,
    by_reductions,
    scale_channels,
)
from passes.normalisation._precision import wide
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, TensorSpec, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value

#: Of float32, a number whose root is one.
_LEAST = 1e-37


class InstanceNorm(Placeholder):
    """(x − mean) / sqrt(variance + eps) · weight + bias for each channel of each element of the batch.

    The meaning of `torch.nn.functional.instance_norm`: with `use_input_stats` False, mean and variance are
    `running_mean` and `running_var`.
    """

    finite = True
    # The qualified name first: it says the order of the inputs.
    matches = ("aten::instance_norm", "InstanceNorm")
    standard = {  # noqa: RUF012
        "InstanceNormalization": lambda op: {
            "x": op.x,
            "weight": op.input(1),
            "bias": op.input(2),
            "eps": op.get("epsilon"),
        }
    }
    shapes = "x: N C ...; weight: C; bias: C; running_mean: C; running_var: C"
    spellings = {  # noqa: RUF012
        "torch.nn.functional.instance_norm": (
            "x",
            "running_mean",
            "running_var",
            "weight",
            "bias",
            "use_input_stats",
            "momentum",
            "eps",
        )
    }
    aliases = {"epsilon": "eps"}  # noqa: RUF012
    dtypes = ("float16", "float32", "float64", "bfloat16")

    def reference(
        self,
        x: Any,
        weight: Any = None,
        bias: Any = None,
        running_mean: Any = None,
        running_var: Any = None,
        use_input_stats: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-5,
        cudnn_enabled: bool = True,
    ) -> Any:
        import torch

        if not use_input_stats:
            # PyTorch has no gradient of them.
            running_mean, running_var = running_mean.detach(), running_var.detach()
        else:
            running_mean = running_var = None  # they would be updated, and are not read
        return torch.instance_norm(
            x, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False
        )

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    @decomposition(
        requires=lambda x, use_input_stats, **_: not use_input_stats or are_instances(x),
        reason="InstanceNormalization makes no centred copy",
    )
    def instances(
        self,
        g: Builder,
        x: Value,
        weight: Value | None = None,
        bias: Value | None = None,
        running_mean: Value | None = None,
        running_var: Value | None = None,
        use_input_stats: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-5,
        cudnn_enabled: bool = True,
    ) -> Value:
        if not use_input_stats:
            return _by_running(g, x, weight, bias, running_mean, running_var, eps)
        given = wide(g, x)
        scale, shift = _cast(g, weight, given), _cast(g, bias, given)
        # PyTorch makes 0 of a channel without variance, also where eps is 0; the smallest number does so here.
        result = by_instances(g, given, max(eps, _LEAST), scale, shift)
        return g.cast(result, x)

    @decomposition()
    def reductions(
        self,
        g: Builder,
        x: Value,
        weight: Value | None,
        bias: Value | None,
        running_mean: Value | None,
        running_var: Value | None,
        use_input_stats: bool,
        eps: float,
        **_: Any,
    ) -> Value:
        if not use_input_stats:
            return _by_running(g, x, weight, bias, running_mean, running_var, eps)
        if 0 in x.shape[2:]:
            return x
        given = wide(g, x)
        scale, shift = _cast(g, weight, given), _cast(g, bias, given)
        result = by_reductions(g, given, eps, range(2, x.rank))
        return g.cast(scale_channels(g, result, scale, shift), x)

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 4), f32(3), f32(3))
        yield Case(f32(1, 2, 3, 2), eps=0.5)
        yield Case(f32(2, 3, 2, 1, 2), f32(3), None)
        mean, variance = f32(3, value=(0.5, 0.0, -1.0)), f32(3, value=(0.25, 1.0, 2.5))
        yield Case(f32(2, 3, 4), f32(3), f32(3), mean, variance, use_input_stats=False)
        known = [np.array(v, np.float32) for v in ((1.0, -2.0, 0.5), (0.5, 0.0, -1.0), (0.25, 1.0, 2.5))]
        fixed: dict[str, Any] = dict(zip(("weight", "bias", "running_var"), known, strict=True))
        fixed["running_mean"] = known[1]
        yield Case(f32(2, 3, 2, 2), **fixed, use_input_stats=False, dtypes=("float32",))
        yield Case(f32(2, 3, 2, 2), weight=known[0], bias=known[1], dtypes=("float32",))
        yield Case(f32(2, 3, 2, 2), None, None, mean, variance, use_input_stats=False, eps=0.5)
        # The running statistics are not read.
        yield Case(f32(2, 3, 4), f32(3), f32(3), mean, variance, momentum=0.5)
        # PyTorch takes no parameters with an empty batch.
        yield Case(f32(0, 3, 4))
        yield Case(f32(2, 3, 0), f32(3, value=(1.0,) * 3))
        inf, nan = float("inf"), float("nan")
        # No variance; squares that float16 does not hold; a mean that is large to the deviation; infinities.
        rows = ((3.0, 3.0, 3.0, 3.0), (300.0, -400.0, 5e4, 3.0), (1025.0, 1023.0, 1025.0, 1023.0))
        endless = ((1.0, inf, 2.0, 3.0), (-inf, 1.0, inf, 2.0), (nan, 1.0, 2.0, 3.0))
        weight, bias = f32(3, value=(1.0, -2.0, 0.5)), f32(3, value=(0.5, 0.0, -1.0))
        yield Case(f32(2, 3, 4, value=(*rows, *endless)), weight, bias)
        yield Case(f32(1, 1, 4, value=(30001.0, 29999.0) * 2), eps=0.0, dtypes=("float32", "float64"))
        # Parameters in float32 beside a float16 input.
        wider = TensorSpec((3,), "float32")
        yield Case(f32(2, 3, 4), wider, wider, dtypes=("float16",))


def _by_running(
    g: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    eps: float,
) -> Value:
    if mean is None or variance is None:
        raise UnsupportedParameter(
            "use_input_stats is False and a running statistic is not given", where=g.where
        )
    given = wide(g, x)
    scale, shift = _cast(g, weight, given), _cast(g, bias, given)
    centre, spread = g.cast(mean, given), g.cast(variance, given)
    return g.cast(batch_norm(g, given, scale, shift, centre, spread, eps), x)


def _cast(g: Builder, parameter: Value | None, like: Value) -> Value | None:
    return None if parameter is None else g.cast(parameter, like)
