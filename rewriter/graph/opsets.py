"""Opset imports: which are served, which decompositions need, and which are needed no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import defs

from rewriter.domains import MINIMUM_OPSET, normal_domain
from rewriter.errors import OpsetError
from rewriter.graph.scopes import graphs_of, has_bodies

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
    """Let a function import the default domain at the version of ``scope``, under the name that new nodes use."""
    if scope.opset is None:
        return
    for item in function.opset_import:
        if not normal_domain(item.domain):
            item.version = scope.opset
    if all(item.domain for item in function.opset_import):
        function.opset_import.add(domain="", version=scope.opset)


def version_for(function: FunctionProto, of_model: int | None) -> int | None:
    """The opset that a function is decomposed at; ``of_model`` is that of the model.

    Runtimes put the body in the place of a call and read it by the model's opset, whatever the function imports.  So
    that is the one, unless an operator of the body would then be read otherwise than it was written.
    """
    own = next((item.version for item in function.opset_import if not normal_domain(item.domain)), None)
    if own is None or of_model is None or own == of_model or of_model < MINIMUM_OPSET:
        return own if of_model is None else of_model
    return own if clashes(all_nodes(function), own, of_model) else of_model


def clashes(nodes: Iterable[NodeProto], here: int | None, there: int | None) -> list[str]:
    """The default domain's operators among ``nodes``, written at ``here``, that mean something else at ``there``."""
    if here is None or there is None or here == there:
        return []
    found: dict[str, None] = {}
    for node in nodes:
        name = node.op_type
        if not normal_domain(node.domain) and name not in found and not _reads_alike(node, here, there):
            found[name] = None
    return sorted(found)


#: Operators whose meaning changed where the schema does not show it, with the first opset of the new one.
_CHANGED = {
    "Softmax": 13,
    "LogSoftmax": 13,
    "Hardmax": 13,
    "RoiAlign": 16,
    "DFT": 20,
    "GridSample": 20,
    "GroupNormalization": 21,
}


def _reads_alike(node: NodeProto, here: int, there: int) -> bool:
    """Whether a node that is written at opset ``here`` is legal, and means the same, at ``there``."""
    name = node.op_type
    known = defs.has(name, here), defs.has(name, there)
    if not all(known):
        return not any(known)
    written, read = defs.get_schema(name, here), defs.get_schema(name, there)
    if written.since_version == read.since_version:
        return True
    changed = _CHANGED.get(name)
    if changed is not None and (here < changed) != (there < changed):
        return False
    if name == "Split" and len(node.input) == 1:
        return False  # from opset 18 on it needs the number of its parts
    given = {attribute.name for attribute in node.attribute}
    return (
        given <= read.attributes.keys()
        and read.min_input <= len(node.input) <= read.max_input
        and len(node.output) <= read.max_output
    )


def remove_imports(owner: ModelProto | FunctionProto, gone: set[str]) -> None:
    """Remove the imports of the domains ``gone``."""
    for index in reversed(range(len(owner.opset_import))):
        if owner.opset_import[index].domain in gone:
            del owner.opset_import[index]


def operators(model: ModelProto) -> set[tuple[str, str]]:
    """Domain and name, as they are spelt, of every node in the main graph, the functions and their bodies."""
    found: set[tuple[str, str]] = set()
    for owner in (model.graph, *model.functions):
        found |= _operators(owner)
    return found


def used_domains(model: ModelProto) -> set[str]:
    """Every domain that a node anywhere in the model uses, or a function is in, or imports."""
    found = operators(model)
    for training in model.training_info:
        for graph in (training.initialization, training.algorithm):
            found |= _operators(graph)
    domains = {domain for domain, _ in found}
    for function in model.functions:
        domains.add(function.domain)
        domains |= {item.domain for item in function.opset_import}
    return domains


def _operators(graph: GraphProto | FunctionProto) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    waiting: list[GraphProto | FunctionProto] = [graph]
    while waiting:
        nodes = waiting.pop().node
        found.update([(node.domain, node.op_type) for node in nodes])
        waiting += [body for node in nodes if has_bodies(node) for _, _, body in graphs_of(node)]
    return found


def all_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """The nodes of ``graph`` and of all bodies below it."""
    waiting: list[GraphProto | FunctionProto] = [graph]
    while waiting:
        for node in waiting.pop().node:
            yield node
            if has_bodies(node):
                waiting.extend(body for _, _, body in graphs_of(node))
