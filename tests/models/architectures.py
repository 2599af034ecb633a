"""What the tests of whole architectures have in common: a model, the placeholders it leaves with, and its inputs."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import Tensor, nn

from tests.torch import exports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from onnx import ModelProto


@dataclass(frozen=True)
class Architecture:
    #: The model as its authors wrote it, with random weights.
    module: Callable[[], nn.Module]
    #: Its inputs at a size: the batch, unless `dynamic` says what else.
    inputs: Callable[[int], tuple[Tensor, ...]]
    #: Within this context an export of the model writes placeholders.
    placeholders: Callable[[], AbstractContextManager[Any]]
    #: The placeholders in the file, and how often.
    operators: Mapping[str, int]
    #: The size that the export is made at, and others at which the result is compared with PyTorch's.
    example: int = 2
    sizes: tuple[int, ...] = (1, 3)
    #: Dynamic axes of each input, in order.
    dynamic: tuple[Mapping[int, str], ...] = ({0: "batch"},)
    passes: str | tuple[str, ...] = "auto"
    #: max|a − b| / max|b|
    tolerance: float = 1e-5
    #: For torch.onnx.export(dynamo=False).
    legacy: Mapping[str, Any] = field(default_factory=dict)

    def export(self, module: nn.Module, opset: int) -> ModelProto:
        """By the legacy exporter below opset 18, else by the newer one."""
        names = [f"x{i}" for i in range(len(self.dynamic))]
        with self.placeholders():
            if opset >= 18:
                return exports.dynamo(
                    module,
                    self.inputs(self.example),
                    opset=opset,
                    input_names=names,
                    dynamic_shapes=tuple(dict(axes) for axes in self.dynamic),
                )
            axes = {name: dict(axes) for name, axes in zip(names, self.dynamic, strict=True)}
            return exports.legacy(
                module,
                self.inputs(self.example),
                opset=opset,
                input_names=names,
                dynamic_axes=axes,
                **self.legacy,
            )


def jittered(module: nn.Module) -> nn.Module:
    """`module` with N(0, 0.3²) added to its parameters: freshly made models give the same score to everything."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return module.eval()


def noise(size: int, *shape: int) -> Tensor:
    return torch.randn(size, *shape, generator=torch.Generator().manual_seed(size))


@contextmanager
def replaced(*methods: tuple[Any, str, Callable[..., Any]]) -> Iterator[None]:
    """(class or module, name, function) in the place of what they name."""
    with ExitStack() as stack:
        for owner, name, function in methods:
            stack.enter_context(mock.patch.object(owner, name, function))
        yield
