"""A convolution with its batch normalisation and its activation, as trained networks run them.

Where weights and statistics are constants they become the weights of one convolution
(`torch.nn.utils.fuse_conv_bn_weights`, in float64).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from passes._terms import evaluated
from passes.fused._conv import can_fold, conv, conv_bn, folded, reference_conv
from rewriter.placeholder import Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Ints, Value


_GEOMETRY = {"strides": "stride", "pads": "padding", "dilations": "dilation", "group": "groups"}


class ConvBn(Placeholder):
    """Convolution and batch normalisation by running statistics."""

    matches: ClassVar[tuple[str, ...]] = ("ConvBn", "ConvBatchNorm", "ConvBn1d", "ConvBn2d", "ConvBn3d")
    shapes = (
        "input: _ _ ...; weight: O _ ...; bias: O; bn_weight: O; bn_bias: O; running_mean: O; running_var: O"
    )
    aliases = {**_GEOMETRY, "epsilon": "eps"}  # noqa: RUF012
    # onnxruntime has no Conv of float64.
    dtypes = ("float16", "float32")

    def activate(self, g: Builder, x: Value) -> Value:
        """What follows in a decomposition."""
        return x

    def activation(self, x: Any) -> Any:
        """The same in PyTorch."""
        return x

    def reference(
        self,
        input: Any,
        weight: Any,
        bias: Any,
        bn_weight: Any,
        bn_bias: Any,
        running_mean: Any,
        running_var: Any,
        stride: Any = (1,),
        padding: Any = (0,),
        dilation: Any = (1,),
        groups: int = 1,
        eps: float = 1e-5,
    ) -> Any:
        import torch

        made = reference_conv(input, weight, bias, stride, padding, dilation, groups)
        made = torch.nn.functional.batch_norm(made, running_mean, running_var, bn_weight, bn_bias, eps=eps)
        return self.activation(made)

    @decomposition(
        requires=lambda weight, bias, bn_weight, bn_bias, running_mean, running_var, **_: can_fold(
            weight, bias, bn_weight, bn_bias, running_mean, running_var
        ),
        reason="weights and statistics are constants",
    )
    def one_conv(
        self,
        g: Builder,
        input: Value,
        weight: Value,
        bias: Value | None,
        bn_weight: Value | None,
        bn_bias: Value | None,
        running_mean: Value,
        running_var: Value,
        stride: Ints = (1,),
        padding: Ints | str = (0,),
        dilation: Ints = (1,),
        groups: int = 1,
        eps: float = 1e-5,
    ) -> Value:
        bn = (bn_weight, bn_bias, running_mean, running_var)
        kernel, shift = folded(g, weight, bias, bn, eps)
        return self.activate(g, conv(g, input, kernel, shift, stride, padding, dilation, groups))

    @decomposition()
    def in_turn(
        self,
        g: Builder,
        input: Value,
        weight: Value,
        bias: Value | None,
        bn_weight: Value | None,
        bn_bias: Value | None,
        running_mean: Value,
        running_var: Value,
        stride: Ints = (1,),
        padding: Ints | str = (0,),
        dilation: Ints = (1,),
        groups: int = 1,
        eps: float = 1e-5,
    ) -> Value:
        bn = (bn_weight, bn_bias, running_mean, running_var)
        made = conv_bn(g, input, weight, bias, bn, eps, stride, padding, dilation, groups)
        return self.activate(g, made)

    def cases(self) -> Iterator[Case]:
        yield _known(2, 3, 8, bias=True)
        yield _known(3, 4, 8, 8, stride=[2], padding=[1], groups=1)
        yield _known(4, 4, 5, 6, affine=False, groups=2, eps=0.1, stride=[1, 2], padding=[1, 0])
        yield _known(2, 2, 5, 5, bias=True, padding="same", dilation=[2])
        yield _known(2, 2, 4, 4, 4, bias=True)
        yield _computed(2, 3, 8, bias=True, padding=[1])
        yield _computed(3, 4, 7, 7, stride=[2])


class ConvBnRelu(ConvBn):
    """Convolution, batch normalisation by running statistics, and ReLU."""

    name = "conv_bn_relu"
    matches = ("ConvBnRelu", "ConvBatchNormRelu", "ConvBnRelu1d", "ConvBnRelu2d", "ConvBnRelu3d")

    def activate(self, g: Builder, x: Value) -> Value:
        return g.relu(x)

    def activation(self, x: Any) -> Any:
        return x.relu()

    def cases(self) -> Iterator[Case]:
        yield _known(2, 3, 8, bias=True, padding=[1])
        yield _known(3, 4, 8, 8, stride=[2, 1], padding=[1])
        yield _computed(2, 3, 6, 6, bias=True)


class ConvBnSilu(ConvBn):
    """Convolution, batch normalisation by running statistics, and SiLU."""

    name = "conv_bn_silu"
    matches = ("ConvBnSilu", "ConvBnSwish", "ConvBatchNormSilu")

    def activate(self, g: Builder, x: Value) -> Value:
        return x * g.sigmoid(x)

    def activation(self, x: Any) -> Any:
        import torch

        return torch.nn.functional.silu(x)

    def terms(self, **arguments: Any) -> Any:
        return {"Sigmoid": evaluated(ConvBn().reference, arguments)}

    def cases(self) -> Iterator[Case]:
        yield _known(2, 3, 8, bias=True, padding=[1])
        yield _known(3, 4, 8, 8, stride=[2, 1], padding=[1])
        yield _computed(2, 3, 6, 6, bias=True)


class ConvRelu(Placeholder):
    """Convolution and ReLU."""

    matches = ("ConvRelu", "aten::cudnn_convolution_relu", "aten::miopen_convolution_relu")
    shapes = "input: _ _ ...; weight: O _ ...; bias: O"
    aliases = _GEOMETRY
    dtypes = ("float16", "float32")

    def reference(
        self,
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = (1,),
        padding: Any = (0,),
        dilation: Any = (1,),
        groups: int = 1,
    ) -> Any:
        return reference_conv(input, weight, bias, stride, padding, dilation, groups).relu()

    def decompose(
        self,
        g: Builder,
        input: Value,
        weight: Value,
        bias: Value | None = None,
        stride: Ints = (1,),
        padding: Ints | str = (0,),
        dilation: Ints = (1,),
        groups: int = 1,
    ) -> Value:
        return g.relu(conv(g, input, weight, bias, stride, padding, dilation, groups))

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3, 8), f32(4, 3, 3), f32(4), padding=[1])
        yield _weighted((4, 2, 3, 3), 2, 4, 8, 7, stride=[2, 1], padding=[1, 0], groups=2)
        yield _weighted((3, 2, 3, 3), 1, 2, 5, 6, padding="same", dilation=[1, 2])
        yield _weighted((2, 2, 2, 2, 2), 1, 2, 4, 4, 4, bias=np.ones(2, np.float32), stride=[2])
        # Without a batch, and without anything in it.
        yield _weighted((2, 3, 3, 3), 3, 6, 6)
        yield _weighted((4, 3, 3), 0, 3, 8)
        inf, nan = float("inf"), float("nan")
        endless = (1.0, 2.0, inf, 1.0, 2.0, -1.0, -inf, 3.0, 1.0, 0.5, nan, 1.0)
        kernel = np.array([[[1.0, 2.0]], [[-1.0, 0.5]]], np.float32)
        yield Case(f32(1, 1, 12, value=endless), weight=kernel, dtypes=("float32",))


def _weighted(kernel: tuple[int, ...], *shape: int, **rest: Any) -> Case:
    """A constant kernel, in float32."""
    weight = np.random.default_rng(1).standard_normal(kernel).astype(np.float32)
    return Case(f32(*shape), weight=weight, dtypes=("float32",), **rest)


def _sizes(out_channels: int, *shape: int, groups: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of an input of batch 2 and of a kernel of 3 (2 in three dimensions) for it."""
    kernel = (2 if len(shape) == 4 else 3,) * (len(shape) - 1)
    return (2, *shape), (out_channels, shape[0] // groups, *kernel)


def _known(
    out_channels: int, *shape: int, bias: bool = False, affine: bool = True, groups: int = 1, **rest: Any
) -> Case:
    """Weights and statistics as constants, in float32."""
    given, kernel = _sizes(out_channels, *shape, groups=groups)
    rng = np.random.default_rng(1)
    parameters: dict[str, Any] = {
        "weight": (rng.standard_normal(kernel) * 0.3).astype(np.float32),
        "bias": rng.standard_normal(out_channels).astype(np.float32) if bias else None,
        "bn_weight": rng.standard_normal(out_channels).astype(np.float32) if affine else None,
        "bn_bias": rng.standard_normal(out_channels).astype(np.float32) if affine else None,
        "running_mean": rng.standard_normal(out_channels).astype(np.float32),
        "running_var": (rng.random(out_channels) + 0.5).astype(np.float32),
    }
    return Case(f32(*given), groups=groups, dtypes=("float32",), **parameters, **rest)


def _computed(out_channels: int, *shape: int, bias: bool = False, groups: int = 1, **rest: Any) -> Case:
    """Weights and statistics as inputs."""
    given, kernel = _sizes(out_channels, *shape, groups=groups)
    each = f32(out_channels)
    # PyTorch has no gradient of the statistics.
    mean = f32(out_channels, value=tuple(i / 2 - 0.5 for i in range(out_channels)))
    variance = f32(out_channels, value=tuple(i / 2 + 0.25 for i in range(out_channels)))
    return Case(
        f32(*given), f32(*kernel), each if bias else None, each, each, mean, variance, groups=groups, **rest
    )
