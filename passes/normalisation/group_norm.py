"""Group normalisation (Wu and He, 2018, arXiv:1803.08494)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from passes.normalisation._channels import are_instances, by_instances, by_reductions, moments, scale_channels
from passes.normalisation._precision import statistics_dtype, wide
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, TensorSpec, decomposition, f32
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rewriter.placeholder import Builder, Value


class GroupNorm(Placeholder):
    """(x − mean) · rstd · weight + bias over groups of channels; the meaning of `torch.nn.functional.group_norm`.

    The further outputs are those of `aten::native_group_norm`: mean and 1 / sqrt(variance + eps), of shape
    (batch, groups).
    """

    finite = True
    matches = ("GroupNorm", "aten::group_norm", "aten::native_group_norm")
    standard = {  # noqa: RUF012
        # Before opset 21 scale and bias were those of groups.
        "GroupNormalization": lambda op: (
            None
            if op.version < 21
            else {
                "x": op.x,
                "num_groups": op.get("num_groups"),
                "weight": op.input(1),
                "bias": op.input(2),
                "eps": op.get("epsilon"),
            }
        )
    }
    shapes = "x: N C ...; weight: C; bias: C"
    aliases = {"epsilon": "eps", "group": "num_groups"}  # noqa: RUF012
    schemas = {  # noqa: RUF012
        "aten::native_group_norm": ("x", "weight", "bias", "-", "-", "-", "num_groups", "eps")
    }
    outputs = ("output", "mean", "rstd")
    auxiliary = ("mean", "rstd")
    dtypes = ("float16", "float32", "float64", "bfloat16")

    def reference(
        self,
        x: Any,
        num_groups: int,
        weight: Any = None,
        bias: Any = None,
        eps: float = 1e-5,
        cudnn_enabled: bool = True,
    ) -> Any:
        import torch

        n, c = x.shape[:2]
        area = x[0, 0].numel() if n and c else 0
        result = torch.ops.aten.native_group_norm(x, weight, bias, n, c, area, num_groups, eps)
        # PyTorch has no gradient of the statistics.
        return result[0], result[1].detach(), result[2].detach()

    def infer(self, x: Value, num_groups: int, weight: Value | None, bias: Value | None, **_: Any) -> Any:
        if not x.has_rank:
            return None
        statistics = TensorType(statistics_dtype(x, weight, bias), (x.shape[0], num_groups))
        return [x.type, statistics, statistics]

    # GroupNormalization (opset 21) is not used: onnxruntime expands it into 25 operators, which take twice as long.
    @decomposition(
        when=lambda x, **_: x.rank > 2,
        requires=lambda x, **_: are_instances(x),
        reason="InstanceNormalization over the groups makes no centred copy",
    )
    def instances(
        self,
        g: Builder,
        x: Value,
        num_groups: int,
        weight: Value | None = None,
        bias: Value | None = None,
        eps: float = 1e-5,
        cudnn_enabled: bool = True,
    ) -> Any:
        return _group_norm(g, x, num_groups, weight, bias, eps, by_instances)

    @decomposition()
    def reductions(
        self,
        g: Builder,
        x: Value,
        num_groups: int,
        weight: Value | None,
        bias: Value | None,
        eps: float,
        **_: Any,
    ) -> Any:
        return _group_norm(
            g, x, num_groups, weight, bias, eps, lambda g, rows, eps: by_reductions(g, rows, eps, [2])
        )

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 6, 4), 3, f32(6), f32(6))
        yield Case(f32(1, 4, 3, 2), 1, f32(4), eps=0.5)
        yield Case(f32(2, 4, 1, 2, 3), 4, None, f32(4, value=(1.0, -2.0, 0.5, 0.25)))
        yield Case(f32(3, 4), 2)
        known = np.array((1.0, -2.0, 0.5, 0.25), np.float32)
        yield Case(f32(2, 4, 3), 2, weight=known, bias=-known, dtypes=("float32",))
        yield Case(f32(0, 4, 3), 2, f32(4), f32(4))
        yield Case(
            f32(2, 4, 0),
            2,
            f32(4, value=(1.0,) * 4),
            symbolic=False,
            reason="of groups that are empty at run time only, runtimes disagree on the mean",
        )
        inf, nan = float("inf"), float("nan")
        # No variance; squares that float16 does not hold; a mean that is large to the deviation; infinities.
        rows = ((0.0, 0.0, 0.0, 0.0), (300.0, -400.0, 5e4, 3.0), (1025.0, 1023.0, 1025.0, 1023.0))
        endless = ((1.0, inf, 2.0, 3.0), (-inf, 1.0, inf, 2.0), (nan, 1.0, 2.0, 3.0))
        weight, bias = (
            f32(6, value=(1.0, -2.0, 0.5, 0.0, 1.0, 2.0)),
            f32(6, value=(0.0, 0.0, 0.5, 1.0, 1.0, 2.0)),
        )
        yield Case(f32(2, 6, 2, value=(*rows, *endless)), 3, weight, bias)
        yield Case(f32(1, 2, 2, value=(30001.0, 29999.0) * 2), 1, eps=0.0, dtypes=("float32", "float64"))
        # Parameters in float32 beside a float16 input: mean and rstd are then float32.
        wider = TensorSpec((4,), "float32")
        yield Case(f32(2, 4, 3), 2, wider, wider, dtypes=("float16", "bfloat16"))


def _group_size(
    g: Builder, x: Value, num_groups: int, weight: Value | None, bias: Value | None
) -> int | Value:
    """How many elements a group has."""
    channels = [x.size(1), *(p.size(0) for p in (weight, bias) if p is not None)]
    known = next((c for c in channels if c is not None), None)
    area = [g.dim(x, i) for i in range(2, x.rank)]
    if known is not None:
        return g.product([known // num_groups, *area])
    size = g.product([g.dim(x, 1), *area])
    assert not isinstance(size, int)
    divided: Value = size if num_groups == 1 else g.op("Div", size, g.ints([num_groups]))
    return divided


def _check(g: Builder, x: Value, num_groups: int) -> None:
    if x.rank < 2:
        raise UnsupportedParameter(f"the input has rank {x.rank}: there are no channels", where=g.where)
    channels = x.size(1)
    if num_groups < 1 or (channels is not None and channels % num_groups):
        raise UnsupportedParameter(
            f"{channels} channels cannot be put into {num_groups} groups", where=g.where
        )


def _group_norm(
    g: Builder,
    x: Value,
    num_groups: int,
    weight: Value | None,
    bias: Value | None,
    eps: float,
    normalize: Callable[[Builder, Value, float], Value],
) -> tuple[Value, Value | None, Value | None]:
    _check(g, x, num_groups)
    n, dtype = g.dim(x, 0), statistics_dtype(x, weight, bias)
    if 0 in x.shape:
        wanted = [g.wants("mean"), g.wants("rstd")]
        mean, rstd = (
            g.constant_of_shape([n, num_groups], value, dtype) if used else None
            for value, used in zip((0.0, float("nan")), wanted, strict=True)
        )
        return x, mean, rstd
    given = wide(g, x)
    rows = g.reshape(given, [n, num_groups, _group_size(g, x, num_groups, weight, bias)])
    result = g.reshape(normalize(g, rows, eps), [g.dim(x, i) for i in range(x.rank)])
    shift = None if bias is None else g.cast(bias, given)
    result = scale_channels(g, result, None if weight is None else g.cast(weight, given), shift)
    result = g.cast(result, x)
    if not g.wants("mean") and not g.wants("rstd"):
        return result, None, None
    mean, variance, _ = moments(g, rows, [2])
    # PyTorch's mean of a group that holds an infinity is NaN, as its variance is.
    mean = g.cast(g.squeeze(mean + (variance - variance), [2]), dtype)
    return result, mean, g.cast(g.squeeze(g.reciprocal(g.sqrt(variance + eps)), [2]), dtype)
