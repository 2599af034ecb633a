"""Opset imports: which are served, which decompositions need, and which are needed no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import defs

from rewriter.domains import MINIMUM_OPSET, normal_domain
from rewriter.errors import OpsetError
from rewriter.graph.scopes import graphs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

    from rewriter.graph.scopes import Scope
    from rewriter.graph.survey import Root, Survey


def check_opsets(found: Survey) -> None:
    """OpsetError where the model's opset is unknown, or missing or too old where something must be replaced.

    A model with nothing to replace may be of any opset that onnx knows.
    """
    newest = defs.onnx_opset_version()
    for root in found.roots:
        version = root.scope.opset
        if version is not None and not 1 <= version <= newest:
            raise OpsetError(
                f"opset {version} is unknown: the installed onnx knows opsets up to {newest}",
                where=None if root is found.main else root.scope.path,
                remedy="upgrade onnx, or export at an older opset",
            )
    for root in found.live:
        if any(item.match is not None or item.is_leftover for item in root.found):
            require_opset(root, found)


def require_opset(root: Root, found: Survey) -> None:
    """OpsetError unless decompositions can be written in the scope; what is only removed needs no opset."""
    if all(item.dead for item in root.placeholders):
        return
    version = root.scope.opset
    where = None if root is found.main else root.scope.path
    if version is None:
        raise OpsetError(
            "no version of the default domain (ai.onnx) is imported, so nothing can be decomposed into it",
            where=where,
            remedy="export the model again, or add the import",
        )
    if version < MINIMUM_OPSET:
        raise OpsetError(
            f"opset {version} is too old: placeholders are decomposed from opset {MINIMUM_OPSET} on",
            where=where,
            remedy=f"export at opset {MINIMUM_OPSET} or later",
        )


def import_default(function: FunctionProto, scope: Scope) -> None:
    """Let a function whose body did without the default domain import it, at the version that ``scope`` gives."""
    if scope.opset is not None and all(normal_domain(item.domain) for item in function.opset_import):
        function.opset_import.add(domain="", version=scope.opset)


def told_apart(nodes: Iterable[NodeProto], here: int | None, there: int | None) -> set[str]:
    """The default domain's operators among ``nodes`` that changed between the opsets ``here`` and ``there``."""
    if here is None or there is None or here == there:
        return set()
    names = {node.op_type for node in nodes if not normal_domain(node.domain)}
    return {name for name in names if _since(name, here) != _since(name, there)}


def _since(op_type: str, version: int) -> int | None:
    """The version that brought the form of the operator that opset ``version`` has."""
    return int(defs.get_schema(op_type, version).since_version) if defs.has(op_type, version) else None


def remove_imports(owner: ModelProto | FunctionProto, gone: set[str]) -> None:
    """Remove the imports of the domains ``gone``."""
    for index in reversed(range(len(owner.opset_import))):
        if owner.opset_import[index].domain in gone:
            del owner.opset_import[index]


def used_domains(model: ModelProto) -> set[str]:
    """Every domain that a node anywhere in the model uses, or a function is in, or imports."""
    found: set[str] = set()
    for function in model.functions:
        found.add(function.domain)
        found |= {item.domain for item in function.opset_import}
        found |= {node.domain for node in all_nodes(function)}
    found |= {node.domain for node in all_nodes(model.graph)}
    for training in model.training_info:
        for graph in (training.initialization, training.algorithm):
            found |= {node.domain for node in all_nodes(graph)}
    return found


def all_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """The nodes of ``graph`` and of all bodies below it."""
    waiting: list[GraphProto | FunctionProto] = [graph]
    while waiting:
        for node in waiting.pop().node:
            yield node
            waiting.extend(body for _, _, body in graphs_of(node))
