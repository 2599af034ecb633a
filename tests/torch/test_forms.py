"""Every form in which the exporters write placeholders, made by the exporters: matched, bound, rewritten, proved."""

from __future__ import annotations

import pytest

import rewriter
from tests.torch import exports
from tests.torch.checks import operator_domains, worst_error


@pytest.fixture(scope="module")
def made() -> dict[str, exports.Exported]:
    return {}


def _made(made: dict[str, exports.Exported], form: str) -> exports.Exported:
    if form not in made:
        made[form] = exports.FORMS[form]()
    return made[form]


@pytest.mark.parametrize("form", exports.FORMS)
def test_the_exporter_writes_the_form(made: dict[str, exports.Exported], form: str) -> None:
    exported = _made(made, form)
    nodes = [*exported.model.graph.node, *(n for f in exported.model.functions for n in f.node)]
    names = [f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in nodes]
    assert [name for name in names if name in exported.operators] == list(exported.operators)


@pytest.mark.parametrize("form", exports.FORMS)
def test_it_is_rewritten_and_proved(made: dict[str, exports.Exported], form: str) -> None:
    exported = _made(made, form)
    report = rewriter.rewrite(exported.model, passes=list(exported.passes))
    assert report.outcome == "verified"
    assert [item.operator for item in report.replaced] == list(exported.operators)
    assert report.model is not None
    assert operator_domains(report.model) == {""}
    assert worst_error(report.model, exported.module, [exported.inputs(n) for n in (1, 2, 5)]) <= 1e-6


@pytest.mark.parametrize(
    "form",
    [
        "fallthrough_aten",
        "aten_fallback",
        "registered_over_aten",
        "placeholder-dynamo-18",
        "registered_symbolic-13",
    ],
)
def test_the_usual_domains_need_no_pass_named(made: dict[str, exports.Exported], form: str) -> None:
    report = rewriter.rewrite(_made(made, form).model, simplify=False, verify=False)
    assert [item.by for item in report.replaced] == list(_made(made, form).passes)


def test_a_function_without_symbolic_says_so() -> None:
    """``prim::PythonOp`` names a module and no operator: there is nothing to go by."""
    model = exports.python_op().model
    with pytest.raises(rewriter.errors.LeftoverPlaceholderError, match="symbolic"):
        rewriter.rewrite(model)


def test_modules_exported_as_functions_with_a_standard_body_stay() -> None:
    """``export_modules_as_functions`` of a module that the exporter knows: a function, no placeholder."""
    from torch import nn

    net = exports.Between(nn.SiLU())
    model = exports.legacy(net, exports.batches(3), opset=15, export_modules_as_functions={nn.SiLU})
    assert [n.op_type for n in model.graph.node if n.domain] == ["SiLU"]
    report = rewriter.rewrite(model, simplify=False)
    assert report.replaced == []
    assert report.model is None or worst_error(report.model, net, [exports.batches(2)]) <= 1e-6
