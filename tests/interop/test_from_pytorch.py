"""From PyTorch to a verified file: the symbolic that torch's own exporter runs is the body of the pass."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch
from torch.onnx import OperatorExportTypes, symbolic_helper

from rewriter import Case, f32, from_symbolic
from tests.interop.conftest import ops, rewrite, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from rewriter import Placeholder

pytestmark = pytest.mark.filterwarnings("ignore")


@torch.library.custom_op("interop_tests::square_plus_one", mutates_args=())
def square_plus_one(x: torch.Tensor) -> torch.Tensor:
    return x * x + 1


@square_plus_one.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def square_symbolic(g: Any, x: Any) -> Any:
    two = g.op("Constant", value_t=torch.tensor(2.0))
    return g.op("Add", g.op("Pow", x, two), g.op("Constant", value_t=torch.tensor(1.0)))


@torch.library.custom_op("interop_tests::shift", mutates_args=())
def shift(x: torch.Tensor, by: int, dim: int, scale: float) -> torch.Tensor:
    return torch.roll(x, by, dim) * scale


@shift.register_fake
def _(x: torch.Tensor, by: int, dim: int, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


def two_slices(g: Any, x: Any, by: int, dim: int, scale: Any) -> Any:
    def ints(value: int) -> Any:
        return g.op("Constant", value_t=torch.tensor([value]))

    tail = g.op("Slice", x, ints(-by), ints(2**31 - 1), ints(dim))
    head = g.op("Slice", x, ints(0), ints(-by), ints(dim))
    return g.op("Mul", g.op("Concat", tail, head, axis_i=dim), scale)


@symbolic_helper.parse_args("v", "i", "i", "v")
def shift_parsed(g: Any, x: Any, by: int, dim: int, scale: Any) -> Any:
    return two_slices(g, x, by, dim, scale)


def shift_unwrapped(g: Any, x: Any, by: Any, dim: Any, scale: Any) -> Any:
    by = symbolic_helper._get_const(by, "i", "by")
    return two_slices(g, x, by, symbolic_helper._maybe_get_const(dim, "i"), scale)


PASSES: dict[str, tuple[Callable[..., Any], Placeholder]] = {
    "square": (
        square_symbolic,
        from_symbolic(
            "interop_tests::square_plus_one",
            square_symbolic,
            reference=lambda x: x * x + 1,
            cases=[Case(f32(2, 4))],
        ),
    ),
    **{
        name: (
            body,
            from_symbolic(
                "interop_tests::shift",
                body,
                reference=lambda x, by, dim, scale: torch.roll(x, by, dim) * scale,
                cases=[Case(f32(2, 4), by=1, dim=1, scale=0.5)],
            ),
        )
        for name, body in {"parsed": shift_parsed, "unwrapped": shift_unwrapped}.items()
    },
}


class Net(torch.nn.Module):
    def __init__(self, square: bool) -> None:
        super().__init__()
        self.square = square
        self.first, self.last = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        y = square_plus_one(y) if self.square else shift(y, 1, 1, 0.5)
        return self.last(y)


def export(net: torch.nn.Module, opset: int, **options: Any) -> onnx.ModelProto:
    made = io.BytesIO()
    torch.onnx.export(
        net,
        (torch.ones(2, 3),),
        made,
        opset_version=opset,
        dynamo=False,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
        **options,
    )
    return onnx.load_from_string(made.getvalue())


def net_with(square: bool) -> Net:
    torch.manual_seed(0)
    return Net(square).eval()


@pytest.fixture(scope="module")
def untranslated() -> dict[tuple[bool, int], onnx.ModelProto]:
    """What the exporter leaves as it is for want of a symbolic.  All at once: it cannot do so again for an operator
    whose symbolic was registered and taken away."""
    fallthrough = OperatorExportTypes.ONNX_FALLTHROUGH
    return {
        (square, opset): export(net_with(square), opset, operator_export_type=fallthrough)
        for square in (False, True)
        for opset in (11, 13)
    }


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("name", list(PASSES))
def test_the_same_nodes_as_torchs_own_exporter_makes(
    name: str, opset: int, untranslated: dict[tuple[bool, int], onnx.ModelProto]
) -> None:
    body, made = PASSES[name]
    net = net_with(name == "square")
    operator = made.matches[0]
    left = untranslated[name == "square", opset]
    assert any(node.domain == "interop_tests" for node in left.graph.node)
    torch.onnx.register_custom_op_symbolic(operator, body, opset)
    try:
        translated = export(net, opset)
    finally:
        torch.onnx.unregister_custom_op_symbolic(operator, opset)
    rewritten = rewrite(left, made)
    plain = [op for op in ops(rewritten) if op != "Constant"]
    assert plain == [op for op in ops(translated) if op not in ("Constant", "Identity")]
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    expected = net(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(run(rewritten, x=x)[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run(translated, x=x)[0], expected, rtol=1e-5, atol=1e-6)


class Swish(torch.autograd.Function):
    """An operator with a placeholder for its export, and the decomposition that its pass is."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, beta: float) -> torch.Tensor:
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def symbolic(g: Any, x: Any, beta: float) -> Any:
        return g.op("com.example::Swish", x, beta_f=beta)


def swish_body(g: Any, x: Any, beta: float) -> Any:
    scale = g.op("Constant", value_t=torch.tensor(beta, dtype=x.type().dtype()))
    return g.op("Mul", x, g.op("Sigmoid", g.op("Mul", x, scale)))


def test_an_autograd_function_that_exports_a_placeholder() -> None:
    class WithSwish(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Swish.apply(self.linear(x), 1.5)

    net = WithSwish().eval()
    made = from_symbolic(
        "com.example::Swish",
        swish_body,
        reference=lambda x, beta: x * torch.sigmoid(beta * x),
        cases=[Case(f32(2, 4), beta=1.5)],
    )
    rewritten = rewrite(export(net, 13), made, simplify=True)
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    np.testing.assert_allclose(
        run(rewritten, x=x)[0], net(torch.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-6
    )
