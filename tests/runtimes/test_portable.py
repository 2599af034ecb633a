"""``portable``: only decompositions that are right on every tested runtime may be chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from onnx import TensorProto, defs, helper

import rewriter
from rewriter.errors import DecompositionError, UnsupportedParameter
from rewriter.placeholder import Case, Placeholder, Value, available, decomposition, expand, f32
from rewriter.testing.variants import site_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import ModelProto

    from rewriter.placeholder import Builder


class Doubled(Placeholder):
    """Twice x; the form that is preferred is not portable, and the next one only from opset 14 on."""

    matches = ("Doubled",)

    def reference(self, x: Any) -> Any:
        return x + x

    @decomposition(portable=False, when=lambda x: True)
    def preferred(self, g: Builder, x: Value) -> Value:
        return x * 2

    @decomposition(opset=14)
    def plain(self, g: Builder, x: Value) -> Value:
        return x + x

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3))


def model(opset: int) -> ModelProto:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    node = helper.make_node("Doubled", ["x"], ["y"], domain="com.example")
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.example", 1)]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:])
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def written(opset: int, *, portable: bool) -> list[str]:
    report = rewriter.rewrite(model(opset), passes=[Doubled], portable=portable, simplify=False)
    assert report.outcome == "verified"
    assert report.model is not None
    return [node.op_type for node in report.model.graph.node]


def test_the_preferred_form_is_left_out() -> None:
    assert written(15, portable=False) == ["Mul"]
    assert written(15, portable=True) == ["Add"]


def test_where_nothing_is_portable_the_pass_says_so() -> None:
    assert written(13, portable=False) == ["Mul"]
    with pytest.raises(DecompositionError):
        rewriter.rewrite(model(13), passes=[Doubled], portable=True, simplify=False)


#: Passes that have a form for symbolic or large sizes, but no portable one, and why.
_SCAN = "a sequence of unknown length, or a long one, needs Scan, which tract refuses or hangs on"
ONLY_STATIC = dict.fromkeys(("selective_scan", "cummax", "cummin", "cumprod", "logcumsumexp"), _SCAN)


@pytest.mark.parametrize("placeholder", available(), ids=lambda p: p.pass_name())
def test_every_case_has_a_portable_form(placeholder: Placeholder) -> None:
    """At the opset of portable models and at the newest, in static and symbolic sizes, wherever there is any form."""
    portable = {form.name for form in placeholder.decompositions if form.portable}
    chosen = without = 0
    for case in placeholder.cases():
        low, high = case.opsets or (13, defs.onnx_opset_version())
        dtype = case.dtypes[0] if case.dtypes else placeholder.dtypes[0]
        for opset in {min(max(13, low), high), high}:
            for symbolic in (False, True) if case.symbolic else (False,):
                site = site_of(placeholder, case, dtype=dtype, opset=opset, symbolic=symbolic)
                try:
                    made = expand(placeholder, site, portable=True)
                except UnsupportedParameter:
                    if placeholder.pass_name() in ONLY_STATIC:
                        expand(placeholder, site)
                        without += 1
                        continue
                    with pytest.raises(UnsupportedParameter):
                        expand(placeholder, site)
                    continue
                assert made.decomposition in portable
                chosen += 1
    assert chosen
    assert bool(without) == (placeholder.pass_name() in ONLY_STATIC), "the list is not exact"
