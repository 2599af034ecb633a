"""Values whose names are not UTF-8, which protobuf gives as bytes: where nothing can read them, that is said.

Other names that are not UTF-8 are refused by :mod:`rewriter.graph.validate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewriter.errors import CannotVerifyError
from rewriter.graph.opsets import all_nodes
from rewriter.graph.scopes import text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnx import ModelProto


def check_values(model: ModelProto) -> None:
    """CannotVerifyError where a value has such a name: no runtime takes it, though it can be rewritten."""
    for name in _values(model):
        if isinstance(name, bytes):
            raise CannotVerifyError(
                f"a value is called '{text(name)}', which is not UTF-8: no runtime reads it",
                remedy="export with names in UTF-8, or pass --no-verify",
            )


def _values(model: ModelProto) -> Iterable[str | bytes]:
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        yield value.name
    for graph in (model.graph, *model.functions):
        for node in all_nodes(graph):
            yield from node.input
            yield from node.output
