"""Names that are not UTF-8, which protobuf gives as bytes: where nothing can read them, that is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewriter.errors import CannotVerifyError, ModelReadError
from rewriter.graph.interface import dims_of
from rewriter.graph.opsets import all_nodes
from rewriter.graph.scopes import first_output, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onnx import ModelProto


def check_operators(model: ModelProto) -> None:
    """ModelReadError where a domain, an operator, an attribute or a size has such a name: neither ONNX nor a runtime
    would know it."""
    for what, name in _names(model):
        if isinstance(name, bytes):
            raise ModelReadError(
                f"{what} is called '{text(name)}', which is not UTF-8",
                remedy="the file is damaged, or whoever wrote it must name it in UTF-8",
            )


def check_values(model: ModelProto) -> None:
    """CannotVerifyError where a value has such a name: no runtime takes it, though it can be rewritten."""
    for name in _values(model):
        if isinstance(name, bytes):
            raise CannotVerifyError(
                f"a value is called '{text(name)}', which is not UTF-8: no runtime reads it",
                remedy="export with names in UTF-8, or pass --no-verify",
            )


def _names(model: ModelProto) -> Iterator[tuple[str, str | bytes]]:
    for owner in (model, *model.functions):
        yield from (("a domain that is imported", item.domain) for item in owner.opset_import)
    for function in model.functions:
        yield from (("a function", name) for name in (function.domain, function.name, function.overload))
    for graph in (model.graph, *model.functions):
        for node in all_nodes(graph):
            yield f"the domain of '{first_output(node)}'", node.domain
            yield f"the operator of '{first_output(node)}'", node.op_type
            yield from ((f"an attribute of '{first_output(node)}'", item.name) for item in node.attribute)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        yield from ((f"a size of '{text(value.name)}'", dim.dim_param) for _, dim in dims_of(value.type))


def _values(model: ModelProto) -> Iterable[str | bytes]:
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        yield value.name
    for graph in (model.graph, *model.functions):
        for node in all_nodes(graph):
            yield from node.input
            yield from node.output
