"""Placeholders that differ in names alone share an expansion: passes must not choose by names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from rewriter.decompose import decompose
from rewriter.errors import RewriteError, Where
from rewriter.graph.templates import likeness
from rewriter.placeholder import Builder, Placeholder, Value, expand, infer_types
from rewriter.placeholder.discovery import available
from rewriter.placeholder.registry import Match, Selection
from rewriter.storage import ModelFile
from rewriter.testing.variants import site_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnx import ModelProto

    from rewriter.placeholder import Site
    from rewriter.placeholder.case import Case

_OPSET = 17


def _renamed(site: Site) -> tuple[Site, dict[str, str]]:
    """``site`` elsewhere, its values called otherwise and in another alphabetical order, and what they were called."""
    back = {f"z{99 - i}": name for i, name in enumerate(dict.fromkeys(site.node.input)) if name}
    there = {name: new for new, name in back.items()}
    node = NodeProto()
    node.CopyFrom(site.node)
    node.name = "another"
    del node.input[:], node.output[:]
    node.input.extend(there.get(name, name) for name in site.node.input)
    node.output.extend(f"{name}/x" if name else name for name in site.node.output)
    constants = {there[name]: site.constants[name] for name in there if name in site.constants}
    return replace(site, node=node, constants=constants, where=Where("elsewhere", "another")), back


def _made(placeholder: Placeholder, site: Site, back: Mapping[str, str]) -> Any:
    """The expansion and the inferred types, inputs called as ``back`` says; or the code of the error."""
    try:
        expansion = expand(placeholder, site)
        inferred = infer_types(placeholder, site)
    except RewriteError as error:
        return error.code
    for node in expansion.nodes:
        _rename(node, back)
    return (
        [node.SerializeToString(deterministic=True) for node in expansion.nodes],
        [tensor.SerializeToString(deterministic=True) for tensor in expansion.initializers],
        [back.get(name, name) for name in expansion.outputs],
        {back.get(name, name): known for name, known in expansion.types.items()},
        (expansion.output_types, inferred, expansion.domains),
        (expansion.decomposition, expansion.conditions),
    )


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    node.input[:] = [names.get(name, name) for name in node.input]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                _rename(inner, names)


EVERY = pytest.mark.parametrize("placeholder", available(), ids=lambda placeholder: placeholder.pass_name())


@EVERY
def test_no_pass_chooses_by_names(placeholder: Placeholder) -> None:
    """On the first case and the last one; the test below takes all."""
    cases = list(placeholder.cases())
    for case in dict.fromkeys((cases[0], cases[-1])):
        _check(placeholder, case, symbolic=case.symbolic)


@EVERY
@pytest.mark.full
def test_no_pass_chooses_by_names_in_any_case(placeholder: Placeholder) -> None:
    for case in placeholder.cases():
        for symbolic in (False, True) if case.symbolic else (False,):
            _check(placeholder, case, symbolic=symbolic)


def _check(placeholder: Placeholder, case: Case, *, symbolic: bool) -> None:
    low, high = case.opsets or (_OPSET, _OPSET)
    site = site_of(
        placeholder,
        case,
        dtype=case.dtypes[0] if case.dtypes else placeholder.dtypes[0],
        opset=min(max(_OPSET, low), high),
        symbolic=symbolic,
    )
    other, back = _renamed(site)
    assert _made(placeholder, site, {}) == _made(placeholder, other, back), (case, symbolic)
    match = Match(placeholder, placeholder.matches[0])
    assert likeness(match, site) == likeness(match, other)


class Scaled(Placeholder):
    """x times the sum of a constant, plus an attribute; counts how often it is asked."""

    matches = ("com.example::Scaled",)
    asked = 0

    def reference(self, x: Any, by: Any, plus: float = 0.0) -> Any:
        return x * by.sum() + plus

    def decompose(self, g: Builder, x: Value, by: Value, plus: float = 0.0) -> Any:
        type(self).asked += 1
        assert by.constant is not None
        return x * float(by.constant.sum()) + plus


def _scaled(change: Callable[[NodeProto, list[TensorProto]], None], size: int = 3) -> ModelProto:
    """Two of them, the second one changed."""
    nodes = [
        helper.make_node("Scaled", ["x", f"c{i}"], [f"y{i}"], name=f"n{i}", domain="com.example")
        for i in range(2)
    ]
    constants = [numpy_helper.from_array(np.ones(size, np.float32), f"c{i}") for i in range(2)]
    change(nodes[1], constants)
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("h", TensorProto.FLOAT16, [2]),
        ],
        [helper.make_empty_tensor_value_info(f"y{i}") for i in range(2)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _nothing(node: NodeProto, constants: list[TensorProto]) -> None:
    pass


def _value(node: NodeProto, constants: list[TensorProto]) -> None:
    constants[1].CopyFrom(numpy_helper.from_array(np.full(3, 5, np.float32), "c1"))


def _shape(node: NodeProto, constants: list[TensorProto]) -> None:
    constants[1].dims.insert(0, 1)


def _attribute(node: NodeProto, constants: list[TensorProto]) -> None:
    node.attribute.append(helper.make_attribute("plus", 2.0))


def _dtype(node: NodeProto, constants: list[TensorProto]) -> None:
    node.input[0] = "h"


@pytest.mark.parametrize(
    ("change", "size", "asked"),
    [
        (_nothing, 3, 1),
        (_value, 3, 2),
        (_shape, 3, 2),
        (_attribute, 3, 2),
        (_dtype, 3, 2),
        (_nothing, 1000, 2),  # large values are not compared
    ],
)
def test_placeholders_share_what_is_equal_and_nothing_else(change: Any, size: int, asked: int) -> None:
    Scaled.asked = 0
    model = _scaled(change, size)
    with ModelFile.from_proto(model) as file:
        decompose(file, Selection.load([Scaled]))
        finished = file.hydrate(file.model)
    assert Scaled.asked == 2 * asked  # inferred, then expanded
    x = np.asarray([1, -2], np.float32)
    results = ReferenceEvaluator(finished).run(None, {"x": x, "h": x.astype(np.float16)})
    for number, result in enumerate(results):
        node, constant = model.graph.node[number], numpy_helper.to_array(model.graph.initializer[number])
        plus = node.attribute[0].f if node.attribute else 0.0
        assert result.tolist() == (x * constant.sum() + plus).tolist()
