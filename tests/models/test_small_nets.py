"""The nets that people write to try a custom operator: trained a step, exported, rewritten, proved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import rewriter
from rewriter.torch import placeholder
from tests.torch import exports
from tests.torch.checks import interface, operator_domains, worst_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx import ModelProto


@placeholder("com.example::Roll")
def roll(x: Tensor, shifts: int, dims: int) -> Tensor:
    return torch.roll(x, shifts, dims)


@placeholder("com.example::Swish")
def swish(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


@swish.backward
def swish_backward(ctx: Any, grad: Tensor) -> Tensor:
    gate = torch.sigmoid(ctx.inputs.x)
    return grad * gate * (1 + ctx.inputs.x * (1 - gate))


class LinearRollLinear(nn.Module):
    """Linear layers around a shift by 2 along dim 1."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(10, 10), nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(roll(self.before(x), 2, 1))


class LinearSwish(nn.Module):
    """A linear layer into an activation with a backward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        return swish(self.linear(x))


class SquarePlusOne(nn.Module):
    """x² + 1, an operator of the dispatcher's, behind a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mylib.square_plus_one(self.linear(x))


@dataclass(frozen=True)
class Small:
    net: Callable[[], nn.Module]
    #: The same computation without any operator of one's own, on the same parameters.
    plain: Callable[[Any, Tensor], Tensor]
    passes: str


NETS = {
    "roll": Small(LinearRollLinear, lambda net, x: net.after(torch.roll(net.before(x), 2, 1)), "roll"),
    "swish": Small(LinearSwish, lambda net, x: nn.functional.silu(net.linear(x)), "swish"),
    "square_plus_one": Small(SquarePlusOne, lambda net, x: net.linear(x) ** 2 + 1, "square_plus_one"),
}


def _batch(size: int) -> tuple[Tensor]:
    return (torch.randn(size, 10, generator=torch.Generator().manual_seed(size)),)


def _made(name: str) -> nn.Module:
    torch.manual_seed(0)
    return NETS[name].net()


def _export(net: nn.Module, use_dynamo: bool, opset: int) -> ModelProto:
    names = {"input_names": ["x"], "output_names": ["y"]}
    if not isinstance(net, SquarePlusOne):
        if use_dynamo:
            return exports.dynamo(net, _batch(4), opset=opset, **names)
        return exports.legacy(
            net, _batch(4), opset=opset, dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}}, **names
        )
    if not use_dynamo:

        def symbolic(g: Any, x: Any) -> Any:
            return g.op("mylib::SquarePlusOne", x).setType(x.type())

        with exports.symbolic_registered("mylib::square_plus_one", symbolic, opset):
            return exports.legacy(
                net, _batch(4), opset=opset, dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}}, **names
            )
    with rewriter.torch.export_placeholders({torch.ops.mylib.square_plus_one: _square_plus_one}):
        return exports.dynamo(net, _batch(4), opset=opset, **names)


@placeholder("mylib::SquarePlusOne")
def _square_plus_one(x: Tensor) -> Tensor:
    return x * x + 1


@pytest.mark.parametrize("name", NETS)
def test_gradients_are_right(name: str) -> None:
    net = _made(name).double()
    x = _batch(3)[0].double().requires_grad_()
    assert torch.autograd.gradcheck(net, (x,))
    parameters = list(net.parameters())
    found = torch.autograd.grad(net(x).square().sum(), parameters)
    expected = torch.autograd.grad(NETS[name].plain(net, x).square().sum(), parameters)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("use_dynamo", "opset"), [(False, 11), (False, 13), (True, 18), (True, 21)], ids=["11", "13", "18", "21"]
)
@pytest.mark.parametrize("name", NETS)
def test_trained_a_step_and_delivered(name: str, use_dynamo: bool, opset: int) -> None:
    net = _made(name)
    (x,) = _batch(16)
    target = torch.randn(16, 5, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        loss = nn.functional.mse_loss(net(x), target)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[1] < losses[0]

    before = _export(net, use_dynamo, opset)
    assert len([node for node in before.graph.node if node.domain]) == 1
    report = rewriter.rewrite(before, passes=[NETS[name].passes])
    assert report.outcome == "verified"
    assert report.model is not None
    assert operator_domains(report.model) == {""}
    assert report.model.opset_import[0].version == opset
    assert interface(report.model) == [("input", "x", 1, ["batch", 10]), ("output", "y", 1, ["batch", 5])]
    assert worst_error(report.model, net, [_batch(n) for n in (1, 4, 7)]) <= 1e-5
