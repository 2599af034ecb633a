"""Every spelling of a function that is named is reached, or there is a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from onnx import ModelProto
from torch import Tensor, nn

import rewriter
from rewriter.torch import export_placeholders, placeholder
from tests.torch import exports, library
from tests.torch.conftest import placeholders
from tests.torch.library import scripted, shifted
from tests.torch.test_operator import Net

Export = Callable[..., ModelProto]

X = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))


@placeholder("com.example::Shift")
def shift(x: Tensor, by: int) -> Tensor:
    return torch.roll(x, by, -1)


@placeholder("com.example::Roll")
def roll(input: Tensor, shifts: list[int], dims: list[int]) -> Tensor:  # noqa: A002
    return torch.roll(input, shifts, dims)


@placeholder("com.example::CumMax")
def cummax(x: Tensor, dim: int) -> Any:
    return torch.cummax(x, dim)


@placeholder("com.example::ScaledDotProductAttention")
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


_OP = torch.ops.onnx_rewrite_library.shifted


@pytest.mark.parametrize(
    ("named", "call"),
    [
        (library.shifted, lambda x: library.shifted(x, 1)),
        (library.shifted, lambda x: shifted(x, by=1)),
        (_OP, lambda x: library.shifted(x, 1)),
        (_OP.default, lambda x: shifted(x, by=1)),
    ],
)
def test_a_function_of_a_library(export: Export, named: Any, call: Callable[[Tensor], Tensor]) -> None:
    with warnings.catch_warnings(), export_placeholders({named: shift}):
        warnings.filterwarnings("error", message="export_placeholders")
        model = export(Net(lambda x: call(x) + 1), (X,))
    assert [node.op_type for node in placeholders(model)] == ["Shift"]
    assert library.shifted is shifted, "the library is as it was"


def test_a_method_of_a_class_and_a_scripted_function(export: Export) -> None:
    with export_placeholders({library.Shifter.shift: shift, scripted: shift}):
        model = export(Net(lambda x: library.Shifter.shift(x, 1) + scripted(x, 2)), (X,))
    assert [node.op_type for node in placeholders(model)] == ["Shift", "Shift"]


@pytest.mark.parametrize(
    "named", [torch.roll, torch.Tensor.roll, torch.ops.aten.roll, torch.ops.aten.roll.default]
)
def test_torch_s_names_of_one_function(export: Export, named: Any) -> None:
    def forward(x: Tensor) -> Tensor:
        return torch.roll(x, [1], [2]) + x.roll([1], [1]) + torch.ops.aten.roll(x, [1], [0])

    with export_placeholders({named: roll}):
        assert len(placeholders(export(Net(forward), (X,)))) == 3


def test_calls_inside_torch_s_own_functions(export: Export) -> None:
    """``nn.MultiheadAttention`` calls a Python function of torch, which calls the attention."""
    layer = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    net = Net(lambda x: layer(x, x, x, need_weights=False)[0], layer).requires_grad_(False)
    asked = F.has_torch_function
    with export_placeholders({F.scaled_dot_product_attention: attention}):
        model = export(net, (X,))
    assert [node.op_type for node in placeholders(model)] == ["ScaledDotProductAttention"]
    assert F.has_torch_function is asked, "torch is as it was"


@pytest.mark.parametrize("named", [False, True], ids=["decorated", "redirected"])
def test_branches(named: bool) -> None:
    """TorchDynamo looks at the branches of ``torch.cond`` before anyone else does."""

    def then(x: Tensor) -> Tensor:
        return torch.roll(x, [1], [0]) + x.cummax(1)[0] if named else roll(x, [1], [0]) + cummax(x, 1)[0]

    net = Net(lambda x: torch.cond(x.sum() > 0, then, lambda x: x * 2, (x,)))
    if named:
        with export_placeholders("roll", {torch.cummax: cummax}):
            model = exports.dynamo(net, (X,))
    else:
        model = exports.dynamo(net, (X,))
    (branch,) = (node for node in model.graph.node if node.op_type == "If")
    (body,) = (a.g for a in branch.attribute if a.name == "then_branch")
    assert [node.op_type for node in body.node if node.domain == "com.example"] == ["Roll", "CumMax"]


def test_a_branch_is_delivered_as_it_computes() -> None:
    net = Net(lambda x: torch.cond(x.sum() > 0, lambda x: roll(x, [1], [2]), lambda x: x * 2, (x,)))
    result = rewriter.rewrite(exports.dynamo(net, (X,)), against=lambda: net)
    assert result.manifest is not None
    assert result.manifest["verification"]["verdict"] == "verified"


@pytest.mark.parametrize(
    ("named", "forward", "said"),
    [
        ({torch.cummax: cummax}, lambda x: x + 1, "torch.cummax caught no call"),
        ("roll", lambda x: x + 1, "'roll' caught no call"),
        ({library.shifted: shift}, lambda x: scripted(x, 1), "tests.torch.library.shifted caught no call"),
        (
            {_OP.default: shift},
            lambda x: x + 1,
            "torch.ops.onnx_rewrite_library.shifted.default caught no call",
        ),
    ],
)
def test_a_name_that_catches_nothing(export: Export, named: Any, forward: Any, said: str) -> None:
    with pytest.warns(UserWarning, match=said), export_placeholders(named):
        export(Net(forward), (X,))


def test_no_warning_without_an_export() -> None:
    with warnings.catch_warnings(), export_placeholders("roll"):
        warnings.simplefilter("error")
        library.shifted(X, 1)
