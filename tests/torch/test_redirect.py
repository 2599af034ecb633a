"""``export_placeholders``: models that know nothing of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from onnx import ModelProto
from torch import Tensor, nn

from rewriter.errors import UsageError
from rewriter.torch import export_placeholders, placeholder
from tests.torch import exports
from tests.torch.conftest import attributes, placeholders
from tests.torch.test_operator import Net

Export = Callable[..., ModelProto]

X = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))


@placeholder("com.example::CumMax")
def cummax(input: Tensor, dim: int) -> Any:  # noqa: A002  (the name that torch gives it)
    return torch.cummax(input, dim)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: torch.roll(x, 1, 2), {"shifts": [1], "dims": [2]}),
        (lambda x: torch.roll(x, (1, -2), (1, 2)), {"shifts": [1, -2], "dims": [1, 2]}),
        (lambda x: torch.roll(input=x, shifts=1, dims=-1), {"shifts": [1], "dims": [-1]}),
        (lambda x: torch.roll(x, 5), {"shifts": [5]}),
        (lambda x: x.roll(1, 2), {"shifts": [1], "dims": [2]}),
        (lambda x: x.roll(shifts=(1,), dims=(2,)), {"shifts": [1], "dims": [2]}),
        (lambda x: torch.ops.aten.roll(x, [1], [2]), {"shifts": [1], "dims": [2]}),
        (lambda x: torch.ops.aten.roll.default(x, [1], [2]), {"shifts": [1], "dims": [2]}),
    ],
)
def test_every_spelling_of_roll(
    export: Export, call: Callable[[Tensor], Tensor], expected: dict[str, Any]
) -> None:
    with export_placeholders("roll"):
        (node,) = placeholders(export(Net(lambda x: call(x) + 1), (X,)))
    assert (node.op_type, attributes(node)) == ("Roll", expected)


@pytest.mark.parametrize(
    "call",
    [
        F.silu,
        lambda x: F.silu(x * 1, inplace=True),
        nn.SiLU(),
        lambda x: nn.SiLU(inplace=True)(x * 1),
        torch.ops.aten.silu,
        torch.ops.aten.silu.default,
        lambda x: torch.ops.aten.silu_(x * 1),
        torch._C._nn.silu,
    ],
)
def test_every_spelling_of_silu(export: Export, call: Callable[[Tensor], Tensor]) -> None:
    with export_placeholders("silu"):
        model = export(Net(lambda x: call(x) + 1), (X,))
    assert [node.op_type for node in placeholders(model)] == ["Silu"]


def test_in_place_changes_what_is_read_later(export: Export) -> None:
    def forward(x: Tensor) -> Tensor:
        y = x * 2
        F.silu(y, inplace=True)
        return y + 1

    with export_placeholders("silu"):
        model = export(Net(forward), (X,))
    (node,) = placeholders(model)
    # The sum reads the placeholder's result, directly or through copies, and not the product.
    producers = {name: n for n in model.graph.node for name in n.output}
    seen, waiting = set(), [model.graph.output[0].name]
    while waiting:
        producer = producers.get(waiting.pop())
        if producer is not None and producer.output[0] not in seen:
            seen.add(producer.output[0])
            waiting += producer.input
    assert node.output[0] in seen


def test_several_at_once_and_operators_of_one_s_own(export: Export) -> None:
    def forward(x: Tensor) -> Tensor:
        values, indices = x.cummax(1)
        return F.silu(torch.roll(values, 1, 1)) + torch.cummax(x, 2)[0] + indices

    with export_placeholders("roll", "silu", {(torch.cummax, torch.Tensor.cummax): cummax}):
        model = export(Net(forward), (X,))
    nodes = placeholders(model)
    assert sorted(node.op_type for node in nodes) == ["CumMax", "CumMax", "Roll", "Silu"]
    assert sorted(attributes(node)["dim"] for node in nodes if node.op_type == "CumMax") == [1, 2]


def test_a_whole_function_of_one_s_own_library(export: Export) -> None:
    """An operator that no exporter translates: a registered one, as third parties' libraries have."""
    with export_placeholders({torch.ops.onnx_rewrite_tests.roll: exports.own_roll}):
        model = export(Net(lambda x: torch.ops.onnx_rewrite_tests.roll(x, [1], [2]) + 1), (X,))
    (node,) = placeholders(model)
    assert attributes(node) == {"shifts": [1], "dims": [2]}


def test_the_body_of_an_operator_is_not_redirected(export: Export) -> None:
    @placeholder("com.example::Outer")
    def outer(x: Tensor) -> Tensor:
        return torch.roll(x, 1, 1) * 2

    with export_placeholders("roll"):
        model = export(Net(lambda x: torch.roll(outer(x), 1, 2)), (X,))
    assert [node.op_type for node in placeholders(model)] == ["Outer", "Roll"]


def test_a_function_of_lists_of_tensors_is_refused(export: Export) -> None:
    """An operator has a fixed number of inputs; it must not silently stay what it was."""

    @placeholder("com.example::Join")
    def join(tensors: list[Tensor], dim: int = 0) -> Tensor:
        return torch.cat(tensors, dim)

    with export_placeholders({torch.cat: join}), pytest.raises(Exception, match="no ONNX attribute holds"):
        export(Net(lambda x: torch.cat([x, x], 1)), (X,))


def test_an_exported_program_needs_no_second_capture() -> None:
    """The program itself stays what it was, and only its ONNX file has placeholders."""
    net = Net(lambda x: F.silu(torch.roll(x, 1, 2)) + 1)
    program = torch.export.export(net, (X,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    with export_placeholders("roll", "silu"), exports.quiet():
        made = torch.onnx.export(program, dynamo=True, verbose=False)
    assert made is not None
    assert [n.op_type for n in placeholders(made.model_proto)] == ["Roll", "Silu"]
    assert torch.equal(program.module()(X), net(X))


def test_torch_export_inside_the_context_captures_the_model_itself() -> None:
    with export_placeholders("roll"):
        program = torch.export.export(Net(lambda x: torch.roll(x, 1, 2)), (X,))
    assert torch.equal(program.module()(X), torch.roll(X, 1, 2))


def test_eager_inside_the_context_is_untouched() -> None:
    with export_placeholders("roll", "silu"):
        x = X.clone().requires_grad_()
        y = torch.roll(F.silu(x), 1, 2)
        assert torch.equal(y, torch.roll(F.silu(X), 1, 2))
        y.sum().backward()
    assert x.grad is not None


def test_nothing_is_left_after_an_exception(export: Export) -> None:
    def fails(x: Tensor) -> Tensor:
        torch.roll(x, 1, 2)
        raise ArithmeticError("no")

    with pytest.raises(Exception, match="no"), export_placeholders("roll"):
        export(Net(fails), (X,))
    assert placeholders(export(Net(lambda x: torch.roll(x, 1, 2)), (X,))) == []


def test_other_threads_export_as_ever() -> None:
    """One at a time, since the exporters themselves are not made for two: but from a thread outside of the context."""
    made: list[ModelProto] = []
    net = Net(lambda x: torch.roll(x, 1, 2))
    with export_placeholders("roll"):
        thread = threading.Thread(target=lambda: made.append(exports.legacy(net, (X,))))
        thread.start()
        thread.join()
        assert len(placeholders(exports.legacy(net, (X,)))) == 1
    assert placeholders(made[0]) == []


def test_contexts_nest() -> None:
    net = Net(lambda x: F.silu(torch.roll(x, 1, 2)))
    with export_placeholders("roll"), export_placeholders("silu"):
        assert len(placeholders(exports.legacy(net, (X,)))) == 2


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="'rol' is not built in"), export_placeholders("rol"):
        pass
    with pytest.raises(UsageError, match="no operator is named"), export_placeholders():
        pass
    with pytest.raises(UsageError, match="is not an operator"), export_placeholders({torch.roll: torch.roll}):  # type: ignore[dict-item]
        pass


def test_a_call_that_the_operator_does_not_take_is_refused() -> None:
    with (
        export_placeholders({torch.cummax: cummax}),
        pytest.raises(
            UsageError, match=r"cummax is called with arguments that com\.example::CumMax does not take"
        ),
    ):
        exports.legacy(Net(lambda x: torch.cummax(x, 1, out=(X.clone(), X.long()))[0]), (X,))
